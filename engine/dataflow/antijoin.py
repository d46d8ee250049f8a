"""The node of an antijoin: the rows of its left input that have no partner.

Always: what it sends is the left input's delta less what the join with the right keys sends, cancelled where both have
a row, so that a row with a partner costs those behind nothing. Single writer: the dataflow that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.engine.batch.consolidation import netted
from headrace.engine.batch.gather_rows import take_rows
from headrace.engine.batch.keys import image_plan
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.join import JoinNode
from headrace.engine.dataflow.node import Memo, merged
from headrace.engine.operators import chunked_delta
from headrace.engine.operators.chunked_delta import Pieced, each, joined, pieces_of
from headrace.engine.operators.delta import Delta, concat, negated
from headrace.engine.operators.join import Span, without_partner
from headrace.engine.schema import Schema


class AntijoinNode(JoinNode):
    """The rows of `left` that meet none of `right`, which has each key once at most."""

    label = "antijoin"

    def __init__(self, fingerprint: str, left: ArrangeNode, right: ArrangeNode, schema: Schema) -> None:
        super().__init__(fingerprint, left, right, schema, None, range(len(schema.columns)))
        self._image = image_plan(schema.arrow)

    def _pairs(self, left: Updates | None, right: Updates | None, lower: int, upper: int | None) -> Delta:
        """The left changes less what the join makes of both: of many, so many at a time as a piece may have."""
        if left is None or len(left) <= chunked_delta.PIECE:
            return self._without(left, super()._pairs(left, right, lower, upper))
        rest = self._without(None, super()._pairs(None, right, lower, upper))
        return joined([Pieced(self._by_parts(left, Span(lower - 1, upper))), rest])

    def _by_parts(self, left: Updates, span: Span) -> Iterator[Delta]:
        for part in _parts(left):
            yield from pieces_of(self._without(part, self._half(part, self._left, self._right, span)))

    def _without(self, rows: Updates | None, pairs: Delta) -> Delta:
        return Pieced(self._less_all(rows, pairs.take())) if isinstance(pairs, Pieced) else self._less(rows, pairs)

    def _less_all(self, rows: Updates | None, pairs: Iterator[Delta]) -> Iterator[Delta]:
        for piece in pairs:
            yield self._less(rows, piece)
            rows = None
        yield Delta(rows, None)

    def _less(self, rows: Updates | None, pairs: Delta) -> Delta:
        if pairs.rows is None or not len(pairs.rows):
            return merged(Delta(rows, pairs.errors))
        both = concat([rows, negated(pairs.rows)])
        assert both is not None
        times, diffs, positions = netted(both, self._image)
        left = Updates(take_rows(both.rows, positions), times, diffs) if len(positions) else None
        return merged(Delta(left, pairs.errors))

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The left side's rows that meet none; where the right side's trace does not go so far back, less the joined ones."""
        left, right = self._left.arranged, self._right.arranged
        if not right.trace.covers(as_of):
            return self._without(left.content(as_of, memo).rows, super().compute(as_of, memo))

        def alone(content: Delta) -> Delta:
            rows = content.rows
            found = None if rows is None else without_partner(rows, left.keys(rows), right.index, as_of)
            return merged(Delta(found, content.errors))

        content = left.content_in_pieces(as_of, memo)
        return merged(each(content, alone), Delta(None, right.errors(as_of, memo)))


def _parts(updates: Updates) -> Iterator[Updates]:
    """So many of them at a time as a piece may have; nothing is copied."""
    rows, size = updates.rows, chunked_delta.PIECE
    for start in range(0, len(updates), size):
        times, diffs = (lane[start : start + size] for lane in (updates.times, updates.diffs))
        yield Updates(rows.slice(start, size), times, diffs)
