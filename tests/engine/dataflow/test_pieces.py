"""A join's output runs through what is behind it in pieces: the changes are the twin's, and no piece is too large."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import consolidation
from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import INSERT, Upserts
from headrace.engine.dataflow import OVERFLOWED, Collection, Dataflow
from headrace.engine.dataflow.join import JoinNode
from headrace.engine.dataflow.stateless import FilterNode, ProjectNode
from headrace.engine.operators import chunked_delta as piecing
from headrace.engine.operators import join as joining
from headrace.engine.operators import small_join
from headrace.engine.operators.chunked_delta import Pieced
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, TEXT, Column, Schema
from tests.engine.dataflow.pairs import Pair, Shape, World
from tests.engine.dataflow.standard import Check, any_cut, asked_about_the_past, long_steps, made_late, passes, restart
from tests.engine.dataflow.test_random import CUSTOMERS, ORDERS, agg, deep, divide, joins, named, over, ref, world

SMALL = 2
"""Rows of a piece in the tests with small worlds: nearly every join sends several."""

PAIR = Schema.of([Column("k", BIGINT), Column("text", TEXT)])


@contextmanager
def pieces_of_at_most(rows: int) -> Iterator[None]:
    with (
        patch.object(joining, "PIECE", rows),
        patch.object(small_join, "FEW", 0),  # a few changes make no pieces
        patch.object(piecing, "PIECE", rows),
        patch.object(consolidation, "_MANY", 1),
    ):
        yield


def chains(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    """What works on a join's rows one by one, before what keeps them; and some that read one join in two ways."""
    orders, customers, events = t["orders"], t["customers"], t["events"]
    slim = orders.project([ref(1, ORDERS), ref(0, ORDERS), ref(2, ORDERS)], named(INTEGER, INTEGER, TEXT))
    pairs = slim.join(slim, [0], [0])
    schema = pairs.real.schema
    big = pairs.filter(over(1, 1)).project([ref(0, schema), ref(4, schema)], named(INTEGER, INTEGER))
    failing = pairs.project([ref(0, schema), divide(1, 4)], named(INTEGER, INTEGER))
    known = slim.join(customers, [0], [1]).project([ref(0, schema), ref(1, schema)], named(INTEGER, INTEGER))
    return {
        "big": big,
        "counted": big.reduce([0], [agg("count", None, ORDERS, BIGINT)], named(INTEGER, BIGINT)),
        "summed": failing.reduce([0], [agg("sum", 1, ORDERS, BIGINT)], named(INTEGER, BIGINT)),
        "copies": pairs.project([ref(0, schema)], named(INTEGER)).count(),
        "difference": known.concat(
            slim.join(slim, [1], [1]).project([ref(0, schema), ref(1, schema)], named(INTEGER, INTEGER)).negate()
        ),
        "again": big.join(events, [0], [0]),
        "without": customers.project([ref(1, CUSTOMERS)], named(INTEGER)).antijoin(big, [0], [1]),
        "known": known.distinct(),
    }


def in_pieces(check: Check) -> Check:
    def run(made: World, rng: random.Random) -> None:
        with pieces_of_at_most(SMALL):
            check(made, rng)

    return run


SHAPES: dict[str, Shape] = {"joins": joins, "deep": deep, "chains": chains}

test_changes_of_each_epoch_in_any_cut = passes(in_pieces(any_cut), SHAPES, world, 6)
test_many_epochs_in_a_step = passes(in_pieces(long_steps), SHAPES, world, 6)
test_a_restart_changes_nothing = passes(in_pieces(restart), SHAPES, world, 4)
test_a_view_made_late_is_hydrated = passes(in_pieces(made_late), SHAPES, world, 4)
test_the_past_is_asked = passes(in_pieces(asked_about_the_past), SHAPES, world, 4)


def push(flow: Dataflow, table: str, epoch: int, keys: list[int], texts: list[str]) -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.int64()), pa.array(texts, pa.large_string())], schema=PAIR.arrow
    )
    flow.push(table, Upserts(rows, np.full(len(keys), epoch), np.full(len(keys), INSERT, np.uint8)))


def sizes_sent(nodes: type, seen: list[int]) -> Any:
    """Notes how many rows each piece has that nodes of a class make theirs of."""
    of = nodes.of

    def noting(node: Any, deltas: list[Delta]) -> Delta:
        seen.extend(len(delta.rows) for delta in deltas if delta.rows is not None)
        return of(node, deltas)

    return patch.object(nodes, "of", noting)


def many_to_many(flow: Dataflow) -> Collection:
    return flow.table("t", PAIR).join(flow.table("u", PAIR), [0], [0])


def test_no_piece_of_a_large_output_is_larger_than_it_may_be() -> None:
    piece, size = 1000, 300
    flow = Dataflow()
    pairs = many_to_many(flow)
    big = Call(">(text,text)", (ColumnRef(1, TEXT), ColumnRef(3, TEXT)), BOOLEAN)
    one = Schema((Column("k", BIGINT),))
    few = pairs.filter(big).project([ColumnRef(0, BIGINT)], one)
    counted = few.reduce([0], [Aggregate("count", None, BIGINT)], Schema((*one.columns, Column("n", BIGINT))))
    output = counted.output("counted")
    flow.step(1)
    push(flow, "t", 1, [7] * size + list(range(100, 200)), [f"{k:04}" for k in range(size + 100)])
    push(flow, "u", 1, [7] * size + list(range(100, 200)), [f"{k:04}" for k in range(size + 100)])
    filtered: list[int] = []
    projected: list[int] = []
    with pieces_of_at_most(piece), sizes_sent(FilterNode, filtered), sizes_sent(ProjectNode, projected):
        flow.step(2)
    assert sum(filtered) == size * size + 100
    assert sum(projected) == size * (size - 1) // 2
    assert max(filtered) <= piece
    assert few.node.delta.rows is not None
    assert len(few.node.delta.rows) <= 2 * piece, "equal rows are added up as they come"
    rows, errors = output.take()
    assert (rows.rows.to_pylist(), len(errors)) == ([{"k": 7, "n": size * (size - 1) // 2}], 0)


def test_a_key_with_more_rows_than_a_piece_comes_in_several() -> None:
    flow = Dataflow()
    few = many_to_many(flow).filter(Call(">(text,text)", (ColumnRef(3, TEXT), Literal("0090", TEXT)), BOOLEAN))
    output = few.output("few")
    push(flow, "u", 1, [7] * 100, [f"{k:04}" for k in range(100)])
    flow.step(2)
    output.take()
    push(flow, "t", 2, [7], ["new"])
    seen: list[int] = []
    with pieces_of_at_most(30), sizes_sent(FilterNode, seen):
        flow.step(3)
    assert seen == [30, 30, 30, 10]
    rows, _ = output.take()
    assert sorted(rows.rows.column(3).to_pylist()) == [f"{k:04}" for k in range(91, 100)]


def test_a_multiplicity_that_overflows_within_the_pieces_stops_what_is_behind_and_says_so_once() -> None:
    flow = Dataflow()
    pairs = many_to_many(flow)
    few = pairs.filter(Call(">(bigint,bigint)", (ColumnRef(0, BIGINT), Literal(0, BIGINT)), BOOLEAN))
    one = Schema((Column("k", BIGINT),))
    outputs = [
        few.output("few"),
        few.project([ColumnRef(0, BIGINT)], one).distinct().output("distinct"),
        flow.table("t", PAIR).output("plain"),
    ]
    flow.step(1)
    for output in outputs:
        output.take()
    push(flow, "t", 1, [7] * 20, [f"{k}" for k in range(20)])
    push(flow, "u", 1, [7] * 20, [f"{k}" for k in range(20)])
    made, calls = joining._rows_of, iter(range(100))

    def failing(*args: Any, **how: Any) -> Any:
        if next(calls) > 8:
            raise DiffOverflow
        return made(*args, **how)

    with pieces_of_at_most(30), patch.object(joining, "_rows_of", failing):
        flow.step(2)
    said = [output.take()[1].rows.column(0).to_pylist() for output in outputs]
    assert said == [[OVERFLOWED], [OVERFLOWED], []]
    push(flow, "t", 2, [8], ["x"])
    push(flow, "u", 2, [8], ["x"])
    flow.step(3)
    assert [[len(side) for side in output.take()] for output in outputs] == [[0, 0], [0, 0], [1, 0]]
    with pytest.raises(DiffOverflow):
        flow.content(few.node, 2)
    left = {name.split("-")[0] for name in flow.arrangements()}
    assert "reduce" not in left


def test_a_join_whose_pieces_two_read_is_made_once() -> None:
    flow = Dataflow()
    pairs = many_to_many(flow)
    outputs = [
        pairs.project([ColumnRef(k, PAIR.columns[k].type)], Schema((PAIR.columns[k],))).output(str(k)) for k in (0, 1)
    ]
    push(flow, "t", 1, [7] * 20, [f"{k}" for k in range(20)])
    push(flow, "u", 1, [7] * 20, [f"{k}" for k in range(20)])
    seen: list[int] = []
    with pieces_of_at_most(30), sizes_sent(ProjectNode, seen):
        flow.step(2)
    assert seen == [400, 400]
    assert [sum(output.take()[0].diffs.tolist()) for output in outputs] == [400, 400]
    assert isinstance(pairs.node, JoinNode)
    assert not isinstance(pairs.node.delta, Pieced)
