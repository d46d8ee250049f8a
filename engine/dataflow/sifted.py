"""The nodes of a table that is filtered or projected and looked up by its own key: the table's own arrangement, seen
through the filter or the projection.

Always: what they send is what the filter or the projection sends; nothing is arranged, so that a view which filters or
computes before it joins by a table's key adds no copy of its rows. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

from engine.batch.layout import layout_of
from engine.dataflow.nodes import FilterNode, Node, ProjectNode
from engine.dataflow.stateful import ArrangeNode
from engine.operators.sifted import Projected, Sifted


class SiftedNode(ArrangeNode):
    """`source`, which filters what `whole` arranges, looked up in `whole`."""

    label = "sift"

    def __init__(self, fingerprint: str, source: FilterNode, whole: ArrangeNode) -> None:
        Node.__init__(self, fingerprint, source.schema, [source, whole])
        self._wrap(source, whole)
        self.index = Sifted(whole.index, source.predicate)


class ProjectedNode(ArrangeNode):
    """`source`, which projects what `whole` arranges and has its key in the columns `key`, looked up in `whole`."""

    label = "project arranged"

    def __init__(self, fingerprint: str, source: ProjectNode, whole: ArrangeNode, key: tuple[int, ...]) -> None:
        Node.__init__(self, fingerprint, source.schema, [source, whole])
        self._wrap(source, whole)
        self.key = key
        self.layout = layout_of(source.schema, key)
        self.index = Projected(whole.index, source.exprs, self.layout)
