"""The nodes of a delta join: what changes in one of its collections, looked up in the others' arrangements.

Always: an arrangement holds the step before it is read; nothing is kept here. Called by `delta_join`, and in loops by
`delta_join_round`. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.batch.consolidation import without_pairs
from headrace.engine.batch.keys import columns_plan
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.operators.chunked_delta import Pieced, each
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.join import Joined, Probes, Span, join_trace, without_nulls
from headrace.engine.operators.reduce import Reduced
from headrace.engine.operators.small_join import Side, join_few, look_up_few
from headrace.engine.schema import Schema


class ChangesNode(Node):
    """The changes of a collection without its content: the stream that a path of look-ups but the first begins with."""

    label = "changes"

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The source's changes."""
        return self.inputs[0].delta

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """No rows: the first path has them all. The errors are every path's own."""
        return Delta(None, self.inputs[0].errors(as_of, memo))

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The source's changes."""
        return self.inputs[0].changes(lower, upper, memo)


class LookUpNode(Node):
    """The rows of a stream with their partners in an arrangement, as it was at the stream's times.

    `key`: the stream's columns that are looked up; `held`: of both sides the columns that the rows have;
    `strictly`: partners must be earlier, and not of the same epoch; `sets_out`: the stream is a collection's own changes, of
    which those of other columns alone cancel and cost nothing.
    """

    label = "look up"
    takes_pieces = True

    def __init__(
        self,
        fingerprint: str,
        stream: Node,
        arranged: ArrangeNode,
        key: tuple[int, ...],
        held: tuple[tuple[int, ...], tuple[int, ...]],
        *,
        strictly: bool,
        sets_out: bool = False,
    ) -> None:
        columns = [*(stream.schema.columns[k] for k in held[0]), *(arranged.schema.columns[k] for k in held[1])]
        super().__init__(fingerprint, Schema(tuple(columns)), [stream, arranged])
        self.woken_by = (stream,)
        self._stream = stream
        self._arranged = arranged
        self._key = key
        self._layout = layout_of(stream.schema, key)
        self._joined = Joined.of(self.schema.arrow, held)
        self._strictly = strictly
        read = tuple(sorted({*key, *held[0]}))
        may_cancel = sets_out and len(read) < len(stream.schema.columns)
        self._slim = columns_plan(stream.schema.arrow, read) if may_cancel else None
        self._reader = arranged.trace.read_by(f"{self.label}-{fingerprint[:12]}")

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The partners of what the stream brings."""
        stream = self._stream.delta
        if stream is QUIET:
            return QUIET
        few = self._few(stream.rows, lower - 1) if self.scope is None and not isinstance(stream, Pieced) else None
        return self._partners(stream, lower - 1, strictly=self._strictly) if few is None else merged(few, stream)

    def _few(self, rows: Updates | None, since: int) -> Delta | None:
        """The partners of a few rows, in one call of a kernel; None where that takes more."""
        if rows is None:
            return QUIET
        mine, index = Side(rows, self._layout, self._slim, None), self._arranged.index
        if isinstance(index, Reduced):
            return look_up_few(mine, index, since, self._joined.assembly, strictly=self._strictly)
        other = Side(None, self._arranged.layout, None, index)
        return join_few(mine, other, since, self._joined.assembly, strictly=self._strictly)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The partners, at `as_of`, of the stream's content."""
        content = self._stream.content_in_pieces(as_of, memo)
        self._arranged.trace.check_faithful(as_of)
        return self._partners(content, as_of, strictly=False)

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The partners of the stream's changes, as the steps of these epochs found them."""
        self._arranged.trace.check_faithful(max(lower - 1, 0))
        return self._partners(self._stream.changes(lower, upper, memo), lower - 1, strictly=self._strictly)

    def _partners(self, stream: Delta, since: int, *, strictly: bool) -> Delta:
        """What the rows of the stream meet, and its errors."""
        if isinstance(stream, Pieced):
            return each(stream, lambda delta: self._partners(delta, since, strictly=strictly))
        probes = self._probes(stream.rows)
        found = QUIET if probes is None else self._met(probes, since, strictly=strictly)
        return merged(found) if stream.errors is None else merged(found, Delta(None, stream.errors))

    def _met(self, probes: Probes, since: int, *, strictly: bool) -> Delta:
        return join_trace(probes, self._arranged.index, Span(since, None), self._joined, strictly=strictly)

    def _probes(self, rows: Updates | None) -> Probes | None:
        """The stream's updates whose key has no NULL."""
        if rows is None or not len(rows):
            return None
        keys, positions = self._layout.keys_of(rows), np.arange(len(rows))
        times, diffs = rows.times, rows.diffs
        chosen = self._chosen(rows)
        if chosen is not None:
            keys, positions, times, diffs = keys.take(chosen), chosen, times[chosen], diffs[chosen]
        return Probes(rows.struct, positions, keys, times, diffs) if len(positions) else None

    def _chosen(self, rows: Updates) -> Int64s | None:
        """The positions of the updates whose key has no NULL and that another one does not cancel; None for all."""
        valid = without_nulls(rows.struct, self._key)
        left = None if self._slim is None else without_pairs(rows, self._slim)
        return valid if left is None else left if valid is None else np.intersect1d(left, valid, assume_unique=True)

    def release(self) -> None:
        """Stop reading the arrangement."""
        self._reader.release()
