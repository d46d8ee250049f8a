"""Joins of every kind are linear in the histories of their keys, on whichever side these are, and in loops.

Work is what the join's kernels read and write: updates looked up and asked with, lifespans, and pairs. Sorting and
merging are counted apart, since they are n log n whatever the join does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isqrt
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow, delta_join
from headrace.engine.kernels import history, join
from headrace.engine.operators import join as joining
from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.engine.schema import BIGINT, Column, Schema

FEW, MANY = 1_000, 64_000
ROWS = Schema.of([Column("id", BIGINT), Column("key", BIGINT), Column("value", BIGINT)], ["id"])
KEYS = Schema((Column("key", BIGINT),))
Kind = Callable[[Dataflow, Collection, Collection], Collection]


@contextmanager
def counted() -> Iterator[list[int]]:
    """The work of the joins meanwhile, as the entries of a list."""
    work = list[int]()
    lifespans, meet, looked_up = history.lifespans, join.meet, joining._side_of

    def noting_spans(groups: Any, *args: Any) -> Any:
        found = lifespans(groups, *args)
        work.append(len(groups) + found[1])
        return found

    def noting_pairs(askers: Any, spans: Any, *args: Any) -> Any:
        found = meet(askers, spans, *args)
        work.append(len(askers[0]) + len(spans[0]) + found[1])
        return found

    def noting_matches(matches: Any) -> Any:
        work.append(len(matches))
        return looked_up(matches)

    with (
        patch.object(history, "lifespans", noting_spans),
        patch.object(join, "meet", noting_pairs),
        patch.object(joining, "_side_of", noting_matches),
    ):
        yield work


def put(flow: Dataflow, table: str, epochs: np.ndarray, keys: np.ndarray) -> None:
    """A row of each key, replaced at each epoch at which the key stands."""
    columns = [pa.array(keys), pa.array(keys), pa.array(epochs)]
    rows = pa.RecordBatch.from_arrays(columns, schema=ROWS.arrow)
    flow.push(table, Upserts(rows, epochs, np.full(len(epochs), UPSERT, np.uint8)))


def left_join(_: Dataflow, t: Collection, u: Collection) -> Collection:
    return t.left_join(u, [1], [1])


def chain(flow: Dataflow, t: Collection, u: Collection) -> Collection:
    v = flow.table("v", ROWS)
    return delta_join([t, u, v], [[(0, 1), (1, 1), (2, 1)]], [(0, 2), (1, 2), (2, 2)])


def in_loop(pairs: Callable[[Collection, Collection, Collection], Collection]) -> Kind:
    """A loop of two rounds, in the second of which its own rows meet those of outside."""

    def made(flow: Dataflow, t: Collection, u: Collection) -> Collection:
        loop = flow.iterate("loop")
        left, right = loop.enter(t), loop.enter(u)
        found = loop.variable(ROWS, left)
        rule = pairs(found, left, right).concat(found).distinct()
        [left_over] = loop.close({found: rule}, [rule])
        return left_over

    return made


def values_of_both(found: Collection, _: Collection, right: Collection) -> Collection:
    """Rows of the loop with the value of their partner from outside."""
    columns = [ColumnRef(0, BIGINT), ColumnRef(1, BIGINT), ColumnRef(5, BIGINT)]
    return found.join(right, [1], [1]).project(columns, ROWS)


def values_of_three(found: Collection, left: Collection, right: Collection) -> Collection:
    joined = delta_join([found, left, right], [[(0, 1), (1, 1), (2, 1)]], [(0, 0), (0, 1), (2, 2)])
    return joined.project([ColumnRef(k, BIGINT) for k in range(3)], ROWS)


KINDS: dict[str, Kind] = {
    "join": lambda _, t, u: t.join(u, [1], [1]),
    "join by the primary key": lambda _, t, u: t.join(u, [0], [0]),
    "join of counts": lambda _, t, u: t.project([ColumnRef(1, BIGINT)], KEYS).count().join(u, [0], [1]),
    "semijoin": lambda _, t, u: t.semijoin(u, [1], [1]),
    "antijoin": lambda _, t, u: t.antijoin(u, [1], [1]),
    "left join": left_join,
    "delta join": chain,
    "join in a loop": in_loop(values_of_both),
    "delta join in a loop": in_loop(values_of_three),
}


def work_of(kind: str, size: int, keys: int, sides: str, *, late: bool = False) -> int:
    """What the joins of a step do that takes in `size` epochs of `keys` keys, on the left, on the right or on both."""
    flow = Dataflow()
    t, u = flow.table("t", ROWS), flow.table("u", ROWS)
    found = KINDS[kind](flow, t, u)
    found.output("out")
    every = np.arange(keys)
    for table in "tuv" if kind == "delta join" else "tu":
        put(flow, table, np.zeros(keys, np.int64), every)
    flow.step(1)
    reading = flow.read(found, "late", 0) if late else None
    epochs = np.arange(1, size + 1)
    for table, is_moving in (("t", sides != "right"), ("u", sides != "left")):
        if is_moving:
            put(flow, table, epochs, epochs % keys)
    with counted() as work:
        flow.step(size + 1)
        if reading is not None:
            work.clear()
            reading.changes(1, size + 1)
    return sum(work)


def check_linear(kind: str, few: int, many: int, **how: Any) -> None:
    keys = {"one key": (1, 1), "some keys": (isqrt(few), isqrt(many)), "a key an update": (few, many)}
    for name, (less, more) in keys.items():
        for sides in ("left", "right", "both"):
            small, large = work_of(kind, few, less, sides, **how), work_of(kind, many, more, sides, **how)
            assert small > 0 or large == 0
            assert large / many <= 1.3 * small / few, f"{name} on {sides}: {small} of {few}, {large} of {many}"


@pytest.mark.parametrize("kind", KINDS)
def test_work_is_linear_in_the_length_of_a_keys_history(kind: str) -> None:
    check_linear(kind, FEW, MANY)


@pytest.mark.parametrize("kind", ["join", "left join", "delta join"])
def test_so_is_that_of_a_read_of_the_past(kind: str) -> None:
    check_linear(kind, FEW, MANY // 4, late=True)


def test_a_state_that_is_gone_at_once_costs_nothing_afterwards() -> None:
    """A thousand rows of a key go in the first epoch of a step, in which the other side changes a thousand times."""
    flow = Dataflow()
    t, u = flow.table("t", ROWS), flow.table("u", ROWS)
    t.join(u, [1], [1]).output("out")
    size = 1_000
    rows = [pa.array(range(size)), pa.array([0] * size), pa.array([0] * size)]
    before = pa.RecordBatch.from_arrays(rows, schema=ROWS.arrow)
    flow.push("t", Upserts(before, np.zeros(size, np.int64), np.full(size, UPSERT, np.uint8)))
    put(flow, "u", np.zeros(1, np.int64), np.zeros(1, np.int64))
    flow.step(1)
    gone = pa.RecordBatch.from_arrays([rows[0], pa.array([1] * size), rows[2]], schema=ROWS.arrow)
    flow.push("t", Upserts(gone, np.ones(size, np.int64), np.full(size, UPSERT, np.uint8)))
    put(flow, "u", np.arange(1, size + 1), np.zeros(size, np.int64))
    with counted() as work:
        flow.step(size + 1)
    assert sum(work) < 40 * size


@pytest.mark.parametrize("asked", [0, 1, 50])
def test_changes_of_many_rows_are_not_grouped_for_a_query_of_few_keys(asked: int) -> None:
    flow = Dataflow()
    t, u = flow.table("t", ROWS), flow.table("u", ROWS)
    output = t.join(u, [1], [1], columns=(1, 4)).output("out")
    grouped: list[int] = []
    group = joining.group

    def noting(keys: Any, times: Any) -> Any:
        grouped.append(len(keys))
        return group(keys, times)

    some = np.arange(asked) * 3
    put(flow, "t", np.zeros(asked, np.int64), some)
    flow.step(1)
    with patch.object(joining, "group", noting):
        put(flow, "u", np.ones(20_000, np.int64), np.arange(20_000))
        flow.step(2)
        put(flow, "u", np.full(20_000, 2), np.arange(20_000))
        flow.step(3)
    assert sum(grouped) < 20_000 // 20
    rows, _ = output.take()
    keys, values = (column.to_numpy() for column in rows.rows.columns)
    live = np.bincount(keys, rows.diffs, 3 * 50).astype(int)
    assert live.tolist() == [int(k in some) for k in range(150)]
    assert (keys == values).all()
