"""What of the command log the state has, and which tables are unproven because it lacks some of it.

Invariant: a command that a state has is in its manifest; one that was there when the run began, and that it lacks, keeps its
table unproven until the table is read anew. Made by wiring; the loop tells it what goes in, any thread may read `open`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.connectors.commands import (
    Added,
    Command,
    Commands,
    CommandsError,
    Doubted,
    Identity,
    MemoryCommands,
    Partition,
    Replayed,
    Resynced,
    Skip,
)
from headrace.connectors.commit_place import Version
from headrace.connectors.source import Positions
from headrace.sidecar.transactions.model import Resync, SnapshotTransaction, Transaction
from headrace.sidecar.transactions.partial import Place


@dataclass(frozen=True)
class Unproven:
    """A table whose rows may not be those of the source any more: why, and what to do. `stands`: its views keep what they had
    until it is mended; `by_itself`: the sidecar does so where it can."""

    table: str
    why: str
    hint: str
    stands: bool = False
    by_itself: bool = False

    @property
    def error(self) -> str:
        """What views that are suspended for it show."""
        return str(CommandsError(f"the table is unproven: {self.why}", table=self.table, hint=self.hint))


_LOST = "the state was lost, and what `{}` did to it is not done again yet"
_SKIPPED = "a record was passed over, as `skip:` says, and the table was not read anew since"
_TAKEN_IN = "its new partition {} is being taken in"
_ADDED = "it, or a column of it, is declared since the topics were read: its rows are to be read from the source"
_FILES = "it is declared since the topics were read, and the state lacks its rows of before"


class CommandLog:
    """`commands`: where they are kept. `tables`: source → its tables. `had`: what the manifest says of the log. `at`: source →
    the manifest's positions. `open`: table → why it is unproven; a new mapping with each change."""

    def __init__(
        self, commands: Commands | None = None, tables: Mapping[str, Iterable[str]] | None = None,
        had: Mapping[str, Any] | None = None, at: Mapping[str, Positions] | None = None,
    ) -> None:  # fmt: skip
        self._commands = commands or MemoryCommands()
        self._lock = threading.Lock()
        self._tables = {source: frozenset(names) for source, names in (tables or {}).items()}
        self._resynced: dict[str, int] = dict((had or {}).get("resynced", {}))
        self._replayed: set[str] = set((had or {}).get("replayed", ()))
        self._instead: set[str] = set()
        self._known: dict[str, Command] = {c.key: c for c in self._commands.read()}
        self._at_start, self._at = frozenset(self._known), dict(at or {})
        self.open: Mapping[str, Unproven] = {}
        self._look()

    def keep(self, *commands: Command) -> None:
        """Keep these, durably. Called by any thread. Raises CommandsError."""
        new = [c for c in commands if self._known.get(c.key) != c]
        if new:
            self._commands.keep(new)
            with self._lock:
                done = {c.key for c in new if c.key in self._known and not self._lacks(self._known[c.key])}
                self._at_start -= done  # one that the state lacks is so until it is in, whatever is asked for meanwhile
                self._known |= {c.key: c for c in new}
        self._look()

    def begins_empty(self, tables: Iterable[str]) -> None:
        """Of these the state has nothing, or nothing any more. Called by any thread."""
        with self._lock:
            self._resynced = {t: at for t, at in self._resynced.items() if t not in set(tables)}
        self._look()

    def filled(self, source: str) -> Mapping[str, int]:
        """The tables of a publisher that are filled from files, each with its last version that these hold."""
        mine = [c for c in self.of(Added) if c.source == source and isinstance(c.place, Version)]
        return {c.table: c.place.order for c in mine}

    def reads(self, source: str, table: str) -> None:
        """A table is read from now on. Called by any thread."""
        with self._lock:
            self._tables = {**self._tables, source: self._tables.get(source, frozenset()) | {table}}
        self._look()

    def forget(self, *keys: str) -> None:
        """End these. Called by any thread. Raises CommandsError."""
        if keys:
            self._commands.forget(keys)
            with self._lock:
                for key in keys:
                    self._known.pop(key, None)
        self._look()

    def on_bound(self, source: str, transactions: Iterable[Transaction]) -> None:
        """These are in now. Called by the loop."""
        before = (dict(self._resynced), len(self._replayed))
        for t in transactions:
            if isinstance(t, Resync) and t.whole:
                self._resynced[t.table] = max(t.place.order, self._resynced.get(t.table, -1))
            elif isinstance(t, Resync) and t.letter:
                self._replayed.add(f"{Replayed.name}/{t.letter}")
            elif isinstance(t, SnapshotTransaction) and not t.more:
                for table in self._tables.get(source, ()):
                    self._resynced[table] = max(t.place.order, self._resynced.get(table, -1))
        if (self._resynced, len(self._replayed)) != before:
            self._look()

    def replayed(self, key: str, *, resync: bool = False) -> None:
        """A replayed letter's row is in; or it cannot be, and its table is to be compared with its source. Called by the
        loop."""
        (self._instead if resync else self._replayed).add(key)
        self._look()

    def json(self) -> Mapping[str, Any]:
        """As a manifest keeps it."""
        with self._lock:
            kept = sorted(k for k in self._replayed if k in self._known)
        return {"resynced": dict(self._resynced), "replayed": kept}

    def of(self, kind: type[Command]) -> list[Any]:
        """The commands of a kind."""
        with self._lock:
            return [c for c in self._known.values() if isinstance(c, kind)]

    def to_replay(self) -> list[Replayed]:
        """The letters that were taken in by a state that is lost."""
        mine = [c for c in self.of(Replayed) if c.key in self._at_start and c.key not in self._instead]
        return [c for c in mine if self._lacks(c)]

    def was_read(self, letter: Replayed) -> bool:
        """Whether the state that the run began with had read the letter's record, which no later one reads again."""
        return self._at.get(letter.source, {}).get(letter.topic, {}).get(letter.partition, 0) > letter.offset

    def partitions(self, source: str, *, captured: bool = False) -> Mapping[str, tuple[str, ...]]:
        """The partitions of a source that its configuration does not name, by table. `captured`: those that its connector is
        known to capture."""
        mine = [c for c in self.of(Partition) if c.source == source and (c.captured or not captured)]
        return {c.table: tuple(o.partition for o in mine if o.table == c.table) for c in mine}

    def skips(self, source: str) -> Mapping[Place, str]:
        """The records of a source that were passed over, each with the id of the topic that had it."""
        return {(c.topic, c.partition, c.offset): c.topic_id for c in self.of(Skip) if c.source == source}

    def _lacks(self, command: Command) -> bool:
        if isinstance(command, Replayed) and command.key in self._replayed:
            return False
        if isinstance(command, Partition) and not command.captured:
            return True
        if isinstance(command, Added) and isinstance(command.place, Version):
            return command.table not in self._resynced
        return command.place.order > self._resynced.get(command.table, -1)

    def _look(self) -> None:
        """Find `open` anew: of several reasons of a table the one that lets its views stand, else the first."""
        with self._lock:
            known, at_start = list(self._known.values()), self._at_start
            found: dict[str, Unproven] = {}
            for command in known:
                if command.table not in self._tables.get(command.source, ()) or not self._lacks(command):
                    continue
                one = _reason(command, at_start=command.key in at_start)
                if one is not None and (command.table not in found or (one.stands and not found[command.table].stands)):
                    found[command.table] = one
            self.open = found


def _reason(command: Command, *, at_start: bool) -> Unproven | None:
    """Why a table is unproven as long as the state lacks a command; None where it is not."""
    again = f"`headrace resync {command.table}` (with --from URL where the source has no `database:`)"
    match command:
        case Resynced() if at_start:
            return Unproven(command.table, _LOST.format("headrace resync"), again, stands=True, by_itself=True)
        case Replayed() if at_start:
            return Unproven(
                command.table, _LOST.format("headrace deadletters replay"), again, stands=True, by_itself=True
            )
        case Skip():
            return Unproven(command.table, _SKIPPED, again)
        case Doubted():
            return Unproven(command.table, command.why, command.hint)
        case Partition():
            taken = _TAKEN_IN.format(command.partition)
            return Unproven(command.table, taken, again, by_itself=command.captured)
        case Added() if isinstance(command.place, Version):
            load = f"`headrace load {command.table} --from … --version {command.place.order}`, as a later version if it has one"
            return Unproven(command.table, _FILES, load, stands=True)
        case Added():
            stands = at_start or not command.kept
            return Unproven(command.table, _ADDED, again, stands=stands, by_itself=command.captured)
        case Resynced() | Replayed() | Identity():
            return None


def merged(*found: Mapping[str, Unproven]) -> Mapping[str, Unproven]:
    """One reason a table: of the first that has one."""
    out: dict[str, Unproven] = {}
    for one in reversed(found):
        out |= one
    return out
