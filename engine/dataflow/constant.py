"""The collection that always holds one row, and the one that repeats rows: what plans need beside tables.

Always: the one row is there from the first epoch on; a row stands as often as its last column says, times its own
multiplicity. Called by `headrace.views.render`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.graph import Graph
from headrace.engine.dataflow.node import Memo, Node, fingerprint_of, merged
from headrace.engine.dataflow.stateless import StatelessNode
from headrace.engine.operators.delta import QUIET, Delta, rows_of
from headrace.engine.schema import BOOLEAN, Column, Schema

ONE_ROW = Schema((Column("row", BOOLEAN, nullable=False),))

_MOST = float(1 << 62)


def one_row(flow: Graph) -> Collection:
    """A collection of one row, whose one column is true; in a loop it is there from the first round on."""
    fingerprint = fingerprint_of("one row")
    node = flow.from_outside(lambda graph: graph.intern(fingerprint, lambda: ConstantNode(fingerprint, ONE_ROW, ())))
    return Collection(flow, node, ONE_ROW)


def repeated(collection: Collection) -> Collection:
    """Each row as often as its last column, a bigint, says, without that column."""
    fingerprint = fingerprint_of("repeat", collection.fingerprint)
    schema = Schema(collection.schema.columns[:-1])
    node = collection.flow.intern(fingerprint, lambda: RepeatNode(fingerprint, schema, [collection.node]))
    return Collection(collection.flow, node, schema)


class ConstantNode(Node):
    """One row, true in every column, which comes with the first epoch and stays."""

    label = "constant"

    def is_eager(self, lower: int) -> bool:
        """The row comes with the first step, in one shard."""
        return lower == 0 and self.shard.holds_the_whole

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The row, in the first step."""
        return self._row(lower) if self.is_eager(lower) else QUIET

    def compute(self, as_of: int, memo: Memo) -> Delta:  # noqa: ARG002
        """The row."""
        return self._row(as_of) if self.shard.holds_the_whole else QUIET

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:  # noqa: ARG002
        """The row, where the first epoch is asked for."""
        return self._row(0) if lower <= 0 < upper and self.shard.holds_the_whole else QUIET

    def _row(self, time: int) -> Delta:
        columns = [pa.array([True]) for _ in self.schema.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow)
        return Delta(Updates(rows, np.array([time], np.int64), np.ones(1, np.int64)), None)


class RepeatNode(StatelessNode):
    """Each multiplicity times the row's last column."""

    label = "repeat"

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """The rows without their last column. Raises DiffOverflow."""
        rows = deltas[0].rows
        if rows is None:
            return merged(QUIET, deltas[0])
        counts = rows.rows.column(rows.rows.num_columns - 1).to_numpy(zero_copy_only=False)
        if bool((np.abs(rows.diffs.astype(np.float64)) * np.abs(counts.astype(np.float64)) > _MOST).any()):
            raise DiffOverflow
        columns = rows.rows.columns[:-1]
        kept = rows_of(columns, self.schema.arrow, len(counts))
        return merged(Delta(Updates(kept, rows.times, rows.diffs * counts), None), deltas[0])
