"""A multiplicity that does not fit 64 bits stops the views that need it, with an error, and no other; nothing raises."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import INSERT, RETRACT, Upserts
from headrace.engine.dataflow import OVERFLOWED, Collection, Dataflow, Output
from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef
from headrace.engine.operators.join import OVERFLOW
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.engine.trace.spine import SMALL

ONE = Schema.of([Column("a", BIGINT)])
COUNT = Aggregate("count", None, BIGINT)


def change(flow: Dataflow, epoch: int, *values: int, kind: int = INSERT, times: int = 2, table: str = "t") -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(values * times, pa.int64())], schema=ONE.arrow)
    count = rows.num_rows
    flow.push(table, Upserts(rows, np.full(count, epoch, np.int64), np.full(count, kind, np.uint8)))


def errors_of(output: Output) -> list[tuple[int, str, int]]:
    _, errors = output.take()
    return list(zip(errors.times.tolist(), errors.rows.column(0).to_pylist(), errors.diffs.tolist(), strict=True))


def values_of(output: Output) -> list[tuple[int, int]]:
    rows, errors = output.take()
    assert not len(errors)
    return list(zip(rows.rows.column(0).to_pylist(), rows.diffs.tolist(), strict=True))


def joined(one: Collection, two: Collection) -> Collection:
    return one.join(two, [0], [0]).project([ColumnRef(0, BIGINT)], ONE)


def most(table: Collection) -> Collection:
    """2^62 copies of each row of which the table has two: the most that a power of two can have."""
    powers = {1: table}
    for exponent in (2, 4, 8, 16, 32):
        powers[exponent] = joined(powers[exponent // 2], powers[exponent // 2])
    return joined(powers[32], joined(powers[16], joined(powers[8], joined(powers[4], powers[2]))))


def test_a_pair_of_rows_whose_copies_do_not_fit_puts_the_joins_view_in_error() -> None:
    flow = Dataflow()
    table, other = flow.table("t", ONE), flow.table("u", ONE)
    view = joined(most(table), other).output("pairs")
    change(flow, 0, 7)
    change(flow, 1, 7, times=1, table="u")
    flow.step(2)
    assert values_of(view) == [(7, 2**62)]
    change(flow, 2, 7, times=4, table="u")
    flow.step(3)
    rows, errors = view.take()
    assert not len(rows), "four times as many wrap to none"
    assert set(errors.rows.column(0).to_pylist()) == {OVERFLOW}
    assert set(view.collection.snapshot(2)[1].rows.column(0).to_pylist()) == {OVERFLOW}


def test_an_arrangement_that_overflows_puts_its_own_view_in_error_and_no_other() -> None:
    flow = Dataflow()
    table = flow.table("t", ONE)
    many = most(table)
    broken = many.concat(many).join(table, [0], [0]).output("broken")
    behind = many.concat(many).join(table, [0], [0]).reduce([0], [COUNT], Schema((*ONE.columns, *ONE.columns)))
    counted, plain = behind.output("behind"), table.output("plain")
    change(flow, 1, 7)
    flow.step(2)
    assert errors_of(broken) == [(0, OVERFLOWED, 1)]
    assert errors_of(counted) == [(0, OVERFLOWED, 1)]
    assert values_of(plain) == [(7, 2)]
    change(flow, 2, 7, kind=RETRACT)
    change(flow, 3, 8, times=1)
    flow.step(4)
    assert values_of(broken) == []
    assert values_of(counted) == []
    assert values_of(plain) == [(7, -2), (8, 1)]
    assert broken.snapshot(3)[1].rows.column(0).to_pylist() == [OVERFLOWED]
    assert plain.snapshot(3)[0].rows.column(0).to_pylist() == [8]


def test_a_failed_arrangement_is_in_no_checkpoint_and_is_made_anew_from_one() -> None:
    flow = Dataflow()
    table = flow.table("t", ONE)
    many = most(table)
    broken = many.concat(many).join(table, [0], [0]).output("broken")
    change(flow, 1, 7)
    flow.step(2)
    lost = flow.arrangements_of(broken) - flow.arrangements().keys()
    assert len(lost) == 1
    change(flow, 2, 7, kind=RETRACT, times=1)
    flow.step(3)

    again = Dataflow()
    again.restore(3, {name: a.spine.batches() for name, a in flow.arrangements().items()})
    twin = again.table("t", ONE)
    more = most(twin)
    mended = more.concat(more).join(twin, [0], [0]).output("mended")
    assert [len(side) for side in mended.snapshot(2)] == [1, 0]
    assert lost <= again.arrangements().keys()
    change(again, 3, 7, times=1)
    again.step(4)
    assert errors_of(mended) == [(3, OVERFLOWED, 1)]


def test_what_overflows_while_it_is_made_anew_fails_again() -> None:
    flow = Dataflow()
    table = flow.table("t", ONE)
    change(flow, 1, 7)
    flow.step(2)
    many = most(table)
    broken = many.concat(many).join(table, [0], [0]).output("broken")
    assert [len(side) for side in broken.snapshot(1)] == [0, 1]
    change(flow, 2, 8, times=1)
    flow.step(3)
    assert values_of(broken) == []
    assert [len(side) for side in broken.snapshot(2)] == [0, 1]


def test_an_overflow_found_by_an_idle_merge_is_said_at_the_next_step() -> None:
    flow = Dataflow()
    one, two, probe = (flow.table(name, ONE) for name in ("t", "u", "v"))
    broken = most(one).concat(most(two)).join(probe, [0], [0]).output("broken")
    change(flow, 1, *range(4 * SMALL))
    flow.step(2)
    change(flow, 2, *range(SMALL + 100), table="u")  # too few for the insert to merge them with the others
    flow.step(3)
    flow.advance_since(2)
    assert values_of(broken) == []
    flow.exert(1 << 20)
    change(flow, 3, 5 * SMALL, table="v")
    flow.step(4)
    assert errors_of(broken) == [(3, OVERFLOWED, 1)]


def test_an_output_that_overflows_says_so_and_gives_no_rows_any_more() -> None:
    flow = Dataflow()
    table = flow.table("t", ONE)
    many = most(table)
    twice, plain = many.concat(many).output("twice"), table.output("plain")
    change(flow, 1, 7)
    flow.step(2)
    assert errors_of(twice) == [(1, OVERFLOWED, 1)]
    assert values_of(plain) == [(7, 2)]
    change(flow, 2, 7, kind=RETRACT)
    flow.step(3)
    assert values_of(twice) == []
    assert values_of(plain) == [(7, -2)]


def test_a_count_of_more_rows_than_fit_is_an_error_and_not_a_group_that_is_gone() -> None:
    flow = Dataflow()
    table = flow.table("t", ONE)
    counted = most(table).reduce([], [COUNT], Schema((Column("n", BIGINT),))).output("counted")
    by_row = most(table).reduce([0], [COUNT], Schema((*ONE.columns, Column("n", BIGINT)))).output("by row")
    flow.step(1)
    counted.take()
    change(flow, 1, 1, 2, 3, 4)  # 2^62 copies of each: 2^64 rows, which is nought in 64 bits
    flow.step(2)
    assert errors_of(counted) == [(1, OVERFLOWED, 1)]
    rows, errors = by_row.take()
    assert (len(errors), rows.rows.column(1).to_pylist()) == (0, [2**62] * 4)
