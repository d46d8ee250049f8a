"""Delta joins: every combination of rows once, at the right epoch, with nothing kept but one arrangement an input and key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.dataflow import Dataflow, NotInIterations, delta_join
from engine.dataflow.delta_join import Place
from engine.errors import InvariantBroken
from engine.schema import BIGINT, TEXT, Column, Schema
from tests.engine.dataflow.pairs import Pair, Shape, World, cuts_of, keyed_ops, keyless_ops
from tests.reference.dataflow import Content, Row, Twin

EDGES = Schema((Column("a", BIGINT), Column("b", BIGINT)))
PLACES = Schema.of([Column("id", BIGINT), Column("area", BIGINT), Column("name", TEXT)], ["id"])
AREAS = Schema.of([Column("id", BIGINT), Column("boss", BIGINT)], ["id"])
SCHEMAS = {"edges": EDGES, "places": PLACES, "areas": AREAS}

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
        made = delta_join([tables[n].real for n in names], equal, columns)
        return {
            plan: Pair(made, Twin(made.schema, lambda e: naive([tables[n].twin.at(e) for n in names], equal, columns)))
        }

    return shape


def world(plan: str, seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)

    def number(most: int) -> int | None:
        return rng.choice([None, *range(most)])

    ops = {
        "edges": keyless_ops(rng, lambda r: (number(4), number(4)), 7, 4),
        "places": keyed_ops(rng, lambda r: (r.randrange(4), number(3), r.choice(["x", "y"])), PLACES, 7, 2),
        "areas": keyed_ops(rng, lambda r: (r.randrange(3), number(4)), AREAS, 7, 2),
    }
    return World(SCHEMAS, shape_of(plan), ops), rng


QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("plan", PLANS)
@QUICK
@given(seed=st.integers(0, 2**32))
def test_changes_of_each_epoch_in_any_cut(plan: str, seed: int) -> None:
    made, rng = world(plan, seed)
    made.build()
    cuts = cuts_of(rng, made.end)
    made.run(cuts, restart_after=rng.choice([None, *cuts]), rng=rng)
    made.check_changes()
    made.check_snapshots([made.end - 1])


@pytest.mark.parametrize("plan", PLANS)
@QUICK
@given(seed=st.integers(0, 2**32))
def test_a_view_made_late_is_hydrated(plan: str, seed: int) -> None:
    made, rng = world(plan, seed)
    made.tables()
    middle = rng.randrange(1, made.end + 1)
    made.run(cuts_of(rng, middle), rng=rng)
    made.build()
    made.check_snapshots([middle - 1])
    if middle < made.end:
        made.push(middle, made.end)
        made.step(made.end)
    made.check_changes(middle)


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


def test_what_cannot_be_joined_is_refused() -> None:
    flow = Dataflow()
    edges, places, areas = (flow.table(n, s) for n, s in SCHEMAS.items())
    with pytest.raises(InvariantBroken, match="nothing connects"):
        delta_join([edges, places, areas], [[(0, 0), (1, 0)]], [(0, 0)])
    with pytest.raises(InvariantBroken, match="two lanes"):
        delta_join([edges, places], [[(0, 0), (1, 2)]], [(0, 0)])
    scope = flow.iterate("view x")
    entered = scope.enter(edges)
    with pytest.raises(NotInIterations, match="view x"):
        delta_join([entered, entered], [[(0, 1), (1, 0)]], [(0, 0)])
