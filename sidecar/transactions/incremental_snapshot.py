"""Incremental snapshots: decides where among the transactions each row of one goes.

Debezium writes a watermark to its signal table, reads a chunk of a table, writes another watermark, and drops the rows of the
chunk that the stream changed between the two. It sends the rest at the second watermark, as all transactions before it left
them. Invariant: a row goes right behind that watermark, before any later event of its partition. A row that is out of date (a
later snapshot, a TRUNCATE or a change in another partition came) is dropped, or given as `gone` where the log may have it;
checkpoints record which.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from headrace.connectors.changes import LATER, TableChanges, TransactionMark
from headrace.connectors.commit_place import Lsn
from headrace.sidecar.transactions.model import IncrementalRows
from headrace.sidecar.transactions.partial import RowRange, runs
from headrace.sidecar.transactions.recent_key_changes import RecentKeyChanges
from headrace.sidecar.transactions.suspended_tables import SuspendedTables
from headrace.sidecar.transactions.truncations import TruncationTracker

KEPT = 1000
"""How many transactions of one event are remembered."""


class IncrementalSnapshot:
    """What waits for its place. Of each run of rows its `transactions` say after which END, by its LSN, it was sent. `logged`:
    the log, whose order comes again, has such rows: what is gone now may have been given then. `read_ms`: when the last snapshot
    that counts began, as Kafka has it, if it found no row, which would tell its LSN; else -1."""

    def __init__(self, stops: SuspendedTables, emptied: TruncationTracker, overtaken: RecentKeyChanges) -> None:
        self._suspended, self._truncations, self._key_changes = stops, emptied, overtaken
        self._slices: list[RowRange] = []
        self._singles: deque[tuple[int, int]] = deque(maxlen=KEPT)
        self._latest: dict[str, int] = {}
        self.logged, self.read_ms = False, -1

    def __bool__(self) -> bool:
        return bool(self._slices)

    def __iter__(self) -> Iterator[RowRange]:
        return iter(self._slices)

    def add(self, rows: TableChanges) -> None:
        """Rows of one partition."""
        self._slices += [RowRange(rows, start, stop) for start, stop in runs(rows.transactions)]

    def ended(self, end: TransactionMark) -> None:
        """A transaction is given. One of a single event may be a watermark: the last of its table before it opened its window."""
        if len(end.counts) == 1 and 1 in end.counts.values():
            [name] = end.counts
            self._singles.append((end.lsn, self._latest.get(name, -1)))
            self._latest[name] = end.lsn

    def older(self, lsn: int) -> None:
        """Drop the rows that were read before the first snapshot that counts, which is as of `lsn`: that snapshot has them."""
        self._slices = [s for s in self._slices if int(s.changes.lsns[s.start]) > lsn]

    def withdraw(self, table: str | None = None) -> list[RowRange]:
        """Take a table's rows out, or all."""
        gone = [s for s in self._slices if table in (None, s.changes.table)]
        self._slices = [s for s in self._slices if table not in (None, s.changes.table)]
        return gone

    def ready(self, lsn: int, commit_us: int) -> list[IncrementalRows]:
        """Give the rows that were sent before the END at `lsn`, the last that was given: that of the second watermark, or one
        behind it; but for those of a table that stand behind a bad record of it."""
        bad = {place: offset for places in self._suspended.bad_at.values() for place, offset in places.items()}
        taken = self._take(lambda place, offset, sent: sent < lsn and offset < bad.get(place, offset + 1))
        return self._give(taken, lsn, commit_us)

    def _take(self, which: Callable[[tuple[str, int], int, int], bool]) -> list[RowRange]:
        taken: list[RowRange] = []
        left: list[RowRange] = []
        for s in self._slices:
            changes, at = s.changes, s.start
            here = which((changes.topic, changes.partition), int(changes.offsets[at]), int(changes.transactions[at]))
            (taken if here else left).append(s)
        self._slices = left
        return taken

    def _give(self, taken: Iterable[RowRange], lsn: int, commit_us: int) -> list[IncrementalRows]:
        """As one epoch; but those of tables that were suspended to these."""
        live: list[RowRange] = []
        gone: list[RowRange] = []
        for s in taken:
            stop = self._suspended.collecting(s.changes.table)
            stands, over = self._split(s, lsn)
            gone += over if self.logged else ()
            if stop is None or stop.backlog is None:
                live += stands
                continue
            for rows in stands:
                stop.backlog.add_chunk(rows)
        at_us = commit_us if commit_us >= 0 else max((int(s.changes.timestamps[s.start]) for s in live), default=-1)
        given = [IncrementalRows(Lsn(lsn), at_us, tuple(live))] if live else []
        return given + ([IncrementalRows(Lsn(lsn), at_us, tuple(gone), stale=True)] if gone else [])

    def standing(self, s: RowRange, lsn: int) -> Sequence[RowRange]:
        """Those of rows that go behind the END at `lsn`, the last that was given, and are as they were read. Raises
        ContinuityError where nobody can tell."""
        return self._split(s, lsn)[0]

    def _split(self, s: RowRange, lsn: int) -> tuple[Sequence[RowRange], Sequence[RowRange]]:
        return ((), (s,)) if self._is_gone(s) else self._key_changes.split(s, lsn)

    def _is_gone(self, s: RowRange) -> bool:
        """Whether a later snapshot has what was read, or its table was emptied since, for which Debezium drops none of it."""
        sent_ms = LATER if s.changes.sent_ms is None else int(s.changes.sent_ms[s.start])
        if int(s.changes.lsns[s.start]) <= self._truncations.snapshot or sent_ms < self.read_ms:
            return True
        emptied, _ = self._truncations.last(s.changes.table)
        return emptied >= 0 and emptied > self._opened(int(s.changes.transactions[s.start]))

    def _opened(self, sent: int) -> int:
        """The LSN of the watermark that opened the window of rows sent after the END at `sent`; `sent` itself where no
        watermark is known."""
        at = bisect_right(self._singles, (sent, 1 << 62))
        if at == 0 or at == len(self._singles) or self._singles[at][1] < 0:
            return sent
        return self._singles[at][1]

    def json(self) -> Mapping[str, Any]:
        """As a manifest keeps it: the watermarks around TRUNCATEs that were given are not read again, from the last before them
        on, which tells that none is missing."""
        first = bisect_left(self._singles, (self._truncations.first, -1)) - 1
        kept = islice(self._singles, max(0, first), None)
        return {"latest": dict(self._latest), "singles": [list(s) for s in kept], "read_ms": self.read_ms}

    def restore(self, body: Mapping[str, Any]) -> None:
        """Of a manifest. Raises KeyError."""
        self._latest, self.read_ms = dict(body["latest"]), body.get("read_ms", -1)
        self._singles.extend((lsn, opened) for lsn, opened in body["singles"])
