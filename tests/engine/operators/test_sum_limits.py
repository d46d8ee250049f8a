"""Counts and sums near the limits of 64 and 128 bits: exact, or an error, never wrapped."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.batch import Batch, Description, DiffOverflow, Layout, Updates
from headrace.engine.operators.aggregates import (
    BIGINT_RANGE,
    MANY,
    MANY_SMALL,
    NUMERIC_RANGE,
    TOO_MANY,
    TOO_MANY_SMALL,
    slots_of,
)
from headrace.engine.operators.delta import negated
from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef
from headrace.engine.operators.holistic_aggregates import FLOAT_RANGE
from headrace.engine.operators.holistic_aggregates import MANY as MANY_DOUBLES
from headrace.engine.operators.holistic_aggregates import TOO_MANY as TOO_MANY_DOUBLES
from headrace.engine.operators.reduce import State, reduce_changes
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.schema import BIGINT, DOUBLE, INTEGER, Column, DataType, Kind, Schema
from headrace.engine.trace import Spine

NUMERIC0 = DataType(Kind.NUMERIC, scale=0)
WIDE = DataType.parse("numeric(38,0)")
COPIES = (0, 1, 2, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**47 - 1, 2**47, 2**48, 2**62 - 1, 2**62, 2**63 - 1)

VALUES: dict[str, tuple[DataType, DataType, list[Any]]] = {
    "integer": (INTEGER, BIGINT, [0, 1, -1, 0xFFFF, -60000, 60000, 2**31 - 1, -(2**31)]),
    "bigint": (BIGINT, NUMERIC0, [0, 1, -1, 2**32 - 1, 2**63 - 1, -(2**63)]),
    "numeric": (WIDE, NUMERIC0, [Decimal(n) for n in (0, 1, -1, 2**64, 10**38 - 1, 1 - 10**38)]),
    "double": (DOUBLE, DOUBLE, [0.5, 3.0, -3.0, 1e300, -1e300, 5e-324]),
}
LIMITS = {
    "integer": (MANY_SMALL, TOO_MANY_SMALL),
    "bigint": (MANY, TOO_MANY),
    "numeric": (MANY, TOO_MANY),
    "double": (MANY_DOUBLES, TOO_MANY_DOUBLES),
}


class Reduction:
    """count(*) and sum(value) by group, step by step, with what it emitted so far."""

    def __init__(self, kind: DataType, result: DataType) -> None:
        self.rows = Schema((Column("g", BIGINT), Column("v", kind)))
        wanted = [Aggregate("count", None, BIGINT), Aggregate("sum", ColumnRef(1, kind), result)]
        out = Schema((Column("g", BIGINT), Column("n", BIGINT), Column("s", result)))
        self.shape = Shape(1, (BIGINT, kind), tuple(slots_of(wanted, [None, 1], (BIGINT, kind))), out)
        self.kept = Spine(Layout(self.shape.accumulators, (0,)))
        self.values = Spine(Layout(self.rows, (0,), (1,)))
        wholes = [self.values] if self.shape.wholes else []
        self.state = State(self.kept.layout, self.kept, wholes=wholes)
        self.shown: list[tuple[int, int, tuple[Any, ...], int]] = []

    def step(self, entries: list[tuple[int, Any, int, int]], lower: int, upper: int) -> None:
        """Entries: (group, value, time, diff)."""
        columns = [pa.array([e[k] for e in entries], f.type) for k, f in enumerate(self.rows.arrow)]
        updates = Updates(
            pa.RecordBatch.from_arrays(columns, schema=self.rows.arrow),
            np.array([e[2] for e in entries], np.int64),
            np.array([e[3] for e in entries], np.int64),
        )
        upon = Description.epochs(lower, upper)
        self.values.insert(Batch.seal(self.values.layout, updates, upon))
        made, delta = reduce_changes(self.shape, self.state, updates, [], lower, initial=lower == 0)
        kept = None if made is None else made.updates()
        self.kept.insert(
            Batch.empty(self.kept.layout, upon) if kept is None else Batch.seal(self.kept.layout, kept, upon)
        )
        for side, part in enumerate(delta):
            if part is not None:
                read = [tuple(r.values()) for r in part.rows.to_pylist()]
                self.shown += zip([side] * len(part), part.times.tolist(), read, part.diffs.tolist(), strict=True)

    def at(self, time: int) -> tuple[dict[int, tuple[Any, ...]], Counter[str]]:
        """Rows by group, and messages, at `time`."""
        sides: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())
        for side, when, row, diff in self.shown:
            if when <= time:
                sides[side][row] += diff
        rows = {row[0]: row[1:] for row, n in sides[0].items() if n}
        assert all(n in (0, 1) for n in sides[0].values())
        assert len(rows) == sum(1 for n in sides[0].values() if n)
        return rows, Counter({row[0]: n for row, n in sides[1].items() if n})


def expected(name: str, held: dict[Any, int]) -> tuple[Any, ...] | str:
    """The row of a group that holds so many copies of each value, or its error."""
    limit, message = LIMITS[name]
    count = sum(held.values())
    if count >= limit:
        return message
    if name == "double":
        total = sum((Fraction(v) * n for v, n in held.items()), Fraction(0))
        try:
            return count, float(total)
        except OverflowError:
            return FLOAT_RANGE
    exact = sum(int(v) * n for v, n in held.items())
    if name == "integer":
        return (count, exact) if -(2**63) <= exact < 2**63 else BIGINT_RANGE
    return (count, Decimal(exact)) if abs(exact) < 10**38 else NUMERIC_RANGE


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=60)
@given(data=st.data())
def test_sums_are_exact_or_in_error(name: str, data: st.DataObject) -> None:
    kind, result, pool = VALUES[name]
    made = Reduction(kind, result)
    held: dict[int, dict[Any, int]] = {0: {}, 1: {}}
    change = st.tuples(st.integers(0, 1), st.sampled_from(pool), st.sampled_from(COPIES))
    for time in range(0, 6, 2):
        entries = []
        states = []
        for now in (time, time + 1):
            for group, value, copies in data.draw(st.lists(change, max_size=3)):
                before = held[group].get(value, 0)
                held[group] = {**held[group], value: copies}
                entries.append((group, value, now, copies - before))
            states.append((now, {g: {v: n for v, n in some.items() if n} for g, some in held.items()}))
        fits = all(sum(some.values()) < 2**63 for _, state in states for some in state.values())
        if not fits:
            with pytest.raises(DiffOverflow):
                made.step(entries, time, time + 2)
            return
        made.step(entries, time, time + 2)
        for now, state in states:
            rows, errors = made.at(now)
            wanted = {g: expected(name, some) for g, some in state.items() if some}
            assert rows == {g: w for g, w in wanted.items() if not isinstance(w, str)}
            assert errors == Counter(w for w in wanted.values() if isinstance(w, str))


def test_a_groups_count_that_wraps_to_zero_is_told() -> None:
    """Four times 2^62 copies are 2^64, which is nought in 64 bits: without a check the group would be gone."""
    made = Reduction(INTEGER, BIGINT)
    with pytest.raises(DiffOverflow):
        made.step([(7, value, 0, 2**62) for value in range(4)], 0, 1)


def test_what_is_too_much_only_between_two_updates_of_one_time_is_no_overflow() -> None:
    made = Reduction(INTEGER, BIGINT)
    made.step([(7, 1, 0, 2**62), (7, 2, 0, 2**62), (7, 3, 0, 2**62), (7, 2, 0, -(2**62)), (7, 3, 0, 1 - 2**62)], 0, 1)
    assert made.at(0) == ({}, Counter({TOO_MANY_SMALL: 1}))
    made.step([(7, 1, 1, -(2**62))], 1, 2)
    assert made.at(1) == ({7: (1, 3)}, Counter())


def test_groups_do_not_count_for_each_other() -> None:
    made = Reduction(INTEGER, BIGINT)
    made.step([(group, 0, 0, 2**62) for group in range(9)], 0, 1)
    assert made.at(0)[1] == Counter({TOO_MANY_SMALL: 9})


def test_the_one_number_without_an_opposite_is_told() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1])], names=["a"])
    with pytest.raises(DiffOverflow):
        negated(Updates(rows, np.zeros(1, np.int64), np.array([-(2**63)])))
    found = negated(Updates(rows, np.zeros(1, np.int64), np.array([-(2**63) + 1])))
    assert found is not None
    assert found.diffs.tolist() == [2**63 - 1]


def test_a_sum_whose_limbs_would_wrap_is_told() -> None:
    """2^48 times 65,535 is beyond bigint; in one lane of 64 bits its low limbs alone would be -2^48."""
    made = Reduction(INTEGER, BIGINT)
    made.step([(7, 0xFFFF, 0, 2**48)], 0, 1)
    assert made.at(0) == ({}, Counter({TOO_MANY_SMALL: 1}))
