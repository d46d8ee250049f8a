"""The first rows of each group: the twin's answers in any cut, and work that follows the change and what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.keys import Keys
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, UPSERT, Int64s, Upserts
from headrace.engine.dataflow import Dataflow, Order
from headrace.engine.errors import InvariantBroken
from headrace.engine.schema import BIGINT, INTEGER, NUMERIC, Column, Schema
from headrace.engine.trace import Spine
from headrace.engine.trace.lookup import Ends
from tests.engine.dataflow.pairs import Pair, Shape
from tests.engine.dataflow.standard import any_cut, long_steps, made_late, passes, restart
from tests.engine.dataflow.test_dataflow import push, taken
from tests.engine.dataflow.test_extremes import VALUES, world
from tests.engine.dataflow.test_random import named, ref

KINDS = range(1, 9)


def columns(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    values = t["values"]
    ways = [(False, None), (True, None), (False, True), (True, False)]
    found = {}
    for k, column in enumerate(KINDS):
        for way in (ways[k % 4], ways[(k + 1) % 4]):
            found[f"{column} {way}"] = values.top_k([0], [Order(column, *way)], 1 + k % 3, k % 2)
    return found


def orders(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    values = t["values"]
    rates = values.project([ref(3, VALUES), ref(0, VALUES)], named(NUMERIC, INTEGER))
    return {
        "whole": values.top_k([], [Order(8, True)], 3),
        "two": values.top_k([0], [Order(4), Order(1, True)], 2),
        "nulls": values.top_k([], [Order(4, False, True), Order(8, True, False), Order(2)], 4, 1),
        "none": values.top_k([0], [], 2, 1),
        "nothing": values.top_k([0], [Order(1)], 0, 3),
        "behind": values.top_k([], [Order(1)], 2, 5),
        "many": values.top_k([0], [Order(1)], 1000),
        "rates": rates.top_k([0], [Order(1, True)], 2),
        "copies": rates.project([ref(1, rates.real.schema)], named(INTEGER)).top_k([], [Order(0)], 3, 1),
        "of itself": values.top_k([0], [Order(1)], 3).top_k([], [Order(8)], 2),
        "distinct": values.top_k([], [Order(8)], 4).distinct(),
        "own": values.top_k([8], [Order(8), Order(1)], 1),
    }


SHAPES: dict[str, Shape] = {"columns": columns, "orders": orders}
small = partial(world, epochs=10, rate=4)

test_changes_of_each_epoch_in_any_cut = passes(any_cut, SHAPES, partial(world, epochs=14, rate=4))
test_many_epochs_in_one_step = passes(long_steps, SHAPES, partial(world, epochs=30, rate=2))
test_a_restart_changes_nothing = passes(restart, SHAPES, small)
test_a_view_made_late_is_hydrated = passes(made_late, SHAPES, small)


ITEMS = Schema.of([Column("id", BIGINT), Column("group", INTEGER), Column("value", BIGINT)], ["id"])
PAIRS = Schema.of([Column("a", BIGINT), Column("b", BIGINT)])


class Load:
    """A table of one large group, and what lookups of its first rows read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, values: Int64s, *order: Order, limit: int, offset: int) -> None:
        self.flow = Dataflow()
        self.output = self.flow.table("items", ITEMS).top_k([1], order, limit, offset).output("top")
        self.visited = 0
        self.shown: set[tuple[int, int]] = set()
        found = Spine.first_enough

        def counted(
            spine: Spine, keys: Keys, needs: Int64s, since: int, *, backward: bool, exact: bool
        ) -> tuple[Ends, Int64s]:
            ends, lacking = found(spine, keys, needs, since, backward=backward, exact=exact)
            self.visited += ends.visited
            return ends, lacking

        monkeypatch.setattr(Spine, "first_enough", counted)
        self.push(np.arange(len(values)), values, UPSERT)
        self.step()
        self.visited = 0

    def push(self, ids: object, values: object, kind: int, epoch: int = 0) -> None:
        columns = [pa.array(ids, pa.int64()), pa.array(np.zeros(len(ids), np.int32)), pa.array(values, pa.int64())]  # type: ignore[arg-type]
        rows = pa.RecordBatch.from_arrays(columns, schema=ITEMS.arrow)
        epochs = np.full(rows.num_rows, self.flow.frontier + epoch, np.int64)
        self.flow.push("items", Upserts(rows, epochs, np.full(rows.num_rows, kind, np.uint8)))

    def step(self, epochs: int = 1) -> list[int]:
        """The values shown after a step."""
        self.flow.step(self.flow.frontier + epochs)
        self.flow.advance_since(self.flow.frontier - 1)
        rows, _ = self.output.take()
        for row, diff in zip(rows.rows.to_pylist(), rows.diffs.tolist(), strict=True):
            item = row["id"], row["value"]
            (self.shown.add if diff > 0 else self.shown.remove)(item)
        return sorted(value for _, value in self.shown)


@pytest.mark.parametrize("descending", [False, True])
def test_a_change_of_a_million_rows_reads_a_few(monkeypatch: pytest.MonkeyPatch, descending: bool) -> None:
    size, changes, limit, offset = 1_000_000, 60, 5, 3
    order = Order(2, descending)
    load = Load(monkeypatch, np.arange(size), order, limit=limit, offset=offset)
    ends = list(range(size - 1, size - 100, -1)) if descending else list(range(100))
    for k in range(changes):
        if k % 3 == 0:
            gone = ends.pop(k % 7)
            load.push([gone], [0], DELETE)
        elif k % 3 == 1:
            load.push([size + k], [size // 2], UPSERT)
        else:
            gone = ends.pop(0)
            load.push([gone], [0], DELETE)
        assert load.step() == sorted(ends[offset : offset + limit])
    # What is wanted, and until a merge drops them the rows that went: one update that brought and one that took each.
    assert load.visited <= changes * (limit + offset + 2 * 40)


def test_rows_that_went_do_not_stay_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    size, gone, turns = 50_000, 20_000, 100
    load = Load(monkeypatch, np.arange(size), Order(2), limit=2, offset=0)
    load.push(np.arange(gone), np.arange(gone), DELETE)
    assert load.step() == [gone, gone + 1]
    for k in range(turns):
        load.push([gone + k], [0], DELETE)
        assert load.step() == [gone + k + 1, gone + k + 2]
    # In vain they would be read 2 × turns × gone times.
    assert load.visited <= 4 * size


def test_rows_that_are_equal_in_an_exact_order_are_not_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    size, changes, limit = 50_000, 50, 10
    load = Load(monkeypatch, np.arange(size) % 3, Order(2, descending=True), limit=limit, offset=0)
    for k in range(changes):
        gone, _ = min(load.shown)
        load.push([gone, size + k], [0, 1], DELETE if k % 2 else UPSERT)
        assert load.step() == [2] * limit
    # A third of the rows are equal; those that went are read until a merge drops them.
    assert load.visited <= changes * (limit + 2 * changes)


def test_many_epochs_in_a_step_read_each_change_once(monkeypatch: pytest.MonkeyPatch) -> None:
    size, epochs, limit = 100_000, 1000, 5
    load = Load(monkeypatch, np.arange(size), Order(2), limit=limit, offset=0)
    for k in range(epochs):
        load.push([k], [k], DELETE, k)
    assert load.step(epochs) == list(range(epochs, epochs + limit))
    assert load.visited <= 2 * epochs + limit + 1


def test_nulls_are_not_in_the_way_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 20_000
    load = Load(monkeypatch, np.arange(10), Order(2, True, False), limit=3, offset=0)
    load.push(np.arange(100, size), pa.nulls(size - 100, pa.int64()), UPSERT)
    assert load.step() == [7, 8, 9]
    load.push([9], [9], DELETE)
    assert load.step() == [6, 7, 8]
    assert load.visited <= 10


def test_copies_count_one_by_one() -> None:
    flow = Dataflow()
    some = flow.table("pairs", PAIRS).top_k([0], [Order(1)], 3, 1).output("some")
    push(flow, "pairs", PAIRS, *[(0, INSERT, (1, 5))] * 3, *[(0, INSERT, (1, 7))] * 2)
    push(flow, "pairs", PAIRS, (1, RETRACT, (1, 5)))
    flow.step(2)
    assert sorted(taken(some)[0]) == [(0, (1, 5), 2), (0, (1, 7), 1), (1, (1, 5), -1), (1, (1, 7), 1)]


def test_a_part_that_cannot_be_is_refused() -> None:
    pairs = Dataflow().table("pairs", PAIRS)
    for limit, offset in ((-1, 0), (0, -1), (2**31 - 1, 1)):
        with pytest.raises(InvariantBroken, match="no such part"):
            pairs.top_k([0], [Order(1)], limit, offset)


def test_plans_share_the_order_and_drop_it_together() -> None:
    flow = Dataflow()
    items = flow.table("items", ITEMS)
    before = set(flow.arrangements())
    one, two = items.top_k([1], [Order(2)], 3).output("one"), items.top_k([1], [Order(2, True)], 9, 2).output("two")
    assert len(set(flow.arrangements()) - before) == 1
    assert items.top_k([1], [Order(2, False, False)], 3).node is one.collection.node
    flow.step(1)
    flow.drop(one)
    assert len(set(flow.arrangements()) - before) == 1
    flow.drop(two)
    assert set(flow.arrangements()) == before
