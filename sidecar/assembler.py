"""Between intake and reclock: from changes and marks, in any interleaving, to whole source transactions in commit order.

Always: what `complete` gives was never given before, is whole, and is the next prefix of the source's commit order;
duplicates (Debezium repeats after a crash, Spark retries tasks) change nothing. What still waits is named by `waiting`
and held back from the positions by `pending_positions`. The reclock is the only caller.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from connectors.changes import Decoded, SnapshotMark, TableChanges, TransactionMark
from engine.batch.updates import TRUNCATE
from engine.errors import HeadraceError
from sidecar.pending import Pending, Slice

MEMORY_OF_TRANSACTIONS = 1_000_000
"""How many bound transactions are remembered, to know Debezium's repetitions (16 bytes each)."""


class ContinuityError(HeadraceError):
    """The stream of a source cannot be continued without guessing (P5)."""

    code = "continuity"


@dataclass(frozen=True)
class Transaction:
    """One whole source transaction, ready to become an epoch.

    `kind`: transaction, snapshot, version, or cut (a source without metadata: what one poll brought). `id`: txId or
    version, -1 for snapshots and cuts. `lsn`: of its END (version for Spark). `commit_us`: µs since 1970 UTC.
    """

    kind: str
    id: int
    lsn: int
    commit_us: int
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Waiting:
    """What the oldest incomplete transaction waits for: table → events still missing."""

    kind: str
    id: int
    missing: Mapping[str, int]
    since_us: int


class Assembler(Protocol):
    """Makes transactions of one source's changes."""

    def accept(self, decoded: Decoded) -> None:
        """Take in what a format decoded."""

    def complete(self) -> list[Transaction]:
        """The longest complete prefix that was not given yet."""

    def pending_positions(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → the oldest offset of what is not given yet."""

    def waiting(self) -> Waiting | None:
        """What holds the prefix up, or None."""

    def finish(self) -> None:
        """Nothing more comes (a recording's end)."""

    def resume(self, bound: Iterable[tuple[int, int]]) -> None:
        """Continue after these bound transactions, (id, lsn) each, oldest first; the snapshot is behind us."""


def runs(lane: np.ndarray) -> Iterable[tuple[int, int]]:
    """The (start, stop) of each run of equal values."""
    if len(lane) == 0:
        return []
    cuts = np.flatnonzero(lane[1:] != lane[:-1]) + 1
    edges = [0, *cuts.tolist(), len(lane)]
    return itertools.pairwise(edges)


class _Snapshot:
    """The initial snapshot while it is read. A connector killed in it begins again: rows of the tries are told apart by
    their txId, the last STARTED voids the counts before it, and the last try is the one that counts."""

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = tables
        self._tries: dict[int, list[TableChanges]] = {}
        self._counts: dict[str, int] = {}
        self.marks: list[SnapshotMark] = []
        self.ended = False

    def add(self, changes: TableChanges) -> None:
        """Rows with a snapshot mark."""
        ids = changes.transactions
        for start, stop in runs(ids):
            whole = start == 0 and stop == len(ids)
            part = changes if whole else changes.take(np.arange(start, stop))
            self._tries.setdefault(int(ids[start]), []).append(part)

    def mark(self, mark: SnapshotMark) -> None:
        """Progress, as Debezium notifies it."""
        self.marks.append(mark)
        if mark.status == "started":
            self._counts.clear()
            self.ended = False
        elif mark.status == "table" and mark.table is not None and mark.rows is not None:
            self._counts[mark.table] = mark.rows
        elif mark.status in ("completed", "skipped"):
            self.ended = True

    def rows(self) -> list[TableChanges]:
        """Everything that is held."""
        return [c for chunks in self._tries.values() for c in chunks]

    def _last(self) -> list[TableChanges]:
        return max(self._tries.values(), key=lambda chunks: int(chunks[0].lsns[0]), default=[])

    def missing(self) -> dict[str, int]:
        """Table → rows of the last try still to come."""
        expected: dict[str, int] = {}
        for name, count in self._counts.items():
            table = self._tables.get(name)
            if table is not None:
                expected[table] = expected.get(table, 0) + count
        for changes in self._last():
            if changes.table in expected:
                expected[changes.table] -= len(changes)
        return {t: n for t, n in expected.items() if n > 0}

    def transaction(self) -> Transaction:
        """The whole snapshot as one transaction; without slices where there was none."""
        chunks = self._last()
        lsn = max((int(c.lsns.max()) for c in chunks), default=-1)
        at = max((int(c.timestamps.max()) for c in chunks), default=-1)
        return Transaction("snapshot", -1, lsn, at, tuple(Slice(c, 0, len(c)) for c in chunks))


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
        self._snapshot = _Snapshot(self._tables)
        self._snapshot_lsn: int | None = None
        self._loose: list[Slice] = []
        self._saw_end = self._finished = False

    def accept(self, decoded: Decoded) -> None:
        """Take in what a format decoded. Raises ContinuityError for a second snapshot."""
        for changes in decoded.changes:
            if len(changes):
                self._accept_changes(changes)
        for mark in decoded.marks:
            if isinstance(mark, TransactionMark):
                self._saw_end = True
                if mark.status == "END" and mark.lsn > self._bound_lsn:
                    self._ends.append(mark)
                    self._snapshot.ended |= self._in_order
            elif isinstance(mark, SnapshotMark) and self._snapshot_lsn is None:
                self._snapshot.mark(mark)

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
            self._loose.extend(Slice(loose, a, b) for a, b in runs(loose.transactions))

    def _accept_initial(self, rows: TableChanges) -> None:
        if self._snapshot_lsn is None:
            self._snapshot.add(rows)
        elif int(rows.lsns.max()) > self._snapshot_lsn:
            raise ContinuityError(
                "a second snapshot began", table=rows.table, topic=rows.topic, partition=rows.partition,
                offset=int(rows.offsets[0]),
                hint="rows deleted meanwhile would stay: start with an empty state folder to read it whole",
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
        if self._snapshot_lsn is None:
            if not self._snapshot.ended or self._snapshot.missing():
                return out
            snapshot = self._snapshot.transaction()
            self._snapshot_lsn = snapshot.lsn
            if snapshot.slices:
                out.append(snapshot)
            self._snapshot = _Snapshot(self._tables)
        while self._ends:
            end = self._ends[0]
            if end.lsn <= self._bound_lsn:
                self._ends.popleft()
                continue
            pending = self._pending.get(end.transaction)
            if not self._is_whole(end, pending):
                break
            self._ends.popleft()
            slices = pending.whole() if pending else ()
            self._check_truncates(slices)
            self._pending.pop(end.transaction, None)
            self._remember(end.transaction, end.lsn)
            at = int(slices[0].changes.timestamps[slices[0].start]) if slices else end.timestamp_us
            out.append(Transaction("transaction", end.transaction, end.lsn, at, slices))
        if self._loose:
            out.extend(self._cut())
        return out

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
        if len(self._bound) > MEMORY_OF_TRANSACTIONS:
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
        for c in self._snapshot.rows():
            hold(c.topic, c.partition, int(c.offsets[0]))
        for mark in self._snapshot.marks:
            hold(mark.topic, mark.partition, mark.offset)
        for s in self._loose:
            hold(s.changes.topic, s.changes.partition, int(s.changes.offsets[s.start]))
        for end in self._ends:
            hold(end.topic, end.partition, end.offset)
        return out

    def waiting(self) -> Waiting | None:
        """What the oldest incomplete transaction waits for, or None."""
        if self._snapshot_lsn is None:
            if not self._snapshot.ended or self._snapshot.missing():
                since = self._snapshot.marks[0].timestamp_us if self._snapshot.marks else -1
                return Waiting("snapshot", -1, self._snapshot.missing(), since)
            return None
        if self._ends:
            end = self._ends[0]
            missing = self._missing(end, self._pending.get(end.transaction))
            return Waiting("transaction", end.transaction, missing, end.timestamp_us) if missing else None
        return None

    def resume(self, bound: Iterable[tuple[int, int]]) -> None:
        """Continue after these bound transactions (oldest first): their repetitions will be dropped."""
        self._snapshot_lsn = -1
        for txid, lsn in bound:
            if txid >= 0:
                self._remember(txid, lsn)
            else:
                self._snapshot_lsn = max(self._snapshot_lsn, lsn)
