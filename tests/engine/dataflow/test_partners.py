"""Semijoins, antijoins, left joins and multiplicities: the twin's answers in any cut, and work that follows the change."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, UPSERT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.expressions.core.ir import Call, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, DOUBLE, INTEGER, NUMERIC, TEXT, Column, DataType, Schema
from tests.engine.dataflow.pairs import Both, Pair, Shape, World, keyed_ops, keyless_ops
from tests.engine.dataflow.standard import any_cut, asked_about_the_past, made_late, passes, restart
from tests.engine.dataflow.test_dataflow import push, taken
from tests.engine.dataflow.test_random import agg, divide, named, over, ref
from tests.reference.dataflow import Row

LEFT = Schema.of(
    [Column("id", INTEGER), Column("group", INTEGER), Column("rate", NUMERIC), Column("x", DOUBLE)], ["id"]
)
RIGHT = Schema.of([Column("name", TEXT), Column("number", INTEGER)], ["number"])
LOOSE = Schema.of([Column("group", INTEGER), Column("rate", NUMERIC), Column("x", DOUBLE)])
SCHEMAS = {"left": LEFT, "right": RIGHT, "loose": LOOSE}

RATES = [None, "1.0", "1.00", "1", "-0.5"]
FLOATS = [None, "0.0", "-0.0", "nan", "1.5"]


def draw_left(rng: random.Random) -> Row:
    return (rng.randrange(6), rng.choice([None, 0, 1, 2, 3]), rng.choice(RATES), rng.choice(FLOATS))


def draw_right(rng: random.Random) -> Row:
    return (rng.choice([None, "a", "b"]), rng.randrange(4))


def draw_loose(rng: random.Random) -> Row:
    return (rng.choice([None, 1, 2]), rng.choice(RATES), rng.choice(FLOATS))


def partners(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    left, right, loose = t["left"], t["right"], t["loose"]
    numbers = right.project([ref(1, RIGHT), ref(1, RIGHT), ref(0, RIGHT)], named(INTEGER, INTEGER, TEXT))
    failing = left.project([ref(0, LEFT), divide(1, 0)], named(INTEGER, INTEGER))
    return {
        "keyed": left.semijoin(right, [1], [1]),
        "not keyed": left.antijoin(right, [1], [1]),
        "chosen": left.antijoin(numbers, [1], [1]),
        "twice": left.semijoin(numbers, [1, 0], [0, 1]),
        "loose": left.semijoin(loose, [1], [0]),
        "not loose": left.antijoin(loose, [1], [0]),
        "composite": loose.semijoin(left, [2, 1], [3, 2]),
        "not composite": loose.antijoin(left, [2, 1], [3, 2]),
        "rates": loose.antijoin(left, [1], [2]),
        "any": loose.semijoin(left, [], []),
        "none": loose.antijoin(right.filter(over(1, 2)), [], []),
        "self": loose.antijoin(loose.filter(over(0, 1)), [0], [0]),
        "failing": failing.antijoin(right, [1], [1]),
        "deep": left.semijoin(left.antijoin(right, [1], [1]), [1], [1]).antijoin(loose, [2], [1]),
    }


def outer(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    left, right, loose = t["left"], t["right"], t["loose"]
    once = loose.left_join(right, [0], [1])
    return {
        "keyed": left.left_join(right, [1], [1]),
        "loose": loose.left_join(left, [0], [1]),
        "floats": loose.left_join(left, [2], [3]),
        "chain": once.left_join(left, [4], [1]),
        "failing": left.project([ref(0, LEFT), divide(1, 0)], named(INTEGER, INTEGER)).left_join(loose, [1], [0]),
    }


def multiplicities(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    left, loose = t["left"], t["loose"]
    groups = loose.project([ref(0, LOOSE)], named(INTEGER))
    return {
        "count": loose.count(),
        "groups": groups.count(),
        "distinct": loose.distinct(),
        "two": loose.at_least(2),
        "two groups": groups.at_least(2),
        "three groups": groups.at_least(3),
        "rates": left.project([ref(2, LEFT)], named(NUMERIC)).at_least(2),
        "twice": groups.concat(groups).at_least(4),
    }


def filtered(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    """Tables that are filtered before they are joined by their keys, which are read in the tables' own arrangements."""
    left, right, loose = t["left"], t["right"], t["loose"]
    few, failing = right.filter(over(1, 1)), left.filter(divides(1, 0))
    return {
        "inner": left.join(few, [1], [1]),
        "outer": loose.left_join(few, [0], [1]),
        "both": left.filter(over(1, 0)).join(few, [0], [1]),
        "itself": few.join(right.filter(over(1, 2)), [1], [1]),
        "among": left.semijoin(few, [1], [1]),
        "not among": few.antijoin(left.filter(over(0, 2)), [1], [0]),
        "failing": right.join(failing, [1], [0]),
        "not failing": loose.left_join(failing, [0], [0]),
    }


def projected(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    """Tables that are projected, and filtered, before they are joined by their keys: read in the tables' own arrangements."""
    left, right, loose = t["left"], t["right"], t["loose"]
    turned = right.project([ref(1, RIGHT), ref(0, RIGHT), ref(1, RIGHT)], named(INTEGER, TEXT, INTEGER))
    slim = left.project([ref(2, LEFT), ref(0, LEFT)], named(NUMERIC, INTEGER))
    failing = left.project([divide(1, 0), ref(0, LEFT)], named(INTEGER, INTEGER))
    deep = failing.filter(over(0, 0)).project([ref(1, failing.real.schema)], named(INTEGER))
    return {
        "turned": left.join(turned, [1], [0]),
        "not its first": left.join(turned, [1], [2]),
        "slim": loose.left_join(slim, [0], [1]),
        "failing": right.join(failing, [1], [1]),
        "outer": loose.left_join(failing, [0], [1]),
        "itself": failing.join(slim, [1], [1]),
        "deep": right.antijoin(deep, [1], [0]),
        "both": turned.filter(over(0, 1)).join(failing.filter(over(1, 0)), [0], [1]),
    }


def reduced(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    """Counts, sums and what is no sum, looked up by their keys where their states lie; filtered and projected too."""
    left, right, loose = t["left"], t["right"], t["loose"]
    counted = loose.project([ref(0, LOOSE)], named(INTEGER)).count()
    floats = left.project([ref(3, LEFT)], named(DOUBLE)).count()
    per_group = [agg("count", None, LEFT, BIGINT), agg("sum", 0, LEFT, BIGINT), agg("max", 0, LEFT, INTEGER)]
    sums = left.reduce([1], per_group, named(INTEGER, BIGINT, BIGINT, INTEGER))
    rates = loose.reduce(
        [1], [agg("sum", 0, LOOSE, BIGINT), agg("avg", 2, LOOSE, DOUBLE)], named(NUMERIC, BIGINT, DOUBLE)
    )
    whole = left.reduce([], per_group[:2], named(BIGINT, BIGINT))
    failing = sums.project([divide(3, 0), ref(0, LOOSE)], named(INTEGER, INTEGER))
    return {
        "counted": left.join(counted, [1], [0]),
        "floats": loose.left_join(floats, [2], [0]),
        "sums": right.join(sums, [1], [0]),
        "outer": loose.left_join(sums, [0], [0]),
        "rates": left.left_join(rates, [2], [0]),
        "whole": loose.join(whole, [], []),
        "both": sums.join(counted, [0], [0]),
        "filtered": right.join(sums.filter(over(3, 1)), [1], [0]),
        "failing": right.join(failing, [1], [1]),
    }


def divides(one: int, by: int) -> Both:
    """Whether the quotient is positive, which fails for a divisor of nothing."""
    quotient = divide(one, by)
    expr = Call(">(integer,integer)", (quotient.expr, Literal(0, INTEGER)), BOOLEAN)

    def fn(row: Row) -> bool | None:
        found = quotient.fn(row)
        return None if found is None else found > 0

    return Both(expr, fn)


SHAPES: dict[str, Shape] = {
    "partners": partners,
    "outer": outer,
    "multiplicities": multiplicities,
    "filtered": filtered,
    "projected": projected,
    "reduced": reduced,
}


def world(shape: Shape, seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    ops = {
        "left": keyed_ops(rng, draw_left, LEFT, 7, 3),
        "right": keyed_ops(rng, draw_right, RIGHT, 7, 3),
        "loose": keyless_ops(rng, draw_loose, 7, 4),
    }
    return World(SCHEMAS, shape, ops), rng


test_changes_of_each_epoch_in_any_cut = passes(any_cut, SHAPES, world)
test_a_restart_changes_nothing = passes(restart, SHAPES, world)
test_a_view_made_late_is_hydrated = passes(made_late, SHAPES, world)
test_the_past_is_asked = passes(asked_about_the_past, SHAPES, world, examples=4)


def test_a_primary_key_is_looked_up_in_the_table_itself_and_other_columns_cost_nothing() -> None:
    flow = Dataflow()
    left, right = flow.table("left", LEFT), flow.table("right", RIGHT)
    before = set(flow.arrangements())
    there, missing = left.semijoin(right, [1], [1]).output("there"), left.antijoin(right, [1], [1]).output("missing")
    assert len(set(flow.arrangements()) - before) == 1
    push(flow, "left", LEFT, (0, UPSERT, (1, 1, "1", 0.0)), (0, UPSERT, (2, None, "1", 0.0)))
    push(flow, "right", RIGHT, (0, UPSERT, ("a", 1)))
    flow.step(1)
    assert taken(there)[0] == [(0, (1, 1, "1", 0.0), 1)]
    assert taken(missing)[0] == [(0, (2, None, "1", 0.0), 1)]
    push(flow, "right", RIGHT, (1, UPSERT, ("b", 1)))
    flow.step(2)
    assert there.collection.node.delta.rows is None
    assert missing.collection.node.delta.rows is None
    flow.drop(there)
    flow.drop(missing)
    assert set(flow.arrangements()) == before


def test_a_key_that_comes_again_moves_no_row() -> None:
    flow = Dataflow()
    left, loose = flow.table("left", LEFT), flow.table("loose", LOOSE)
    there, missing = left.semijoin(loose, [1], [0]).output("there"), left.antijoin(loose, [1], [0]).output("missing")
    size = 100
    ids = np.arange(size)
    columns = [pa.array(c, t) for c, t in zip((ids, ids % 2, ids.astype("U"), ids), LEFT.arrow.types, strict=True)]
    rows = pa.RecordBatch.from_arrays(columns, schema=LEFT.arrow)
    flow.push("left", Upserts(rows, np.zeros(size, np.int64), np.full(size, UPSERT, np.uint8)))
    push(flow, "loose", LOOSE, (0, INSERT, (1, "1", 0.0)))
    flow.step(1)
    assert [len(o.take()[0]) for o in (there, missing)] == [50, 50]
    push(flow, "loose", LOOSE, (1, INSERT, (1, "2", 0.0)), (2, RETRACT, (1, "1", 0.0)))
    flow.step(3)
    assert there.collection.node.delta.rows is None
    assert missing.collection.node.delta.rows is None
    push(flow, "left", LEFT, (3, UPSERT, (1000, 1, "1", 0.0)), (4, DELETE, (1000, None, None, None)))
    flow.step(5)
    assert missing.collection.node.delta.rows is None
    push(flow, "loose", LOOSE, (5, RETRACT, (1, "2", 0.0)))
    flow.step(6)
    assert [o.take()[0].diffs.sum() for o in (there, missing)] == [-50, 50]


def test_keys_that_could_never_meet_are_refused() -> None:
    flow = Dataflow()
    left, loose = flow.table("left", LEFT), flow.table("loose", LOOSE)
    cents = flow.table("cents", Schema.of([Column("a", DataType.parse("numeric(10,2)")), Column("b", BIGINT)]))
    for join in (left.join, left.semijoin, left.antijoin, left.left_join):
        join(cents, [0], [1])
        with pytest.raises(InvariantBroken, match="never meet"):
            join(cents, [2], [0])
        with pytest.raises(InvariantBroken, match="never meet"):
            join(loose, [1], [2])


def test_plans_share_the_distinct_keys() -> None:
    flow = Dataflow()
    left, loose = flow.table("left", LEFT), flow.table("loose", LOOSE)
    one = left.antijoin(loose, [1], [0])
    known = set(flow.arrangements())
    two = left.semijoin(loose, [1], [0])
    assert set(flow.arrangements()) == known
    assert left.antijoin(loose, [1], [0]).node is one.node
    assert two.node is not one.node
    assert loose.at_least(1).node is loose.distinct().node
