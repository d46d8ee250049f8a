# mypy: allow-untyped-defs
"""A few small batches made one in one call: what merging them costs is calls, not rows.

Always: the entries are those that `seal_batches` gives; each row that is left is there once, in their order. Called by
`headrace.engine.trace.small`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64_NEW, I64_TABLE, kernel
from headrace.engine.kernels.consolidate import _seal_block
from headrace.engine.kernels.entries import DIFFS, SIZE, STRUCT, TIMES, fact, fingerprint, locate, position, word
from headrace.engine.kernels.entries import IMAGE as IMAGE_AT
from headrace.engine.kernels.gather import HERE, assemble
from headrace.engine.kernels.times import ROUNDS, advanced

_BYTES: Any = types.Array(types.uint8, 1, "C")
_TABLE: Any = types.Array(types.int64, 2, "C")
_MERGED: Any = types.Tuple((_TABLE, types.int64, types.boolean, _BYTES, _BYTES, _TABLE, I64_NEW))  # type: ignore[no-untyped-call]


@kernel(_MERGED(I64_TABLE, types.int64, I64_TABLE, I64_TABLE, I64_NEW))
def merge_few(table, since, plan, image, located):
    """The entries of several batches, times advanced to `since`, and their rows: (block, rows, overflow, what `assemble` gives).

    `table`: a row a batch, as `entries` describes it; `plan`: how rows are put together; `image`: how they are hashed;
    `located`: as `seal_rows` has it. Rows of the block are the five identity lanes, times, diffs and positions.
    """
    total = 0
    for b in range(len(table)):
        total += table[b, SIZE]
    lanes = np.empty((8, total), np.int64)
    words = lanes.view(np.uint64)
    at_batch, at_row = np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for b in range(len(table)):
        batch = table[b]
        for k in range(batch[SIZE]):
            for lane in range(3):
                words[lane, at] = word(batch, 2 * lane, k)
            words[3, at], words[4, at] = fingerprint(batch, k)
            lanes[5, at] = advanced(fact(batch, TIMES, k), since, ROUNDS)
            lanes[6, at] = fact(batch, DIFFS, k)
            lanes[7, at] = at
            at_batch[at], at_row[at] = b, position(batch, k)
            at += 1
    block, size, rows, lost = _seal_block(
        (words[0], words[1], words[2], words[3], words[4]), (lanes[5], lanes[6], lanes[7])
    )
    sources, positions = np.empty((1, rows), np.int64), np.empty((1, rows), np.int64)
    count = 0
    old = -1
    for k in range(size):
        if block[7, k] != old:
            old = block[7, k]
            sources[0, count], positions[0, count] = at_batch[old], at_row[old]
            count += 1
        block[7, k] = count - 1
    cells, data, places, own = assemble(table[:, STRUCT].copy(), plan, sources, positions)
    ids = block.view(np.uint64)
    locate(
        (ids[0, :size], ids[1, :size], ids[2, :size], ids[3, :size], ids[4, :size]),
        (block[5, :size], block[6, :size], block[7, :size]),
        own[HERE],
        image,
        located[IMAGE_AT],
        located,
    )
    return block, rows, lost != 0, cells, data, places, own
