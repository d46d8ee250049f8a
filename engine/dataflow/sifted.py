"""The node of a filtered table that is looked up by the table's key: the table's own arrangement, seen through the filter.

Always: what it sends is what the filter sends; nothing is arranged, so that a view which filters a table before it joins
it adds no copy of its rows. Single writer: the dataflow that holds it.
"""

from __future__ import annotations

from engine.dataflow.nodes import FilterNode, Node
from engine.dataflow.stateful import ArrangeNode
from engine.operators.sifted import Sifted


class SiftedNode(ArrangeNode):
    """`source`, which filters what `whole` arranges, looked up in `whole`."""

    label = "sift"

    def __init__(self, fingerprint: str, source: FilterNode, whole: ArrangeNode) -> None:
        Node.__init__(self, fingerprint, source.schema, [source, whole])
        self._wrap(source, whole)
        self.index = Sifted(whole.index, source.predicate)
