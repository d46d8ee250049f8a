"""The nodes by which a loop's body reads what lies outside of it: a collection, and an arrangement as it is.

Always: what enters is there from the first round on and the same in every round, also where steps go on outside between two
rounds. Single writer: the loop.
"""

from __future__ import annotations

from headrace.engine.arrangement import TraceHandle
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.node import Node
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.lattice import Frontier
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.filtered_trace import Index


class EnterNode(Node):
    """A collection from outside, in the body's first round."""

    label = "enter"

    def __init__(self, fingerprint: str, outside: Node) -> None:
        super().__init__(fingerprint, outside.schema, ())
        self.outside = outside
        self.label = outside.label
        self.imported: Delta | None = None
        """What enters instead of the outer delta: the whole content, while the loop is filled from live collections, or
        what a late loop follows."""

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
        self._pinned: Trace | None = None
        self._handle: TraceHandle | None = None
        self._wrap(entered, outside)

    def index_over(self, trace: Trace) -> Index:
        """As it is outside."""
        return self.outside.index_over(trace)

    def read_anew(self) -> None:
        """What stands outside, or what was pinned of it."""
        self.trace = self.outside.trace if self._pinned is None else self._pinned
        self.index = self.index_over(self.trace)

    def pin(self, frontier: int) -> None:
        """From now on what is complete outside before `frontier`; what comes there later keeps its times until `unpin`, so that
        it can be told from this.
        """
        outside = self.outside.trace
        pinned, handle = outside.pinned(frontier), outside.arranged.hold("late loop", Frontier.at(frontier - 1))
        self.unpin()
        self._pinned, self._handle = pinned, handle

    def unpin(self) -> None:
        """From now on what stands outside."""
        if self._handle is not None:
            self._handle.release()
        self._pinned = self._handle = None
