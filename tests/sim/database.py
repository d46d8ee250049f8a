"""A database in memory as a sink: transactions, sessions that are lost, COMMITs whose end nobody knows, and a fence.

Always: a transaction is there whole or not at all; a COMMIT that is under way holds the frontier row, so that whoever looks at
that row sees how it ended. The store outlives its sinks. It runs the same contract as Postgres.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from headrace.connectors.sink import EpochStamp, Fenced, Frontier, SinkAway, SinkError, SinkState, SinkView, ViewChanges
from tests.doubles.memory import MemorySink, MemoryStore, Row

PATIENCE = 30.0


@dataclass(frozen=True)
class Written:
    """A transaction that is there: what it did, and everything that a reader sees then. `filled`: by view, the fingerprint of the
    definition that its rows are of."""

    frontier: Frontier
    generation: int
    rows: Mapping[str, Counter[Row]]
    errors: Mapping[str, tuple[str, int | None]]
    whole: frozenset[str]
    filled: Mapping[str, str]


@dataclass
class Database:
    """`flying`: a COMMIT whose end nobody knows yet. `holder`: whose transaction has the frontier row's lock.
    `watch` is told of every transaction of rows."""

    store: MemoryStore = field(default_factory=MemoryStore)
    up: bool = True
    flying: Callable[[], None] | None = None
    holder: object = None
    watch: Callable[[Written], None] = lambda _: None

    def settle(self, happens: bool) -> None:
        """The row's lock is asked for: a COMMIT under way ends first, one way or the other."""
        flying, self.flying = self.flying, None
        if flying is not None and happens:
            flying()


class Session(Protocol):
    """A process's connection to the database; see clients.Line."""

    def door(self, name: str) -> None: ...

    def lost(self, name: str) -> str: ...

    def chance(self, rate: float) -> bool: ...

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class _Lost(Exception):
    """The session is gone."""


class DatabaseSink(MemorySink):
    """Writes to a database through sessions that may be lost."""

    def __init__(self, name: str, database: Database, session: Session) -> None:
        super().__init__(name, database.store)
        self.database, self.session = database, session
        self._unsure = False

    def _ask(self, what: str) -> str:
        self.session.door(what)
        if not self.database.up:
            raise _Lost
        return self.session.lost(what)

    def _commit(self, work: Callable[[], None]) -> None:
        lost = self._ask("sql commit")
        if self.database.holder is not self:
            raise _Lost
        if lost == "late":
            self.database.flying = work
        elif lost != "request":
            work()
        if lost:
            raise _Lost

    def open(self, views: Sequence[SinkView], held: int | None = None) -> SinkState:
        """See `Sink.open`."""
        try:
            self._ask("sql connect")
            self._lock(force=held is None)
            staged, found = copy_of(self.store), []
            self.store, real = staged, self.store
            try:
                found.append(super().open(views, held))
            finally:
                self.store = real
            self._commit(lambda: become(real, staged))
        except _Lost:
            raise SinkAway("the database cannot be reached", sink=self.name) from None
        finally:
            self._unlock()
        self._unsure = False
        return found[0]

    def write(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        """See `Sink.write`."""
        deadline, before = self.session.now() + PATIENCE, self._stands_at
        while True:
            try:
                self._ask("sql write")
                self._lock(force=False)
                if not (self._unsure and self._written(before)):
                    self._stands_at = before
                    self._attempt(changes, frontier, errors)
                self._stands_at, self._unsure = before + 1, False
                return
            except _Lost:
                self._unsure = True
            finally:
                self._unlock()
            if self.session.now() > deadline:
                raise SinkAway("the database cannot be reached", sink=self.name)
            self.session.sleep(1.0)

    def _lock(self, *, force: bool) -> None:
        """Take the frontier row. `force`: who holds it is ended, as a new run ends a predecessor that hangs in a
        transaction; else it is waited for in vain."""
        if self.database.holder not in (None, self) and not force:
            raise _Lost
        self.database.settle(self.session.chance(0.5))
        self.database.holder = self

    def _unlock(self) -> None:
        if self.database.holder is self:
            self.database.holder = None

    def _written(self, before: int) -> bool:
        """Whether an attempt whose end was not known went through, read under the row's lock."""
        if self.store.generation >= self._generation and self.store.run is not self._run:
            raise Fenced("another generation writes to this sink", sink=self.name)
        if self.store.run is not self._run or self.store.writes not in (before, before + 1):
            raise SinkError("the frontier was changed by something else than this sink", sink=self.name)
        return self.store.writes == before + 1

    def _attempt(
        self, changes: Mapping[str, ViewChanges], frontier: Frontier, errors: Mapping[str, str] | None
    ) -> None:
        staged = copy_of(self.store)
        self.store, real = staged, self.store
        try:
            super().write(changes, frontier, None, errors)
        finally:
            self.store = real
        whole = frozenset(n for n, c in changes.items() if c.whole)
        generation = self._generation

        def work() -> None:
            become(real, staged)
            self.database.watch(Written(frontier, generation, staged.rows, staged.errors, whole, filled(staged)))

        self._commit(work)


def filled(store: MemoryStore) -> dict[str, str]:
    """By view, the fingerprint of the definition that its rows are of; a view that was not given yet is in none."""
    return {name: view.fingerprint for name, view in store.views.items() if name in store.filled}


def copy_of(store: MemoryStore) -> MemoryStore:
    """The same, to be changed or kept."""
    rows = {name: Counter(content) for name, content in store.rows.items()}
    return replace(
        store, views=dict(store.views), rows=rows, filled=set(store.filled), errors=dict(store.errors), history=[]
    )


def become(store: MemoryStore, staged: MemoryStore) -> None:
    """A transaction commits, or a backup is played back."""
    for one in fields(MemoryStore):
        setattr(store, one.name, getattr(staged, one.name))
