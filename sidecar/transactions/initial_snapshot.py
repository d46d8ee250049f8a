"""The initial snapshot of a source, collected until every table's scan is complete.

Invariant: only the rows of the connector's last try count. A connector that is killed in its snapshot begins again: its tries
are told apart by their txId, and the last STARTED voids the counts before it. Notifications do not name their try and may
arrive before or after its rows; those between a STARTED and its end belong together. The assembler calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import SnapshotNotification, TableChanges, lanes
from headrace.engine.batch.updates import TRUNCATE
from headrace.sidecar.transactions.partial import Place, by_table, runs

_NEVER = 1 << 62
"""Later than any row was read, in ms."""


class Snapshot:
    """One initial snapshot. `tables`: by name as notifications spell it, each to the table it belongs to.

    `ended`: the source said that it is over. `floor`: the LSN of rows that were withdrawn, -1 for none. `begun_ms`: when the
    last try began, by the connector's clock; `sent_ms`: when its STARTED was sent, as Kafka has it.
    """

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = tables
        self._tries: dict[int, list[TableChanges]] = {}
        self._read: dict[int, tuple[int, int]] = {}
        self._scans: dict[tuple[str, str], int] = {}
        self._gaps: dict[int, Counter[str]] = {}
        self.marks: list[SnapshotNotification] = []
        self.ended = False
        self.begun_ms = self._ended_ms = self.sent_ms = -1
        self.floor = -1

    def add(self, changes: TableChanges) -> None:
        """Rows with a snapshot mark."""
        ids = changes.transactions
        for start, stop in runs(ids):
            whole = start == 0 and stop == len(ids)
            part = changes if whole else changes.take(np.arange(start, stop))
            id_ = int(ids[start])
            self._tries.setdefault(id_, []).append(part)
            if part.read_ms is not None:
                first, last = self._read.get(id_, (_NEVER, -1))
                self._read[id_] = min(first, int(part.read_ms.min())), max(last, int(part.read_ms.max()))

    def mark(self, mark: SnapshotNotification) -> None:
        """Progress, as Debezium notifies it."""
        self.marks.append(mark)
        if mark.status == "started":
            self._scans.clear()
            self.ended, self.begun_ms, self.sent_ms = False, mark.timestamp_us // 1000, mark.sent_ms
        elif mark.status == "table" and mark.table is not None and mark.rows is not None:
            self._scans[mark.table, mark.scanned] = mark.rows
        elif mark.status in ("completed", "skipped"):
            self.ended, self._ended_ms = True, mark.timestamp_us // 1000

    def _counts(self) -> Counter[str]:
        """Rows by table, as far as it was said. The leaves of a partitioned table are scanned one by one; a scan may be told
        again."""
        counts: Counter[str] = Counter()
        for (name, _), rows in self._scans.items():
            counts[name] += rows
        return counts

    def gap(self, transaction: int, table: str) -> None:
        """A row that is passed over: it counts as read."""
        self._gaps.setdefault(transaction, Counter())[table] += 1

    def places(self) -> Iterator[Place]:
        """Where it begins in each partition, and perhaps where it goes on."""
        yield from ((c.topic, c.partition, int(c.offsets[0])) for c in self.rows())
        yield from ((mark.topic, mark.partition, mark.offset) for mark in self.marks)

    def rows(self) -> list[TableChanges]:
        """Everything that is held."""
        return [c for chunks in self._tries.values() for c in chunks]

    def withdraw(self, table: str) -> list[TableChanges]:
        """Take a table's rows out; the snapshot goes on without them."""
        gone = [c for c in self.rows() if c.table == table]
        kept = {t: [c for c in chunks if c.table != table] for t, chunks in self._tries.items()}
        self.floor = max([self.floor, *(int(c.lsns.max()) for c in gone)])
        self._tries = {t: chunks for t, chunks in kept.items() if chunks}
        return gone

    def told(self, names: Iterable[str]) -> int:
        """How many rows the tables so named have, as far as it was said."""
        counts = self._counts()
        return sum(counts[name] for name in names)

    def replacing(self) -> list[TableChanges]:
        """The rows of the last try, and before those of each table that was read a TRUNCATE: what is not seen again goes."""
        rows = self.last()
        tables = sorted({table for name, _ in self._scans if (table := self._tables.get(name)) is not None})
        at = int(rows[0].transactions[0]) if rows else -1
        return [_emptied(table, at, self.stamp()[0]) for table in tables] + rows

    def last(self) -> list[TableChanges]:
        """The rows of the last try; none where all rows are of earlier tries."""
        begun = (chunks for transaction, chunks in self._tries.items() if self._is_begun(transaction))
        return max(begun, key=lambda chunks: int(chunks[0].lsns[0]), default=[])

    def counted(self) -> Counter[str]:
        """Table → rows that the last try has brought, those passed over among them."""
        rows = self.last()
        gaps = self._gaps.values() if not rows else [self._gaps.get(int(rows[0].transactions[0]), Counter())]
        found: Counter[str] = Counter()
        for each in gaps:
            found.update(each)
        for changes in rows:
            found[changes.table] += len(changes)
        return found

    def missing(self) -> dict[str, int]:
        """Table → rows of the last try still to come."""
        expected = by_table(self._counts(), self._tables)
        counted = self.counted()
        missing = {t: n - counted[t] for t, n in expected.items()}
        return {t: n for t, n in missing.items() if n > 0}

    @property
    def whole(self) -> bool:
        """Whether all of the last try is here: it ended, and no row is missing."""
        return self.ended and not self.missing() and not self._is_outlived()

    def _is_outlived(self) -> bool:
        """Whether the end is of a try before the last one, whose own is still to come."""
        return any(0 <= self._ended_ms < first for first, _ in self._read.values())

    def _is_begun(self, transaction: int) -> bool:
        """Whether a try read something since the last STARTED, as far as it says when."""
        return not 0 <= self._read.get(transaction, (-1, -1))[1] < self.begun_ms

    def stamp(self) -> tuple[int, int]:
        """(LSN, µs since 1970 UTC) of the rows of the last try; -1 where there are none."""
        rows = self.last()
        lsn = max([self.floor, *(int(c.lsns.max()) for c in rows)])
        return lsn, max((int(c.timestamps.max()) for c in rows), default=-1)


def _emptied(table: str, transaction: int, lsn: int) -> TableChanges:
    """A TRUNCATE that stands before the rows of a snapshot, which have order -1."""
    row = pa.RecordBatch.from_arrays([pa.nulls(1)], names=["\x00"])
    return TableChanges(
        table, "", 0, row, np.array([TRUNCATE], np.uint8), lanes(1, -1), lanes(1, transaction), lanes(1, -2),
        lanes(1, lsn), lanes(1), np.ones(1, np.uint8), np.zeros(1, np.bool_), lanes(1),
    )  # fmt: skip
