"""Lifespans of rows against a naive twin: at every time the copies live then are the sum of the diffs until then."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.kernels.history import BEGIN, COPIES, END, FOREVER, GROUP, UPDATE, lifespans

Update = tuple[int, int, int, int]
_updates = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 6), st.integers(-2, 2).filter(bool)), max_size=14
).map(sorted)


def lanes(updates: list[Update]) -> list[np.ndarray]:
    # Row numbers need not be unique beyond their group.
    return [np.array([u[k] for u in updates], np.int64) for k in range(4)]


@given(_updates)
def test_the_copies_that_are_live_add_up_to_the_history(updates: list[Update]) -> None:
    block, size, overflow = lifespans(*lanes(updates))
    assert not overflow
    spans = block[:, :size].T.tolist()
    assert [(s[GROUP], s[BEGIN]) for s in spans] == sorted((s[GROUP], s[BEGIN]) for s in spans)
    for group, row in {u[:2] for u in updates}:
        mine = [s for s in spans if updates[s[UPDATE]][:2] == (group, row)]
        assert all(s[COPIES] for s in mine)
        assert all(s[BEGIN] < s[END] for s in mine)
        for time in range(8):
            live = [s[COPIES] for s in mine if s[BEGIN] <= time < s[END]]
            assert len(live) <= 1
            assert sum(live) == sum(d for g, r, t, d in updates if (g, r) == (group, row) and t <= time)


def test_a_lifespan_without_an_end_and_one_that_does_not_fit() -> None:
    block, size, _ = lifespans(*lanes([(0, 0, 3, 1)]))
    assert block[:, :size].T.tolist() == [[0, 0, 3, FOREVER, 1]]
    assert lifespans(*lanes([(0, 0, 1, 2**63 - 1), (0, 0, 2, 1)]))[2]
