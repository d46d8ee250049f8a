"""Many rows numbered by group, against a sort of all of them at once; and what sealing makes of an order that it is told."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.batch.keys import Keys
from headrace.engine.kernels import grouping
from headrace.engine.operators.group_versions import group, runs
from headrace.engine.schema import BIGINT, Column, Schema
from tests.reference.updates import entries

TOP = 2**64 - 1
LAYOUTS = [Layout(Schema((Column("k", BIGINT), Column("v", BIGINT))), (0,), order) for order in ((), (1,))]


def _hashes(kind: str, size: int, random: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    if kind == "even":
        return random.integers(0, TOP, size, np.uint64, endpoint=True)
    if kind == "repeated":
        return random.choice(random.integers(0, TOP, 1 + size // 4, np.uint64, endpoint=True), size)
    if kind == "front":
        return random.integers(0, 3, size).astype(np.uint64)
    return np.full(size, 5, np.uint64)


@pytest.mark.parametrize("kind", ["even", "repeated", "front", "one"])
@pytest.mark.parametrize("size", [0, 1, 30, 9_000])
@pytest.mark.parametrize("checks", [1, 3])
@pytest.mark.parametrize("times", [1, 4])
def test_groups_are_those_of_one_sort(kind: str, size: int, checks: int, times: int) -> None:
    random = np.random.default_rng(size + checks)
    keys = Keys(_hashes(kind, size, random), random.integers(0, checks, size).astype(np.uint64))
    when = random.integers(0, times, size)
    wanted = np.lexsort((when, keys.check, keys.hash))
    pairs = list(zip(keys.hash[wanted].tolist(), keys.check[wanted].tolist(), strict=True))
    numbers = {pair: g for g, pair in enumerate(dict.fromkeys(pairs))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "MANY", 0)
        found = group(keys, when)
        beside = runs(keys)
    assert found.order.tolist() == wanted.tolist()
    assert found.ids[wanted].tolist() == [numbers[pair] for pair in pairs]
    heads = keys.take(found.first)
    assert list(zip(heads.hash.tolist(), heads.check.tolist(), strict=True)) == list(numbers)
    as_they_came = np.lexsort((keys.check, keys.hash))
    assert beside.order.tolist() == as_they_came.tolist()
    assert beside.groups.tolist() == found.ids[as_they_came].tolist()
    assert (beside.keys.hash == heads.hash).all()
    assert (beside.keys.check == heads.check).all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=["by key", "ordered"])
@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("epochs", [1, 3])
def test_rows_are_sealed_in_an_order_that_is_told(layout: Layout, *, ready: bool, epochs: int) -> None:
    size = 3000
    random = np.random.default_rng(epochs)
    columns = [pa.array(random.permutation(size)), pa.array(random.integers(0, 50, size))]
    rows = pa.RecordBatch.from_arrays(columns, schema=layout.arrow)
    times, diffs = random.integers(0, epochs, size), np.ones(size, np.int64)
    updates = Updates(rows, times, diffs)
    found = runs(layout.keys_of(updates))
    if ready:
        updates = Updates(rows.take(pa.array(found.order)), times[found.order], diffs)
    plain = Batch.seal(layout, Updates(updates.rows, updates.times, diffs), Description.epochs(0, epochs))
    layout.tell_order(updates, None if ready else found.order, found.keys)
    told = Batch.seal(layout, updates, Description.epochs(0, epochs))
    told.check_order()
    assert told.distinct == plain.distinct == size
    assert all(np.array_equal(a, b) for a, b in zip(told.ids, plain.ids, strict=True))
    assert told.positions.tolist() == plain.positions.tolist()
    assert entries(told.updates()) == entries(plain.updates())
