"""Rows of one group that are added up before it is looked at, beside the same rows one by one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Layout, Updates
from headrace.engine.operators.aggregates import slots_of
from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef
from headrace.engine.operators.reduce_input import Input, input_of, summed_up
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.schema import BIGINT, INTEGER, Column, Schema

ROWS = Schema((Column("v", INTEGER),))
WANTED = [Aggregate("count", None, BIGINT), Aggregate("sum", ColumnRef(0, INTEGER), BIGINT)]
SHAPE = Shape(
    0, (INTEGER,), tuple(slots_of(WANTED, [None, 0], (INTEGER,))), Schema.of([Column("n", BIGINT), Column("s", BIGINT)])
)
LAYOUT = Layout(SHAPE.accumulators, ())


def drawn(size: int, times: int, seed: int) -> Updates:
    random = np.random.default_rng(seed)
    values = [None if v == 0 else int(v) for v in random.integers(-3, 4, size)]
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.int32())], schema=ROWS.arrow)
    return Updates(rows, random.integers(5, 5 + times, size), random.choice([-2, -1, 1, 3, 2**31 - 1], size))


def added(put: Input) -> dict[int, list[int]]:
    """By time: the lanes that all rows of it add."""
    found: dict[int, list[int]] = defaultdict(lambda: [0] * SHAPE.lanes)
    for time, diff, lanes in zip(put.times.tolist(), put.diffs.tolist(), put.lanes.tolist(), strict=True):
        found[time] = [a + diff * b for a, b in zip(found[time], lanes, strict=True)]
    return found


@pytest.mark.parametrize("times", [1, 2, 40])
@pytest.mark.parametrize("begins", [None, 4])
def test_one_row_a_time_adds_what_all_rows_add(times: int, begins: int | None) -> None:
    for seed in range(5):
        updates = drawn(300, times, seed)
        put = summed_up(SHAPE, LAYOUT, updates, begins)
        assert put is not None
        one_by_one = input_of(SHAPE, LAYOUT, updates, [])
        expected = added(one_by_one) | ({} if begins is None else {begins: [0] * SHAPE.lanes})
        assert added(put) == expected
        assert put.times.tolist() == sorted(expected)
        assert set(put.keys.hash.tolist()) == set(one_by_one.keys.hash.tolist())


def test_diffs_whose_sum_may_not_fit_are_not_added_up() -> None:
    updates = drawn(300, 2, 0)
    for most in (2**31, -(2**31) - 1):
        updates.diffs[7] = most
        assert summed_up(SHAPE, LAYOUT, updates, None) is None
