"""The node of an antijoin: the rows of its left input that have no partner.

Always: what it sends is the left input's delta less what the join with the right keys sends, cancelled where both have
a row, so that a row with a partner costs those behind nothing. Single writer: the dataflow that holds it.
"""

from __future__ import annotations

from engine.batch.consolidation import netted
from engine.batch.keys import image_plan
from engine.batch.payload import take_rows
from engine.batch.updates import Updates
from engine.dataflow.join import JoinNode
from engine.dataflow.nodes import Memo, merged
from engine.dataflow.stateful import ArrangeNode
from engine.operators.delta import Delta, concat, negated
from engine.operators.pieces import added_up, pieces_of
from engine.schema import Schema


class AntijoinNode(JoinNode):
    """The rows of `left` that meet none of `right`, which has each key once at most."""

    label = "antijoin"

    def __init__(self, fingerprint: str, left: ArrangeNode, right: ArrangeNode, schema: Schema) -> None:
        super().__init__(fingerprint, left, right, schema, None, range(len(schema.columns)))
        self._rows = left
        self._image = image_plan(schema.arrow)

    def run(self, lower: int, upper: int) -> Delta:
        """The left delta less the joined one."""
        return self._without(self._rows.delta.rows, added_up(pieces_of(super().run(lower, upper))))

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The left side's content less that of the join."""
        return self._without(self._rows.content(as_of, memo).rows, super().compute(as_of, memo))

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The left side's changes less those of the join."""
        rows = self._rows.changes(lower, upper, memo).rows
        return self._without(rows, super().compute_changes(lower, upper, memo))

    def _without(self, rows: Updates | None, joined: Delta) -> Delta:
        if joined.rows is None or not len(joined.rows):
            return merged(Delta(rows, joined.errors))
        both = concat([rows, negated(joined.rows)])
        assert both is not None
        times, diffs, positions = netted(both, self._image)
        left = Updates(take_rows(both.rows, positions), times, diffs) if len(positions) else None
        return merged(Delta(left, joined.errors))
