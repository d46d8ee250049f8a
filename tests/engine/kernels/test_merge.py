"""The merge against a dictionary: any fuel and any scratch, times advanced and left out, flat lanes, sums that do not fit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.batch.merger import merge_state
from headrace.engine.batch.sort_layout import Ids
from headrace.engine.kernels import consolidate, entries, merge, merge_output
from headrace.engine.kernels.hashing import ROW_IMAGE
from headrace.engine.lattice import Frontier
from tests.reference.lanes import Entry, assert_canonical

_ROWS = st.tuples(*[st.integers(0, 1)] * 5) | st.tuples(st.integers(0, 2**64 - 1), *[st.just(0)] * 4)
_SIDE = st.dictionaries(st.tuples(_ROWS, st.integers(0, 5)), st.sampled_from([-2, -1, 1, 2]), max_size=12)
_FAR = st.dictionaries(
    st.tuples(st.tuples(st.integers(0, 80), *[st.just(0)] * 4), st.integers(0, 5)),
    st.sampled_from([-1, 1]),
    max_size=8,
)
"""Few entries among the many of `_ALL`, which lie far apart."""
_ALL = {((k, 0, 0, 0, 0), 0): 1 for k in range(80)}
_FOREVER = 2**63 - 1
_SHIFT = 100
_NO_PLAN = np.zeros((0, 4), np.int64)

Facts = tuple[np.ndarray, np.ndarray, np.ndarray]


def _lanes(drawn: list[Entry], flat: int | None = None) -> tuple[Ids, Facts]:
    """Sorted entries as lanes, of which lane `flat` has stride 0."""
    ids = [np.array([row[k] for row, *_ in drawn], np.uint64) for k in range(5)]
    if flat is not None:
        ids[flat] = np.ndarray((len(drawn),), np.uint64, np.array([7], np.uint64), 0, (0,))
    facts = [np.array([entry[k] for entry in drawn], np.int64) for k in (1, 2, 3)]
    return (ids[0], ids[1], ids[2], ids[3], ids[4]), (facts[0], facts[1], facts[2])


def _side(drawn: dict[tuple[tuple[int, ...], int], int]) -> list[Entry]:
    places: dict[tuple[int, ...], int] = {}
    return [(row, time, diff, places.setdefault(row, len(places))) for (row, time), diff in sorted(drawn.items())]


class _Merge:
    """A merge of lanes with no payload, in a scratch of `room` entries."""

    def __init__(self, left: tuple[Ids, Facts], right: tuple[Ids, Facts], state: np.ndarray, room: int) -> None:
        self._held = left, right
        self.state = state
        self.table = np.empty((2, entries.COLUMNS), np.int64)
        for row, (ids, facts) in zip(self.table, (left, right), strict=True):
            entries.locate(ids, facts, 0, _NO_PLAN, ROW_IMAGE, row)
        self.size = len(left[1][0]) + len(right[1][0])
        self.scratch = np.zeros((merge.LANES, room), np.int64)
        self.out = np.zeros((8, self.size + 1), np.int64)
        self.lanes = np.zeros((8, 2), np.int64)
        for lane in range(8):
            self.lanes[lane, merge_output.AT] = self.out[lane].ctypes.data

    def work(self, fuel: int) -> int:
        """Merge and carry away; returns how many entries were read."""
        before = int(self.state[merge.LEFT] + self.state[merge.RIGHT])
        left = merge.merge(self.table, self.scratch, self.state, fuel)
        read = int(self.state[merge.LEFT] + self.state[merge.RIGHT]) - before
        assert left == fuel - read
        held, everything = int(self.state[merge.HELD]), before + read == self.size
        none: Any = np.zeros((0, 5), np.int64)
        assert (
            merge_output.append(
                self.scratch, self.lanes, np.zeros(2, np.int64), none[:, :3], none, self.state, everything
            )
            == -1
        )
        assert self.state[merge.HELD] == min(held, 1 if everything else 2)
        return read

    def found(self) -> list[Entry]:
        """What was written; positions say which row each entry is of."""
        size = int(self.state[merge.WRITTEN])
        rows = zip(*(lane.view(np.uint64)[:size].tolist() for lane in self.out[:5]), strict=True)
        return list(zip(rows, *(lane[:size].tolist() for lane in self.out[5:]), strict=True))


@given(
    _SIDE, _SIDE, st.integers(0, 7), st.integers(0, 8), st.integers(1, 30), st.sampled_from([None, 0, 1, 2, 4]),
    st.integers(3, 9),
)  # fmt: skip
def test_a_merge_is_the_sum_of_both_sides(
    one: dict[tuple[tuple[int, ...], int], int],
    two: dict[tuple[tuple[int, ...], int], int],
    since: int,
    until: int,
    fuel: int,
    flat: int | None,
    room: int,
) -> None:
    if flat is not None:
        one, two = (
            {((*row[:flat], 7, *row[flat + 1 :]), time): diff for (row, time), diff in side.items()}
            for side in (one, two)
        )
    _check_merge(one, two, since, until, fuel, flat, room)


@given(_FAR, st.integers(0, 7), st.sampled_from([1, 40, _FOREVER]), st.integers(3, 400), st.booleans())
def test_a_merge_closes_up_what_cancels_far_apart(
    few: dict[tuple[tuple[int, ...], int], int], since: int, fuel: int, room: int, first: bool
) -> None:
    one, two = (few, _ALL) if first else (_ALL, few)
    _check_merge(one, two, since, 8, fuel, None, room)


def _check_merge(
    one: dict[tuple[tuple[int, ...], int], int],
    two: dict[tuple[tuple[int, ...], int], int],
    since: int,
    until: int,
    fuel: int,
    flat: int | None,
    room: int,
) -> None:
    """Merge both sides, at epochs before `until` (8: all), and compare with their sum."""
    sides = _side(one), _side(two)
    left, right = (_lanes(side, flat) for side in sides)
    state = merge_state(_SHIFT, Frontier.at(since), until if until < 8 else _FOREVER)
    merging = _Merge(left, right, state, room)
    read = 0
    while read < merging.size:
        some = merging.work(fuel)
        assert 0 < some <= fuel
        read += some
    given_entries = [(row, max(t, since), d, 0) for side in sides for row, t, d, _ in side if until == 8 or t < until]
    found = merging.found()
    rows = int(state[merge.ROWS])
    assert_canonical([(row, t, d, 0) for row, t, d, _ in found], given_entries, rows)
    assert [place for *_, place in found] == _ranks([row for row, *_ in found])
    assert state[merge.OVERFLOW] == 0
    keys = [row[:3] for k, (row, *_) in enumerate(found) if k == 0 or row != found[k - 1][0]]
    assert state[merge.TIES] == sum(a == b for a, b in pairwise(keys))


def _ranks(rows: list[tuple[int, ...]]) -> list[int]:
    ranks: dict[tuple[int, ...], int] = {}
    return [ranks.setdefault(row, len(ranks)) for row in rows]


@pytest.mark.parametrize(
    ("first", "second", "lost"),
    [(2**63 - 1, 1, 1), (-(2**63), -1, 1), (2**62, 2**62 - 1, 0), (-(2**62), -(2**62), 0), (2**63 - 1, -1, 0)],
)
def test_a_sum_that_does_not_fit_is_told(first: int, second: int, lost: int) -> None:
    row = (1, 0, 0, 0, 0)
    left, right = _lanes([(row, 3, first, 0)]), _lanes([(row, 3, second, 0)])
    state = merge_state(_SHIFT, Frontier.at(0))
    _Merge(left, right, state, 4).work(10)
    assert state[merge.OVERFLOW] == lost
    both = [np.concatenate(lanes) for lanes in zip((*left[0], *left[1]), (*right[0], *right[1]), strict=True)]
    assert consolidate.seal_few(tuple(both[:5]), tuple(both[5:]))[3] == lost
