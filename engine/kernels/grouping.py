# mypy: allow-untyped-defs
"""Many rows numbered by group: as `reduce.group_rows`, by parts of the hashes that are sorted within the cache.

Always: groups are numbered by key, and the rows of one stand by time, then as they came. Rows are dealt by the top bits of
their hash, and what is told of them is told in their order, so that nearly all memory is read and written in order. Called by
`headrace.engine.operators.group_versions`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, U64, U64_NEW, helper, kernel, repeated
from headrace.engine.kernels.consolidate import _PART
from headrace.engine.kernels.large_batch import _deal
from headrace.engine.kernels.sort import sort_index

MANY = 2 * _PART
"""From so many rows on, parts are faster."""


@helper
def _differ(lane):
    """True if two entries of the lane do."""
    k = 1
    while k < len(lane) and lane[k] == lane[0]:
        k += 1
    return k < len(lane)


@helper
def _picked(lane, rows, out):
    """Fill `out` with the entries at `rows`."""
    for k in range(len(rows)):
        out[k] = lane[rows[k]]


@kernel(types.int64(repeated(U64, 2), I64, repeated(I64_NEW, 2), repeated(U64_NEW, 2)))
def group_many(keys, times, out, heads):
    """Number the groups of equal keys by key; returns how many there are.

    `keys`: hashes and checks. Fills `out`: the rows by group, then time, then as they came; and the group of each of these.
    Fills `heads`: hash and check of each group.
    """
    hashes, checks = keys
    order, groups = out
    count = len(hashes)
    bits = 1
    while bits < 11 and (count >> bits) > _PART:
        bits += 1
    shift = np.uint64(64 - bits)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for k in range(count):
        starts[np.int64(hashes[k] >> shift) + 1] += 1
    largest = starts.max()
    starts = np.cumsum(starts)
    # What no group has reached yet is room: a part is read from there, and its groups never get beyond where it began.
    dealt = heads[0]
    _deal(hashes, shift, starts, dealt, order)
    is_checked, is_timed = _differ(checks), _differ(times)
    h, c = np.empty(largest, np.uint64), np.zeros(largest, np.uint64)
    t, rows = np.zeros(largest, np.int64), np.empty(largest, np.int64)
    if count > 0 and not is_checked:
        c[:] = checks[0]
    n = 0
    for part in range(len(starts) - 1):
        lo, hi = starts[part], starts[part + 1]
        size = hi - lo
        h[:size] = dealt[lo:hi]
        rows[:size] = order[lo:hi]
        if is_checked:
            _picked(checks, rows[:size], c)
        if is_timed:
            _picked(times, rows[:size], t)
        index = sort_index((h[:size], c[:size], c[:size], c[:size], c[:size]), t[:size])
        for k in range(size):
            at = index[k]
            last = index[k - 1]
            if k == 0 or h[at] != h[last] or c[at] != c[last]:
                heads[0][n], heads[1][n] = h[at], c[at]
                n += 1
            order[lo + k] = rows[at]
            groups[lo + k] = n - 1
    return n
