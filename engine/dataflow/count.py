"""The nodes of a reduce that only counts: an arrangement of its keys is all that it keeps, and all that joins look up.

Always: the arrangement holds the step before they run, and no other of the same columns is made. Outside of loops alone,
where times are in one order. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.arrange import ArrangeNode, TableNode
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.operators.counts import CountedIndex, Shown, count_changes, count_known, counted
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.filtered_trace import Index
from headrace.engine.operators.reduce_layout import Shape


class CountNode(Node):
    """What is shown of each key of `arranged`, whose key is the whole row."""

    label = "count"

    def __init__(self, fingerprint: str, arranged: ArrangeNode, shape: Shape) -> None:
        super().__init__(fingerprint, shape.schema, [arranged])
        self.arranged = arranged
        self.key = shape.key
        self.shown = Shown.of(shape)
        self._is_table = isinstance(arranged.source, TableNode)
        """Whether what is counted are a table's own rows, of which its intake knows how many copies there were."""
        self._reader = arranged.trace.read_by(f"{self.label}-{fingerprint[:12]}")

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """What is shown otherwise of the keys that change."""
        return self._changed(self.arranged.delta, lower, None)

    def _changed(self, delta: Delta, lower: int, upper: int | None) -> Delta:
        if delta.rows is None:
            return merged(QUIET, delta)
        if self._is_table and delta.rows.before is not None:
            return merged(count_known(self.shown, delta.rows), delta)
        trace = self.arranged.trace
        keys = trace.layout.keys_of(delta.rows)
        return merged(count_changes(self.shown, trace.spine, keys, lower - 1, upper), delta)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """What is shown of the arrangement's content."""
        content = self.arranged.trace.snapshot(as_of)
        return merged(counted(self.shown, content), Delta(None, self.arranged.errors(as_of, memo)))

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:
        """Those of what is counted."""
        return self.arranged.errors(as_of, memo)

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """As the steps of these epochs made them."""
        self.arranged.trace.check_faithful(max(lower - 1, 0))
        return self._changed(self.arranged.changes(lower, upper, memo), lower, upper)

    def release(self) -> None:
        """Stop reading the arrangement."""
        self._reader.release()


class CountedArrangementNode(ArrangeNode):
    """What a count shows, looked up by its key in what it counts: nothing is arranged once more."""

    label = "present"

    def __init__(self, fingerprint: str, source: CountNode) -> None:
        Node.__init__(self, fingerprint, source.schema, [source, source.arranged])
        self._wrap(source, source.arranged)
        self._shown = source.shown
        self.layout = layout_of(source.schema, self.key)
        self.index = self.index_over(self.trace)

    def index_over(self, trace: Trace) -> Index:
        """What is shown of what is counted."""
        return CountedIndex(trace.spine, self._shown, self.layout)
