"""The dead-letter queue, as a port: records that never became an update are kept until somebody decides.

Invariant: a letter is known by its place (topic, partition, offset), and is one letter however often it is kept. When `keep`
returns, the letter is durable. One contract suite runs every implementation.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.engine.errors import HeadraceError


class DeadLetterError(HeadraceError):
    """Dead letters cannot be kept, read or let go."""

    code = "source"


@dataclass(frozen=True)
class DeadLetter:
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
    def parse(cls, body: dict[str, Any]) -> DeadLetter:
        """Of `json`. Raises KeyError, TypeError or ValueError."""
        known = {name: body[name] for name in cls.__dataclass_fields__ if name not in ("key", "value")}
        return cls(**known, key=_bytes(body["key"]), value=_bytes(body["value"]))


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


class DeadLetterQueue(Protocol):
    """Where dead letters are."""

    def keep(self, letters: Sequence[DeadLetter]) -> None:
        """Keep these, durably. Raises DeadLetterError."""

    def read(self) -> Sequence[DeadLetter]:
        """All there are, in the order in which they were first kept. Raises DeadLetterError."""

    def discard(self, ids: Collection[str]) -> None:
        """Let go of these; those that are not there change nothing. Raises DeadLetterError."""


class MemoryDeadLetterQueue:
    """Dead letters in memory, for tests. `broken`: nothing can be kept."""

    def __init__(self) -> None:
        self._kept: dict[str, DeadLetter] = {}
        self.broken = False

    def keep(self, letters: Sequence[DeadLetter]) -> None:
        """See `DeadLetterQueue.keep`."""
        if self.broken:
            raise DeadLetterError("the dead letters cannot be kept", hint="injected by the test")
        for letter in letters:
            self._kept.setdefault(letter.id, DeadLetter.parse(letter.json()))

    def read(self) -> Sequence[DeadLetter]:
        """See `DeadLetterQueue.read`."""
        return list(self._kept.values())

    def discard(self, ids: Collection[str]) -> None:
        """See `DeadLetterQueue.discard`."""
        for id_ in ids:
            self._kept.pop(id_, None)
