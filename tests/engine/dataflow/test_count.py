"""Counting keeps an arrangement of what is counted and nothing else, which all who ask for the same columns share."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from headrace.engine.batch.updates import INSERT, RETRACT, UPSERT
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, Column, Schema
from tests.engine.dataflow.pairs import Pair, Shape, World, keyless_ops
from tests.engine.dataflow.standard import any_cut, passes, restart
from tests.engine.dataflow.test_dataflow import push, taken
from tests.reference.dataflow import Row

LOOSE = Schema.of([Column("a", INTEGER), Column("b", INTEGER)])
KEYED = Schema.of([Column("id", INTEGER), Column("a", INTEGER), Column("b", INTEGER)], ["id"])

SUMS = Schema.of([Column("b", INTEGER), Column("sum", BIGINT)])
TOTAL = Aggregate("sum", ColumnRef(0, INTEGER), BIGINT)
LARGE = Call(">(bigint,bigint)", (ColumnRef(1, BIGINT), Literal(3, BIGINT)), BOOLEAN)

PLANS: dict[str, tuple[Callable[[Collection, Collection], Collection], set[str]]] = {
    "a table's rows are counted in its own arrangement": (lambda loose, _: loose.count(), set()),
    "so are those there more than once": (lambda loose, _: loose.at_least(2), set()),
    "distinct rows are looked up there": (lambda loose, keyed: keyed.semijoin(loose, [1, 2], [0, 1]), {"by a, b"}),
    "in whatever order": (lambda loose, keyed: keyed.antijoin(loose, [2, 1], [0, 1]), {"by b, a"}),
    "and how often they are there": (lambda loose, keyed: keyed.join(loose.count(), [1, 2], [0, 1]), {"by a, b"}),
    "sums are looked up where their groups are kept": (
        lambda loose, keyed: keyed.join(loose.reduce([1], [TOTAL], SUMS).filter(LARGE), [2], [0]),
        {"by b", "groups"},
    ),
    "some columns are arranged once": (lambda loose, keyed: loose.semijoin(keyed, [1], [2]), {"by b", "b alone"}),
}


@pytest.mark.parametrize("plan", PLANS)
def test_nothing_is_kept_beside(plan: str) -> None:
    make, more = PLANS[plan]
    flow = Dataflow()
    loose, keyed = flow.table("loose", LOOSE), flow.table("keyed", KEYED)
    before = set(flow.arrangements())
    make(loose, keyed).output("out")
    assert len(set(flow.arrangements()) - before) == len(more)


def test_keys_that_are_counted_are_looked_up_at_any_epoch_of_a_step() -> None:
    flow = Dataflow()
    loose, keyed = flow.table("loose", LOOSE), flow.table("keyed", KEYED)
    output = keyed.semijoin(loose, [1, 2], [0, 1]).output("out")
    push(flow, "keyed", KEYED, (0, UPSERT, (1, 5, 6)), (3, UPSERT, (2, 5, 6)))
    kinds = ((1, INSERT), (1, INSERT), (2, RETRACT), (4, RETRACT), (5, INSERT))
    push(flow, "loose", LOOSE, *((epoch, kind, (5, 6)) for epoch, kind in kinds))
    flow.step(6)
    one, two = (1, 5, 6), (2, 5, 6)
    rows, errors = taken(output)
    assert sorted(rows) == [(1, one, 1), (3, two, 1), (4, one, -1), (4, two, -1), (5, one, 1), (5, two, 1)]
    assert not errors


def counts(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    """A table's own rows, of which its intake knows how many copies there were, alone and beside others."""
    loose, other = t["loose"], t["other"]
    return {
        "count": loose.count(),
        "distinct": loose.distinct(),
        "two": loose.at_least(2),
        "of both": loose.concat(other).count(),
        "less": loose.concat(other.distinct()).at_least(2),
        "there": other.semijoin(loose, [0, 1], [0, 1]),
    }


def world(shape: Shape, seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)

    def draw(rng: random.Random) -> Row:
        return (rng.choice([None, 0, 1]), rng.randrange(2))

    ops = {table: keyless_ops(rng, draw, 8, 4) for table in ("loose", "other")}
    return World(dict.fromkeys(ops, LOOSE), shape, ops), rng


test_counts_of_each_epoch_in_any_cut = passes(any_cut, {"counts": counts}, world)
test_counts_over_a_restart = passes(restart, {"counts": counts}, world)
