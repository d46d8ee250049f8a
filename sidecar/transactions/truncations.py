"""Truncations: when a table was last emptied without an event for each row, by a TRUNCATE or a later snapshot.

Invariant: it holds only transactions that were given, each by the LSN of its END. Older rows of incremental snapshots and
older dead letters are no part of the table any more. Checkpoints keep it, because what was given is not read again. The
source's assembler owns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.connectors.changes import TableChanges
from headrace.engine.batch.updates import TRUNCATE
from headrace.sidecar.transactions.delivered import DeliveredTransactions

KEPT = 1000
"""After so many TRUNCATEs of a table the tracker looks which of them were given."""


class TruncationTracker:
    """`snapshot`: the LSN of the last later snapshot, -1 for none; `first_snapshot`: of the first, which may have been another
    before it, of a connector that was killed."""

    def __init__(self, bound: DeliveredTransactions) -> None:
        self._bound = bound
        self._met: dict[str, dict[int, int]] = {}
        self._given: dict[str, tuple[int, int]] = {}
        self.snapshot = self.first_snapshot = -1

    def met(self, events: TableChanges) -> None:
        """Events of a table, whose TRUNCATEs are remembered."""
        for at in np.flatnonzero(events.kinds == TRUNCATE).tolist():
            lsn, known = int(events.lsns[at]), self._met.setdefault(events.table, {})
            if events.metadata[at]:
                known[int(events.transactions[at])] = lsn
            else:
                self._give(events.table, lsn, lsn)
            if len(known) > KEPT:
                self.last(events.table)

    def _give(self, table: str, end: int, lsn: int) -> None:
        self._given[table] = max((end, lsn), self._given.get(table, (-1, -1)))

    def last(self, table: str) -> tuple[int, int]:
        """The LSNs of the last TRUNCATE of a table that was given: its transaction's END, its own; -1 for none."""
        known = self._met.get(table, {})
        for txid, lsn in tuple(known.items()):
            if (end := self._bound.get(txid)) >= lsn:
                self._give(table, end, lsn)
                del known[txid]
        return self._given.get(table, (-1, -1))

    @property
    def first(self) -> int:
        """Of the tables' last TRUNCATEs the oldest END; a number above every LSN where there is none."""
        return min((end for end, _ in self._given.values()), default=1 << 62)

    def outlived(self, row: TableChanges) -> bool | None:
        """Whether an event of one record came before its table's rows were taken away; None where nobody can tell."""
        txid, lsn, kind = int(row.transactions[0]), int(row.lsns[0]), int(row.snapshot[0])
        emptied = self.last(row.table)
        if kind != 2 and lsn < self.first_snapshot:
            return True
        if max(emptied[0], self.snapshot) < 0:
            return False
        end = self._bound.get(txid) if kind == 0 and row.metadata[0] else txid if kind == 2 else lsn
        return None if end < lsn and kind == 0 else end < self.snapshot or (end, lsn) < emptied

    def json(self) -> Mapping[str, Any]:
        """As a manifest keeps it."""
        for table in self._met:
            self.last(table)
        return {"tables": {table: list(at) for table, at in self._given.items()}, "snapshot": self.snapshot,
                "first": self.first_snapshot}  # fmt: skip

    def restore(self, body: Mapping[str, Any]) -> None:
        """Of a manifest. Raises KeyError."""
        self._given = {table: (end, lsn) for table, (end, lsn) in body["tables"].items()}
        self.snapshot, self.first_snapshot = body["snapshot"], body.get("first", -1)
