"""Pairs of askers and lifespans against a naive twin with Python's own integers, which do not wrap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.kernels.join import ASKER, CURSOR, SPAN, fits, meet

LEAST, MOST = -(2**63), 2**63 - 1
Asker = tuple[int, int, int]
Span = tuple[int, int, int, int]
_diffs = st.one_of(st.integers(-3, 3), st.sampled_from([LEAST, LEAST + 1, -(2**32), 2**31, 2**32, MOST]))
_copies = _diffs.filter(bool)
_askers = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), _diffs), max_size=8).map(sorted)
_spans = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 4), _copies).map(
        lambda s: (s[0], s[1], s[1] + s[2], s[3])
    ),
    max_size=8,
).map(sorted)


def lanes(rows: list[tuple[int, ...]], width: int) -> tuple[npt.NDArray[np.int64], ...]:
    return tuple(np.array([row[k] for row in rows], np.int64) for k in range(width))


def naive(askers: list[Asker], spans: list[Span], strictly: bool) -> list[tuple[int, int, int, int, int]]:
    found = []
    for a, (group, time, diff) in enumerate(askers):
        for s, (other, begin, end, copies) in enumerate(spans):
            if group == other and (begin < time <= end if strictly else begin <= time < end):
                product = diff * copies
                fit = LEAST <= product <= MOST
                found.append((a, s, time, product if fit else 1, int(not fit)))
    return found


@given(_askers, _spans, st.booleans(), st.integers(1, 9))
def test_each_asker_meets_what_is_live_at_its_time_however_much_room_there_is(
    askers: list[Asker], spans: list[Span], strictly: bool, room: int
) -> None:
    cursor, live = np.zeros(CURSOR, np.int64), np.empty(len(spans), np.int64)
    found: list[list[int]] = []
    lost = 0
    while True:
        block, size, more = meet(lanes(askers, 3), lanes(spans, 4), strictly, room, cursor, live)
        assert size == room or cursor[0] == len(askers)
        found += block[:, :size].T.tolist()
        lost += more
        if cursor[0] == len(askers):
            break
    expected = naive(askers, spans, strictly)
    assert sorted(map(tuple, found)) == sorted(expected)
    assert [row[ASKER] for row in found] == sorted(row[ASKER] for row in found)
    assert len({(row[ASKER], row[SPAN]) for row in found}) == len(found)
    assert lost == sum(row[-1] for row in expected)


def test_a_product_fits_or_not_at_every_edge() -> None:
    some = [
        0,
        *(sign * (1 << k) + off for k in (0, 1, 30, 31, 32, 33, 61, 62, 63) for sign in (1, -1) for off in (-1, 0, 1)),
    ]
    edges = [np.int64(v) for v in some if LEAST <= v <= MOST]
    assert all(fits(a, b) == (LEAST <= int(a) * int(b) <= MOST) for a in edges for b in edges)
