# mypy: allow-untyped-defs
"""Rows assigned to shards by the hash of their key.

Always: equal hashes go to one shard, the same for any number of rows; a shard's rows stand in the order in which they
came. The bits that choose are neither the highest, by which batches are sorted, nor the lowest. Called by
`headrace.engine.batch.partitioning`, which owns the meaning.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64_NEW, U64, helper, kernel

_SHIFT = np.uint64(16)
_BITS = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

FEW = 4
"""Up to so many shards, passes are cheaper than counts."""


@helper
def _shard(word, count):
    return np.int64((((word >> _SHIFT) & _BITS) * count) >> _HALF)


@kernel(types.void(U64, I64_NEW, I64_NEW))
def partition(hashes, positions, ends):
    """Fill `positions` with all rows, shard by shard, and `ends` (one a shard) with where each shard's part ends.

    `positions` has one entry more than there are rows, which means nothing.
    """
    count = np.uint64(len(ends))
    if len(ends) <= FEW:
        # A pass a shard, without a branch: each row is written, and stays if it is the shard's.
        at = 0
        for shard in range(len(ends)):
            for row in range(len(hashes)):
                positions[at] = row
                at += _shard(hashes[row], count) == shard
            ends[shard] = at
        return
    for shard in range(len(ends)):
        ends[shard] = 0
    for row in range(len(hashes)):
        ends[_shard(hashes[row], count)] += 1
    begin = 0
    for shard in range(len(ends)):
        size = ends[shard]
        ends[shard] = begin
        begin += size
    for row in range(len(hashes)):
        shard = _shard(hashes[row], count)
        positions[ends[shard]] = row
        ends[shard] += 1
