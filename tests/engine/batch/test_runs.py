"""Rows that a merge copies, one by one and in runs of neighbours, of every width, against a list."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pytest

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.batch.merger import Merger
from headrace.engine.lattice import Frontier
from tests.engine.strategies import rows_of, schema_of

TYPES = ("bigint", "integer", "numeric(20,2)", "boolean", "smallint", "text", "date")
DAY = datetime.date(2026, 11, 22)


def _row(k: int) -> tuple[Any, ...]:
    """Row `k`: its number, and values of other widths, a NULL among them now and then."""
    rest = (
        -k,
        Decimal(k * 10**9 + 7).scaleb(-2),
        k % 3 == 0,
        k % 100,
        f"row {k}" * (k % 3),
        DAY - datetime.timedelta(k),
    )
    return (k, *(None if (k + at) % 11 == 0 else value for at, value in enumerate(rest)))


@pytest.mark.parametrize("run", [1, 3, 7, 8, 9, 40])
@pytest.mark.parametrize("cut", [0, 5])
@pytest.mark.parametrize("fuel", [13, 1 << 40])
def test_rows_of_both_sides_are_copied_in_their_order(run: int, cut: int, fuel: int) -> None:
    """`run` rows of one side, then as many of the other; `cut`: of each side's payload so many rows are not in use."""
    size = 160
    layout = Layout(schema_of(TYPES), (), (0,))
    sides = []
    for side in (0, 1):
        numbers = [k for k in range(size) if k // run % 2 == side]
        # Neither side's rows lie in the order that the batch has, but for those of the later one.
        shuffled = numbers if side else np.random.default_rng(run).permutation(numbers).tolist()
        rows = rows_of(TYPES, [_row(k) for k in [*range(cut), *shuffled]]).slice(cut)
        updates = Updates(rows, np.full(len(numbers), side), np.ones(len(numbers), np.int64))
        sides.append(Batch.seal(layout, updates, Description.epochs(side, side + 1)))
    merger = Merger(*sides, Frontier.at(0))
    while not merger.done:
        merger.work(fuel)
    merged = merger.result()
    merged.check_order()
    assert list(zip(*(column.to_pylist() for column in merged.payload.columns), strict=True)) == [
        _row(k) for k in range(size)
    ]


def test_fuel_may_be_the_greatest_of_numpys_integers() -> None:
    """A lane that gets room in the middle of a merge is filled in as far as the fuel goes, with nothing overflowing."""
    layout = Layout(schema_of(TYPES), (), (0,))
    sides = []
    for side in (0, 1):
        rows = rows_of(TYPES, [_row(k) for k in range(side, 400, 2)])
        diffs = np.where(np.arange(200) < 150, 1, 2)
        updates = Updates(rows, np.full(200, side), diffs)
        sides.append(Batch.seal(layout, updates, Description.epochs(side, side + 1)))
    with mock.patch("headrace.engine.batch.merger._PIECE", 64), mock.patch("headrace.engine.batch.batch._LARGE", 1):
        flat = [Batch.of(layout, b.description, b.ids, b.facts, b.struct, b.distinct) for b in sides]
        merger = Merger(*flat, Frontier.at(1))
        merger.work(np.int64(2**63 - 1))  # type: ignore[arg-type]
    merged = merger.result()
    assert merged.diffs.tolist() == [1] * 300 + [2] * 100
    assert merged.times.tolist() == [1] * 400
