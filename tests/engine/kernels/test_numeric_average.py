"""Averages against Postgres's division on Python integers."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.engine.kernels.numeric_average import ROOM, quotients
from headrace.engine.operators.expressions.numeric import decimal_math

SUMS = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1), st.integers(-10_000, 10_000), st.sampled_from([0, 5, -5, 10**18])
)
COUNTS = st.one_of(st.integers(1, 2**31), st.integers(1, 20), st.sampled_from([3, 7, 9999, 10_000, 99_999_999]))


def images(sums: list[int], counts: list[int], scale: int) -> list[str] | None:
    n = len(sums)
    low = np.array(sums, np.int64)
    offsets, out = np.empty(n + 1, np.int64), np.empty(n * ROOM, np.uint8)
    if not quotients(low, low >> 63, scale, np.array(counts, np.int64), np.zeros(n, np.uint8), offsets, out):
        return None
    text = bytes(out).decode("latin-1")
    return [text[offsets[k] : offsets[k + 1]] for k in range(n)]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(SUMS, COUNTS), min_size=1, max_size=6), st.integers(0, 9))
@example([(0, 7)], 2)
@example([(-1, 2_000_000_000)], 9)
@example([(99_999_999_999_999_999, 10)], 0)
@example([(2, 3), (-2, 3), (1, 3)], 0)
def test_digits_are_those_of_the_slow_division(pairs: list[tuple[int, int]], scale: int) -> None:
    sums, counts = [a for a, _ in pairs], [b for _, b in pairs]
    found = images(sums, counts, scale)
    if found is None:
        assert any(b * 10**scale > 1_800_000_000_000_000_000 for b in counts)
        return
    assert found == [decimal_math.divide(decimal_math.image((a, scale)), str(b)) for a, b in pairs]


def test_what_does_not_fit_is_told() -> None:
    assert images([1], [2**62], 3) is None
    assert images([-(2**63)], [1], 0) is None
    assert images([1], [1], 19) is None


def test_skipped_rows_are_empty() -> None:
    offsets, out = np.empty(3, np.int64), np.empty(2 * ROOM, np.uint8)
    words = np.array([10, 10])
    assert quotients(words, words >> 63, 0, np.array([0, 4]), np.array([1, 0], np.uint8), offsets, out)
    assert offsets.tolist()[:2] == [0, 0]
    assert bytes(out[: offsets[2]]) == b"2.5000000000000000"
