"""Sealing against a dictionary: few and many entries, equal rows and hashes, flat lanes, whatever cancels."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.engine.batch.batch import seal_lanes
from headrace.engine.kernels import consolidate
from headrace.engine.kernels.compiler import JIT_OFF
from tests.reference.lanes import assert_canonical, entries_of


@pytest.mark.parametrize("size", [1, 20, 600, 3000, 20_000])
@pytest.mark.parametrize("hashes", [1, 9, 2**63])
@pytest.mark.parametrize("rows", [1, 2, 2**63])
@pytest.mark.parametrize("flat", [(), (1, 2), (0, 1, 2), (0, 1, 2, 3, 4)])
def test_sealing_is_the_sum(size: int, hashes: int, rows: int, flat: tuple[int, ...]) -> None:
    if JIT_OFF and size > 3000:
        pytest.skip("plain Python takes seconds for it")
    random = np.random.default_rng(size)
    bounds = (hashes, 2, 2, rows, rows)
    ids = tuple(
        np.ndarray((size,), np.uint64, random.integers(0, 9, 1).astype(np.uint64), 0, (0,))
        if lane in flat
        else random.integers(0, bound, size).astype(np.uint64)
        for lane, bound in enumerate(bounds)
    )
    facts = random.integers(-1, 2, size), random.integers(-1, 2, size), np.arange(size)
    given = entries_of(ids, facts)
    found_ids, found_facts, distinct = seal_lanes(ids, facts)  # type: ignore[arg-type]
    assert all(lane.strides[0] == 0 for k, lane in enumerate(found_ids) if k in flat and size >= consolidate.FEW)
    assert_canonical(entries_of(found_ids, found_facts), given, distinct)
    assert consolidate.first_unsorted(found_ids, found_facts[0]) == -1


def test_first_unsorted_finds_what_is_out_of_order() -> None:
    lanes = np.zeros((5, 6), np.uint64)
    lanes[4] = [1, 2, 2, 3, 3, 1]
    ids = tuple(lanes)
    assert consolidate.first_unsorted(ids, np.array([0, 0, 1, 0, 1, 5])) == 5
    assert consolidate.first_unsorted(ids, np.array([0, 0, 0, 0, 1, 5])) == 2
