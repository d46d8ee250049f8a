"""The least live value of each group at each version, against counting all of them at each."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.kernels.reduce import least_at_versions

ENTRY = st.tuples(st.integers(0, 3), st.integers(-3, 3), st.integers(0, 5), st.sampled_from([1, 1, 2, -1]))
VERSIONS = st.lists(st.lists(st.integers(0, 6), unique=True, max_size=4).map(sorted), min_size=4, max_size=4)


@given(st.lists(ENTRY, max_size=40), VERSIONS)
@settings(max_examples=150, deadline=None)
def test_least_of_each_version(entries: list[tuple[int, int, int, int]], versions: list[list[int]]) -> None:
    """Entries: (group, rank, time, diff)."""
    probe, ranks, times, diffs = (np.array([e[k] for e in entries], np.int64) for k in range(4))
    starts = np.cumsum([0, *map(len, versions)])
    clock = np.array([t for some in versions for t in some], np.int64)
    out = np.full(len(clock), -7, np.int64)
    least_at_versions(np.lexsort((ranks, probe)), probe, ranks, times, diffs, starts, clock, out)
    for g, some in enumerate(versions):
        for k, now in enumerate(some):
            totals = Counter[int]()
            for group, rank, time, diff in entries:
                totals[rank] += diff if group == g and time <= now else 0
            live = [rank for rank, n in totals.items() if n > 0]
            at = int(out[starts[g] + k])
            assert (None if at < 0 else ranks[at]) == min(live, default=None)
            assert at < 0 or probe[at] == g
