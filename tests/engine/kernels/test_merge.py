"""The merge against a dictionary: any fuel, times advanced and left out, flat lanes, sums that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batch.layout import Ids
from engine.batch.merger import merge_state, room
from engine.kernels import consolidate, merge
from engine.lattice import Frontier
from tests.reference.lanes import Entry, assert_canonical, entries_of

_ROWS = st.tuples(*[st.integers(0, 1)] * 5) | st.tuples(st.integers(0, 2**64 - 1), *[st.just(0)] * 4)
_SIDE = st.dictionaries(st.tuples(_ROWS, st.integers(0, 5)), st.sampled_from([-2, -1, 1, 2]), max_size=12)
_FOREVER = 2**63 - 1


def _lanes(entries: list[Entry], flat: int | None = None) -> tuple[Ids, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Sorted entries as lanes, of which lane `flat` has stride 0."""
    ids = [np.array([row[k] for row, *_ in entries], np.uint64) for k in range(5)]
    if flat is not None:
        ids[flat] = np.ndarray((len(entries),), np.uint64, np.array([7], np.uint64), 0, (0,))
    facts = [np.array([entry[k] for entry in entries], np.int64) for k in (1, 2, 3)]
    return (ids[0], ids[1], ids[2], ids[3], ids[4]), (facts[0], facts[1], facts[2])


def _side(drawn: dict[tuple[tuple[int, ...], int], int]) -> list[Entry]:
    places: dict[tuple[int, ...], int] = {}
    return [(row, time, diff, places.setdefault(row, len(places))) for (row, time), diff in sorted(drawn.items())]


@given(_SIDE, _SIDE, st.integers(0, 7), st.integers(0, 8), st.integers(1, 30), st.sampled_from([None, 0, 1, 2, 4]))
def test_a_merge_is_the_sum_of_both_sides(
    one: dict[tuple[tuple[int, ...], int], int],
    two: dict[tuple[tuple[int, ...], int], int],
    since: int,
    until: int,
    fuel: int,
    flat: int | None,
) -> None:
    if flat is not None:
        one, two = (
            {((*row[:flat], 7, *row[flat + 1 :]), time): diff for (row, time), diff in side.items()}
            for side in (one, two)
        )
    sides = _side(one), _side(two)
    left, right = (_lanes(side, flat) for side in sides)
    shift = 100
    state = merge_state(shift, Frontier.at(since), until if until < 8 else _FOREVER)
    ids, facts = room(left[0], right[0], len(one) + len(two))
    if flat is not None and one and two:
        assert ids[flat].strides[0] == 0
    read = 0
    while read < len(one) + len(two):
        assert merge.merge(*left, *right, ids, facts, state, fuel) == max(0, read + fuel - len(one) - len(two))
        read = min(read + fuel, len(one) + len(two))
        assert state[merge.LEFT] + state[merge.RIGHT] == read
    size = int(state[merge.WRITTEN])
    found = entries_of([lane[:size] for lane in ids], [lane[:size] for lane in facts])
    moved = sides[0] + [(row, time, diff, place + shift) for row, time, diff, place in sides[1]]
    given_entries = [(row, max(t, since), d, p) for row, t, d, p in moved if until == 8 or t < until]
    assert_canonical(found, given_entries, int(state[merge.DISTINCT]))
    assert state[merge.OVERFLOW] == 0


@pytest.mark.parametrize(
    ("first", "second", "lost"),
    [(2**63 - 1, 1, 1), (-(2**63), -1, 1), (2**62, 2**62 - 1, 0), (-(2**62), -(2**62), 0), (2**63 - 1, -1, 0)],
)
def test_a_sum_that_does_not_fit_is_told(first: int, second: int, lost: int) -> None:
    row = (1, 0, 0, 0, 0)
    left, right = _lanes([(row, 3, first, 0)]), _lanes([(row, 3, second, 0)])
    state = merge_state(1, Frontier.at(0))
    ids, facts = room(left[0], right[0], 2)
    merge.merge(*left, *right, ids, facts, state, 10)
    assert state[merge.OVERFLOW] == lost
    both = [np.concatenate(lanes) for lanes in zip((*left[0], *left[1]), (*right[0], *right[1]), strict=True)]
    assert consolidate.seal_few(tuple(both[:5]), tuple(both[5:]))[3] == lost
