"""Debezium's assembler: puts whole transactions together out of partitions, in commit order.

Invariant: `complete` gives the next prefix of the source's commit order, each transaction once and whole. Repetitions
(Debezium after a crash) change nothing. `waiting` names what is not whole yet, and `pending_positions` holds its offsets
back. The file is long because the order of snapshots, suspended tables and transactions is one decision; the parts of it lie
beside it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.connectors.changes import Decoded, Event, SnapshotNotification, TableChanges, TransactionMark, Undecodable
from headrace.connectors.commit_place import Lsn
from headrace.engine.schema import Schema
from headrace.sidecar.transactions.delivered import DeliveredTransactions
from headrace.sidecar.transactions.incremental_snapshot import IncrementalSnapshot
from headrace.sidecar.transactions.initial_snapshot import Snapshot
from headrace.sidecar.transactions.microbatch import MicrobatchBuffer
from headrace.sidecar.transactions.model import (
    ContinuityError,
    EpochKind,
    Incomplete,
    Repair,
    ReplayOrder,
    SnapshotTransaction,
    SourceTransaction,
    Transaction,
)
from headrace.sidecar.transactions.partial import (
    PartialTransaction,
    Place,
    RowRange,
    Unfinished,
    by_transaction,
    first_places,
    oldest,
)
from headrace.sidecar.transactions.partition_truncates import PartitionLeaves
from headrace.sidecar.transactions.recent_key_changes import RecentKeyChanges
from headrace.sidecar.transactions.snapshot_barrier import SnapshotBarrier
from headrace.sidecar.transactions.suspended_tables import Holds, SuspendedTable, SuspendedTables, earliest
from headrace.sidecar.transactions.truncations import TruncationTracker

_ANEW = "start with an empty state folder"


class TransactionAssembler:
    """Debezium: a transaction is complete when all its events in the subscribed tables are there, as END counts them.

    `tables`: subscribed, by name as END spells it, each to the table it belongs to (leaves of a partitioned table map to
    their root). `in_order`: the messages come in the order of emission (a recording), so that a snapshot ends where the
    stream begins and a run of one txId without metadata is one transaction; otherwise Debezium's notifications say when
    the snapshot is complete, and a poll's unmarked rows are one cut. `barrier`: which ENDs wait for those; None: none does.
    `schemas`: of the tables whose topics may be given partitions.
    """

    def __init__(
        self, tables: Mapping[str, str], *, in_order: bool = False, barrier: SnapshotBarrier | None = None,
        schemas: Mapping[str, Schema] | None = None,
    ) -> None:  # fmt: skip
        self._tables = dict(tables)
        self._in_order, self._barrier = in_order, barrier
        self._leaves = PartitionLeaves(tables)
        self._ends: deque[TransactionMark] = deque()
        self._pending = Unfinished(self._ends)
        self._bound = DeliveredTransactions()
        self._bound_lsn = self._passed_lsn = self._begun_ms = self._read_ms = self._given_us = -1
        self._suspended = SuspendedTables(self._tables)
        self._snapshot = Snapshot(self._tables)
        self._snapshot_lsn: int | None = None
        self._first_lsn = -1
        self._later_snapshot: Snapshot | None = None
        self._replay = ReplayOrder(-1, exactly=False)
        self._microbatches = MicrobatchBuffer(self._suspended, in_order=in_order)
        self._truncations = TruncationTracker(self._bound)
        self._key_changes = RecentKeyChanges(schemas or {})
        self._incremental = IncrementalSnapshot(self._suspended, self._truncations, self._key_changes)
        self._saw_end = self._unmarked = False
        self._added_tables: frozenset[str] = frozenset()

    def begin_late(self, tables: Iterable[str]) -> None:
        """See `Assembler.begin_late`."""
        self._added_tables |= frozenset(tables)

    def add_table(self, table: str, partitions: Sequence[str], schema: Schema) -> None:
        """See `Assembler.add_table`."""
        self.begin_late((table,))
        self._key_changes.add(table, schema)
        for name in (table, *partitions):
            self._suspended.add_name(name, table)
        for _ in partitions:
            self._leaves.add(table)

    def filled(self, table: str, version: int) -> None:
        """The tables of a database have no versions."""

    def published(self, table: str) -> int:  # noqa: ARG002
        """The tables of a database have no versions."""
        return -1

    def add_partition(self, partition: str, table: str) -> None:
        """See `Assembler.add_partition`."""
        self._leaves.add(table)
        self._suspended.add_name(partition, table)

    def accept(self, decoded: Decoded) -> None:
        """Take in what a format decoded. Raises ContinuityError for what cannot follow on what is here."""
        for changes in decoded.changes:
            if len(changes) and not self._suspended.idle(changes.table):
                self._key_changes.met(changes)
                self._accept_changes(changes)
        for mark in decoded.marks:
            if isinstance(mark, TransactionMark):
                if self._barrier is not None:
                    self._barrier.met(mark)
                self._saw_end = True
                if mark.status == "END":
                    self._ends.append(mark)
                    self._snapshot.ended |= self._in_order
            elif isinstance(mark, SnapshotNotification) and self._snapshot_lsn is None:
                self._snapshot.mark(mark)
            elif isinstance(mark, SnapshotNotification) and (
                self._later_snapshot is not None or mark.status == "started"
            ):
                self._begin_later_snapshot().mark(mark)

    def _accept_changes(self, changes: TableChanges) -> None:
        if changes.snapshot.any():
            for kind, accept in ((1, self._accept_initial), (2, self._accept_incremental)):
                if (found := changes.snapshot == kind).any():
                    accept(changes if found.all() else changes.take(np.flatnonzero(found)))
            changes = changes.take(np.flatnonzero(changes.snapshot == 0))
            if not len(changes):
                return
        self._snapshot.ended |= self._in_order
        self._truncations.met(changes)
        if changes.metadata.all():
            self._accept_marked(changes)
        else:
            marked = np.flatnonzero(changes.metadata)
            if len(marked):
                self._accept_marked(changes.take(marked))
            if not self._unmarked:
                self._unmarked = True
                self._microbatches.add(self._incremental.withdraw())
            self._microbatches.accept(changes.take(np.flatnonzero(~changes.metadata)))

    def _accept_incremental(self, rows: TableChanges) -> None:
        """Take in rows of an incremental snapshot; without transaction metadata they count as any other rows."""
        if self._unmarked:
            self._microbatches.accept(rows)
        else:
            self._incremental.add(rows)
            self._incremental.older(self._first_lsn)

    def _accept_initial(self, rows: TableChanges) -> None:
        stop = self._suspended.collecting(rows.table)
        if self._snapshot_lsn is None:
            self._snapshot.add(rows)
        elif stop is not None and stop.backlog is not None and stop.snapshot is not None:
            stop.backlog.snapshot.add(rows)
        elif self._later_snapshot is not None or self._is_later(rows):
            self._begin_later_snapshot().add(rows)

    def _is_later(self, rows: TableChanges) -> bool:
        """Whether rows are of a later snapshot: after all that was given, and not of a try before it that come late."""
        given = max(self._bound_lsn, -1 if self._snapshot_lsn is None else self._snapshot_lsn)
        read = -1 if rows.read_ms is None else int(rows.read_ms.max())
        return int(rows.lsns.max()) > given and not 0 <= read < self._begun_ms

    def _begin_later_snapshot(self) -> Snapshot:
        """The later snapshot, which is waited for from now on. Raises ContinuityError."""
        if self._suspended.known or self._in_order:
            stands = ", ".join(sorted(self._suspended.known)) or None
            raise ContinuityError("a second snapshot began", stands_still=stands, hint=_ANEW)
        if self._later_snapshot is None:
            self._later_snapshot = Snapshot(self._tables)
        return self._later_snapshot

    def _accept_marked(self, changes: TableChanges) -> None:
        for txid, lsn, sent_ms, events, clean in by_transaction(changes):
            if (bound := self._bound.get(txid)) >= lsn:
                self._bound.repeated(txid, bound)
                again = self._suspended.collecting(changes.table)
                if again is not None:
                    again.late(txid, bound, events)
            elif bound < 0 and changes.table in self._added_tables and lsn < self._bound.oldest:
                continue  # of a transaction from before the table was read
            elif (pending := self._pending.of(txid, sent_ms)) is not None:
                pending.add(changes.table, events, sent_ms, clean=clean)
                self._pending.began(txid, first_places((events,)))

    def finish(self) -> None:
        """No message will follow (a recording's end): the snapshot is complete, and where no END was recorded at all the
        events' own transaction ids say what belongs together."""
        self._snapshot.ended = self._microbatches.finished = True
        if not self._saw_end:
            self._microbatches.add(self._incremental.withdraw())
            for pending in self._pending.values():
                self._microbatches.add(s for slices in pending.slices.values() for s in slices)
            self._pending.clear()

    def complete(self) -> list[Transaction]:
        """The longest complete prefix: the snapshot, then transactions in the order of their ENDs, then unmarked rows."""
        out: list[Transaction] = []
        if self._snapshot_lsn is None and not self._complete_snapshot(out):
            return out
        self._give_whole(out)
        while self._complete_later_snapshot(out):
            self._give_whole(out)
        if not self._ends:
            self._stop_all(tuple(self._suspended.ailing))
        if self._suspended.known:
            self._repair(out)
        if self._microbatches:
            out += [replace(cut, errors=self._suspended.take_errors()) for cut in self._microbatches.cut()]
        return out

    def _give_whole(self, out: list[Transaction]) -> None:
        """Give the whole transactions at the front; none while a later snapshot is waited for, but those before it in the
        log."""
        while self._ends:
            end = self._ends[0]
            if self._barrier is not None and self._barrier.holds(end):
                break
            if end.lsn <= self._bound_lsn:
                self._bound.check_repetition(end, self._snapshot_lsn or -1, self._bound_lsn, hint=_ANEW)
            if end.lsn <= self._bound_lsn or 0 <= end.sent_ms < self._read_ms:
                self._pass(self._ends.popleft())
                continue
            last = self._replay.last_before_snapshot(begun=self._later_snapshot is not None)
            if last is not None and end.lsn > last:
                break
            if self._incremental:
                out += self._incremental.ready(self._bound_lsn, self._given_us)
            if self._suspended.exactly and end.lsn > self._suspended.after and not self._repair(out):
                break
            pending = self._pending.get(end.transaction)
            if self._suspended.ailing:
                self._stop_before(end, pending)
            if not self._is_whole(end, pending):
                break
            if self._leaves and pending and self._stop_partly_emptied(pending):
                continue
            self._ends.popleft()
            given = self._give(end, self._pending.pop(end.transaction, None))
            self._incremental.ended(end)
            self._key_changes.given(end.lsn, given.slices)
            out.append(given)
        if self._incremental:
            out += self._incremental.ready(self._bound_lsn, self._given_us)

    def _complete_later_snapshot(self, out: list[Transaction]) -> bool:
        """Give a later snapshot if it is whole, in place of all that its tables held and of what came before it.

        Raises ContinuityError where it is not later than what was given, or a record of it cannot be decoded.
        """
        again = self._later_snapshot
        if again is None or not again.whole or self.overdue >= 0:
            return False
        lsn, at = again.stamp()
        self._read_ms = self._incremental.read_ms = again.sent_ms if lsn < 0 else -1
        if bad := next(iter(self._suspended.ailing), None):
            raise ContinuityError("a second snapshot began", table=bad, hint=_ANEW)
        if 0 <= lsn <= self._bound_lsn:
            what = "the source's LSN went back: a later snapshot is not later"
            raise ContinuityError(what, lsn=lsn, bound=self._bound_lsn, hint=_ANEW)
        self._snapshot_lsn = self._bound_lsn = lsn = max(lsn, self._bound_lsn)
        self._begun_ms = again.begun_ms
        self._pending.let_go(again.sent_ms)
        self._truncations.snapshot = lsn
        slices = tuple(RowRange(c, 0, len(c)) for c in again.replacing())
        self._given_us = max(at, self._given_us)
        out.append(SnapshotTransaction(Lsn(lsn), self._given_us, slices, later=True))
        self._later_snapshot, self._replay = None, replace(self._replay, before_snapshot=None)
        return True

    def _pass(self, end: TransactionMark) -> None:
        """A transaction given already, or committed before the snapshot that counts: a connector killed before it has kept
        where it stood makes a second snapshot after it has sent transactions. One that found no row has no LSN to compare
        with: what was sent before it began (`_read_ms`) is in it."""
        self._passed_lsn = max(self._passed_lsn, end.lsn)
        self._pending.pop(end.transaction, None)
        self._bound.repeated(end.transaction, end.lsn)
        if self._bound.get(end.transaction) < 0:
            self._bound.add(end.transaction, end.lsn, keep=True)

    def _complete_snapshot(self, out: list[Transaction]) -> bool:
        """Give the snapshot if it is whole; whether it is behind us."""
        ailing = self._suspended.ailing.items()
        self._stop_all([t for t, (bad, _) in ailing if bad.event is None or bad.event.snapshot])
        if not self._snapshot.whole:
            return False
        lsn, at = self._snapshot.stamp()
        if lsn < 0 <= self._replay.snapshot and any(
            (c.lsns == self._replay.snapshot).any() for c in self._snapshot.rows()
        ):
            raise ContinuityError(
                "a snapshot that the log has was begun again", bound=self._replay.snapshot, hint=_ANEW
            )
        slices = tuple(RowRange(c, 0, len(c)) for c in self._snapshot.last())
        for stop in self._suspended.known.values():
            stop.snapshot = self._snapshot.told(stop.names)
        self._snapshot_lsn, self._begun_ms = lsn, self._snapshot.begun_ms
        self._read_ms = self._incremental.read_ms = self._snapshot.sent_ms if lsn < 0 else -1
        self._bound_lsn = max(self._bound_lsn, lsn)
        self._pending.let_go(self._snapshot.sent_ms)
        if 0 <= self._replay.later <= lsn:  # the one before it had no row, and is not in the log
            self._replay = replace(self._replay, before_snapshot=None)
        self._first_lsn = self._truncations.first_snapshot = lsn
        self._incremental.older(lsn)
        if slices or self._suspended.known:
            # also where all rows are of stopped tables: a run that can read them has an epoch for them, and so has this
            self._given_us = max(at, 0)
            out.append(
                SnapshotTransaction(Lsn(max(lsn, 0)), self._given_us, slices, errors=self._suspended.take_errors())
            )
        self._snapshot = Snapshot(self._tables)
        return True

    def _give(self, end: TransactionMark, pending: PartialTransaction | None) -> SourceTransaction:
        if self._suspended.known:
            self._suspended.passed(end.transaction, end.lsn, end.counts, pending)
        slices = pending.whole() if pending else ()
        supplied = tuple(pending.supplied()) if pending and pending.gaps else ()
        self._remember(end.transaction, end.lsn)
        if pending and pending.repeats(slices):
            self._bound.repeated(end.transaction, end.lsn)
        self._given_us = int(slices[0].changes.timestamps[slices[0].start]) if slices else end.timestamp_us
        errors = self._suspended.take_errors()
        place, at = Lsn(end.lsn), self._given_us
        return SourceTransaction(place, at, slices, id=end.transaction, errors=errors, supplied=supplied)

    def _stop_before(self, end: TransactionMark, pending: PartialTransaction | None) -> None:
        """Stop the tables whose bad record may be of this transaction, or before it: they would lack it."""
        missing = self._missing(end, pending)
        for table, (bad, _) in tuple(self._suspended.ailing.items()):
            of_run = [s for s in (pending.slices.get(table, ()) if pending else ()) if s.changes.topic == bad.topic]
            here = [s for s in of_run if s.changes.partition == bad.partition]
            if table in missing or any(int(s.changes.offsets[s.stop - 1]) > bad.offset for s in here):
                self._stop_all((table,))

    def _stop_partly_emptied(self, pending: PartialTransaction) -> bool:
        """Stop the tables of which a whole transaction empties some leaves and not all; whether there are any."""
        found = list(self._leaves.partly_emptied(s for slices in pending.slices.values() for s in slices))
        for table, record, text in found:
            self._suspended.met(table, record, text, None)
            self._stop_all((table,))
        return bool(found)

    def _stop_all(self, tables: Sequence[str]) -> None:
        for table in tables:
            self._suspended.stop(
                table, self._bound_lsn, self._withdraw(table), 0 if self._snapshot_lsn is None else None
            )

    def _withdraw(self, table: str) -> Holds:
        """Drop what is here of a table and was not given; from where that is to be read again."""
        holds: Holds = oldest(self._pending.withdraw(table))
        earliest(holds, self._snapshot.withdraw(table))
        earliest(holds, self._microbatches.withdraw(table))
        earliest(holds, self._incremental.withdraw(table))
        return holds

    def _repair(self, out: list[Transaction]) -> bool:
        """Give as one transaction what stopped tables missed; whether none of those read again waits for more."""
        at = max(self._bound_lsn, self._snapshot_lsn or -1)
        for stop in self._suspended.here():
            for slices in stop.backlog.by_transaction() if stop.backlog else ():
                for found in self._leaves.partly_emptied(slices):
                    self._suspended.met(*found, at)
        for stop in self._suspended.failed():
            self._withdraw(stop.table)
        mended = None if at < self._suspended.after else self._suspended.mended()
        if not mended:
            return mended is not None
        backlogs = [stop.backlog for stop in mended if stop.backlog is not None]
        for backlog in backlogs:
            for lsn, events in backlog.of_transactions():
                self._key_changes.given(lsn, (events,))
        whole = tuple(s for backlog in backlogs for s in backlog.slices())
        self._given_us = max([self._given_us, *(int(s.changes.timestamps.max()) for s in whole)])
        out.append(Repair(Lsn(at), self._given_us, whole, errors=self._suspended.take_errors()))
        return True

    def _is_whole(self, end: TransactionMark, pending: PartialTransaction | None) -> bool:
        here = pending or PartialTransaction()
        if here.is_surely_whole(end.counts, self._tables, bool(self._leaves)):
            return True
        return not here.is_surely_short(end.counts, self._tables) and not self._missing(end, here)

    def _missing(self, end: TransactionMark, pending: PartialTransaction | None) -> dict[str, int]:
        return (pending or PartialTransaction()).missing(end.counts, self._tables)

    def _remember(self, txid: int, lsn: int) -> None:
        self._bound.add(txid, lsn, keep=bool(self._suspended.known))
        self._bound_lsn = max(self._bound_lsn, lsn)

    def pending_positions(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → the oldest offset of what is not given yet."""
        return oldest(self._places())

    def _places(self) -> Iterator[Place]:
        """Where what is not given yet begins, and perhaps where it goes on."""
        yield from self._pending.places()
        for table in self._suspended.ailing:
            yield from ((*place, offset) for place, offset in self._suspended.bad_at[table].items())
        for snapshot in (self._snapshot, *((self._later_snapshot,) if self._later_snapshot is not None else ())):
            yield from snapshot.places()
        yield from first_places((*self._microbatches, *self._incremental))
        # of the transaction topic, which has one partition: the first is the oldest
        yield from ((end.topic, end.partition, end.offset) for end in itertools.islice(self._ends, 1))

    def waiting(self) -> Incomplete | None:
        """What the oldest incomplete transaction waits for, or None."""
        if self._snapshot_lsn is None:
            return None if self._snapshot.whole else _awaited(EpochKind.SNAPSHOT, self._snapshot)
        if self._later_snapshot is not None:
            return _awaited(EpochKind.LATER_SNAPSHOT, self._later_snapshot)
        if self._ends:
            end = self._ends[0]
            if self._barrier is not None and self._barrier.holds(end):
                return Incomplete("notifications", -1, {}, end.timestamp_us)
            if self._suspended.exactly and end.lsn > self._suspended.after:
                return Incomplete(
                    EpochKind.REPAIR, Repair.id, {s.table: s.missing for s in self.stops}, end.timestamp_us
                )
            missing = self._missing(end, self._pending.get(end.transaction))
            return Incomplete("transaction", end.transaction, missing, end.timestamp_us) if missing else None
        return Incomplete("incremental snapshot", -1, {}, self._given_us) if self._incremental else None

    @property
    def overdue(self) -> int:
        """See `Assembler.overdue`."""
        last = self._replay.last_before_snapshot(begun=True) or -1
        waits = (
            self._later_snapshot is not None
            and self._later_snapshot.whole
            and max(self._bound_lsn, self._passed_lsn) < last
        )
        return last if waits else -1

    @property
    def stops(self) -> Sequence[SuspendedTable]:
        """The suspended tables, those read again among them."""
        return tuple(self._suspended.known.values())

    def stop(self, table: str, record: Undecodable, text: str) -> bool:
        """See `Assembler.stop`; the table stops before the first transaction that may have to do with the record."""
        self._suspended.met(table, record, text, self._bound_at(record.event))
        return True

    def _bound_at(self, event: Event | None) -> int | None:
        """The LSN of the END of an event's transaction, -1 for a row of the snapshot, if it was given; else None."""
        if event is None or event.snapshot:
            return None if event is None or self._snapshot_lsn is None else -1
        lsn = self._bound.get(event.transaction)
        return lsn if lsn >= event.lsn else None

    def skip(self, record: Undecodable, *, known: bool = False) -> None:
        """See `Assembler.skip`."""
        event, table = record.event, record.table
        if event is None or table is None or self._suspended.idle(table):
            return
        again, bound = self._suspended.collecting(table), self._bound_at(event)
        if event.snapshot and bound is None:
            self._snapshot.gap(event.transaction, table)
        elif event.snapshot and again is not None and again.backlog is not None:
            again.backlog.snapshot.gap(event.transaction, table)
        elif event.snapshot and record.sent_ms < self._read_ms:
            return  # of a try before the one that found no row
        elif event.snapshot and (
            self._later_snapshot is not None or event.lsn > max(self._bound_lsn, self._snapshot_lsn or -1)
        ):
            self._begin_later_snapshot().gap(event.transaction, table)
        elif bound is not None and again is not None and event.order >= 0:
            again.late_gap(event.transaction, bound, event.order, (record.partition, record.offset))
        elif bound is None and event.order >= 0 and (pending := self._pending.of(event.transaction, record.sent_ms)):
            pending.gap(table, event.order, record, known=known)
            self._pending.began(event.transaction, [(record.topic, record.partition, record.offset)])

    def follow(self, log: ReplayOrder) -> None:
        """See `Assembler.follow`: a later snapshot waits for what the log has before it."""
        self._replay, self._incremental.logged = log, log.chunks

    def remembered(self) -> Mapping[str, Any]:
        """See `Assembler.remembered`."""
        snapshot = {"begun_ms": self._begun_ms, "sent_ms": self._pending.since_ms}
        return {"truncations": self._truncations.json(), "incremental": self._incremental.json(), "snapshot": snapshot,
                "key_changes": self._key_changes.json(), "repeated": self._bound.json()}  # fmt: skip

    def outlived(self, row: TableChanges) -> bool | None:
        """See `Assembler.outlived`."""
        return self._truncations.outlived(row)

    def standing(self, rows: RowRange, lsn: int) -> Sequence[RowRange]:
        """See `Assembler.standing`."""
        return self._incremental.standing(rows, lsn)

    def resume(
        self,
        bound: Iterable[tuple[int, int]],
        stops: Iterable[SuspendedTable] = (),
        remembered: Mapping[str, Any] | None = None,
    ) -> None:
        """Continue after these bound transactions (oldest first): their repetitions will be dropped, but for what tables
        that were suspended missed of them."""
        if remembered:
            self._truncations.restore(remembered["truncations"])
            self._incremental.restore(remembered["incremental"])
            self._key_changes.restore(remembered.get("key_changes", {}))
            snapshot = remembered.get("snapshot", {})
            self._begun_ms, self._read_ms = snapshot.get("begun_ms", -1), self._incremental.read_ms
            self._pending.let_go(snapshot.get("sent_ms", -1))
            self._bound.restore(remembered.get("repeated", ()))
        self._suspended.resume(stops, self._replay.lsn, exactly=self._replay.exactly)
        self._snapshot_lsn = -1
        for txid, lsn in bound:
            if txid >= 0:
                self._remember(txid, lsn)
            else:
                self._snapshot_lsn, self._bound_lsn = max(self._snapshot_lsn, lsn), max(self._bound_lsn, lsn)
        self._first_lsn = self._snapshot_lsn


def _awaited(kind: str, snapshot: Snapshot) -> Incomplete:
    return Incomplete(kind, -1, snapshot.missing(), snapshot.marks[0].timestamp_us if snapshot.marks else -1)
