"""The changes of a group's first copies, against lists of copies made anew at each time."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.kernels.top_k import top_changes

Entry = tuple[int, int, int, int]
"""Group, rank of the row in it, time, diff."""


def naive(entries: list[Entry], since: int, offset: int, limit: int) -> Counter[tuple[int, int, int]]:
    """(group, rank, time) → change of how often the row is shown."""
    found: Counter[tuple[int, int, int]] = Counter()
    for group in {e[0] for e in entries}:
        shown: Counter[int] = Counter()
        for time in sorted({since} | {e[2] for e in entries if e[2] > since}):
            live: Counter[int] = Counter()
            for _, rank, when, diff in (e for e in entries if e[0] == group):
                live[rank] += diff if when <= time else 0
            copies = [rank for rank in sorted(live) for _ in range(live[rank])][offset : offset + limit]
            now = Counter(copies)
            if time > since:
                for rank in shown.keys() | now.keys():
                    if now[rank] != shown[rank]:
                        found[group, rank, time] = now[rank] - shown[rank]
            shown = now
    return found


ENTRY = st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 6), st.sampled_from([1, 1, 1, 2, -1, -2]))


@given(st.lists(ENTRY, max_size=25), st.integers(0, 3), st.integers(0, 4), st.integers(0, 5))
@settings(max_examples=120, deadline=None)
def test_each_change_is_the_difference_of_two_windows(
    entries: list[Entry], since: int, offset: int, limit: int
) -> None:
    order = sorted(range(len(entries)), key=lambda k: entries[k][:2])
    lanes = np.array([entries[k] for k in order], np.int64).reshape(-1, 4).T.copy()
    groups, ranks, times, diffs = lanes
    repeats = np.zeros(len(order), np.int64)
    repeats[1:] = (groups[1:] == groups[:-1]) & (ranks[1:] == ranks[:-1])
    block, size, overflow = top_changes(
        (groups, repeats, times, diffs, np.array(order, np.int64)), (since, offset, limit)
    )
    assert not overflow
    got: Counter[tuple[int, int, int]] = Counter()
    for at, time, diff in block[:, :size].T.tolist():
        key = (entries[at][0], entries[at][1], time)
        assert key not in got
        got[key] = diff
    assert dict(got) == dict(naive(entries, since, offset, limit))


def test_a_multiplicity_beyond_64_bits_is_told_and_one_of_64_bits_counts() -> None:
    zero, one = np.zeros(2, np.int64), np.ones(2, np.int64)
    most = np.full(2, 2**63 - 1)
    times, index = np.array([1, 2]), np.arange(2)
    same = np.array([0, 1])
    assert top_changes((zero, same, times, most, index), (0, 1, 2))[2]
    block, size, overflow = top_changes((zero, zero, times, most, index), (0, 2**31 - 2, 1))
    assert not overflow
    assert block[:, :size].T.tolist() == [[0, 1, 1]]
    block, size, _ = top_changes((zero, zero, times, one, index), (0, 1, 5))
    assert block[:, :size].T.tolist() == [[1, 2, 1]]
