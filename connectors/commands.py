"""The port of the command log: what operators and the catalog decided about tables, kept where a lost state folder does not
take it.

Invariant: commands are kept, never the rows that they changed; a later command of the same key replaces the earlier one; what
`keep` was given is durable when it returns. One contract runs every implementation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Protocol

from headrace.connectors.commit_place import UNKNOWN, CommitPlace, place_of
from headrace.engine.errors import HeadraceError


class CommandsError(HeadraceError):
    """The command log cannot be written or read."""

    code = "source"


@dataclass(frozen=True, kw_only=True)
class _Command:
    """What every command has. `place`: where its source stood."""

    name: ClassVar[str]
    source: str
    table: str
    place: CommitPlace = UNKNOWN

    @property
    def key(self) -> str:
        """Under which it is kept."""
        return f"{self.name}/{self.source}/{self.table}"


@dataclass(frozen=True, kw_only=True)
class Skip(_Command):
    """A record was passed over, as `skip:` names it. `topic_id`: of the topic that had it, as a topic made anew has another
    record at that place."""

    name: ClassVar[str] = "skip"
    topic: str
    topic_id: str
    partition: int
    offset: int

    @property
    def key(self) -> str:
        """Under which it is kept."""
        return f"{self.name}/{self.topic}/{self.partition}/{self.offset}/{self.table}"


@dataclass(frozen=True, kw_only=True)
class Resynced(_Command):
    """A table was compared with its source as of `place`."""

    name: ClassVar[str] = "resync"


@dataclass(frozen=True, kw_only=True)
class Replayed(_Command):
    """A dead letter was taken in."""

    name: ClassVar[str] = "replay"
    topic: str
    partition: int
    offset: int

    @property
    def letter(self) -> str:
        """The letter's id."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def key(self) -> str:
        """Under which it is kept."""
        return f"{self.name}/{self.letter}"


@dataclass(frozen=True, kw_only=True)
class Doubted(_Command):
    """The catalog had a table otherwise than it is read, last at `place`: it is unproven until it is read anew. `over`: the
    catalog has it as it is read again."""

    name: ClassVar[str] = "doubt"
    why: str
    hint: str
    over: bool


@dataclass(frozen=True, kw_only=True)
class Partition(_Command):
    """A partition that the configuration does not name belongs to a table. `captured`: the connector tells all of its changes
    since `place`."""

    name: ClassVar[str] = "partition"
    partition: str
    captured: bool

    @property
    def key(self) -> str:
        """Under which it is kept."""
        return f"{self.name}/{self.source}/{self.partition}"


@dataclass(frozen=True, kw_only=True)
class Added(_Command):
    """A table, or its columns as they are declared now, were added to a sidecar that had read the topics so far without.
    `captured`: its connector tells all of its changes since `place`. `kept`: the rows that were there stay, and only the columns
    that are new lack their values. The table of a publisher is filled from files that hold its versions up to `place`."""

    name: ClassVar[str] = "added"
    captured: bool
    kept: bool = False


@dataclass(frozen=True, kw_only=True)
class Identity(_Command):
    """Which relations a table's rows come from: name → oid, of itself and of its partitions."""

    name: ClassVar[str] = "identity"
    oids: Mapping[str, int]


Command = Skip | Resynced | Replayed | Doubted | Partition | Added | Identity
_KINDS: Mapping[str, type[Command]] = {
    kind.name: kind for kind in (Skip, Resynced, Replayed, Doubted, Partition, Added, Identity)
}


def as_json(command: Command) -> dict[str, Any]:
    """A command as it is kept."""
    body = {f.name: getattr(command, f.name) for f in fields(command) if f.name != "place"}
    return {"command": command.name, **body, **command.place.json()}


def parse(key: str, body: Any) -> Command:
    """Of `as_json`. Raises CommandsError for what no version up to this one writes."""
    try:
        kind = _KINDS[body["command"]]
        told = [f.name for f in fields(kind) if f.name != "place" and (f.name in body or f.default is MISSING)]
        return kind(place=place_of(body), **{name: body[name] for name in told})
    except (KeyError, TypeError, ValueError) as error:
        raise CommandsError("a record of the command log is not known", key=key,
                            hint="run the version that wrote it, or remove the record") from error  # fmt: skip


class Commands(Protocol):
    """Where commands are."""

    def keep(self, commands: Sequence[Command]) -> None:
        """Keep these, durably. Raises CommandsError."""

    def read(self) -> Sequence[Command]:
        """The last of each key, in the order in which the keys were first kept. Raises CommandsError."""

    def forget(self, keys: Collection[str]) -> None:
        """End these; those that are not there change nothing. Raises CommandsError."""


class MemoryCommands:
    """Commands in memory: for runs without Kafka, and for tests. `broken`: nothing can be kept."""

    def __init__(self) -> None:
        self._kept: dict[str, Command] = {}
        self.broken = False

    def keep(self, commands: Sequence[Command]) -> None:
        """See `Commands.keep`."""
        if self.broken:
            raise CommandsError("the command log cannot be written", hint="injected by the test")
        self._kept |= {c.key: parse(c.key, as_json(c)) for c in commands}

    def read(self) -> Sequence[Command]:
        """See `Commands.read`."""
        return list(self._kept.values())

    def forget(self, keys: Collection[str]) -> None:
        """See `Commands.forget`."""
        for key in keys:
            self._kept.pop(key, None)
