"""Between intake and reclock: from changes and marks, in any interleaving, to whole source transactions in commit order.

Always: what `complete` gives was never given before, is whole, and is the next prefix of the source's commit order;
duplicates (Debezium repeats after a crash, Spark retries tasks) change nothing. What still waits is named by `waiting`
and held back from the positions by `pending_positions`. The reclock is the only caller. One class,
longer than a file should be: what came, what was given and what is owed are one state, which every part of it reads.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from connectors.changes import Decoded, Event, SnapshotMark, TableChanges, TransactionMark, Undecodable
from engine.batch.updates import TRUNCATE
from sidecar.pending import Pending, Slice, runs
from sidecar.snapshot import Snapshot
from sidecar.stops import Holds, Stop, Stops, earliest
from sidecar.transactions import RESNAPSHOT, ContinuityError, Mended, Transaction, Waiting

MEMORY_OF_TRANSACTIONS = 1_000_000
"""How many bound transactions are remembered, to know Debezium's repetitions (16 bytes each)."""


_ANEW = "start with an empty state folder"


class TransactionAssembler:
    """Debezium: a transaction is complete when all its events in the subscribed tables are there, as END counts them.

    `tables`: subscribed, by name as END spells it, each to the table it belongs to (leaves of a partitioned table map to
    their root). `in_order`: the messages come in the order of emission (a recording), so that a snapshot ends where the
    stream begins and a run of one txId without metadata is one transaction; otherwise Debezium's notifications say when
    the snapshot is complete, and a poll's unmarked rows are one cut.
    """

    def __init__(self, tables: Mapping[str, str], *, in_order: bool = False) -> None:
        self._tables = dict(tables)
        self._in_order = in_order
        self._leaves = Counter(table for name, table in tables.items() if name != table)
        self._pending: dict[int, Pending] = {}
        self._ends: deque[TransactionMark] = deque()
        self._bound: dict[int, int] = {}
        self._bound_lsn = -1
        self._stops = Stops(self._tables)
        self._snapshot = Snapshot(self._tables)
        self._snapshot_lsn: int | None = None
        self._begun_ms = -1
        self._again: Snapshot | None = None
        self._again_after: int | None = None
        self._given_us = -1
        self._loose: list[Slice] = []
        self._saw_end = self._finished = False

    def accept(self, decoded: Decoded) -> None:
        """Take in what a format decoded. Raises ContinuityError for what cannot follow on what is here."""
        for changes in decoded.changes:
            if len(changes) and not self._stops.idle(changes.table):
                self._accept_changes(changes)
        for mark in decoded.marks:
            if isinstance(mark, TransactionMark):
                self._saw_end = True
                if mark.status == "END":
                    self._ends.append(mark)
                    self._snapshot.ended |= self._in_order
            elif isinstance(mark, SnapshotMark) and self._snapshot_lsn is None:
                self._snapshot.mark(mark)
            elif isinstance(mark, SnapshotMark) and (self._again is not None or mark.status == "started"):
                self._begin_again().mark(mark)

    def _accept_changes(self, changes: TableChanges) -> None:
        if changes.snapshot.any():
            initial = changes.snapshot == 1
            if initial.any():
                self._accept_initial(changes if initial.all() else changes.take(np.flatnonzero(initial)))
                if initial.all():
                    return
                changes = changes.take(np.flatnonzero(~initial))
        self._snapshot.ended |= self._in_order
        if changes.metadata.all():
            self._accept_marked(changes)
        else:
            marked = np.flatnonzero(changes.metadata)
            if len(marked):
                self._accept_marked(changes.take(marked))
            loose = changes.take(np.flatnonzero(~changes.metadata))
            slices = [Slice(loose, a, b) for a, b in runs(loose.transactions)]
            stop = self._stops.collecting(changes.table)
            if stop is None or stop.backlog is None:
                self._loose += slices
            else:
                stop.backlog.add_loose(slices)

    def _accept_initial(self, rows: TableChanges) -> None:
        stop = self._stops.collecting(rows.table)
        if self._snapshot_lsn is None:
            self._snapshot.add(rows)
        elif stop is not None and stop.backlog is not None and stop.snapshot is not None:
            stop.backlog.snapshot.add(rows)
        elif self._again is not None or self._is_later(rows):
            self._begin_again().add(rows)

    def _is_later(self, rows: TableChanges) -> bool:
        """Whether rows are of a later snapshot: after all that was given, and not of a try before it that come late."""
        given = max(self._bound_lsn, -1 if self._snapshot_lsn is None else self._snapshot_lsn)
        read = -1 if rows.read_ms is None else int(rows.read_ms.max())
        return int(rows.lsns.max()) > given and not 0 <= read < self._begun_ms

    def _begin_again(self) -> Snapshot:
        """The later snapshot, which is waited for from now on. Raises ContinuityError."""
        if self._stops.known or self._in_order:
            stands = ", ".join(sorted(self._stops.known)) or None
            raise ContinuityError("a second snapshot began", stands_still=stands, hint=_ANEW)
        if self._again is None:
            self._again = Snapshot(self._tables)
        return self._again

    def _check_repetition(self, end: TransactionMark) -> None:
        """Raise ContinuityError for an END before the last bound that is none of those bound: the LSN went back."""
        known = self._bound.get(end.transaction)
        oldest = next(iter(self._bound.values()), 0)
        if known == end.lsn or end.lsn < oldest or end.lsn <= (self._snapshot_lsn or -1):
            return
        raise ContinuityError(
            "the source's LSN went back: it has lost transactions that were read", transaction=end.transaction, lsn=end.lsn,
            bound=self._bound_lsn, topic=end.topic, partition=end.partition, offset=end.offset,
            hint=f"it was restored, or a standby that was behind took over: have the connector take a new snapshot, then {_ANEW}",
        )  # fmt: skip

    def _accept_marked(self, changes: TableChanges) -> None:
        ids, orders, table = changes.transactions, changes.orders, changes.table
        other = ids[1:] != ids[:-1]
        clean = bool(((orders[1:] > orders[:-1]) | other).all())
        starts = [0, *(np.flatnonzero(other) + 1).tolist()]
        first = np.array(starts)
        of_runs = zip(ids[first].tolist(), changes.lsns[first].tolist(), starts, [*starts[1:], len(ids)], strict=True)
        for txid, lsn, start, stop in of_runs:
            if self._bound.get(txid, -1) >= lsn:
                again = self._stops.collecting(table)
                if again is not None:
                    again.late(txid, self._bound[txid], Slice(changes, start, stop))
                continue
            pending = self._pending.get(txid)
            if pending is None:
                pending = self._pending[txid] = Pending()
            found = pending.slices.get(table)
            if found is None:
                pending.slices[table] = [Slice(changes, start, stop)]
            else:
                found.append(Slice(changes, start, stop))
            if not clean:
                pending.clean = False

    def finish(self) -> None:
        """No message will follow (a recording's end): the snapshot is complete, and where no END was recorded at all the
        events' own transaction ids say what belongs together."""
        self._snapshot.ended = self._finished = True
        if not self._saw_end:
            for pending in self._pending.values():
                self._loose.extend(s for slices in pending.slices.values() for s in slices)
            self._pending.clear()

    def complete(self) -> list[Transaction]:
        """The longest complete prefix: the snapshot, then transactions in the order of their ENDs, then unmarked rows."""
        out: list[Transaction] = []
        if self._snapshot_lsn is None and not self._complete_snapshot(out):
            return out
        self._give_whole(out)
        while self._complete_again(out):
            self._give_whole(out)
        if not self._ends:
            self._stop_all(tuple(self._stops.ailing))
        if self._stops.known:
            self._mend(out)
        if self._loose:
            cuts = self._cut()
            out += [replace(cut, errors=self._stops.take_errors()) for cut in cuts]
        return out

    def _give_whole(self, out: list[Transaction]) -> None:
        """Give the whole transactions at the front; none while a later snapshot is waited for, but those before it in the
        log."""
        while self._ends:
            end = self._ends[0]
            if end.lsn <= self._bound_lsn:
                self._check_repetition(end)
                self._pass(self._ends.popleft())
                continue
            if self._again_after is not None:
                if end.lsn > self._again_after:
                    break
            elif self._again is not None:
                break
            if self._stops.exactly and end.lsn > self._stops.after and not self._mend(out):
                break
            pending = self._pending.get(end.transaction)
            if self._stops.ailing:
                self._stop_before(end, pending)
            if not self._is_whole(end, pending):
                break
            self._ends.popleft()
            out.append(self._give(end, self._pending.pop(end.transaction, None)))

    def _complete_again(self, out: list[Transaction]) -> bool:
        """Give a later snapshot if it is whole, in place of all that its tables held and of what came before it.

        Raises ContinuityError where it is not later than what was given, or a record of it cannot be decoded.
        """
        again = self._again
        if again is None or not again.whole or self._bound_lsn < (self._again_after or -1):
            return False
        lsn, at = again.stamp()
        bad = next(iter(self._stops.ailing), None)
        if bad is not None or 0 <= lsn <= self._bound_lsn:
            what = (
                "the source's LSN went back: a later snapshot is not later"
                if bad is None
                else "a second snapshot began"
            )
            raise ContinuityError(what, table=bad, lsn=lsn, bound=self._bound_lsn, hint=_ANEW)
        self._snapshot_lsn = self._bound_lsn = lsn = max(lsn, self._bound_lsn)
        self._begun_ms = again.begun_ms
        slices = tuple(Slice(c, 0, len(c)) for c in again.replacing())
        self._given_us = max(at, self._given_us)
        out.append(Transaction(RESNAPSHOT, -1, lsn, self._given_us, slices))
        self._again = self._again_after = None
        return True

    def _pass(self, end: TransactionMark) -> None:
        """A transaction given already, or committed before the snapshot that counts: a connector killed before it has kept
        where it stood makes a second snapshot after it has sent transactions."""
        self._pending.pop(end.transaction, None)
        self._bound.setdefault(end.transaction, end.lsn)

    def _complete_snapshot(self, out: list[Transaction]) -> bool:
        """Give the snapshot if it is whole; whether it is behind us."""
        ailing = self._stops.ailing.items()
        self._stop_all([t for t, (bad, _) in ailing if bad.event is None or bad.event.snapshot])
        if not self._snapshot.whole:
            return False
        lsn, at = self._snapshot.stamp()
        slices = tuple(Slice(c, 0, len(c)) for c in self._snapshot.last())
        for stop in self._stops.known.values():
            stop.snapshot = self._snapshot.told(stop.names)
        self._snapshot_lsn, self._begun_ms = lsn, self._snapshot.begun_ms
        self._bound_lsn = max(self._bound_lsn, lsn)
        if slices or self._stops.known:
            # also where all rows are of stopped tables: a run that can read them has an epoch for them, and so has this
            self._given_us = max(at, 0)
            out.append(Transaction("snapshot", -1, max(lsn, 0), self._given_us, slices, self._stops.take_errors()))
        self._snapshot = Snapshot(self._tables)
        return True

    def _give(self, end: TransactionMark, pending: Pending | None) -> Transaction:
        if self._stops.known:
            self._stops.passed(end.transaction, end.lsn, end.counts, pending)
        slices = pending.whole() if pending else ()
        self._check_truncates(slices)
        self._remember(end.transaction, end.lsn)
        at = int(slices[0].changes.timestamps[slices[0].start]) if slices else end.timestamp_us
        self._given_us = at
        errors = self._stops.take_errors()
        return Transaction("transaction", end.transaction, end.lsn, at, slices, errors)

    def _stop_before(self, end: TransactionMark, pending: Pending | None) -> None:
        """Stop the tables whose bad record may be of this transaction, or before it: they would lack it."""
        missing = self._missing(end, pending)
        for table, (bad, _) in tuple(self._stops.ailing.items()):
            of_run = [s for s in (pending.slices.get(table, ()) if pending else ()) if s.changes.topic == bad.topic]
            here = [s for s in of_run if s.changes.partition == bad.partition]
            if table in missing or any(int(s.changes.offsets[s.stop - 1]) > bad.offset for s in here):
                self._stop_all((table,))

    def _stop_all(self, tables: Sequence[str]) -> None:
        for table in tables:
            self._stops.stop(table, self._bound_lsn, self._withdraw(table), 0 if self._snapshot_lsn is None else None)

    def _withdraw(self, table: str) -> Holds:
        """Let go of what is here of a table and was not given; whence that is to be read again."""
        holds: Holds = {}
        for pending in self._pending.values():
            earliest(holds, pending.slices.pop(table, ()))
            pending.gaps.pop(table, None)
        earliest(holds, self._snapshot.withdraw(table))
        earliest(holds, [s for s in self._loose if s.changes.table == table])
        self._loose = [s for s in self._loose if s.changes.table != table]
        return holds

    def _mend(self, out: list[Transaction]) -> bool:
        """Give as one transaction what stopped tables missed; whether none of those read again waits for more."""
        at = max(self._bound_lsn, self._snapshot_lsn or -1)
        for stop in self._stops.failed():
            self._withdraw(stop.table)
        mended = None if at < self._stops.after else self._stops.mended()
        if not mended:
            return mended is not None
        for stop in mended:
            for slices in stop.backlog.by_transaction() if stop.backlog else ():
                self._check_truncates(slices)
        whole = tuple(s for stop in mended if stop.backlog for s in stop.backlog.slices())
        self._given_us = max([self._given_us, *(int(s.changes.timestamps.max()) for s in whole)])
        out.append(Transaction("mended", -2, at, self._given_us, whole, self._stops.take_errors()))
        return True

    def _check_truncates(self, slices: Sequence[Slice]) -> None:
        """A leaf's TRUNCATE empties that leaf alone, and which rows are its own we do not know: all leaves or none."""
        emptied: dict[str, list[Slice]] = {}
        for s in slices if self._leaves else ():
            if s.changes.table in self._leaves and (s.changes.kinds[s.start : s.stop] == TRUNCATE).any():
                emptied.setdefault(s.changes.table, []).append(s)
        for table, found in emptied.items():
            topics = {s.changes.topic for s in found}
            if len(topics) < self._leaves[table] and not any(t.endswith(f".{table}") for t in topics):
                first = found[0].changes
                raise ContinuityError(
                    "one partition of a table was truncated", table=table, topic=first.topic, partition=first.partition,
                    offset=int(first.offsets[found[0].start]),
                    hint="delete the rows instead, or start with an empty state folder and a new snapshot",
                )  # fmt: skip

    def _cut(self) -> list[Transaction]:
        """Rows without metadata: one transaction a poll, or, in order of emission, one a run of a txId."""
        loose = sorted(self._loose, key=lambda s: int(s.changes.offsets[s.start])) if self._in_order else self._loose
        groups: list[list[Slice]] = []
        for s in loose:
            txid = s.changes.transactions[s.start]
            if groups and (not self._in_order or groups[-1][0].changes.transactions[groups[-1][0].start] == txid):
                groups[-1].append(s)
            else:
                groups.append([s])
        self._loose = groups.pop() if self._in_order and not self._finished else []
        return [
            Transaction(
                "cut", int(g[-1].changes.transactions[g[-1].start]) if self._in_order else -1,
                max(int(s.changes.lsns[s.start : s.stop].max()) for s in g),
                max(int(s.changes.timestamps[s.start : s.stop].max()) for s in g), tuple(g),
            )
            for g in groups
        ]  # fmt: skip

    def _is_whole(self, end: TransactionMark, pending: Pending | None) -> bool:
        """Whether nothing is missing; mostly each table's one slice says so at once."""
        if pending is None or not pending.clean or self._leaves:
            return not self._missing(end, pending)
        slices, tables = pending.slices, self._tables
        for name, count in end.counts.items():
            if name in tables:
                found = slices.get(name)
                if found is None or len(found) > 1 or found[0].stop - found[0].start != count:
                    return not self._missing(end, pending)
        return True

    def _missing(self, end: TransactionMark, pending: Pending | None) -> dict[str, int]:
        expected: dict[str, int] = {}
        for name, count in end.counts.items():
            table = self._tables.get(name)
            if table is not None:
                expected[table] = expected.get(table, 0) + count
        missing = {t: n - (pending.distinct(t) if pending else 0) for t, n in expected.items()}
        return {t: n for t, n in missing.items() if n > 0}

    def _remember(self, txid: int, lsn: int) -> None:
        self._bound.pop(txid, None)
        self._bound[txid] = lsn
        self._bound_lsn = max(self._bound_lsn, lsn)
        if len(self._bound) > MEMORY_OF_TRANSACTIONS and not self._stops.known:
            del self._bound[next(iter(self._bound))]

    def pending_positions(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → the oldest offset of what is not given yet."""
        out: dict[tuple[str, int], int] = {}

        def hold(topic: str, partition: int, offset: int) -> None:
            key = (topic, partition)
            out[key] = min(out.get(key, offset), offset)

        for pending in self._pending.values():
            for slices in pending.slices.values():
                for s in slices:
                    hold(s.changes.topic, s.changes.partition, int(s.changes.offsets[s.start]))
            for gaps in pending.gaps.values():
                for place in gaps.values():
                    hold(*place)
        for table in self._stops.ailing:
            for (topic, partition), offset in self._stops.bad_at[table].items():
                hold(topic, partition, offset)
        for snapshot in (self._snapshot, *((self._again,) if self._again is not None else ())):
            for c in snapshot.rows():
                hold(c.topic, c.partition, int(c.offsets[0]))
            for mark in snapshot.marks:
                hold(mark.topic, mark.partition, mark.offset)
        for s in self._loose:
            hold(s.changes.topic, s.changes.partition, int(s.changes.offsets[s.start]))
        for end in self._ends:
            hold(end.topic, end.partition, end.offset)
        return out

    def waiting(self) -> Waiting | None:
        """What the oldest incomplete transaction waits for, or None."""
        if self._snapshot_lsn is None:
            if not self._snapshot.whole:
                since = self._snapshot.marks[0].timestamp_us if self._snapshot.marks else -1
                return Waiting("snapshot", -1, self._snapshot.missing(), since)
            return None
        if self._again is not None:
            since = self._again.marks[0].timestamp_us if self._again.marks else -1
            return Waiting(RESNAPSHOT, -1, self._again.missing(), since)
        if self._ends:
            end = self._ends[0]
            if self._stops.exactly and end.lsn > self._stops.after:
                return Waiting("mended", -2, {s.table: s.missing for s in self.stops}, end.timestamp_us)
            missing = self._missing(end, self._pending.get(end.transaction))
            return Waiting("transaction", end.transaction, missing, end.timestamp_us) if missing else None
        return None

    @property
    def stops(self) -> Sequence[Stop]:
        """The tables that stand still, those read again among them."""
        return tuple(self._stops.known.values())

    def stop(self, table: str, record: Undecodable, text: str) -> bool:
        """See `Assembler.stop`; the table stops before the first transaction that may have to do with the record."""
        self._stops.met(table, record, text, self._bound_at(record.event))
        return True

    def _bound_at(self, event: Event | None) -> int | None:
        """The LSN of the END of an event's transaction, -1 for a row of the snapshot, if it was given; else None."""
        if event is None or event.snapshot:
            return None if event is None or self._snapshot_lsn is None else -1
        lsn = self._bound.get(event.transaction, -1)
        return lsn if lsn >= event.lsn else None

    def skip(self, record: Undecodable) -> None:
        """See `Assembler.skip`."""
        event, table = record.event, record.table
        if event is None or table is None or self._stops.idle(table):
            return
        again, bound = self._stops.collecting(table), self._bound_at(event)
        if event.snapshot and bound is None:
            self._snapshot.gap(event.transaction, table)
        elif event.snapshot and again is not None and again.backlog is not None:
            again.backlog.snapshot.gap(event.transaction, table)
        elif bound is not None and again is not None:
            again.late_gap(event.transaction, bound, event.order, (record.partition, record.offset))
        elif bound is None and event.order >= 0:
            gaps = self._pending.setdefault(event.transaction, Pending()).gaps.setdefault(table, {})
            gaps.setdefault(event.order, (record.topic, record.partition, record.offset))

    def resume(
        self, bound: Iterable[tuple[int, int]], stops: Iterable[Stop] = (), mended: Mended | None = None
    ) -> None:
        """Continue after these bound transactions (oldest first): their repetitions will be dropped, but for what tables
        that stood still are owed of them."""
        where = mended or Mended(-1, exactly=False)
        self._stops.resume(stops, where.lsn, exactly=where.exactly)
        self._snapshot_lsn, self._again_after = -1, where.before_snapshot
        for txid, lsn in bound:
            if txid >= 0:
                self._remember(txid, lsn)
            else:
                self._snapshot_lsn = max(self._snapshot_lsn, lsn)
                self._bound_lsn = max(self._bound_lsn, lsn)
