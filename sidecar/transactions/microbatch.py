"""Microbatches: cuts the rows of a source that sends no transaction markers, one cut a poll.

Invariant: rows keep the order in which they came. In a recording a cut is a run of one txId instead. The assembler calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.connectors.changes import TableChanges
from headrace.connectors.commit_place import Lsn
from headrace.sidecar.transactions.model import Microbatch
from headrace.sidecar.transactions.partial import RowRange, runs
from headrace.sidecar.transactions.suspended_tables import SuspendedTables


class MicrobatchBuffer:
    """What waits to be cut. `stops`: the suspended tables; `in_order`: the messages come in the order of emission;
    `finished`: none follows."""

    def __init__(self, stops: SuspendedTables, *, in_order: bool) -> None:
        self._suspended, self._in_order = stops, in_order
        self._slices: list[RowRange] = []
        self.finished = False

    def __bool__(self) -> bool:
        return bool(self._slices)

    def __iter__(self) -> Iterator[RowRange]:
        return iter(self._slices)

    def accept(self, rows: TableChanges) -> None:
        """A run's rows by their txId, those of a table that was suspended for this one."""
        slices = [RowRange(rows, start, stop) for start, stop in runs(rows.transactions)]
        stop = self._suspended.collecting(rows.table)
        if stop is None or stop.backlog is None:
            self.add(slices)
        else:
            stop.backlog.add_loose(slices)

    def add(self, slices: Iterable[RowRange]) -> None:
        """Rows behind those that are here."""
        self._slices += slices

    def withdraw(self, table: str) -> list[RowRange]:
        """Take a table's rows out."""
        gone = [s for s in self._slices if s.changes.table == table]
        self._slices = [s for s in self._slices if s.changes.table != table]
        return gone

    def cut(self) -> list[Microbatch]:
        """One transaction a poll; in order of emission one a run of a txId, the last of which may go on."""
        loose, in_order = self._slices, self._in_order
        if in_order:
            loose = sorted(loose, key=lambda s: int(s.changes.offsets[s.start]))
        groups: list[list[RowRange]] = []
        for s in loose:
            txid = s.changes.transactions[s.start]
            if groups and (not in_order or groups[-1][0].changes.transactions[groups[-1][0].start] == txid):
                groups[-1].append(s)
            else:
                groups.append([s])
        self._slices = groups.pop() if in_order and not self.finished else []
        return [
            Microbatch(
                id=int(g[-1].changes.transactions[g[-1].start]) if in_order else -1,
                place=Lsn(max(int(s.changes.lsns[s.start : s.stop].max()) for s in g)),
                commit_us=max(int(s.changes.timestamps[s.start : s.stop].max()) for s in g),
                slices=tuple(g),
            )
            for g in groups
        ]
