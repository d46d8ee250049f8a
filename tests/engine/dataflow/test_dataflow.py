"""The dataflow's face: sharing, dropping, names, determinism, and errors that come right again."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators import join as joining
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, TEXT, Column, DataType, Kind, Schema
from headrace.engine.trace.spine import NotFaithful

ITEMS = Schema.of([Column("id", INTEGER), Column("group", INTEGER), Column("name", TEXT)], ["id"])
GROUPS = Schema.of([Column("id", INTEGER), Column("title", TEXT)], ["id"])
PAIRS = Schema.of([Column("a", BIGINT), Column("b", BIGINT)])
COUNT = Aggregate("count", None, BIGINT)


def push(flow: Dataflow, table: str, schema: Schema, *changes: tuple[int, int, tuple[object, ...]]) -> None:
    """(epoch, kind, row) …"""
    columns = zip(*(row for _, _, row in changes), strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema.arrow, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    epochs = np.array([e for e, _, _ in changes], np.int64)
    flow.push(table, Upserts(rows, epochs, np.array([k for _, k, _ in changes], np.uint8)))


def taken(output: Output) -> tuple[list[tuple[int, tuple[object, ...], int]], list[tuple[int, str, int]]]:
    rows, errors = output.take()
    values = [tuple(r.values()) for r in rows.rows.to_pylist()]
    messages = errors.rows.column(0).to_pylist()
    return (
        list(zip(rows.times.tolist(), values, rows.diffs.tolist(), strict=True)),
        list(zip(errors.times.tolist(), messages, errors.diffs.tolist(), strict=True)),
    )


def two_joins(flow: Dataflow) -> tuple[Collection, Collection]:
    items, groups = flow.table("items", ITEMS), flow.table("groups", GROUPS)
    one = items.join(groups, [1], [0])
    residual = Call(">(integer,integer)", (ColumnRef(0, INTEGER), Literal(1, INTEGER)), BOOLEAN)
    return one, items.join(groups, [1], [0], residual)


def test_two_joins_share_their_arrangements() -> None:
    flow = Dataflow()
    one, two = two_joins(flow)
    assert one.fingerprint != two.fingerprint
    push(flow, "items", ITEMS, (0, UPSERT, (1, 1, "a")))
    flow.step(1)
    names = [n for n in flow.arrangements() if "errors" not in n]
    assert sorted(n.split("-")[0] + n[n.index("@") :] for n in names) == ["groups@0", "items@0", "items@1"]
    by_group = next(a for n, a in flow.arrangements().items() if n.startswith("items-") and n.endswith("@1"))
    assert len([r for r in by_group.readers if r.startswith("join")]) == 2
    assert by_group.nbytes > 0
    assert len(by_group) == 1


def test_equal_plans_are_one_node_whatever_columns_are_called() -> None:
    flow = Dataflow()
    groups = flow.table("groups", GROUPS)
    refs = [ColumnRef(0, INTEGER), ColumnRef(1, TEXT)]
    renamed = groups.project(refs, Schema((Column("x", INTEGER), Column("y", TEXT))))
    assert renamed.node is groups.node
    assert renamed.distinct().node is groups.distinct().node
    output = renamed.output("renamed")
    push(flow, "groups", GROUPS, (0, UPSERT, (1, "t")))
    flow.step(1)
    assert output.take()[0].rows.schema.names == ["x", "y"]


def test_dropping_a_view_drops_what_nobody_else_reads() -> None:
    flow = Dataflow()
    one, two = two_joins(flow)
    first, second = one.output("one"), two.output("two")
    counted = two.reduce([1], [COUNT], Schema((Column("group", INTEGER), Column("n", BIGINT)))).output("counted")
    before = set(flow.arrangements())
    flow.drop(counted)
    assert len(before - set(flow.arrangements())) == 1
    flow.drop(first)
    assert any(n.endswith("@1") for n in flow.arrangements())
    flow.drop(second)
    assert sorted(n.split("-")[0] for n in flow.arrangements()) == ["groups", "groups", "items", "items"]
    push(flow, "items", ITEMS, (0, UPSERT, (1, 1, "a")))
    flow.step(1)
    assert len(flow.table("items", ITEMS).snapshot(0)[0]) == 1


def test_names_do_not_depend_on_what_else_runs() -> None:
    alone, crowded = Dataflow(), Dataflow()
    crowded.table("other", PAIRS).distinct()
    two_joins(crowded)
    two_joins(alone)
    assert set(alone.arrangements()) <= set(crowded.arrangements())


def test_a_sum_out_of_range_is_an_error_until_it_fits_again() -> None:
    flow = Dataflow()
    # Multiplicities make integers add up beyond bigint: 2^31 - 1 joined with itself often enough.
    pairs = flow.table("pairs", PAIRS)
    total = Aggregate("sum", ColumnRef(1, INTEGER), BIGINT)
    narrow = pairs.project(
        [ColumnRef(0, BIGINT), Literal(2**31 - 1, INTEGER)], Schema((Column("a", BIGINT), Column("v", INTEGER)))
    )
    many = narrow
    for _ in range(4):
        many = many.join(many, [0], [0]).project(
            [ColumnRef(0, BIGINT), ColumnRef(1, INTEGER)], Schema((Column("a", BIGINT), Column("v", INTEGER)))
        )
    output = many.reduce([0], [total], Schema((Column("a", BIGINT), Column("s", BIGINT)))).output("sums")
    push(flow, "pairs", PAIRS, *[(0, INSERT, (1, i)) for i in range(5)])
    push(flow, "pairs", PAIRS, *[(1, RETRACT, (1, i)) for i in range(4)])
    flow.step(2)
    rows, errors = taken(output)
    assert errors == [(0, "bigint out of range", 1), (1, "bigint out of range", -1)]
    assert rows == [(1, (1, 2**31 - 1), 1)]


def test_sums_of_bigints_are_numerics_and_exact() -> None:
    flow = Dataflow()
    total = Aggregate("sum", ColumnRef(1, BIGINT), DataType(Kind.NUMERIC, scale=0))
    sums = flow.table("pairs", PAIRS).reduce([], [total, COUNT], Schema((Column("s", total.type), Column("n", BIGINT))))
    output = sums.output("sums")
    flow.step(1)
    push(flow, "pairs", PAIRS, *[(1, INSERT, (1, -(2**63))) for _ in range(3)])
    flow.step(5)
    rows, _ = taken(output)
    assert sorted(rows, key=lambda c: (c[0], c[2])) == [
        (0, (None, 0), 1),
        (1, (None, 0), -1),
        (1, (Decimal(-3 * 2**63), 3), 1),
    ]
    assert sums.snapshot(4)[0].rows.to_pylist() == [{"s": Decimal(-3 * 2**63), "n": 3}]


def test_equal_input_gives_equal_bytes() -> None:
    def run(cuts: list[int]) -> bytes:
        flow = Dataflow()
        one, _ = two_joins(flow)
        output = one.output("one")
        push(flow, "groups", GROUPS, (0, UPSERT, (1, "t")), (1, UPSERT, (2, "u")))
        push(flow, "items", ITEMS, *[(e, UPSERT, (i, 1 + i % 2, f"n{e}")) for e in range(3) for i in range(5)])
        for cut in cuts:
            flow.step(cut)
        rows, _ = output.take()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.rows.schema) as writer:
            writer.write_batch(rows.rows)
        return sink.getvalue().to_pybytes() + rows.times.tobytes() + rows.diffs.tobytes()

    assert run([3]) == run([1, 2, 3]) == run([2, 3])


def test_a_quiet_step_runs_no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Dataflow()
    one, _ = two_joins(flow)
    flow.step(1)

    def never(*_: object) -> Delta:
        raise AssertionError("a quiet node ran")

    monkeypatch.setattr(one.node, "run", never)
    flow.step(2)
    assert flow.frontier == 2
    assert all(a.spine.upper.epoch == 2 for a in flow.arrangements().values())


def test_large_joins_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "PIECE", 7)
    flow = Dataflow()
    _, two = two_joins(flow)
    output = two.output("two")
    push(flow, "items", ITEMS, *[(0, UPSERT, (i, 1, "x")) for i in range(40)])
    push(flow, "groups", GROUPS, (0, UPSERT, (1, "t")))
    flow.step(1)
    assert len(output.take()[0]) == 38


def test_a_node_may_not_send_into_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Dataflow()
    items = flow.table("items", ITEMS)
    kept = items.filter(Literal(True, BOOLEAN))
    flow.step(3)
    push(flow, "items", ITEMS, (3, UPSERT, (1, 1, "a")))

    def early(lower: int, upper: int) -> Delta:
        rows = items.node.delta.rows
        assert rows is not None
        return Delta(type(rows)(rows.rows, rows.times - 1, rows.diffs), None)

    monkeypatch.setattr(kept.node, "run", early)
    with pytest.raises(InvariantBroken, match="outside of its step"):
        flow.step(4)


def test_asking_the_past_or_the_future_is_refused() -> None:
    flow = Dataflow()
    one, _ = two_joins(flow)
    flow.step(5)
    with pytest.raises(NotFaithful, match="not complete"):
        one.snapshot(5)
    push(flow, "items", ITEMS, (5, UPSERT, (1, 1, "a")), (7, DELETE, (1, None, None)))
    flow.step(8)
    flow.advance_since(6)
    assert len(flow.table("items", ITEMS).snapshot(6)[0]) == 1
    with pytest.raises(NotFaithful, match="compacted"):
        flow.table("items", ITEMS).snapshot(4)


def test_upserts_in_the_past_are_refused() -> None:
    flow = Dataflow()
    flow.table("items", ITEMS)
    flow.step(5)
    with pytest.raises(InvariantBroken, match="order of epochs"):
        push(flow, "items", ITEMS, (4, UPSERT, (1, 1, "a")))
    with pytest.raises(InvariantBroken, match="declared twice"):
        flow.table("items", GROUPS)


def test_a_join_of_chosen_columns_is_that_part_of_the_whole_one_and_other_columns_change_nothing() -> None:
    flow = Dataflow()
    items, groups = flow.table("items", ITEMS), flow.table("groups", GROUPS)
    whole = items.join(groups, [1], [0]).project(
        [ColumnRef(0, INTEGER), ColumnRef(4, TEXT)], Schema((Column("id", INTEGER), Column("title", TEXT)))
    )
    chosen = items.join(groups, [1], [0], None, [0, 4])
    outputs = whole.output("whole"), chosen.output("chosen")
    push(flow, "items", ITEMS, (0, UPSERT, (1, 1, "a")), (0, UPSERT, (2, 1, "b")), (1, UPSERT, (3, None, "c")))
    push(flow, "groups", GROUPS, (0, UPSERT, (1, "one")), (1, UPSERT, (1, "uno")))
    flow.step(2)
    first, second = (taken(o) for o in outputs)
    assert first == second
    assert (1, (2, "uno"), 1) in second[0]
    push(flow, "items", ITEMS, (2, UPSERT, (1, 1, "other name")))
    flow.step(3)
    assert chosen.node.delta.rows is None
    assert taken(outputs[0]) == taken(outputs[1]) == ([], [])
    assert chosen.snapshot(2)[0].rows.to_pylist() == whole.snapshot(2)[0].rows.to_pylist()


UNSENT = "table items: the unchanged value of column name was not sent, and its key (id) = ({}) has no earlier row"


def unsent(flow: Dataflow, epoch: int, key: int) -> None:
    """An update of a row whose name was not sent."""
    rows = pa.RecordBatch.from_pylist([{"id": key, "group": 1, "name": None}], ITEMS.arrow)
    mask = {2: np.ones(1, np.bool_)}
    flow.push("items", Upserts(rows, np.array([epoch]), np.array([UPSERT], np.uint8), mask))


@pytest.mark.parametrize("steps", [range(2, 10), [9]], ids=["step by step", "at once"])
def test_an_unsent_value_is_an_error_until_the_key_has_it_or_is_gone(steps: Iterable[int]) -> None:
    flow = Dataflow()
    items, others = flow.table("items", ITEMS).output("items"), flow.table("groups", GROUPS).output("groups")
    for key in (1, 2, 3, 4):
        unsent(flow, 1, key)
    unsent(flow, 2, 1)
    push(flow, "items", ITEMS, (3, UPSERT, (1, 1, "come")), (4, DELETE, (2, None, None)), (5, UPSERT, (9, 9, "other")))
    push(flow, "items", ITEMS, (6, TRUNCATE, (0, None, None)))
    unsent(flow, 7, 4)
    push(flow, "items", ITEMS, (8, UPSERT, (4, 1, "come")))
    errors = []
    for upper in steps:
        flow.step(upper)
        errors += taken(items)[1]
    said = [(1, UNSENT.format(key), 1) for key in (1, 2, 3, 4)]
    taken_back = [(3, 1), (4, 2), (6, 3), (6, 4), (8, 4)]
    said += [(7, UNSENT.format(4), 1), *((epoch, UNSENT.format(key), -1) for epoch, key in taken_back)]
    assert sorted(errors) == sorted(said)
    assert [len(side) for side in items.snapshot(8)] == [1, 0]
    assert taken(others) == ([], [])


def test_an_error_of_a_table_puts_the_views_over_it_in_error_until_it_is_taken_back() -> None:
    flow = Dataflow()
    one, _ = two_joins(flow)
    over, other = one.output("over"), flow.table("groups", GROUPS).output("other")
    push(flow, "items", ITEMS, (0, UPSERT, (1, 1, "a")))
    push(flow, "groups", GROUPS, (0, UPSERT, (1, "t")))
    flow.step(1)
    taken(over), taken(other)
    flow.push_errors("items", {"it stands still": 1}, 1)
    push(flow, "groups", GROUPS, (1, UPSERT, (1, "u")))
    flow.step(2)
    assert taken(over)[1] == [(1, "it stands still", 1)]
    assert taken(other) == ([(1, (1, "t"), -1), (1, (1, "u"), 1)], [])
    assert over.snapshot(1)[1].rows.column(0).to_pylist() == ["it stands still"]

    again = Dataflow()
    again.restore(2, {name: a.spine.batches() for name, a in flow.arrangements().items()})
    twin, _ = two_joins(again)
    back = twin.output("over")
    assert len(back.snapshot(1)[1]) == 1, "a restart keeps it"
    again.push_errors("items", {"it stands still": -1}, 3)
    push(again, "items", ITEMS, (3, TRUNCATE, (None, None, None)), (3, UPSERT, (2, 1, "b")))
    again.step(4)
    assert taken(back)[1] == [(3, "it stands still", -1)], "a truncate does not take it back a second time"
    assert len(back.snapshot(3)[1]) == 0
