"""min and max beside sums: the twin's answers in any cut, shared arrangements, and work that follows the change."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.keys import Keys, UInt64s
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.kernels import compiler
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, NUMERIC, TEXT, Column, DataType, Kind, Schema
from headrace.engine.trace import Spine
from headrace.engine.trace.lookup import Ends
from tests.engine.dataflow.pairs import Both, Pair, Shape, World
from tests.engine.dataflow.standard import any_cut, long_steps, made_late, passes, restart
from tests.engine.dataflow.test_random import agg, named
from tests.reference.dataflow import Op, Row

MONEY = DataType.parse("numeric(10,2)")
WIDE = DataType.parse("numeric(38,0)")
CHAR3 = DataType.parse("char(3)")
SUM2 = DataType(Kind.NUMERIC, scale=2)

VALUES = Schema.of(
    [
        Column("group", INTEGER),
        Column("price", MONEY),
        Column("name", TEXT),
        Column("rate", NUMERIC),
        Column("day", DATE),
        Column("weight", DOUBLE),
        Column("code", CHAR3),
        Column("wide", WIDE),
        Column("number", BIGINT),
    ]
)
EXTREMES: list[tuple[int, DataType]] = [
    (1, MONEY), (2, TEXT), (3, NUMERIC), (4, DATE), (5, DOUBLE), (6, CHAR3), (7, WIDE), (8, BIGINT), (0, INTEGER),
]  # fmt: skip


def draw(rng: random.Random) -> Row:
    return (
        rng.choice([None, 1, 2]),
        rng.choice([None, Decimal(rng.randrange(9)).scaleb(-2)]),
        rng.choice([None, "", f"a common prefix, and then {rng.randrange(5)}", f"a common prefix {rng.randrange(3)}"]),
        rng.choice([None, "1.0", "1.00", "9", "10", f"-{rng.randrange(3)}.5", f"1234567890123.{rng.randrange(9)}"]),
        rng.choice([None, dt.date(2026, 1, 1 + rng.randrange(6))]),
        rng.choice([None, "0.0", "-0.0", "nan", "inf", "-1.5", "1e+16"]),
        rng.choice([None, "a  ", "a ", "b", "\t"]),
        rng.choice([None, Decimal(2**63 + rng.randrange(4)), Decimal(-(2**70)), Decimal(rng.randrange(3))]),
        rng.choice([None, 2**63 - 1, -(2**63), rng.randrange(4)]),
    )  # fmt: skip


def history(rng: random.Random, epochs: int, rate: int) -> list[Op]:
    """Inserts, and retractions that mostly take a value that is extreme in its group."""
    ops: list[Op] = []
    live: list[Row] = []
    for epoch in range(epochs):
        for _ in range(rng.randrange(rate + 1)):
            if live and rng.random() < 0.5:
                column = rng.choice([1, 4, 8])
                some = [r for r in live if r[column] is not None] or live
                pick = rng.choice([min, max]) if some[0][column] is not None else None
                row = pick(some, key=lambda r: r[column]) if pick else rng.choice(some)
                live.remove(row)
                ops.append(Op(epoch, RETRACT, row))
            else:
                live.append(row := draw(rng) if not live or rng.random() < 0.8 else rng.choice(live))
                ops.append(Op(epoch, INSERT, row))
    return ops


def over_price() -> Both:
    price = ColumnRef(1, MONEY)
    expr = Call(">(numeric,numeric)", (price, Literal("0.03", MONEY)), BOOLEAN)
    return Both(expr, lambda row: None if row[1] is None else row[1] > Decimal("0.03"))


def views(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    values = t["values"]
    both = [agg(f, c, VALUES, kind) for c, kind in EXTREMES for f in ("min", "max")]
    sums = [agg("count", None, VALUES, BIGINT), agg("sum", 1, VALUES, SUM2), agg("avg", 1, VALUES, NUMERIC)]
    mixed = [sums[0], *both[:4], *sums[1:], *both[4:]]
    kinds = [a.real.type for a in mixed]
    rest = [
        agg("sum", 5, VALUES, DOUBLE),
        agg("max", 5, VALUES, DOUBLE),
        agg("avg", 5, VALUES, DOUBLE, distinct=True),
        agg("count", 6, VALUES, BIGINT, distinct=True),
        agg("count", 0, VALUES, BIGINT, distinct=True),
        agg("sum", 3, VALUES, NUMERIC, distinct=True),
        agg("avg", 1, VALUES, NUMERIC, distinct=True),
        agg("min", 1, VALUES, MONEY, distinct=True),
        sums[1],
    ]
    others = [a.real.type for a in rest]
    few = [agg("max", 1, VALUES, MONEY), sums[1], agg("min", 1, VALUES, MONEY)]
    return {
        "mixed": values.reduce([0], mixed, named(INTEGER, *kinds)),
        "whole": values.reduce([], mixed, named(*kinds)),
        "rest": values.reduce([0], rest, named(INTEGER, *others)),
        "all of the rest": values.reduce([], rest, named(*others)),
        "images": values.reduce([5, 6], [*rest, *few], named(DOUBLE, CHAR3, *others, MONEY, SUM2, MONEY)),
        "few": values.reduce([0], few, named(INTEGER, MONEY, SUM2, MONEY)),
        "two keys": values.filter(over_price()).reduce([4, 0], both[:2], named(DATE, INTEGER, MONEY, MONEY)),
        "by code": values.reduce([6], [*few, agg("max", 6, VALUES, CHAR3)], named(CHAR3, MONEY, SUM2, MONEY, CHAR3)),
    }


SHAPES: dict[str, Shape] = {"extremes": views}


def world(shape: Shape, seed: int, epochs: int = 12, rate: int = 5) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    return World({"values": VALUES}, shape, {"values": history(rng, epochs, rate)}), rng


test_changes_of_each_epoch_in_any_cut = passes(any_cut, SHAPES, partial(world, epochs=16))
test_many_epochs_in_one_step = passes(long_steps, SHAPES, partial(world, epochs=40, rate=3))
test_a_restart_changes_nothing = passes(restart, SHAPES, world)
test_a_view_made_late_is_hydrated = passes(made_late, SHAPES, world)


ITEMS = Schema.of([Column("id", BIGINT), Column("group", INTEGER), Column("value", BIGINT)], ["id"])
COUNT = Aggregate("count", None, BIGINT)
LEAST = Aggregate("min", ColumnRef(2, BIGINT), BIGINT)
GREATEST = Aggregate("max", ColumnRef(2, BIGINT), BIGINT)


def reduced(flow: Dataflow, *aggregates: Aggregate) -> Collection:
    columns = [Column("group", INTEGER), *(Column(f"a{i}", BIGINT) for i in range(len(aggregates)))]
    return flow.table("items", ITEMS).reduce([1], aggregates, Schema(tuple(columns)))


FLOATS = Schema.of([Column("group", INTEGER), Column("value", DOUBLE)])


def test_a_float_sum_beyond_its_range_is_an_error_until_it_fits_again() -> None:
    flow = Dataflow()
    value = ColumnRef(1, DOUBLE)
    aggregates = [Aggregate("sum", value, DOUBLE), Aggregate("min", value, DOUBLE), COUNT]
    schema = Schema(tuple(Column(f"c{i}", kind) for i, kind in enumerate([INTEGER, DOUBLE, DOUBLE, BIGINT])))
    sums = flow.table("floats", FLOATS).reduce([0], aggregates, schema)
    output = sums.output("sums")

    def push(epoch: int, kind: int, *values: float) -> None:
        n = len(values)
        rows = pa.record_batch([pa.array([1] * n, pa.int32()), pa.array(values)], schema=FLOATS.arrow)
        flow.push("floats", Upserts(rows, np.full(n, epoch), np.full(n, kind, np.uint8)))

    push(0, INSERT, 1e308, 1e308)
    push(1, INSERT, -1.0)
    push(2, RETRACT, 1e308)
    flow.step(2)
    rows, errors = output.take()
    assert len(rows) == 0
    assert list(zip(errors.times.tolist(), errors.diffs.tolist(), strict=True)) == [(0, 1)]
    assert sums.snapshot(1)[1].rows.to_pylist() == [{"error": "value out of range: overflow"}]
    flow.step(3)
    rows, errors = output.take()
    assert rows.rows.to_pylist() == [{"c0": 1, "c1": 1e308 - 1.0, "c2": -1.0, "c3": 2}]
    assert errors.diffs.tolist() == [-1]


def ordered(flow: Dataflow) -> list[str]:
    return [name for name in flow.arrangements() if "^" in name]


def test_views_share_the_order_of_a_column_and_drop_it_together() -> None:
    flow = Dataflow()
    one = reduced(flow, LEAST, COUNT).output("one")
    two = reduced(flow, GREATEST, LEAST, Aggregate("sum", ColumnRef(0, BIGINT), BIGINT)).output("two")
    assert len(ordered(flow)) == 1
    flow.step(1)
    flow.drop(one)
    assert len(ordered(flow)) == 1
    flow.drop(two)
    assert not ordered(flow)


class Load:
    """A table of one large group, and what lookups of its extremes read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        self.flow = Dataflow()
        self.output: Output = reduced(self.flow, LEAST, COUNT, GREATEST).output("extremes")
        self.visited = 0
        found = Spine.first_live

        def counted(spine: Spine, keys: Keys, bounds: UInt64s, since: int, *, backward: bool) -> Ends:
            ends = found(spine, keys, bounds, since, backward=backward)
            self.visited += ends.visited
            return ends

        monkeypatch.setattr(Spine, "first_live", counted)
        self.push(np.arange(size), np.arange(size), UPSERT)
        self.step()

    def push(self, ids: object, values: object, kind: int) -> None:
        columns = [pa.array(ids, pa.int64()), pa.array(np.zeros(len(ids), np.int32)), pa.array(values, pa.int64())]  # type: ignore[arg-type]
        rows = pa.RecordBatch.from_arrays(columns, schema=ITEMS.arrow)
        epochs = np.full(rows.num_rows, self.flow.frontier, np.int64)
        self.flow.push("items", Upserts(rows, epochs, np.full(rows.num_rows, kind, np.uint8)))

    def step(self) -> tuple[int, int, int]:
        """(least, count, greatest) after a step."""
        self.flow.step(self.flow.frontier + 1)
        self.flow.advance_since(self.flow.frontier - 1)
        rows, _ = self.output.take()
        found = rows.rows.take(np.flatnonzero(rows.diffs > 0)).to_pylist()
        assert len(found) == 1
        return found[0]["a0"], found[0]["a1"], found[0]["a2"]


@pytest.mark.skipif(compiler.JIT_OFF, reason="too many rows for plain Python")
def test_a_change_of_a_million_rows_reads_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    size, changes = 1_000_000, 100
    load = Load(monkeypatch, size)
    assert load.visited == 0
    low, high = 0, size - 1
    for k in range(changes):
        if k % 4 < 2:
            load.push([low], [0], DELETE)
            low += 1
        elif k % 4 == 2:
            load.push([high], [0], DELETE)
            high -= 1
        else:
            load.push([size + k], [size // 2], UPSERT)
        assert load.step()[::2] == (low, high)
    assert load.visited <= changes * math.log2(size)


def jobs(load: Load, turns: int) -> Iterator[int]:
    """The least goes, again and again; and each time one that went long ago comes back and goes again."""
    for k in range(turns):
        load.push([k], [k], DELETE)
        yield load.step()[0]
        load.push([0], [0], UPSERT)
        assert load.step()[0] == 0
        load.push([0], [0], DELETE)
        yield load.step()[0]


@pytest.mark.skipif(compiler.JIT_OFF, reason="too many rows for plain Python")
def test_rows_that_went_do_not_stay_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    size, gone, turns = 50_000, 20_000, 300
    load = Load(monkeypatch, size)
    load.push(np.arange(gone), np.arange(gone), DELETE)
    load.step()
    load.push(np.arange(turns), np.arange(turns), UPSERT)
    load.step()
    for k, least in enumerate(jobs(load, turns)):
        assert least == (k // 2 + 1 if k // 2 + 1 < turns else gone)
    # In vain they would be read 2 × turns × gone times.
    assert load.visited <= 4 * size


def test_only_a_lost_extreme_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load(monkeypatch, 1000)
    for k in range(20):
        load.push([500 + k], [0], DELETE)
        load.push([2000 + k], [-1 - k], UPSERT)
        assert load.step()[0] == -1 - k
    assert load.visited == 0
