"""The nodes by which a loop's body reads what lies outside of it: a collection, and an arrangement as it is.

Always: what enters is there from the first round on and the same in every round. Single writer: the loop.
"""

from __future__ import annotations

from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.node import Node
from headrace.engine.operators.delta import QUIET, Delta


class EnterNode(Node):
    """A collection from outside, in the body's first round."""

    label = "enter"

    def __init__(self, fingerprint: str, outside: Node) -> None:
        super().__init__(fingerprint, outside.schema, ())
        self.outside = outside
        self.label = outside.label
        self.imported: Delta | None = None
        """The whole content, while the loop is filled from live collections."""

    def step(self, lower: int, upper: int) -> None:  # noqa: ARG002
        """The outer delta, or nothing after the first round."""
        assert self.scope is not None
        outer = self.outside.delta if self.imported is None else self.imported
        self.delta = QUIET if self.scope.own else outer


class EnteredArrangementNode(ArrangeNode):
    """An arrangement from outside, read in the body as it lies there: its times are those of the first round."""

    def __init__(self, fingerprint: str, entered: EnterNode, outside: ArrangeNode) -> None:
        Node.__init__(self, fingerprint, outside.schema, [entered])
        self.outside = outside
        self._wrap(entered, outside)
