"""Sums of groups at their versions against adding up by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.kernels.reduce import sums_at_versions

_rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(-2, 2), st.integers(-9, 9)))
_versions = st.lists(st.sets(st.integers(-1, 6), max_size=4), min_size=4, max_size=4)


@given(_rows, _versions)
def test_each_version_has_what_came_up_to_it(rows: list[tuple[int, int, int, int]], versions: list[set[int]]) -> None:
    probe, times, diffs, values = (np.array([row[k] for row in rows], np.int64) for k in range(4))
    lanes = np.ascontiguousarray(np.stack([np.ones(len(rows), np.int64), values], axis=1))
    order = np.lexsort((times, probe)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum([len(some) for some in versions])]).astype(np.int64)
    when = np.array([time for some in versions for time in sorted(some)], np.int64)
    out = np.zeros((len(when), 2), np.int64)
    sums_at_versions(order, probe, times, diffs, lanes, starts, when, out)
    expected = [
        [sum(d for g, t, d, _ in rows if g == group and t <= time),
         sum(d * v for g, t, d, v in rows if g == group and t <= time)]
        for group, some in enumerate(versions) for time in sorted(some)
    ]  # fmt: skip
    assert out.tolist() == expected
