"""Pairs of probes and matches against Python's own integers, which do not wrap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.join import fits, pair

LEAST, MOST = -(2**63), 2**63 - 1
_diffs = st.one_of(st.integers(-3, 3), st.sampled_from([LEAST, LEAST + 1, -(2**32), 2**31, 2**32, MOST]))
_probes = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), _diffs), min_size=1, max_size=5)
_matches = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 9), st.integers(0, 5), _diffs))


def lanes(rows: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return [np.array([row[k] for row in rows], np.int64) for k in range(width)]


@given(_probes, _matches)
def test_a_pair_stands_at_the_later_time_with_the_exact_product_or_is_marked(
    probes: list[tuple[int, int, int]], matches: list[tuple[int, int, int, int, int]]
) -> None:
    matches = [(probe % len(probes), *rest) for probe, *rest in matches]  # type: ignore[misc]
    positions, times, diffs = lanes(probes, 3)  # type: ignore[arg-type]
    probe, batch, place, when, copies = lanes(matches, 5)  # type: ignore[arg-type]
    block, lost = pair((positions, times, diffs), probe, np.stack([batch, place]), when, copies)
    expected = []
    for p, b, at, t, n in matches:
        product = probes[p][2] * n
        fits = LEAST <= product <= MOST
        expected.append((0, b + 1, probes[p][0], at, max(t, probes[p][1]), product if fits else 1, int(not fits)))
    assert block.T.tolist() == [list(row) for row in expected]
    assert lost == sum(row[-1] for row in expected)


def test_a_product_fits_or_not_at_every_edge() -> None:
    some = [
        0,
        *(sign * (1 << k) + off for k in (0, 1, 30, 31, 32, 33, 61, 62, 63) for sign in (1, -1) for off in (-1, 0, 1)),
    ]
    edges = [np.int64(v) for v in some if LEAST <= v <= MOST]
    assert all(fits(a, b) == (LEAST <= int(a) * int(b) <= MOST) for a in edges for b in edges)
