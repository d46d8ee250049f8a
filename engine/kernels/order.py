# mypy: allow-untyped-defs
"""Sorting by row identity and time: radix on the uniformly spread lanes, comparison for what is left.

Always: the order is (hash, check, order, fingerprint, time), and equal entries keep the order they came in. Called by
`consolidate` and `seek`, inside kernels.
"""

from __future__ import annotations

import numpy as np

from engine.kernels.compiler import I64, I64_NEW, IDS, helper, kernel

_SMALL = 24
_DIGIT = 11
_BUCKETS = 1 << _DIGIT
_DIGIT_MASK = np.uint64(_BUCKETS - 1)


@helper
def before(ids, times, i, j):
    """True if entry `i` sorts strictly before entry `j`."""
    if ids[0][i] != ids[0][j]:
        return ids[0][i] < ids[0][j]
    if ids[1][i] != ids[1][j]:
        return ids[1][i] < ids[1][j]
    if ids[2][i] != ids[2][j]:
        return ids[2][i] < ids[2][j]
    if ids[3][i] != ids[3][j]:
        return ids[3][i] < ids[3][j]
    if ids[4][i] != ids[4][j]:
        return ids[4][i] < ids[4][j]
    return times[i] < times[j]


@helper
def same_row(ids, i, j):
    """True if entries `i` and `j` are of one row."""
    return (
        ids[0][i] == ids[0][j]
        and ids[4][i] == ids[4][j]
        and ids[3][i] == ids[3][j]
        and ids[1][i] == ids[1][j]
        and ids[2][i] == ids[2][j]
    )


@helper
def _insertion(index, lo, hi, ids, times):
    for k in range(lo + 1, hi):
        moved = index[k]
        at = k
        while at > lo and before(ids, times, moved, index[at - 1]):
            index[at] = index[at - 1]
            at -= 1
        index[at] = moved


@helper
def _by_comparison(index, lo, hi, ids, times):
    """Stable bottom-up merge sort of `index[lo:hi]`."""
    for start in range(lo, hi, _SMALL):
        _insertion(index, start, min(start + _SMALL, hi), ids, times)
    spare = np.empty(hi - lo, np.int64)
    width = _SMALL
    while width < hi - lo:
        for start in range(lo, hi - width, 2 * width):
            middle = start + width
            stop = min(start + 2 * width, hi)
            if not before(ids, times, index[middle], index[middle - 1]):
                continue
            for k in range(start, middle):
                spare[k - start] = index[k]
            left = 0
            right = middle
            at = start
            while left < width and right < stop:
                if before(ids, times, index[right], spare[left]):
                    index[at] = index[right]
                    right += 1
                else:
                    index[at] = spare[left]
                    left += 1
                at += 1
            while left < width:
                index[at] = spare[left]
                left += 1
                at += 1
        width *= 2


@helper
def _radix(index, lo, hi, lane):
    """Sort `index[lo:hi]` by the top bits of `lane` that differ, enough of them to leave short runs.

    Returns (how many leading bits all entries share, how many after them are sorted).
    """
    size = hi - lo
    first = lane[index[lo]]
    spread = np.uint64(0)
    for k in range(lo + 1, hi):
        spread |= lane[index[k]] ^ first
    shared = 0
    while shared < 64 - _DIGIT and spread >> np.uint64(63 - shared) == 0:
        shared += 1
    bits = 1
    while (4 << bits) < size:
        bits += 1
    passes = (bits + _DIGIT - 1) // _DIGIT
    keys = np.empty(size, np.uint64)
    spare_keys = np.empty(size, np.uint64)
    here = np.empty(size, np.int64)
    there = np.empty(size, np.int64)
    for k in range(size):
        here[k] = index[lo + k]
        keys[k] = lane[index[lo + k]] << np.uint64(shared)
    for step in range(passes):
        shift = np.uint64(64 - _DIGIT * (passes - step))
        starts = np.zeros(_BUCKETS, np.int64)
        for k in range(size):
            starts[(keys[k] >> shift) & _DIGIT_MASK] += 1
        total = 0
        for bucket in range(_BUCKETS):
            count = starts[bucket]
            starts[bucket] = total
            total += count
        for k in range(size):
            bucket = (keys[k] >> shift) & _DIGIT_MASK
            at = starts[bucket]
            starts[bucket] = at + 1
            spare_keys[at] = keys[k]
            there[at] = here[k]
        keys, spare_keys = spare_keys, keys
        here, there = there, here
    for k in range(size):
        index[lo + k] = here[k]
    return shared, passes * _DIGIT


@helper
def _by_radix(index, lo, hi, depth, ids, times):
    """Sort `index[lo:hi]` by lane `depth`; runs that stay equal go to a comparison sort, or to the next lane."""
    todo_lo = [lo]
    todo_hi = [hi]
    todo_depth = [depth]
    while len(todo_lo) > 0:
        lo = todo_lo.pop()
        hi = todo_hi.pop()
        depth = todo_depth.pop()
        lane = ids[depth]
        shared, sorted_bits = _radix(index, lo, hi, lane)
        left = np.uint64(shared)
        bits = np.uint64(64 - sorted_bits)
        start = lo
        for k in range(lo + 1, hi + 1):
            if k < hi and (lane[index[k]] << left) >> bits == (lane[index[start]] << left) >> bits:
                continue
            if k - start > 1:
                if k - start <= _SMALL:
                    _insertion(index, start, k, ids, times)
                else:
                    constant = True
                    for j in range(start + 1, k):
                        if lane[index[j]] != lane[index[start]]:
                            constant = False
                            break
                    if constant and depth < 4:
                        todo_lo.append(start)
                        todo_hi.append(k)
                        todo_depth.append(depth + 1)
                    else:
                        _by_comparison(index, start, k, ids, times)
            start = k


@kernel(I64_NEW(IDS, I64))
def sort_index(ids, times):
    """The permutation that sorts entries by identity, then time: `index[k]` is the entry at place k."""
    size = len(times)
    index = np.arange(size)
    is_sorted = True
    for k in range(1, size):
        if before(ids, times, k, k - 1):
            is_sorted = False
            break
    if is_sorted:
        return index
    if size <= _SMALL:
        _insertion(index, 0, size, ids, times)
    else:
        _by_radix(index, 0, size, 0, ids, times)
    return index
