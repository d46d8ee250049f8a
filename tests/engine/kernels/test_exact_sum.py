"""Exact sums of doubles against math.fsum."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.kernels.exact_sum import exact_sums

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
NEAR = st.sampled_from([0.1, -0.1, 1e16, 1.0, -1e16, 5e-324, -5e-324, 2.2250738585072014e-308, 2.0**53, 0.5])


def total(values: list[float], diffs: list[int]) -> tuple[float, int]:
    n = len(values)
    order, zero = np.arange(n), np.zeros(n, np.int64)
    bits, overflow = np.empty(1, np.int64), np.empty(1, np.uint8)
    terms = np.array(values, np.float64).view(np.int64)
    exact_sums(
        (order, zero, zero, np.array(diffs, np.int64)), terms, np.array([0, 1]), np.zeros(1, np.int64), bits, overflow
    )
    return float(bits.view(np.float64)[0]), int(overflow[0])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(FINITE, NEAR), max_size=12))
def test_rounds_once(values: list[float]) -> None:
    assert total(values, [1] * len(values)) == (math.fsum(values), 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=8), st.lists(NEAR, max_size=8))
def test_retracting_undoes_adding(gone: list[float], kept: list[float]) -> None:
    values = [*gone, *kept, *gone]
    diffs = [1] * (len(gone) + len(kept)) + [-1] * len(gone)
    assert total(values, diffs) == (math.fsum(kept), 0)


def test_what_is_not_finite() -> None:
    inf = math.inf
    assert total([1e308, 1e308], [1, 1]) == (inf, 1)
    assert total([inf, 1.0], [1, 1]) == (inf, 0)
    assert total([-inf, 1.0], [1, 1]) == (-inf, 0)
    assert math.isnan(total([inf, -inf], [1, 1])[0])
    assert math.isnan(total([math.nan, 1.0], [1, 1])[0])
    assert total([inf, -inf, 2.0], [1, 0, 1]) == (inf, 0)
