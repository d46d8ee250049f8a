"""The port through which dead letters go: records that never became an update, kept as they were until somebody decides.

Always: a letter is known by its place (topic, partition, offset); kept twice it is one letter; what `keep` was given is
durable when it returns. One contract suite runs every implementation.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.errors import HeadraceError


class LettersError(HeadraceError):
    """Dead letters cannot be kept, read or let go."""

    code = "source"


@dataclass(frozen=True)
class Letter:
    """One record. `reason`: why it became no change; `at_ms`: when it was set aside, ms since 1970 UTC."""

    source: str
    table: str
    topic: str
    partition: int
    offset: int
    reason: str
    hint: str
    lsn: int
    at_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def id(self) -> str:
        """Its place, as commands name it."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    def facts(self) -> dict[str, Any]:
        """What may be shown of it: not its bytes."""
        return {
            "id": self.id, "source": self.source, "table": self.table, "topic": self.topic, "partition": self.partition,
            "offset": self.offset, "reason": self.reason, "hint": self.hint, "lsn": self.lsn, "at_ms": self.at_ms,
        }  # fmt: skip

    def json(self) -> dict[str, Any]:
        """All of it."""
        return self.facts() | {"key": _text(self.key), "value": _text(self.value)}

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Letter:
        """Of `json`. Raises KeyError, TypeError or ValueError."""
        known = {name: body[name] for name in cls.__dataclass_fields__ if name not in ("key", "value")}
        return cls(**known, key=_bytes(body["key"]), value=_bytes(body["value"]))


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


class Letters(Protocol):
    """Where dead letters are."""

    def keep(self, letters: Sequence[Letter]) -> None:
        """Keep these, durably. Raises LettersError."""

    def read(self) -> Sequence[Letter]:
        """All there are, in the order in which they were first kept. Raises LettersError."""

    def discard(self, ids: Collection[str]) -> None:
        """Let go of these; those that are not there change nothing. Raises LettersError."""


class MemoryLetters:
    """Dead letters in memory, for tests. `broken`: nothing can be kept."""

    def __init__(self) -> None:
        self._kept: dict[str, Letter] = {}
        self.broken = False

    def keep(self, letters: Sequence[Letter]) -> None:
        """See `Letters.keep`."""
        if self.broken:
            raise LettersError("the dead letters cannot be kept", hint="injected by the test")
        for letter in letters:
            self._kept.setdefault(letter.id, Letter.parse(letter.json()))

    def read(self) -> Sequence[Letter]:
        """See `Letters.read`."""
        return list(self._kept.values())

    def discard(self, ids: Collection[str]) -> None:
        """See `Letters.discard`."""
        for id_ in ids:
            self._kept.pop(id_, None)
