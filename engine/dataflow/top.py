"""The node of the first rows of each group: it keeps nothing but reads the arrangement of its input by group and order.

Always: what a group shows before and in a step is worked out from that arrangement, so that a restored or hydrated node
goes on as if it had always run. Single writer: the dataflow that holds it.
"""

from __future__ import annotations

from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.top import Top, top_content, top_updates


class TopNode(Node):
    """The rows that `top` wants of those arranged, whose last column is the null flag of the first order."""

    label = "top"

    def __init__(self, fingerprint: str, arranged: ArrangeNode, top: Top) -> None:
        super().__init__(fingerprint, top.schema, [arranged])
        self._arranged = arranged
        self._top = top
        self._reader = arranged.trace.read_by(f"{self.label}-{fingerprint[:12]}")

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The corrections of the groups that change."""
        delta = self._arranged.delta
        trace = self._arranged.trace
        rows = None
        if delta.rows is not None and len(delta.rows):
            rows = top_updates(self._top, trace.layout, trace.spine, delta.rows, lower - 1)
        return merged(Delta(rows, None), delta)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The first rows of the input's content."""
        content = self._arranged.content(as_of, memo)
        rows = None if content.rows is None else top_content(self._top, content.rows, as_of)
        return merged(Delta(rows, None), content)

    def release(self) -> None:
        """Stop reading the arrangement."""
        self._reader.release()
