# mypy: allow-untyped-defs
"""Many keys sifted by a few entries: which of them may be there, before any is looked for.

Always: no key that is there is left out, and of others as few stay as the top bits of hashes tell apart. Batches come as a
table of addresses, which `entries` describes. Called by `headrace.engine.trace.lookup` where a trace holds much less
than it is asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64_NEW, I64_TABLE, U64, kernel
from headrace.engine.kernels.entries import HASH, SIZE, word

_SIFTED: Any = types.Tuple((I64_NEW, types.int64))  # type: ignore[no-untyped-call]

_LEAST_BITS = 6
_ROOM = 8
"""Marks an entry of the batches at least: one key in so many stays that is not there."""

_ROOMY, _NEAR = 64, 1 << 14
"""And so many, where all marks together are no more than fit the nearest cache."""


@kernel(_SIFTED(I64_TABLE, U64))
def sift(table, hashes):
    """The positions of the hashes whose top bits an entry has too, ascending, and how many they are."""
    total = 0
    for b in range(len(table)):
        total += table[b, SIZE]
    bits = _LEAST_BITS
    while (1 << bits) < max(total * _ROOM, min(total * _ROOMY, _NEAR)):
        bits += 1
    shift = np.uint64(64 - bits)
    marks = np.zeros(1 << bits, np.uint8)
    for b in range(len(table)):
        batch = table[b]
        for i in range(batch[SIZE]):
            marks[np.int64(word(batch, HASH, i) >> shift)] = 1
    # Each is written, and stays if it is marked: what a branch would cost is guessing it.
    kept = np.empty(len(hashes) + 1, np.int64)
    n = np.int64(0)
    for k in range(len(hashes)):
        kept[n] = k
        n += np.int64(marks[np.int64(hashes[k] >> shift)])
    return kept, n
