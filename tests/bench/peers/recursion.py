"""Our side of loops that no view can say: distances from a node, and strongly connected components, a loop in a loop.

Always: loops are those of the peer (programs.rs), join for join. Called by `sessions`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import INSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.dataflow.iterate import Iteration
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema
from tests.bench.peers.feeding import Session
from tests.bench.peers.programs import Held, Rules

KEY, VALUE = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)
EDGES = Schema.of([Column("key", BIGINT, nullable=False), Column("value", BIGINT, nullable=False)], ("key", "value"))
PAIRS = Schema((Column("key", BIGINT), Column("value", BIGINT)))
REACHED = Schema((Column("node", BIGINT), Column("distance", BIGINT)))
LABELS = Schema((Column("node", BIGINT), Column("label", BIGINT)))


def distances(flow: Dataflow, edges: Collection) -> Collection:
    """Each node that node 0 reaches, with the least number of edges that lead there."""
    roots = flow.table("roots", REACHED)
    zero = pa.array([0], pa.int64())
    rows = pa.RecordBatch.from_arrays([zero, zero], schema=REACHED.arrow)
    flow.push("roots", Upserts(rows, np.zeros(1, np.int64), np.full(1, INSERT, np.uint8)))
    loop = flow.iterate("distances")
    root, arcs = loop.enter(roots), loop.enter(edges)
    found = loop.variable(REACHED, initial=root)
    further = Call("+(bigint,bigint)", (KEY, Literal(1, BIGINT)), BIGINT)
    # Of node, distance, from, to the join keeps distance and to.
    beyond = found.join(arcs, [0], [0], columns=(1, 3)).project([VALUE, further], REACHED)
    least = beyond.concat(root).reduce([0], [Aggregate("min", VALUE, BIGINT)], REACHED)
    (left,) = loop.close({found: least}, leave=[least])
    return left


def components(flow: Dataflow, edges: Collection) -> Collection:
    """The edges within strongly connected components."""
    loop = flow.iterate("components")
    forwards, backwards = loop.enter(edges), loop.enter(_turned(edges))
    within = loop.variable(PAIRS, initial=forwards)
    left = _trimmed(loop, _trimmed(loop, within, forwards), backwards)
    (found,) = loop.close({within: left}, leave=[left])
    return found


def _turned(edges: Collection) -> Collection:
    return edges.project([VALUE, KEY], PAIRS)


def _trimmed(outer: Iteration, cycle: Collection, edges: Collection) -> Collection:
    """The edges whose ends have the same least node that leads to them along `cycle`, turned around."""
    loop = outer.iterate("labels")
    arcs, own = loop.enter(cycle), loop.enter(edges.project([VALUE, VALUE], LABELS))
    labels = loop.variable(LABELS)
    # Of node, label, from, to the join keeps label and to.
    passed = labels.join(arcs, [0], [0], columns=(1, 3)).project([VALUE, KEY], LABELS)
    least = passed.concat(own).reduce([0], [Aggregate("min", VALUE, BIGINT)], LABELS)
    (found,) = loop.close({labels: least}, leave=[least])
    # Of from and to with the label of from, and the label of to.
    begun = edges.join(found, [0], [0], columns=(0, 1, 3))
    same = Call("=(bigint,bigint)", (ColumnRef(2, BIGINT), ColumnRef(3, BIGINT)), BOOLEAN)
    return _turned(begun.join(found, [1], [0], same, columns=(0, 1, 2, 4)))


def _by_hand(loops: Callable[[Dataflow, Collection], Collection]) -> Session:
    flow = Dataflow()
    return Rules(Held(flow, {"edge": EDGES}, [loops(flow, flow.table("public.edge", EDGES)).output("out")]))


SESSIONS: dict[str, Callable[[], Session]] = {
    loops.__name__: lambda loops=loops: _by_hand(loops)  # type: ignore[misc]
    for loops in (distances, components)
}
