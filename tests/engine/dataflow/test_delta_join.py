"""Delta joins: every combination of rows once, at the right epoch, with nothing kept but one arrangement an input and key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import pytest

from headrace.engine.batch.updates import DELETE, UPSERT
from headrace.engine.dataflow import Dataflow, delta_join
from headrace.engine.dataflow.delta_join import Place
from headrace.engine.dataflow.delta_join_nodes import LookUpNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.kernels.compiler import JIT_OFF
from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, TEXT, Column, Schema
from tests.engine.dataflow.pairs import Both, Pair, Shape, World, keyed_ops, keyless_ops
from tests.engine.dataflow.standard import any_cut, made_late, passes, restart
from tests.engine.dataflow.test_dataflow import push, taken
from tests.engine.work import counted
from tests.reference.dataflow import Content, Row, Twin

EDGES = Schema((Column("a", BIGINT), Column("b", BIGINT)))
PLACES = Schema.of([Column("id", BIGINT), Column("area", BIGINT), Column("name", TEXT)], ["id"])
AREAS = Schema.of([Column("id", BIGINT), Column("boss", BIGINT)], ["id"])
SCHEMAS = {"edges": EDGES, "places": PLACES, "areas": AREAS}

FAR = Both(
    Call(">(bigint,bigint)", (ColumnRef(1, BIGINT), Literal(1, BIGINT)), BOOLEAN),
    lambda row: None if row[1] is None else row[1] > 1,
)

PLANS: dict[str, tuple[list[str], list[list[Place]], list[Place]]] = {
    "triangles": (["edges"] * 3, [[(0, 1), (1, 0)], [(1, 1), (2, 0)], [(2, 1), (0, 0)]], [(0, 0), (1, 0), (2, 0)]),
    "chain": (
        ["edges", "places", "areas"],
        [[(0, 1), (1, 0)], [(1, 1), (2, 0)]],
        [(2, 1), (0, 0), (1, 2)],
    ),
    "star": (
        ["places", "edges", "areas", "edges"],
        [[(0, 0), (1, 0), (3, 1)], [(0, 1), (2, 0)]],
        [(0, 0), (1, 1), (2, 1), (3, 0)],
    ),
    "filtered chain": (
        ["edges", "far places", "areas"],
        [[(0, 1), (1, 0)], [(1, 1), (2, 0)]],
        [(2, 1), (0, 0), (1, 2)],
    ),
    "pair": (["areas", "places"], [[(0, 1), (1, 0)], [(0, 0), (1, 1)]], [(1, 2)]),
}


def naive(inputs: Sequence[Content], equal: Sequence[Sequence[Place]], columns: Sequence[Place]) -> Content:
    """All combinations tried."""
    rows: Counter[Row] = Counter()
    for chosen in product(*(rows_of.items() for rows_of, _ in inputs)):
        values = [{chosen[i][0][c] for i, c in some} for some in equal]
        if all(len(v) == 1 and None not in v for v in values):
            copies = 1
            for _, n in chosen:
                copies *= n
            rows[tuple(chosen[i][0][c] for i, c in columns)] += copies
    errors: Counter[str] = Counter()
    for _, some_errors in inputs:
        errors.update(some_errors)
    return rows, errors


def shape_of(plan: str) -> Shape:
    names, equal, columns = PLANS[plan]

    def shape(tables: Mapping[str, Pair]) -> Mapping[str, Pair]:
        tables = {**tables, "far places": tables["places"].filter(FAR)}
        made = delta_join([tables[n].real for n in names], equal, columns)
        return {
            plan: Pair(made, Twin(made.schema, lambda e: naive([tables[n].twin.at(e) for n in names], equal, columns)))
        }

    return shape


SHAPES: dict[str, Shape] = {plan: shape_of(plan) for plan in PLANS}


def world(shape: Shape, seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)

    def number(most: int) -> int | None:
        return rng.choice([None, *range(most)])

    ops = {
        "edges": keyless_ops(rng, lambda r: (number(4), number(4)), 7, 4),
        "places": keyed_ops(rng, lambda r: (r.randrange(4), number(3), r.choice(["x", "y"])), PLACES, 7, 2),
        "areas": keyed_ops(rng, lambda r: (r.randrange(3), number(4)), AREAS, 7, 2),
    }
    return World(SCHEMAS, shape, ops), rng


test_changes_of_each_epoch_in_any_cut = passes(any_cut, SHAPES, world, examples=12)
test_a_restart_changes_nothing = passes(restart, SHAPES, world)
test_a_view_made_late_is_hydrated = passes(made_late, SHAPES, world, examples=12)


def test_nothing_is_kept_between_look_ups() -> None:
    flow = Dataflow()
    edges, places, areas = (flow.table(n, s) for n, s in SCHEMAS.items())
    before = len(flow.arrangements())
    names, equal, columns = PLANS["chain"]
    tables = {"edges": edges, "places": places, "areas": areas}
    output = delta_join([tables[n] for n in names], equal, columns).output("chain")
    # edges by b, and places by area: by their keys places and areas are arranged already.
    assert len(flow.arrangements()) == before + 2
    flow.step(1)
    flow.drop(output)
    assert len(flow.arrangements()) == before


def test_rows_that_came_and_went_are_not_carried_from_look_up_to_look_up() -> None:
    flow = Dataflow()
    chain = [flow.table(f"link {i}", AREAS) for i in range(8)]
    joined = delta_join(chain, [[(i, 1), (i + 1, 0)] for i in range(7)], [(0, 0), (7, 1)])
    output = joined.output("chain")
    changes = [(epoch, DELETE if epoch % 2 else UPSERT, (7, 7)) for epoch in range(5)]
    for i in range(len(chain)):
        push(flow, f"link {i}", AREAS, *changes)
    flow.step(5)
    assert taken(output)[0] == [(0, (7, 7), 1), (1, (7, 7), -1), (2, (7, 7), 1), (3, (7, 7), -1), (4, (7, 7), 1)]
    nodes, sent = [joined.node], dict[int, int]()
    while nodes:
        node = nodes.pop()
        nodes += node.inputs
        if isinstance(node, LookUpNode) and node.delta.rows is not None:
            sent[id(node)] = len(node.delta.rows)
    assert max(sent.values()) <= len(changes)  # not as many as there are histories of seven rows


def test_what_cannot_be_joined_is_refused() -> None:
    flow = Dataflow()
    edges, places, areas = (flow.table(n, s) for n, s in SCHEMAS.items())
    with pytest.raises(InvariantBroken, match="nothing connects"):
        delta_join([edges, places, areas], [[(0, 0), (1, 0)]], [(0, 0)])
    with pytest.raises(InvariantBroken, match="two lanes"):
        delta_join([edges, places], [[(0, 0), (1, 2)]], [(0, 0)])


@pytest.mark.skipif(JIT_OFF, reason="kernels in plain Python are not counted")
@pytest.mark.parametrize("customers", [20, 600])
def test_changes_of_columns_that_are_not_read_cost_nothing(customers: int) -> None:
    orders, lines = 150 * customers, Schema.of([Column("id", BIGINT), Column("order", BIGINT)], ["id"])
    flow = Dataflow()
    tables = [flow.table("lines", lines), flow.table("orders", AREAS), flow.table("people", PLACES)]
    output = delta_join(tables, [[(0, 1), (1, 0)], [(1, 1), (2, 0)]], [(0, 0), (2, 1)]).output("v")
    push(flow, "lines", lines, *((0, UPSERT, (k, k)) for k in range(orders)))
    push(flow, "orders", AREAS, *((0, UPSERT, (k, k % customers)) for k in range(orders)))
    push(flow, "people", PLACES, *((0, UPSERT, (k, k, "a")) for k in range(customers)))
    flow.step(1)
    assert len(output.take()[0].times) == orders

    push(flow, "people", PLACES, *((1, UPSERT, (k, k, "b")) for k in range(customers)))
    with counted() as work:
        flow.step(2)
    assert not len(output.take()[0].times)
    assert work.total < 100 * customers
    push(flow, "people", PLACES, (2, UPSERT, (0, -1, "b")), *((2, UPSERT, (k, k, "c")) for k in range(1, customers)))
    flow.step(3)
    assert len(output.take()[0].times) == 2 * orders // customers
