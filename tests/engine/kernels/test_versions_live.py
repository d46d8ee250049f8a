"""Rows that are live at versions against a dictionary: random histories, any cut of the versions into calls."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from headrace.engine.kernels import versions_live as kernels

GROUPS, TIMES = 4, 9
Update = tuple[int, int, int, int]
"""Group, row, time, diff: rows are numbered through all groups."""


def history(random: np.random.Generator) -> list[Update]:
    """Updates of rows in the order of groups, rows and times, one a time."""
    found: list[Update] = []
    for row in range(int(random.integers(1, 25))):
        times = np.flatnonzero(random.random(TIMES) < random.random()).tolist()
        found += [(row % GROUPS, row, time, int(random.choice([-1, -1, 1, 1, 2]))) for time in times]
    return sorted(found)


def versions_of(random: np.random.Generator) -> tuple[list[int], list[int]]:
    """(starts, times): of some groups there are none."""
    starts, times = [0], list[int]()
    for _ in range(GROUPS):
        times += np.flatnonzero(random.random(TIMES) < 0.5).tolist()
        starts.append(len(times))
    return starts, times


def naive(updates: list[Update], starts: list[int], times: list[int]) -> list[tuple[int, int]]:
    """(version, row), a copy each."""
    found: list[tuple[int, int]] = []
    for group in range(GROUPS):
        for version in range(starts[group], starts[group + 1]):
            copies: dict[int, int] = defaultdict(int)
            for of, row, time, diff in updates:
                if of == group and time <= times[version]:
                    copies[row] += diff
            found += [(version, row) for row in sorted(copies) for _ in range(copies[row])]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_each_version_has_the_rows_that_are_live_at_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    updates, (starts, times) = history(random), versions_of(random)
    wanted = naive(updates, starts, times)
    groups, rows, when, diffs = (np.array([u[k] for u in updates], np.int64) for k in range(4))
    block, size, overflow = kernels.spans_at(groups, rows, when, diffs, np.array(starts), np.array(times, np.int64))
    assert not overflow
    spans = block[:, :size]
    spans = np.ascontiguousarray(spans[:, np.argsort(spans[kernels.FIRST], kind="stable")])
    state, active = np.zeros(2, np.int64), np.empty(size, np.int64)
    found: list[tuple[int, int]] = []
    cuts = sorted({0, len(times), *random.integers(0, len(times) + 1, 3).tolist()})
    for start, stop in pairwise(cuts):
        out = np.empty((2, len(wanted) - len(found)), np.int64)
        n = kernels.live_rows(spans, (start, stop), state, active, out)
        found += zip(out[0, :n].tolist(), rows[out[1, :n]].tolist(), strict=True)
    assert found == wanted


def test_a_count_that_does_not_fit_is_told() -> None:
    two, much = np.zeros(2, np.int64), np.full(2, 2**62)
    assert kernels.spans_at(two, two, np.arange(2), much, np.array([0, 2]), np.arange(2))[2]
    assert not kernels.spans_at(two, np.arange(2), np.arange(2), much, np.array([0, 2]), np.arange(2))[2]
