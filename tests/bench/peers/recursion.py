"""Our side of collections that are defined by themselves, over the edges of a graph: distances, closure, same generation.

Always: loops are those of the peer (recursion.rs), join for join. Called by `sessions`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from engine.batch.updates import INSERT, Upserts
from engine.dataflow import Collection, Dataflow
from engine.operators.expressions.ir import Aggregate, Call, ColumnRef, Literal
from engine.schema import BIGINT, BOOLEAN, Column, Schema
from tests.bench.peers.feeding import Flow, Session
from tests.bench.peers.laps import Answer

EDGES = Schema((Column("key", BIGINT), Column("value", BIGINT)))
REACHED = Schema((Column("node", BIGINT), Column("distance", BIGINT)))
PAIRS = Schema((Column("one", BIGINT), Column("two", BIGINT)))


def distances(flow: Dataflow, edges: Collection) -> Collection:
    """Each node that node 0 reaches, with the least number of edges that lead there."""
    roots = flow.table("roots", REACHED)
    zero = pa.array([0], pa.int64())
    rows = pa.RecordBatch.from_arrays([zero, zero], schema=REACHED.arrow)
    flow.push("roots", Upserts(rows, np.zeros(1, np.int64), np.full(1, INSERT, np.uint8)))
    loop = flow.iterate("distances")
    root, arcs = loop.enter(roots), loop.enter(edges)
    found = loop.variable(REACHED, initial=root)
    further = Call("+(bigint,bigint)", (ColumnRef(0, BIGINT), Literal(1, BIGINT)), BIGINT)
    # Of node, distance, from, to the join keeps distance and to.
    beyond = found.join(arcs, [0], [0], columns=(1, 3)).project([ColumnRef(1, BIGINT), further], REACHED)
    least = beyond.concat(root).reduce([0], [Aggregate("min", ColumnRef(1, BIGINT), BIGINT)], REACHED)
    (left,) = loop.close({found: least}, leave=[least])
    return left


def closure(flow: Dataflow, edges: Collection) -> Collection:
    """Pairs of nodes of which the first reaches the second."""
    loop = flow.iterate("closure")
    arcs = loop.enter(edges)
    found = loop.variable(PAIRS, initial=arcs)
    further = found.join(arcs, [1], [0], columns=(0, 3)).concat(arcs).distinct()
    (left,) = loop.close({found: further}, leave=[further])
    return left


def generation(flow: Dataflow, edges: Collection) -> Collection:
    """Different nodes that are as far below a common ancestor; edges lead from parents to children."""
    different = Call("<>(bigint,bigint)", (ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)), BOOLEAN)
    siblings = edges.join(edges, [0], [0], different, columns=(1, 3)).distinct()
    loop = flow.iterate("generation")
    first, children = loop.enter(siblings), loop.enter(edges)
    found = loop.variable(PAIRS, initial=first)
    # Of one, two, parent, child: two and the child of one; then that child and the child of two.
    half = found.join(children, [0], [0], columns=(1, 3))
    whole = half.join(children, [0], [0], columns=(1, 3)).concat(first).distinct()
    (left,) = loop.close({found: whole}, leave=[whole])
    return left


class Recursion(Flow):
    """One of them over a table of edges."""

    def __init__(self, recursion: Callable[[Dataflow, Collection], Collection]) -> None:
        super().__init__()
        self.outputs = [recursion(self.flow, self.flow.table("edges", EDGES)).output("out")]

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the edges."""
        return self.feed([(["edges"], EDGES, prefix)], epochs)


SESSIONS: dict[str, Callable[[], Session]] = {
    r.__name__: lambda r=r: Recursion(r)  # type: ignore[misc]
    for r in (distances, closure, generation)
}
