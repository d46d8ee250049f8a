"""Loose entries made into sorted, consolidated lanes; and lanes looked through for what can be left out.

Always: of the entries of equal (row, time) one stays, with the sum of their diffs, unless that is zero; a sum that does
not fit 64 bits is told, never wrapped. Called by `engine.batch`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from engine.kernels.compiler import FACTS, I64, I64_NEW, I64_OUT, IDS, U64, U64_NEW, helper, kernel
from engine.kernels.order import same_row, sort_index

_SEALED = types.Tuple((types.UniTuple(U64_NEW, 5), types.UniTuple(I64_NEW, 3), types.int64, types.boolean))


@helper
def overflows(left, right, total):  # type: ignore[no-untyped-def]
    """True if `total`, the wrapped sum of `left` and `right`, lost a carry."""
    return (left >= 0) == (right >= 0) and (total >= 0) != (left >= 0)


@helper
def _picked(lane, index, size, constant):  # type: ignore[no-untyped-def]
    """`lane` at the first `size` entries of `index`; of a constant lane a single one."""
    taken = np.empty(min(size, 1) if constant else size, np.uint64)
    for k in range(len(taken)):
        taken[k] = lane[index[k]]
    return taken


@kernel(_SEALED(IDS, FACTS, types.int64))
def seal(ids, facts, constant):  # type: ignore[no-untyped-def]
    """Sort and consolidate: (identity lanes, (times, diffs, positions), count of distinct rows, overflow).

    Equal rows at several times share the position of the first. `constant`: bit k says that identity lane k has one
    value only, and comes back as one entry.
    """
    times, diffs, positions = facts
    index = sort_index(ids, times)
    out_times = np.empty(len(times), np.int64)
    out_diffs = np.empty(len(times), np.int64)
    out_positions = np.empty(len(times), np.int64)
    size = 0
    distinct = 0
    overflow = False
    start = 0
    while start < len(index):
        first = index[start]
        place = positions[first]
        kept = False
        k = start
        while k < len(index) and (k == start or same_row(ids, index[k], first)):
            time = times[index[k]]
            total = diffs[index[k]]
            entry = index[k]
            k += 1
            while k < len(index) and times[index[k]] == time and same_row(ids, index[k], first):
                more = total + diffs[index[k]]
                overflow |= overflows(total, diffs[index[k]], more)
                total = more
                k += 1
            if total != 0:
                index[size] = entry
                out_times[size] = time
                out_diffs[size] = total
                out_positions[size] = place
                size += 1
                kept = True
        distinct += kept
        start = k
    lanes = (
        _picked(ids[0], index, size, constant & 1 != 0),
        _picked(ids[1], index, size, constant & 2 != 0),
        _picked(ids[2], index, size, constant & 4 != 0),
        _picked(ids[3], index, size, constant & 8 != 0),
        _picked(ids[4], index, size, constant & 16 != 0),
    )
    return lanes, (out_times[:size].copy(), out_diffs[:size].copy(), out_positions[:size].copy()), distinct, overflow


@kernel(types.boolean(I64))
def is_constant(lane):  # type: ignore[no-untyped-def]
    """True if all entries are equal."""
    for k in range(1, len(lane)):
        if lane[k] != lane[0]:
            return False
    return True


@kernel(types.int64(I64, I64_OUT, types.int64))
def compact_positions(positions, keep, rows):  # type: ignore[no-untyped-def]
    """Renumber `positions` in place of first use: `positions` becomes dense, `keep` gets the old ones; their count.

    `keep` has room for `rows`, the size of the payload; `positions` must be writable in fact.
    """
    place = np.full(rows, -1, np.int64)
    count = 0
    for k in range(len(positions)):
        old = positions[k]
        if place[old] < 0:
            place[old] = count
            keep[count] = old
            count += 1
    return count


@kernel(types.int64(IDS, I64))
def first_unsorted(ids, times):  # type: ignore[no-untyped-def]
    """The first entry that does not sort strictly after the one before it, or -1: the check of a batch's order."""
    for k in range(1, len(times)):
        after = False
        equal = True
        for lane in range(5):
            if equal and ids[lane][k] != ids[lane][k - 1]:
                after = ids[lane][k] > ids[lane][k - 1]
                equal = False
        if equal:
            after = times[k] > times[k - 1]
        if not after:
            return k
    return -1


@kernel(types.UniTuple(I64_NEW, 2)(U64, U64, I64))
def canonical_order(high, low, times):  # type: ignore[no-untyped-def]
    """The permutation that sorts by (time, fingerprint), stably, and the rank that it undoes."""
    zeros = np.zeros(len(times), np.uint64)
    epochs = np.empty(len(times), np.uint64)
    for k in range(len(times)):
        epochs[k] = np.uint64(times[k])
    index = sort_index((epochs, zeros, zeros, high, low), times)
    rank = np.empty(len(times), np.int64)
    for k in range(len(index)):
        rank[index[k]] = k
    return index, rank
