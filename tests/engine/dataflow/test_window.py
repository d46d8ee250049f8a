"""Window functions: the twin's answers in any cut, after a restart, in a view made late; and a row that repeats."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pytest

from headrace.engine.batch.keys import fingerprint
from headrace.engine.batch.updates import INSERT, RETRACT
from headrace.engine.dataflow import Dataflow, Order
from headrace.engine.dataflow.constant import one_row, repeated
from headrace.engine.dataflow.window import windowed
from headrace.engine.operators import chunked_delta
from headrace.engine.operators.expressions.core.ir import Literal
from headrace.engine.operators.window import Window
from headrace.engine.operators.window_frames import Frame
from headrace.engine.operators.window_values import WindowFunction
from headrace.engine.schema import BIGINT, DOUBLE, INTEGER, NUMERIC, TEXT, Column, DataType, Schema
from tests.engine.dataflow.pairs import Pair, Shape, value_of
from tests.engine.dataflow.standard import any_cut, long_steps, made_late, passes, restart
from tests.engine.dataflow.test_dataflow import PAIRS, push, taken
from tests.engine.dataflow.test_extremes import MONEY, world
from tests.reference import window as twin
from tests.reference.dataflow import Row

WHOLE, RUNNING = Frame("rows", None, None), Frame("range", None, 0)


def over(
    pair: Pair, key: list[int], orders: list[Order], *functions: tuple[str, list[int], DataType, Frame, int]
) -> Pair:
    found = tuple(WindowFunction(n, tuple(a), t, f, k) for n, a, t, f, k in functions)
    columns = [Column(f"f{i}", f.type) for i, f in enumerate(found)]
    schema = Schema((*pair.real.schema.columns, *columns))
    made = Window(pair.real.schema, tuple(key), tuple(orders), found, schema)

    def tie(row: Row) -> tuple[int, int]:
        kinds = [c.type for c in made.input.columns]
        arrays = [pa.array([value_of(v, k)], k.arrow) for v, k in zip(row, kinds, strict=True)]
        high, low = fingerprint(pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(row))]))
        return int(high[0]), int(low[0])

    return Pair(windowed(pair.real, made), twin.windowed(pair.twin, made, tie))


def ranks(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    values = t["values"]
    some = [("row_number", [], BIGINT, WHOLE, 1), ("rank", [], BIGINT, WHOLE, 1), ("dense_rank", [], BIGINT, WHOLE, 1)]
    others = [
        ("percent_rank", [], DOUBLE, WHOLE, 1),
        ("cume_dist", [], DOUBLE, WHOLE, 1),
        ("ntile", [], INTEGER, WHOLE, 3),
    ]
    return {
        "some": over(values, [0], [Order(1)], *some),
        "others": over(values, [], [Order(4, True), Order(8)], *others),
        "no order": over(values, [0], [], *some),
        "nulls": over(values, [6], [Order(2, False, True)], *some, others[2]),
    }


def frames(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    values = t["values"]
    kinds = {1: DataType.parse("numeric") if MONEY.scale is None else DataType(MONEY.kind, scale=2)}
    found: dict[str, Pair] = {}
    shapes = [
        RUNNING, Frame("rows", -1, 1), Frame("rows", 1, 2), Frame("groups", -1, 0), Frame("range", 0, None),
        Frame("rows", None, -1), Frame("groups", 1, None), WHOLE,
    ]  # fmt: skip
    for i, frame in enumerate(shapes):
        sums = [("sum", [1], kinds[1], frame, 1), ("sum", [0], BIGINT, frame, 1), ("count", [4], BIGINT, frame, 1),
                ("count", [], BIGINT, frame, 1)]  # fmt: skip
        ends = [("first_value", [8], BIGINT, frame, 1), ("last_value", [2], TEXT, frame, 1),
                ("nth_value", [3], NUMERIC, frame, 2)]  # fmt: skip
        found[f"{frame} sums"] = over(values, [0] if i % 2 else [], [Order(8)], *sums)
        found[f"{frame} ends"] = over(values, [0], [Order(1, i % 2 == 0), Order(8)], *ends)
        if frame.start is None or frame.end is None:
            extremes = [("min", [8], BIGINT, frame, 1), ("max", [2], TEXT, frame, 1)]
            found[f"{frame} extremes"] = over(values, [0], [Order(4)], *extremes)
    wide, groups, tail = (
        Frame(*shape) for shape in (("rows", -1, 1, "", 2), ("groups", -1, 0, "", 1), ("rows", 1, None, "", 1))
    )
    asked = [("count", [4, 0, 0], BIGINT, wide, 1), ("min", [8, 0], BIGINT, groups, 1), ("count", [0], BIGINT, tail, 1)]
    found["asked"] = over(values, [6], [Order(8)], *asked)
    places = [("ntile", [0], INTEGER, WHOLE, 1), ("nth_value", [8, 0], BIGINT, RUNNING, 1)]
    found["asked places"] = over(values, [6], [Order(8)], *places)
    found["neighbours"] = over(values, [0], [Order(8)], ("lag", [2], TEXT, WHOLE, 1), ("lead", [1], MONEY, WHOLE, 2))
    return found


SHAPES: dict[str, Shape] = {"ranks": ranks, "frames": frames}
small = partial(world, epochs=10, rate=4)

test_changes_of_each_epoch_in_any_cut = passes(any_cut, SHAPES, small, examples=4)
test_many_epochs_in_one_step = passes(long_steps, SHAPES, partial(world, epochs=12, rate=4))
test_a_restart_changes_nothing = passes(restart, SHAPES, small, examples=4)
test_a_view_made_late_is_hydrated = passes(made_late, SHAPES, small)


@pytest.mark.parametrize("size", [1, 5, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_made_in_pieces_is_the_same(shape: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_delta, "PIECE", size)
    for seed in range(3):
        long_steps(*small(SHAPES[shape], seed))


def test_a_repeated_row_stands_as_often_as_it_says() -> None:
    flow = Dataflow()
    output = repeated(flow.table("pairs", PAIRS)).output("repeated")
    push(flow, "pairs", PAIRS, (0, INSERT, (7, 3)), (1, INSERT, (7, 2)), (2, RETRACT, (7, 3)))
    flow.step(3)
    assert taken(output) == ([(0, (7,), 3), (1, (7,), 2), (2, (7,), -3)], [])


def test_a_multiplicity_that_does_not_fit_stops_the_repeated() -> None:
    flow = Dataflow()
    output = repeated(flow.table("pairs", PAIRS)).output("repeated")
    push(flow, "pairs", PAIRS, (0, INSERT, (7, 2**62)), (0, INSERT, (7, 2**62)), (0, INSERT, (7, 2**62)))
    flow.step(1)
    (error,) = taken(output)[1]
    assert "does not fit" in error[1]


def test_one_row_is_there_from_the_first_epoch_on_and_in_views_made_late() -> None:
    flow = Dataflow()
    schema = Schema((Column("n", INTEGER),))
    first = one_row(flow).project([Literal(1, INTEGER)], schema).output("first")
    flow.step(2)
    late = one_row(flow).project([Literal(2, INTEGER)], schema).output("late")
    flow.step(3)
    assert taken(first) == ([(0, (1,), 1)], [])
    assert taken(late) == ([], [])
    assert late.snapshot(2)[0].rows.to_pylist() == [{"n": 2}]
