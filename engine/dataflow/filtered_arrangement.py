"""The nodes of a table that is filtered or projected and looked up by its own key: the table's own arrangement, seen
through the filter or the projection.

Always: what they send is what the filter or the projection sends; nothing is arranged, so that a view which filters or
computes before it joins by a table's key adds no copy of its rows. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.node import Node
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.dataflow.stateless import FilterNode, ProjectNode
from headrace.engine.operators.filtered_trace import FilteredIndex, Index, ProjectedIndex


class FilteredArrangementNode(ArrangeNode):
    """`source`, which filters what `whole` arranges, looked up in `whole`."""

    label = "sift"

    def __init__(self, fingerprint: str, source: FilterNode, whole: ArrangeNode) -> None:
        Node.__init__(self, fingerprint, source.schema, [source, whole])
        self._filter, self._whole = source, whole
        self._wrap(source, whole)
        self.read_anew()

    def index_over(self, trace: Trace) -> Index:
        """As `whole`, filtered."""
        return FilteredIndex(self._whole.index_over(trace), self._filter.predicate)

    def read_anew(self) -> None:
        """What `whole` reads."""
        self.trace = self._whole.trace
        self.index = self.index_over(self.trace)


class ProjectedArrangementNode(ArrangeNode):
    """`source`, which projects what `whole` arranges and has its key in the columns `key`, looked up in `whole`."""

    label = "project arranged"

    def __init__(self, fingerprint: str, source: ProjectNode, whole: ArrangeNode, key: tuple[int, ...]) -> None:
        Node.__init__(self, fingerprint, source.schema, [source, whole])
        self._project, self._whole = source, whole
        self._wrap(source, whole)
        self.key = key
        self.layout = layout_of(source.schema, key)
        self.read_anew()

    def index_over(self, trace: Trace) -> Index:
        """As `whole`, projected."""
        return ProjectedIndex(self._whole.index_over(trace), self._project.exprs, self.layout)

    def read_anew(self) -> None:
        """What `whole` reads."""
        self.trace = self._whole.trace
        self.index = self.index_over(self.trace)
