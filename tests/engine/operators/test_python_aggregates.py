"""What is folded in Python: variance from its sums, digit for digit, and the answers that the order of values decides."""

from __future__ import annotations

import statistics
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.operators.aggregates import slots_of
from headrace.engine.operators.expressions.core.ir import Aggregate
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.operators.python_aggregates import fold_at_versions, folding
from headrace.engine.operators.value_history import Clock, Stream
from headrace.engine.schema import BIGINT, DOUBLE, TEXT, DataType

Entry = tuple[object, int, int]


def folded(name: str, kind: DataType, result: DataType, values: list[Entry], versions: list[int]) -> list[object]:
    """The fold of one group: (value, time, diff) of each entry."""
    (slot,) = slots_of([Aggregate(name, None, result)], [0], [kind])
    stream = Stream(
        np.zeros(len(values), np.int64),
        np.array([t for _, t, _ in values], np.int64),
        np.array([d for _, _, d in values], np.int64),
        pa.array([v for v, _, _ in values], kind.arrow),
    )
    clock = Clock(np.array([0, len(versions)]), np.array(versions, np.int64))
    found, faults = fold_at_versions(slot, np.lexsort((stream.times, stream.probe)), stream, clock)
    messages = [None] * len(found) if faults is None else faults.to_pylist()
    return [v if m is None else m for v, m in zip(found.to_pylist(), messages, strict=True)]


def test_each_version_sees_what_is_live_then() -> None:
    values: list[Entry] = [("b", 0, 1), ("a", 1, 2), ("b", 2, -1), ("a", 3, -2)]
    name = folding("string_agg", separator=",")
    assert folded(name, TEXT, TEXT, values, [0, 1, 2, 3]) == ["b", "a,a,b", "a,a", None]
    once = folding("string_agg", separator=",", distinct=True)
    assert folded(once, TEXT, TEXT, values, [1]) == ["a,b"]


@pytest.mark.parametrize(("name", "answer"), [("bit_and", 4), ("bit_or", 7), ("bit_xor", 7 ^ 6)])
def test_bits(name: str, answer: int) -> None:
    values: list[Entry] = [(4, 0, 2), (7, 0, 1), (6, 0, 1)]
    assert folded(folding(name), BIGINT, BIGINT, values, [0]) == [answer]


def test_order_inside() -> None:
    rows = ['["x", "2"]', '["y", "10"]', '["z", null]']
    name = folding("string_agg", separator="", orders=[("integer", True, False)], distinct=False, width=1)
    assert folded(name, TEXT, TEXT, [(r, 0, 1) for r in rows], [0]) == ["yxz"]


def test_percentiles_and_mode() -> None:
    values: list[Entry] = [(v, 0, n) for v, n in ((1.0, 1), (2.0, 2), (10.0, 1))]
    cont = folding("percentile_cont", fraction=0.75, descending=False)
    disc = folding("percentile_disc", fraction=0.75, descending=True)
    assert folded(cont, DOUBLE, DOUBLE, values, [0]) == [4.0]
    assert folded(disc, DOUBLE, DOUBLE, values, [0]) == [2.0]
    assert folded(folding("mode", descending=False), DOUBLE, DOUBLE, values, [0]) == [2.0]


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=20))
def test_variance_of_integers_is_the_exact_one(values: list[int]) -> None:
    total, squares = str(sum(values)), str(sum(v * v for v in values))
    found = decimal_math.spread(len(values), total, squares, sample=True, root=False)
    assert found is not None
    exact = statistics.variance(map(Fraction, values))
    assert abs(Fraction(found) - exact) <= Fraction(1, 10**10) * max(exact, 1)
    root = decimal_math.spread(len(values), total, squares, sample=False, root=True)
    assert root is not None
    assert abs(Fraction(root) ** 2 - statistics.pvariance(map(Fraction, values))) <= Fraction(1, 10**6) * max(exact, 1)


def test_variance_of_too_few_and_of_no_number() -> None:
    assert decimal_math.spread(1, "5", "25", sample=True, root=False) is None
    assert decimal_math.spread(1, "5", "25", sample=False, root=True) == "0"
    assert decimal_math.spread(2, "NaN", "NaN", sample=True, root=False) == "NaN"
    assert decimal_math.spread(3, "6", "14", sample=True, root=False) == "1.00000000000000000000"
