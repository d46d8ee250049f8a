"""Histories of rows as lifespans: from when until when a row is there, and how many copies of it.

Invariant: the lifespans of a row do not overlap, and at every time the copies of those that are live add up to the
diffs of the row's updates until then. A running sum that does not fit int64 is reported, never wrapped. Called by the
join and the window operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, helper, kernel
from headrace.engine.kernels.consolidate import overflows
from headrace.engine.kernels.sort import sort_index

UPDATE, GROUP, BEGIN, END, COPIES = range(5)
"""Rows of the block of lifespans: an update of the row, its group, the first time and the one after the last, copies."""

FOREVER = 9223372036854775807
"""The end of what no update ends."""

_SPANS: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.boolean))  # type: ignore[no-untyped-call]


@helper
def _in_order(block, size):  # type: ignore[no-untyped-def]
    """The block's lifespans by group and begin; those that begin together keep their order."""
    begins = block[1:3].view(np.uint64)
    index = sort_index((begins[0], begins[0], begins[0], begins[0], begins[0]), block[BEGIN])
    sorted_block = np.empty((5, size), np.int64)
    for lane in range(5):
        for k in range(size):
            sorted_block[lane, k] = block[lane, index[k]]
    return sorted_block


@kernel(_SPANS(I64, I64, I64, I64))
def lifespans(groups, rows, times, diffs):  # type: ignore[no-untyped-def]
    """The lifespans of rows, by group and begin: (block, how many, overflow).

    `groups`: of each update, ascending; `rows`: numbers that the updates of one row of a group share, which stand one
    after the other in the order of their `times`. The work is linear in the updates, but for the sort of what begins late.
    """
    block = np.empty((5, len(times)), np.int64)
    n = 0
    copies = np.int64(0)
    is_open = False
    overflow = False
    is_sorted = True
    for k in range(len(times)):
        same = k > 0 and groups[k] == groups[k - 1] and rows[k] == rows[k - 1]
        before = copies if same else np.int64(0)
        copies = before + diffs[k]
        overflow |= overflows(before, diffs[k], copies)
        if same and is_open:
            if block[BEGIN, n - 1] == times[k]:
                n -= 1
            else:
                block[END, n - 1] = times[k]
        is_open = copies != 0
        if is_open:
            block[UPDATE, n] = k
            block[GROUP, n] = groups[k]
            block[BEGIN, n] = times[k]
            block[END, n] = FOREVER
            block[COPIES, n] = copies
            is_sorted = is_sorted and (n == 0 or block[GROUP, n - 1] != groups[k] or block[BEGIN, n - 1] <= times[k])
            n += 1
    if is_sorted:
        return block, n, overflow
    return _in_order(block[:, :n].copy(), n), n, overflow
