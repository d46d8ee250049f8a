"""A commit's place: where a commit stands among those of its source, one value of its source's kind (decision 37).

Places of one kind have an order; comparing two kinds raises TypeError. Each has a text, and one spelling in JSON, which
frontiers, manifests and answers hold: its kind, and its text. A new kind of source is a new class here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from headrace.connectors.lsn import lsn_number, lsn_text


@dataclass(frozen=True, order=True, slots=True)
class CommitPlace:
    """`order`: its number among the places of its source, -1 before the first commit."""

    order: int
    kind: ClassVar[str] = ""

    @property
    def text(self) -> str | None:
        """As its source spells it; None before the first commit."""
        return str(self.order) if self.order >= 0 else None

    def json(self) -> dict[str, str | None]:
        """Its kind and text. The inverse of `place_of`.

        >>> Lsn(36496600).json(), Version(17).json()
        ({'lsn': '0/22CE4D8'}, {'version': '17'})
        """
        return {self.kind: self.text}

    def next(self) -> Self:
        """The least place behind this one."""
        return replace(self, order=self.order + 1)

    @classmethod
    def parse(cls, text: str | int | None) -> Self:
        """The place that a text of this kind spells. Raises ValueError."""
        return cls(-1 if text is None else int(text))


class Lsn(CommitPlace):
    """A place in Postgres's write-ahead log."""

    __slots__ = ()
    kind = "lsn"

    @property
    def text(self) -> str | None:
        """As pg_lsn spells it."""
        return lsn_text(self.order)

    @classmethod
    def parse(cls, text: str | int | None) -> Self:
        """The place that a text of pg_lsn spells; a number as Kafka frontiers had it before. Raises ValueError."""
        return cls(text if isinstance(text, int) else lsn_number(text))


UNKNOWN = Lsn(-1)
"""Where nothing says how far a Postgres was."""


class Version(CommitPlace):
    """The number of a version that a Spark publisher wrote."""

    __slots__ = ()
    kind = "version"


KINDS: Mapping[str, type[CommitPlace]] = {c.kind: c for c in (Lsn, Version)}
"""The classes by the names that JSON has."""


def place_of(body: Mapping[str, Any]) -> CommitPlace:
    """The place that JSON holds, among other fields. Raises KeyError where there is none, and ValueError.

    >>> place_of({"lsn": "0/22CE4D8", "commit_us": 5}) == Lsn(36496600)
    True
    """
    kind = next((name for name in KINDS if name in body), "")
    return KINDS[kind].parse(body[kind])
