"""Dealing rows out to shards against its plain twin, and how evenly it does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.batch.partitioning import shard_positions
from headrace.engine.kernels.partition import FEW
from tests.bench.peers.columns import mixed


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.integers(1, 2 * FEW))
def test_rows_stand_by_shard_in_their_order(words: list[int], count: int) -> None:
    found = shard_positions(np.array(words, np.uint64), count)
    shards = [((word >> 16) & 0xFFFFFFFF) * count >> 32 for word in words]
    assert [part.tolist() for part in found] == [[k for k, s in enumerate(shards) if s == n] for n in range(count)]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_shards_are_even(count: int) -> None:
    sizes = [len(part) for part in shard_positions(mixed(np.arange(6000, dtype=np.uint64)), count)]
    assert max(sizes) < 1.15 * min(sizes)
