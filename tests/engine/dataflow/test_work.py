"""Counted work of every operator that is not a join: linear in the length of a key's history that one step takes in.

A history has one change an epoch, of the rows of one group after the other: a row that replaces another of the same group,
so that a group never has more than `LIVE` rows. `tests.engine.work` says what is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import INSERT, RETRACT, UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Order
from headrace.engine.dataflow.count import CountedArrangementNode
from headrace.engine.dataflow.window import windowed
from headrace.engine.kernels.compiler import JIT_OFF
from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef
from headrace.engine.operators.python_aggregates import folding
from headrace.engine.operators.window import Window
from headrace.engine.operators.window_frames import Frame
from headrace.engine.operators.window_values import WindowFunction
from headrace.engine.schema import BIGINT, DOUBLE, NUMERIC, TEXT, Column, DataType, Schema
from tests.engine.work import Work, counted

pytestmark = pytest.mark.skipif(JIT_OFF, reason="kernels in plain Python are not counted")

SHORT, LONG, FACTOR = 1_000, 64_000, 1.3
LIVE = 4
ITEMS = Schema.of(
    [Column("id", BIGINT), Column("group", BIGINT), Column("value", BIGINT), Column("text", TEXT),
     Column("float", DOUBLE), Column("numeric", NUMERIC)], ["id"],
)  # fmt: skip
BAG = Schema.of([Column("group", BIGINT), Column("value", BIGINT)])
KEYS: dict[str, Callable[[int], int]] = {"one key": lambda n: 1, "root": lambda n: math.isqrt(n), "all": lambda n: n}
View = Callable[[Collection], Collection]


def reduced(*aggregates: tuple[str, int, DataType], distinct: bool = False) -> View:
    """Of each group its number of rows and these aggregates of a column."""

    def view(items: Collection) -> Collection:
        some = [Aggregate(f, ColumnRef(c, items.schema.columns[c].type), t, distinct) for f, c, t in aggregates]
        columns = [Column(f"a{k}", t) for k, (_, _, t) in enumerate(aggregates)]
        counted_too = [Column("group", BIGINT), Column("count", BIGINT), *columns]
        return items.reduce([1], [Aggregate("count", None, BIGINT), *some], Schema(tuple(counted_too)))

    return view


def least(items: Collection) -> Collection:
    schema = Schema((Column("group", BIGINT), Column("least", BIGINT)))
    return items.reduce([1], [Aggregate("min", ColumnRef(2, BIGINT), BIGINT)], schema)


def grouped(items: Collection) -> Collection:
    return items.pick([1, 2], Schema((Column("group", BIGINT), Column("value", BIGINT))))


def group_of(items: Collection) -> Collection:
    return items.pick([1], Schema((Column("group", BIGINT),)))


def window(items: Collection) -> Collection:
    frame = Frame("range", None, 0)
    some = (
        WindowFunction("sum", (2,), NUMERIC, frame),
        WindowFunction("row_number", (), BIGINT, Frame("rows", None, None)),
        WindowFunction("max", (2,), BIGINT, Frame("rows", -1, 1)),
    )
    schema = Schema((*items.schema.columns, *(Column(f"f{k}", f.type) for k, f in enumerate(some))))
    return windowed(items, Window(items.schema, (1,), (Order(2),), some, schema))


def in_loop(view: View) -> View:
    """The view inside of a loop that nothing drives on."""

    def looped(items: Collection) -> Collection:
        loop = items.flow.iterate("loop")  # type: ignore[attr-defined]
        made = view(loop.enter(items))
        variable = loop.variable(made.schema)
        found: Collection = loop.close({variable: made}, [made])[0]
        return found

    return looped


VIEWS: dict[str, View] = {
    "intake of a keyed table": lambda items: items,
    "sums": reduced(("sum", 2, NUMERIC)),
    "extremes": reduced(("min", 2, BIGINT), ("max", 2, BIGINT)),
    "extremes of texts": reduced(("min", 3, TEXT), ("max", 3, TEXT)),
    "distinct aggregates": reduced(("count", 2, BIGINT), ("sum", 2, NUMERIC), distinct=True),
    "sums of floats": reduced(("sum", 4, DOUBLE)),
    "sums of numerics": reduced(("sum", 5, NUMERIC)),
    "string_agg": reduced((folding("string_agg", separator=","), 3, TEXT)),
    "bit_or": reduced((folding("bit_or"), 2, BIGINT)),
    "distinct rows": lambda items: grouped(items).distinct(),
    "distinct groups": lambda items: group_of(items).distinct(),
    "counts": lambda items: group_of(items).count(),
    "at least two": lambda items: group_of(items).at_least(2),
    "top": lambda items: items.top_k([1], [Order(2)], 2),
    "top of texts": lambda items: items.top_k([1], [Order(3, True), Order(2)], 2, 1),
    "window": window,
    "key check": lambda items: items.check_key([1], "v"),
    "sums in a loop": in_loop(reduced(("sum", 2, NUMERIC), ("min", 2, BIGINT))),
    "string_agg in a loop": in_loop(reduced((folding("string_agg", separator=","), 3, TEXT))),
    "least in a loop": in_loop(least),
    "counts in a loop": in_loop(lambda items: group_of(items).count()),
    "top in a loop": in_loop(lambda items: items.top_k([1], [Order(2)], 2)),
    "window in a loop": in_loop(window),
}


def replacing(epochs: int, keys: int) -> Upserts:
    """One upsert an epoch, of one group after the other, of the rows of a group one after the other."""
    at = np.arange(epochs)
    groups, slots = at % keys, at // keys % LIVE
    values = (at * 7919) % 100_003
    columns = [
        pa.array(groups * LIVE + slots), pa.array(groups), pa.array(values),
        pa.array([f"text {v:06d}" for v in values.tolist()], pa.large_string()), pa.array(values / 8),
        pa.array([f"{v}.25" for v in values.tolist()], pa.large_string()),
    ]  # fmt: skip
    rows = pa.RecordBatch.from_arrays(columns, schema=ITEMS.arrow)
    return Upserts(rows, at, np.full(epochs, UPSERT, np.uint8))


def work_of(view: View, epochs: int, keys: int) -> Work:
    flow = Dataflow()
    output = view(flow.table("items", ITEMS)).output("view")
    flow.push("items", replacing(epochs, keys))
    with counted() as work:
        flow.step(epochs)
    assert len(output.take()[0]) or keys == epochs, "something changes, but where each group is a single row"
    return work


def check(work: Callable[[int, int], Work], keys: str, longest: int = LONG) -> None:
    short, long = (work(n, KEYS[keys](n)) for n in (SHORT, longest))
    assert short.total >= SHORT, "there is something to count"
    assert long.total * SHORT / longest <= FACTOR * short.total, (
        f"{short.total / SHORT:.1f} an update became {long.total / longest:.1f}: {long.by_kernel.most_common(4)}"
    )


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("view", VIEWS)
def test_work_is_linear_in_the_length_of_a_history(view: str, keys: str) -> None:
    check(lambda n, k: work_of(VIEWS[view], n, k), keys, 16_000 if "window" in view or "string_agg" in view else LONG)


@pytest.mark.long
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("view", [v for v in VIEWS if "window" in v or "string_agg" in v])
def test_work_is_linear_in_a_long_history(view: str, keys: str) -> None:
    check(lambda n, k: work_of(VIEWS[view], n, k), keys)


def coming_and_going(epochs: int, keys: int, values: int) -> Upserts:
    """One change an epoch, of one group after the other: its row comes, and goes the next time, of so many `values` in turn."""
    at = np.arange(epochs)
    groups, turn = at % keys, at // keys
    rows = pa.RecordBatch.from_arrays([pa.array(groups), pa.array(turn // 2 % values)], schema=BAG.arrow)
    return Upserts(rows, at, np.where(turn % 2, RETRACT, INSERT).astype(np.uint8))


def intake_without_a_key(epochs: int, keys: int) -> Work:
    flow = Dataflow()
    output = flow.table("bag", BAG).output("view")
    flow.push("bag", coming_and_going(epochs, keys, epochs))
    with counted() as found:
        flow.step(epochs)
    assert len(output.take()[0]) == epochs
    return found


def looked_up(epochs: int, keys: int) -> Work:
    """Of what is present of each key, asked for the whole history."""
    flow = Dataflow()
    rows = flow.table("bag", BAG).distinct()
    node = flow.indexed(rows.node, (0, 1))
    flow.retain(node)
    assert isinstance(node, CountedArrangementNode)
    flow.push("bag", coming_and_going(epochs, keys, 1))
    flow.step(epochs)
    asked = pa.RecordBatch.from_arrays(
        [pa.array(np.arange(keys)), pa.array(np.zeros(keys, np.int64))], schema=BAG.arrow
    )
    with counted() as found:
        matches = node.index.gather(node.layout.keys(asked))
    assert len(matches) == epochs
    return found


def of_groups_that_come_and_go(view: View) -> Callable[[int, int], Work]:
    """What a view of the groups alone costs, each of which is there every other epoch."""

    def work(epochs: int, keys: int) -> Work:
        flow = Dataflow()
        groups = flow.table("bag", BAG).pick([0], Schema((Column("group", BIGINT),)))
        output = view(groups).output("view")
        flow.push("bag", coming_and_going(epochs, keys, epochs))
        with counted() as found:
            flow.step(epochs)
        assert len(output.take()[0]) >= epochs
        return found

    return work


OF_GROUPS: dict[str, View] = {
    "distinct": lambda groups: groups.distinct(),
    "at least one": lambda groups: groups.at_least(1),
    "counts": lambda groups: groups.count(),
    "counts of distinct groups": lambda groups: groups.distinct().count(),
    "sums": lambda groups: groups.reduce(
        [0], [Aggregate("sum", ColumnRef(0, BIGINT), NUMERIC)],
        Schema((Column("group", BIGINT), Column("sum", NUMERIC))),
    ),
    "least": lambda groups: groups.reduce(
        [0], [Aggregate("min", ColumnRef(0, BIGINT), BIGINT)], Schema((Column("group", BIGINT), Column("min", BIGINT)))
    ),
    "top": lambda groups: groups.top_k([0], [Order(0)], 2),
    "join of distinct": lambda groups: groups.distinct().join(groups.distinct().count(), [0], [0]),
    "left join of distinct": lambda groups: groups.distinct().left_join(groups.at_least(1), [0], [0]),
    "semijoin of counts": lambda groups: groups.count().semijoin(groups, [0], [0]),
}  # fmt: skip
OTHERS: dict[str, Callable[[int, int], Work]] = {
    "intake without a key": intake_without_a_key,
    "what is present, looked up": looked_up,
    **{f"{name}, of groups that come and go": of_groups_that_come_and_go(view) for name, view in OF_GROUPS.items()},
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("what", OTHERS)
def test_other_work_is_linear_too(what: str, keys: str) -> None:
    check(OTHERS[what], keys)


@pytest.mark.parametrize("size", [20, 600])
@pytest.mark.parametrize("kind", ["window", "top", "string_agg"])
def test_changes_of_columns_that_a_view_leaves_out_cost_nothing(kind: str, size: int) -> None:
    """All rows are of one group, and a step changes the floats of some, which the view is without."""
    flow, rows = Dataflow(), 100 * size
    items = flow.table("items", ITEMS)
    schema = Schema(ITEMS.columns[:4])
    output = VIEWS[kind](items.pick([0, 1, 2, 3], schema)).output("v")

    def put(epoch: int, count: int, value: float) -> None:
        ids = np.arange(count)
        columns = [
            ids,
            np.zeros(count, np.int64),
            ids % 100,
            [str(k) for k in ids],
            np.full(count, value),
            [None] * count,
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, ITEMS.arrow, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=ITEMS.arrow)
        flow.push("items", Upserts(batch, np.full(count, epoch), np.full(count, UPSERT, np.uint8)))

    put(0, rows, 0.5)
    flow.step(1)
    output.take()
    put(1, size, 1.5)
    with counted() as work:
        flow.step(2)
    assert not len(output.take()[0].times)
    assert work.total < rows
