"""The kinds of transaction that assemblers give, what still waits, and the assemblers' port.

Invariant: a transaction is whole, and does not change once it was given. The assemblers make transactions; reclock, intake
and the runtime pass them on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Any, ClassVar, Protocol, assert_never

from headrace.connectors.changes import Decoded, TableChanges, Undecodable
from headrace.connectors.commit_place import CommitPlace
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema
from headrace.sidecar.transactions.partial import Place, RowRange
from headrace.sidecar.transactions.suspended_tables import SuspendedTable


class ContinuityError(HeadraceError):
    """The stream of a source cannot be continued without guessing (guarantee P5)."""

    code = "continuity"


class EpochKind(StrEnum):
    """What an epoch is, as the reclock log spells it: one for each class of `Transaction`, and two for snapshots."""

    TRANSACTION = "transaction"
    SNAPSHOT = "snapshot"
    LATER_SNAPSHOT = "resnapshot"
    VERSION = "version"
    MICROBATCH = "cut"
    INCREMENTAL = "chunk"
    REPAIR = "mended"
    RESYNC = "resync"
    MARKER = "adopted"


TableErrors = Mapping[str, Mapping[str, int]]
"""Table → error message → change of its multiplicity."""


@dataclass(frozen=True)
class _Bound:
    """What every epoch has. `place`: of its commit, or where its source stands. `commit_us`: µs since 1970 UTC."""

    place: CommitPlace
    commit_us: int
    slices: tuple[RowRange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SourceTransaction(_Bound):
    """A transaction of the source, or a portion of one. `id`: its txId. `more`: it goes on in the next epoch
    (`headrace.sidecar.transactions.splitting`). `supplied`: records that were passed over, and of which it has copies.
    """

    kind: ClassVar[EpochKind] = EpochKind.TRANSACTION
    id: int
    errors: TableErrors = field(default_factory=dict)
    more: bool = False
    supplied: tuple[Place, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SnapshotTransaction(_Bound):
    """An initial snapshot, or a portion of one. `later`: it takes the place of what its tables held."""

    id: ClassVar[int] = -1
    later: bool = False
    errors: TableErrors = field(default_factory=dict)
    more: bool = False

    @property
    def kind(self) -> EpochKind:
        """Of the first snapshot, or of a later one."""
        return EpochKind.LATER_SNAPSHOT if self.later else EpochKind.SNAPSHOT


@dataclass(frozen=True, kw_only=True)
class SparkVersion(_Bound):
    """A version of a Spark publisher."""

    kind: ClassVar[EpochKind] = EpochKind.VERSION

    @property
    def id(self) -> int:
        """The version's number."""
        return self.place.order


@dataclass(frozen=True, kw_only=True)
class Microbatch(_Bound):
    """What one poll brought of a source that tells no transactions. `id`: in a recording the txId of its rows, else -1."""

    kind: ClassVar[EpochKind] = EpochKind.MICROBATCH
    id: int = -1
    errors: TableErrors = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class IncrementalRows(_Bound):
    """Rows of an incremental snapshot. `stale`: their table has them no more, so that they count only where the log has them."""

    kind: ClassVar[EpochKind] = EpochKind.INCREMENTAL
    id: ClassVar[int] = -1
    stale: bool = False


@dataclass(frozen=True, kw_only=True)
class Repair(_Bound):
    """What suspended tables missed."""

    kind: ClassVar[EpochKind] = EpochKind.REPAIR
    id: ClassVar[int] = -2
    errors: TableErrors = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Resync(_Bound):
    """What a table lacked, found by a resync or brought by a dead letter. `whole`: the table is as its source has it from
    here on; `letter`: the dead letter's id."""

    kind: ClassVar[EpochKind] = EpochKind.RESYNC
    id: ClassVar[int] = -3
    table: str
    whole: bool = True
    letter: str = ""
    errors: TableErrors = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Marker(_Bound):
    """An epoch without rows: its source stands where the sinks of a lost state folder had it."""

    kind: ClassVar[EpochKind] = EpochKind.MARKER
    id: ClassVar[int] = -1


Divisible = SourceTransaction | SnapshotTransaction
"""What may be bound in portions."""
Transaction = Divisible | SparkVersion | Microbatch | IncrementalRows | Repair | Resync | Marker
"""What becomes one epoch."""


def errors_of(transaction: Transaction) -> TableErrors:
    """What becomes of tables' own errors with a transaction."""
    match transaction:
        case SourceTransaction() | SnapshotTransaction() | Microbatch() | Repair() | Resync():
            return transaction.errors
        case SparkVersion() | IncrementalRows() | Marker():
            return {}
        case _:
            assert_never(transaction)


def goes_on(transaction: Transaction) -> bool:
    """Whether a transaction goes on in the next epoch."""
    return isinstance(transaction, SourceTransaction | SnapshotTransaction) and transaction.more


def as_bound(held: deque[Transaction], bound: Iterable[tuple[int, int]]) -> None:
    """Make as many portions of the transactions at the front of `held` as were `bound`, (id, order of its place) each: of a
    transaction there are fewer rows where a table was suspended, now or then.

    >>> held = deque([SourceTransaction(Lsn(9), 0, id=7), SourceTransaction(Lsn(12), 0, id=8)])
    >>> as_bound(held, [(7, 9), (7, 9), (8, 12)])
    >>> [(t.id, t.more) for t in held]
    [(7, True), (7, False), (8, False)]
    """
    out: list[Transaction] = []
    for key, portions in groupby(bound):
        first = held[0] if held else None
        if not isinstance(first, SourceTransaction | SnapshotTransaction) or (first.id, first.place.order) != key:
            break
        found, count = _portions_at_front(held), len(list(portions))
        kept, rest = found[: count - 1], found[count - 1 :]
        if rest:
            out += [*kept, replace(rest[-1], slices=tuple(s for t in rest for s in t.slices))]
        else:
            out += [replace(found[-1], slices=(), more=True, errors={})] * (count - len(found)) + found
    held.extendleft(reversed(out))


def _portions_at_front(held: deque[Transaction]) -> list[Divisible]:
    found: list[Divisible] = []
    while not found or found[-1].more:
        portion = held.popleft()
        assert isinstance(portion, SourceTransaction | SnapshotTransaction), (
            "the portions of a transaction follow one another"
        )
        found.append(portion)
    return found


@dataclass(frozen=True)
class Incomplete:
    """What the oldest incomplete transaction waits for: table → events still missing."""

    kind: str
    id: int
    missing: Mapping[str, int]
    since_us: int

    @property
    def name(self) -> str:
        """What waits.

        >>> Waiting("transaction", 7, {"public.t": 2}, 0).name, Waiting("snapshot", -1, {}, -1).name
        ('transaction 7', 'snapshot')
        """
        return self.kind if self.id < 0 else f"{self.kind} {self.id}"

    @property
    def lacks(self) -> str:
        """What is missing; nothing where that is not known yet.

        >>> Waiting("transaction", 7, {"public.t": 2, "public.a": 1}, 0).lacks
        '1 of public.a, 2 of public.t'
        """
        return ", ".join(f"{n} of {table}" for table, n in sorted(self.missing.items()))

    def __str__(self) -> str:
        return f"{self.name} lacks {self.lacks}" if self.missing else self.name


@dataclass(frozen=True)
class ReplayOrder:
    """What of a source the log has, and comes again. Stopped tables may go on after the END at `lsn`; `exactly`: right there,
    as the log has it.

    `before_snapshot`: where the log has a later snapshot, the END before it (-1: none is); `later`: its LSN. `through`: the
    last END that the log has. `snapshot`: the LSN of the first snapshot, -1 where the log has none. `chunks`: whether it has any.
    """

    lsn: int
    exactly: bool
    before_snapshot: int | None = None
    later: int = -1
    through: int = -1
    snapshot: int = -1
    chunks: bool = False

    def last_before_snapshot(self, *, begun: bool) -> int | None:
        """The END after which a later snapshot comes, None where none does: where the log has it, else, once it has `begun`,
        after all that the log has, which the sinks may hold.

        >>> ReplayOrder(-1, exactly=False, through=7).last_before_snapshot(begun=True)
        7
        """
        return self.through if begun and self.before_snapshot is None else self.before_snapshot


class Assembler(Protocol):
    """Makes transactions of one source's changes."""

    def accept(self, decoded: Decoded) -> None:
        """Take in what a format decoded."""

    def complete(self) -> list[Transaction]:
        """The longest complete prefix that was not given yet."""

    def pending_positions(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → the oldest offset of what is not given yet."""

    def waiting(self) -> Incomplete | None:
        """What holds the prefix up, or None."""

    @property
    def overdue(self) -> int:
        """Where a later snapshot is here and waits for an END that the log has before it, that END's LSN; else -1."""

    def finish(self) -> None:
        """Nothing more comes (a recording's end)."""

    @property
    def stops(self) -> Sequence[SuspendedTable]:
        """The suspended tables."""

    def stop(self, table: str, record: Undecodable, text: str) -> bool:
        """A record of a table cannot be decoded: the table alone stops, `text` its error. False: not without the others."""

    def skip(self, record: Undecodable, *, known: bool = False) -> None:
        """Pass over a record, as the user said; it counts as an event that is here, if its event can be read."""

    def begin_late(self, tables: Iterable[str]) -> None:
        """These begin empty, later than the others of their source: what their topics have of transactions that nobody remembers
        any more is passed over."""

    def add_table(self, table: str, partitions: Sequence[str], schema: Schema) -> None:
        """From now on a table is read, that was not before; it begins late."""

    def filled(self, table: str, version: int) -> None:
        """A table of a publisher is filled from files that hold its versions up to this one."""

    def published(self, table: str) -> int:
        """The last version up to where versions were given that has a table, read or not; -1 where none is known."""

    def add_partition(self, partition: str, table: str) -> None:
        """From now on events that are counted under the name `partition` are those of a table that is read."""

    def follow(self, log: ReplayOrder) -> None:
        """What the log has of this source comes again, in its order; before anything else."""

    def remembered(self) -> Mapping[str, Any]:
        """What of what was given a later run must know that neither the log nor the topics tell, as a manifest keeps it."""

    def outlived(self, row: TableChanges) -> bool | None:
        """Whether all that its table had when this event was committed was taken away since; None where nobody can tell."""

    def standing(self, rows: RowRange, lsn: int) -> Sequence[RowRange]:
        """What of rows of an incremental snapshot is as it was read, once all was given up to the END at `lsn`."""

    def resume(
        self,
        bound: Iterable[tuple[int, int]],
        stops: Iterable[SuspendedTable] = (),
        remembered: Mapping[str, Any] | None = None,
    ) -> None:
        """Continue after these bound transactions, (id, order of its place) each, oldest first; the snapshot is behind us.

        `stops`: tables that were suspended then, whose partitions are read again from there; `remembered`: as it was then.
        """
