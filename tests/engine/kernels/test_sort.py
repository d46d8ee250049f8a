"""Sorting against numpy's lexsort, over all the shapes that take another way through the kernel."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from headrace.engine.kernels import compiler, merge, sort, upsert, warm


@pytest.mark.parametrize("size", [0, 1, 2, 24, 25, 300, 2500])
@pytest.mark.parametrize("hashes", [1, 7, 2**63])
@pytest.mark.parametrize("others", [1, 2, 2**63])
def test_sort_index_is_a_stable_sort(size: int, hashes: int, others: int) -> None:
    random = np.random.default_rng(size + hashes % 1000 + others % 1000)
    ids = tuple(random.integers(0, hashes if lane == 0 else others, size).astype(np.uint64) for lane in range(5))
    times = random.integers(-2, 2, size)
    expected = np.lexsort((times, *ids[::-1]))
    assert np.array_equal(sort.sort_index(ids, times), expected)
    ready = tuple(lane[expected] for lane in ids)
    assert np.array_equal(sort.sort_index(ready, times[expected]), np.arange(size))


@pytest.mark.parametrize("lane", [0, 2, 4])
@pytest.mark.parametrize("size", [60, 5000])
def test_lanes_that_are_spread_unevenly_sort_too(lane: int, size: int) -> None:
    random = np.random.default_rng(lane)
    uneven = random.integers(0, size, size).astype(np.uint64)
    uneven[::7] = np.uint64(2**64 - 1)
    uneven[::11] = np.uint64(1) << random.integers(0, 64, len(uneven[::11])).astype(np.uint64)
    zeros = np.zeros(size, np.uint64)
    ids = tuple(uneven if k >= lane else zeros for k in range(5))
    times = random.integers(0, 2, size)
    assert np.array_equal(sort.sort_index(ids, times), np.lexsort((times, *ids[::-1])))


def test_flat_lanes_sort_like_full_ones() -> None:
    random = np.random.default_rng(1)
    lane = random.integers(0, 50, 200).astype(np.uint64)
    flat = np.broadcast_to(np.array([9], np.uint64), 200)
    times = random.integers(0, 5, 200)
    full = np.full(200, 9, np.uint64)
    assert np.array_equal(
        sort.sort_index((lane, flat, flat, lane, flat), times), sort.sort_index((lane, full, full, lane, full), times)
    )


def test_warm_loads_every_kernel_module() -> None:
    assert {"hashing", "sort", "consolidate", "merge", "lookup", "order_images"} <= set(warm())


def test_digest_follows_what_a_module_imports() -> None:
    assert compiler.digest("merge") != compiler.digest("sort")
    assert compiler.digest("merge") == compiler.digest("merge")
    assert len(compiler.digest("lookup")) == 16


@pytest.mark.skipif(compiler.JIT_OFF, reason="plain Python takes any array")
def test_a_kernel_refuses_the_wrong_lanes() -> None:
    lane = np.zeros(3)
    with pytest.raises(TypeError):
        sort.sort_index((lane,) * 5, np.zeros(3, np.int64))
    with pytest.raises(TypeError):
        merge.merge(1, 2, 3, 4, 5, 6, 7, 8)


@pytest.mark.skipif(
    not (compiler.JIT_OFF or numba.config.BOUNDSCHECK), reason="compiled kernels do not look: make test-kernels"
)
def test_a_read_beyond_the_end_is_noticed() -> None:
    with pytest.raises(IndexError):
        upsert.fill_forward(np.ones(3, np.uint8), np.zeros(1, np.int64), np.empty(3, np.int64))
