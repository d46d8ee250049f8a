"""A few rows in one call: the same as the steps that many rows take one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.batch import Batch, Description, Layout, Updates, batch, consolidate, consolidation
from headrace.engine.batch.gather_rows import Assembly, Chosen, Loose, put_together
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.dataflow.delta_join import delta_join
from headrace.engine.kernels import grouping
from headrace.engine.kernels.entries import SIZE, STRUCT
from headrace.engine.lattice import Frontier
from headrace.engine.operators import keyed_intake, keyless_intake, reduce, row_programs, small_join
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, NUMERIC, TEXT, Column, DataType, Kind, Schema
from headrace.engine.trace import Spine, small
from tests.engine.strategies import VALUES as VALUES_OF
from tests.engine.strategies import row_values, rows_of, schema_of, some_types, some_updates
from tests.reference.updates import entries, total

R = TypeVar("R")
PARTS = (
    (batch, "_FEW"), (consolidation, "_FEW"), (keyed_intake, "FEW"), (keyless_intake, "FEW"), (reduce, "FEW"),
    (small_join, "FEW"), (row_programs, "FEW"), (small, "FEW"),
)  # fmt: skip


def one_by_one(work: Callable[[], R]) -> R:
    """What `work` gives where no rows count as few."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in PARTS:
            patch.setattr(module, name, 0)
        return work()


def as_many(work: Callable[[], R]) -> R:
    """What `work` gives where all rows count as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "MANY", 0)
        patch.setattr(batch, "_LARGE", 1)
        return one_by_one(work)


@given(st.data())
@settings(max_examples=100)
def test_merge(data: st.DataObject) -> None:
    types = data.draw(some_types())
    key = tuple(data.draw(st.lists(st.integers(0, len(types) - 1), max_size=2, unique=True)))
    layout = Layout(
        schema_of(types), key, data.draw(st.sampled_from([(), (0,)])), data.draw(st.sampled_from([2**64 - 1, 1]))
    )
    pool = [data.draw(some_updates(types, k, k + 1, pool_size=2)) for k in range(data.draw(st.integers(1, 4)))]
    # A row that comes back, or goes: the same rows in another batch.
    pool += [u.at(u.times * 0 + len(pool) + k, -u.diffs) for k, u in enumerate(pool) if data.draw(st.booleans())]
    batches = [Batch.seal(layout, u, Description.epochs(k, k + 1)) for k, u in enumerate(_in_order(pool))]
    since = Frontier.at(data.draw(st.integers(0, len(batches))))

    def merged() -> Batch:
        return small.merge_small(layout, batches, since)

    here, there = merged(), one_by_one(merged)
    here.check_order()
    assert here.description == there.description
    assert all(np.array_equal(a, b) for a, b in zip(here.ids, there.ids, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(here.facts[:2], there.facts[:2], strict=True))
    assert here.distinct == there.distinct == here.struct.num_rows
    assert entries(here.updates()) == entries(there.updates())
    assert np.array_equal(here.addresses[[SIZE, STRUCT]], [len(here), here.struct.address])


def _in_order(pool: list[Updates]) -> list[Updates]:
    """The updates, each at the epoch of its place."""
    return [u.at(np.full(len(u), k)) for k, u in enumerate(pool)]


@given(st.data())
@settings(max_examples=60)
def test_seal_and_consolidate(data: st.DataObject) -> None:
    types = data.draw(some_types())
    key = tuple(data.draw(st.lists(st.integers(0, len(types) - 1), max_size=2, unique=True)))
    order = data.draw(st.sampled_from([(), (len(types) - 1,)]))
    layout = Layout(schema_of(types), key, order, data.draw(st.sampled_from([2**64 - 1, 1, 0])))
    updates = data.draw(some_updates(types))

    def sealed() -> Batch:
        return Batch.seal(layout, updates, Description.epochs(0, 4))

    here, there = sealed(), one_by_one(sealed)
    here.check_order()
    assert all(np.array_equal(a, b) for a, b in zip(here.ids, there.ids, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(here.facts, there.facts, strict=True))
    assert here.distinct == there.distinct
    assert entries(here.updates()) == entries(there.updates())
    assert entries(consolidate(updates)) == entries(one_by_one(lambda: consolidate(updates)))
    net = consolidation.netted(updates, layout.image_plan)
    wanted = one_by_one(lambda: consolidation.netted(updates, layout.image_plan))
    assert [lane.tolist() for lane in net] == [lane.tolist() for lane in wanted]


@st.composite
def tables(draw: st.DrawFn, kinds: list[int], *, keyed: bool) -> tuple[Schema, list[Upserts]]:
    """Two steps of changes of a table, over a small pool of rows, of which some differ in what is not key."""
    types = draw(some_types(3))
    schema = Schema(schema_of(types).columns, (0,) if keyed else None)
    pool = draw(st.lists(row_values(types), min_size=1, max_size=5))
    steps = []
    for step in range(2):
        drawn = draw(st.lists(st.tuples(st.sampled_from(pool), st.sampled_from(kinds)), min_size=1, max_size=8))
        epochs = np.sort(np.array(draw(st.lists(st.integers(0, 1), min_size=len(drawn), max_size=len(drawn)))))
        rows = rows_of(types, [row for row, _ in drawn])
        steps.append(Upserts(rows, epochs + 2 * step, np.array([kind for _, kind in drawn], np.uint8)))
    return schema, steps


def taken_in(schema: Schema, steps: list[Upserts], make: Callable[..., Delta]) -> list[object]:
    """What each step makes of the table, the first already in its trace."""
    key = schema.key if schema.key else tuple(range(len(schema.columns)))
    spine = Spine(Layout(schema, key))
    told: list[object] = []
    for step, upserts in enumerate(steps):
        delta = make("t", schema, spine, upserts, 2 * step - 1)
        errors = None if delta.errors is None else total(delta.errors)
        told.append((None if delta.rows is None else total(delta.rows), errors))
        if delta.rows is not None:
            upon = Description(spine.upper, Description.epochs(0, 2 * step + 2).upper)
            sealed = Batch.seal(spine.layout, delta.rows, upon)
            sealed.check_order()
            spine.insert(sealed)
            told.append(entries(sealed.updates()))
    return told


@given(tables([UPSERT, UPSERT, UPSERT, DELETE], keyed=True) | tables([UPSERT, DELETE, TRUNCATE], keyed=True))
@settings(max_examples=80)
def test_upserts(case: tuple[Schema, list[Upserts]]) -> None:
    wanted = one_by_one(lambda: taken_in(*case, keyed_intake.upsert))
    assert taken_in(*case, keyed_intake.upsert) == wanted
    assert as_many(lambda: taken_in(*case, keyed_intake.upsert)) == wanted


@given(tables([INSERT, INSERT, RETRACT], keyed=False) | tables([INSERT, RETRACT, TRUNCATE], keyed=False))
@settings(max_examples=80)
def test_rows_without_a_key(case: tuple[Schema, list[Upserts]]) -> None:
    wanted = one_by_one(lambda: taken_in(*case, keyless_intake.count_rows))
    assert taken_in(*case, keyless_intake.count_rows) == wanted
    assert as_many(lambda: taken_in(*case, keyless_intake.count_rows)) == wanted


VALUES = {"k": "text", "a": "integer", "b": "bigint", "c": "numeric(12,2)", "d": "boolean"}


def reduced(steps: list[Upserts]) -> list[object]:
    """What views of a table without a key send in each step: sums by key and without, distinct keys, keys that repeat."""
    flow = Dataflow()
    table = flow.table("t", Schema(tuple(Column(n, DataType.parse(t)) for n, t in VALUES.items())))
    a, b, c, d = (ColumnRef(k, table.schema.columns[k].type) for k in range(1, 5))
    exact = DataType(Kind.NUMERIC, scale=2)
    sums = [
        Aggregate("count", None, BIGINT), Aggregate("count", d, BIGINT), Aggregate("sum", a, BIGINT),
        Aggregate("sum", b, DataType(Kind.NUMERIC, scale=0)), Aggregate("avg", c, NUMERIC), Aggregate("sum", c, exact),
        Aggregate("bool_and", d, d.type), Aggregate("bool_or", d, d.type),
    ]  # fmt: skip
    shown = tuple(Column(f"s{k}", sum_.type) for k, sum_ in enumerate(sums))
    keys = table.project([ColumnRef(0, TEXT)], Schema((Column("k", TEXT),)))
    ends = [Aggregate(f, x, x.type) for x in (a, b, c) for f in ("min", "max")]
    last = [*ends[:3], sums[4], *ends[3:], sums[0]]
    ended = tuple(Column(f"e{k}", end.type) for k, end in enumerate(last))
    views = [
        table.reduce([0], sums, Schema((Column("k", TEXT), *shown))),
        table.reduce([], sums, Schema(shown)),
        table.reduce([0], last, Schema((Column("k", TEXT), *ended))),
        table.reduce([], last, Schema(ended)),
        keys.distinct(),
        keys.concat(keys.distinct().negate()).distinct(),
    ]
    outputs = [view.output(str(k)) for k, view in enumerate(views)]
    told: list[object] = []
    for step, upserts in enumerate(steps):
        flow.push("t", upserts)
        flow.step(2 * step + 2)
        told.append([tuple(map(total, output.take())) for output in outputs])
    return told


@st.composite
def sums_steps(draw: st.DrawFn) -> list[Upserts]:
    types = list(VALUES.values())
    few = st.tuples(st.sampled_from(["x", "y", None]), *(st.none() | VALUES_OF[t] for t in types[1:]))
    pool = draw(st.lists(few, min_size=1, max_size=5))
    steps = []
    for step in range(3):
        drawn = draw(st.lists(st.tuples(st.sampled_from(pool), st.sampled_from([INSERT, INSERT, RETRACT])), max_size=6))
        epochs = np.sort(
            np.array(draw(st.lists(st.integers(0, 1), min_size=len(drawn), max_size=len(drawn))), np.int64)
        )
        rows = rows_of(types, [row for row, _ in drawn])
        rows = pa.RecordBatch.from_arrays(rows.columns, names=list(VALUES))
        steps.append(Upserts(rows, epochs + 2 * step, np.array([kind for _, kind in drawn], np.uint8)))
    return steps


@given(sums_steps())
@settings(max_examples=40)
def test_reduces(steps: list[Upserts]) -> None:
    assert repr(reduced(steps)) == repr(one_by_one(lambda: reduced(steps)))


def joined(sides: tuple[list[Upserts], ...]) -> list[object]:
    """What joins of tables without a key send in each step: of two with a condition and of some columns, of three by look-ups,
    the third of them a table, or what a reduce shows."""
    flow = Dataflow()
    schema = Schema(tuple(Column(n, DataType.parse(t)) for n, t in VALUES.items()))
    one, two, three = (flow.table(name, schema) for name in "xyz")
    less = Call("<(integer,integer)", (ColumnRef(1, INTEGER), ColumnRef(6, INTEGER)), BOOLEAN)
    a, b, c, d = (ColumnRef(k, schema.columns[k].type) for k in range(1, 5))
    shown = [
        Aggregate("count", d, BIGINT), Aggregate("sum", a, BIGINT), Aggregate("avg", c, NUMERIC), Aggregate("min", b, b.type),
        Aggregate("bool_or", d, d.type), Aggregate("sum", c, DataType(Kind.NUMERIC, scale=2)), Aggregate("max", c, c.type),
    ]  # fmt: skip
    names = Schema((Column("k", TEXT), *(Column(f"s{k}", of.type) for k, of in enumerate(shown))))
    by_key = [(0, 0), (1, 0), (2, 0)]
    summed = three.reduce([0], shown, names)
    flags = three.reduce([0], shown[4:5], Schema((names.columns[0], names.columns[5])))
    both = three.reduce([0, 4], shown[1:2], Schema((names.columns[0], schema.columns[4], names.columns[2])))
    views = [
        delta_join([one, two, both], [by_key, [(0, 4), (1, 4), (2, 1)]], [(0, 1), (1, 2), (2, 1), (2, 2)]),
        delta_join([one, two, summed], [by_key], [(0, 1), (1, 2), *((2, k) for k in range(8))]),
        delta_join([one, two, flags], [by_key], [(2, 0), (2, 1)]),
        one.join(two, [0], [0]),
        one.join(two, [0, 1], [0, 1], None, (0, 2, 9)),
        one.join(one, [0], [0], less),
        delta_join([one, two, three], [[(0, 0), (1, 0)], [(1, 1), (2, 1)]], [(0, 0), (0, 3), (1, 2), (2, 4), (2, 1)]),
    ]
    outputs = [view.output(str(k)) for k, view in enumerate(views)]
    told: list[object] = []
    for step in range(3):
        for name, steps in zip("xyz", sides, strict=True):
            flow.push(name, steps[step])
        flow.step(2 * step + 2)
        told.append([tuple(map(total, output.take())) for output in outputs])
    return told


@given(st.tuples(sums_steps(), sums_steps(), sums_steps()))
@settings(max_examples=40)
def test_joins(sides: tuple[list[Upserts], ...]) -> None:
    assert repr(joined(sides)) == repr(one_by_one(lambda: joined(sides)))


@given(st.data())
@settings(max_examples=60)
def test_loose_rows_are_what_arrow_takes(data: st.DataObject) -> None:
    types = data.draw(some_types())
    values = data.draw(st.lists(row_values(types), min_size=1, max_size=6))
    rows = rows_of(types, values)
    places = st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=9).map(np.array)
    first, second = data.draw(places), data.draw(places.filter(lambda p: len(p) > 0))
    updates = Updates(rows, np.zeros(len(values), np.int64), np.ones(len(values), np.int64))
    whole = Assembly.of(rows.schema, range(len(types)))
    here = np.array([updates.struct.address])
    loose = whole.picked(here, np.zeros((1, len(first)), np.int64), first[None])
    assert isinstance(loose, Loose)
    wanted = rows.take(pa.array(first))
    images = repr(wanted.to_pylist())
    assert [loose.nulls(k) for k in range(len(types))] == [column.null_count for column in wanted.columns]
    again = loose.take(second % len(first))
    assert repr(again.rows.to_pylist()) == repr(wanted.take(pa.array(second % len(first))).to_pylist())
    turned = np.arange(len(types))[::-1]
    names = pa.schema([pa.field(f"n{k}", rows.schema.field(int(k)).type) for k in turned])
    chosen = Chosen(loose, Assembly.of(names, range(len(types))), turned)
    assert [chosen.nulls(k) for k in range(len(types))] == [wanted.column(int(k)).null_count for k in turned]
    assert repr(chosen.take(np.arange(len(first))).rows.to_pylist()) == repr(chosen.rows.to_pylist())
    columns = [column.to_pylist() for column in chosen.under(names).rows.columns]
    assert repr(columns) == repr([column.to_pylist() for column in wanted.columns][::-1])
    both = put_together([loose, again])
    assert both is not None
    assert repr(both.rows.to_pylist()) == repr(loose.rows.to_pylist() + again.rows.to_pylist())
    assert repr(loose.rows.to_pylist()) == images
