"""Rows by shard: which of `count` shards a key belongs to.

Always: keys that are equal (as `headrace.engine.batch.keys` says) belong to one shard, whatever table or operator they come
from; without key columns all rows belong to shard 0. Called by the dataflow's exchanges and by hosts that hand changes out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.engine.batch.keys import UInt64s
from headrace.engine.batch.updates import Int64s
from headrace.engine.kernels.partition import partition


def shard_positions(hashes: UInt64s, count: int) -> Sequence[Int64s]:
    """For each of `count` shards the ascending positions of its rows. `hashes`: the hash of each row's key."""
    positions, ends = np.empty(len(hashes) + 1, np.int64), np.empty(count, np.int64)
    partition(hashes, positions, ends)
    return np.split(positions[:-1], ends[:-1])
