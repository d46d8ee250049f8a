"""Which nodes a step visits: those with input, those that were called, and those that take part in every step.

Invariant: a node is visited after all of its inputs, and once; one that is not visited is quiet. What a step costs follows the
nodes that have something to do, however many others there are: of filters that differ in a constant alone, those that some
row has. Owned by the dataflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from headrace.engine.dataflow.node import Node
from headrace.engine.dataflow.stateless import FilterNode
from headrace.engine.operators.chunked_delta import Pieced
from headrace.engine.operators.delta import QUIET

_MANY = 4096
"""From so many rows on, filters look at them as columns."""


class Schedule:
    """The order of visits, and which traces they left to be looked after.

    `ahead`: nodes that were visited, and may have times to give up; `unmerged`: likewise, and batches to merge.
    """

    def __init__(self) -> None:
        self.ahead: dict[Node, None] = {}
        self.unmerged: dict[Node, None] = {}
        self._called: dict[Node, None] = {}
        self._regular: dict[Node, None] = {}
        self._spoke: list[Node] = []  # what they sent in the last step is still there

    def add(self, node: Node) -> None:
        """A node that is new."""
        if not node.waits_for_input:
            self._regular[node] = None
        if isinstance(node, FilterNode) and node.wanted is not None:
            column, value = node.wanted
            node.inputs[0].switches.setdefault(column, {}).setdefault(value, {})[node] = None
            return
        for read in node.inputs:
            (read.consumers if read in node.woken_by else read.watchers)[node] = None

    def remove(self, node: Node) -> None:
        """A node that goes."""
        for read in node.inputs:
            read.consumers.pop(node, None)
            read.watchers.pop(node, None)
        if isinstance(node, FilterNode) and node.wanted is not None:
            column, value = node.wanted
            of_column = node.inputs[0].switches[column]
            del of_column[value][node]
            if not of_column[value]:
                del of_column[value]
        for some in (self._called, self._regular, self.ahead, self.unmerged):
            some.pop(node, None)

    def call(self, node: Node) -> None:
        """Visit it in the next step: something waits for it."""
        self._called[node] = None

    def run(self, lower: int, upper: int) -> list[Node]:
        """One step of the nodes that have something to do; these, in the order of the visits."""
        due: list[tuple[int, Node]] = []
        called, self._called = self._called, {}
        self._quiet()
        queued = {**called, **self._regular}
        for node in queued:
            heappush(due, (node.place, node))
        visited = []
        while due:
            _, node = heappop(due)
            visited.append(node)
            self._visit(node, lower, upper)
            if node.delta is not QUIET:
                readers: Iterable[Node] = node.consumers
                if node.switches:
                    readers = (*readers, *_switched(node))
                if node.failed:
                    readers = (*readers, *node.watchers)
                for reader in readers:
                    if reader not in queued:
                        queued[reader] = None
                        heappush(due, (reader.place, reader))
        return visited

    def run_all(self, nodes: Iterable[Node], lower: int, upper: int) -> list[Node]:
        """One step of all nodes: the first one, or where other shards take part in all rounds."""
        self._called = {}
        self._spoke = []
        visited = list(nodes)
        for node in visited:
            self._visit(node, lower, upper)
        return visited

    def _visit(self, node: Node, lower: int, upper: int) -> None:
        node.step(lower, upper)
        self.ahead[node] = self.unmerged[node] = None
        if node.delta is not QUIET:
            self._spoke.append(node)

    def _quiet(self) -> None:
        """What was sent in the step before is not sent again."""
        for node in self._spoke:
            node.delta = QUIET
        self._spoke = []


def _switched(node: Node) -> Iterator[Node]:
    """The filters that some row of what the node sent may pass; all of them where it sent errors, or much."""
    rows, errors = node.delta
    known = errors is None and not isinstance(node.delta, Pieced) and len(rows or ()) < _MANY
    for column, of_column in node.switches.items():
        if not known or len(of_column) == 1:
            for filters in of_column.values():
                yield from filters
        elif rows is not None:
            for value in dict.fromkeys(rows.struct.column(column).to_pylist()):
                yield from of_column.get(value, ())
