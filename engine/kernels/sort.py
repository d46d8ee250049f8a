# mypy: allow-untyped-defs
"""Sorting by row identity and time: radix on the uniformly spread lanes, comparison for what is left.

Always: the order is (hash, check, order, fingerprint, time), and equal entries keep the order they came in. Called by
`consolidate` and `lookup`, inside kernels.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.kernels.compiler import I64, I64_NEW, IDS, helper, kernel

_SMALL = 24
_DIGIT = 11

_MANY = 1024
"""A run of so many entries that a lane leaves is worth another pass over it."""


@helper
def before(h, c, o, high, low, times, i, j):
    """True if entry `i` sorts strictly before entry `j`."""
    if h[i] != h[j]:
        return h[i] < h[j]
    if c[i] != c[j]:
        return c[i] < c[j]
    if o[i] != o[j]:
        return o[i] < o[j]
    if high[i] != high[j]:
        return high[i] < high[j]
    if low[i] != low[j]:
        return low[i] < low[j]
    return times[i] < times[j]


@helper
def _by_comparison(index, lo, hi, ids, times):
    """Stable bottom-up merge sort of `index[lo:hi]`."""
    h, c, o, high, low = ids
    for k in range(lo + 1, hi):
        moved = index[k]
        at = k
        bottom = k - (k - lo) % _SMALL
        while at > bottom and before(h, c, o, high, low, times, moved, index[at - 1]):
            index[at] = index[at - 1]
            at -= 1
        index[at] = moved
    spare = np.empty(hi - lo, np.int64)
    width = _SMALL
    while width < hi - lo:
        for start in range(lo, hi - width, 2 * width):
            middle = start + width
            stop = min(start + 2 * width, hi)
            if not before(h, c, o, high, low, times, index[middle], index[middle - 1]):
                continue
            for k in range(start, middle):
                spare[k - start] = index[k]
            left = 0
            right = middle
            at = start
            while left < width and right < stop:
                if before(h, c, o, high, low, times, index[right], spare[left]):
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
def _radix(index, lo, hi, lane, keys):
    """Sort `index[lo:hi]` by the top bits of `lane` that differ, enough of them to leave short runs.

    `keys[lo:hi]` becomes the entries of `lane` in that order, without the leading bits that all of them share. Returns
    how many of the leading bits of these are sorted.
    """
    size = hi - lo
    first = lane[index[lo]]
    spread = np.uint64(0)
    for k in range(lo + 1, hi):
        spread |= lane[index[k]] ^ first
    shared = 0
    while shared < 63 and spread >> np.uint64(63 - shared) == 0:
        shared += 1
    bits = 1
    while (2 << bits) < size:
        bits += 1
    passes = (bits + _DIGIT - 1) // _DIGIT
    digit = (bits + passes - 1) // passes
    mask = np.uint64((1 << digit) - 1)
    here = index[lo:hi]
    there = np.empty(size, np.int64)
    here_keys = keys[lo:hi]
    there_keys = np.empty(size, np.uint64)
    for k in range(size):
        here_keys[k] = lane[here[k]] << np.uint64(shared)
    for step in range(passes):
        shift = np.uint64(64 - digit * (passes - step))
        starts = np.zeros(1 << digit, np.int64)
        for k in range(size):
            starts[(here_keys[k] >> shift) & mask] += 1
        total = 0
        for bucket in range(1 << digit):
            count = starts[bucket]
            starts[bucket] = total
            total += count
        for k in range(size):
            key = here_keys[k]
            bucket = (key >> shift) & mask
            at = starts[bucket]
            starts[bucket] = at + 1
            there_keys[at] = key
            there[at] = here[k]
        here_keys, there_keys = there_keys, here_keys
        here, there = there, here
    if passes & 1:
        for k in range(size):
            index[lo + k] = here[k]
            keys[lo + k] = here_keys[k]
    return digit * passes


@helper
def _by_radix(index, ids, times):
    """Sort `index` lane by lane; short runs that a lane's top bits leave are sorted by insertion."""
    h, c, o, high, low = ids
    keys = np.empty(len(index), np.uint64)
    todo = [(np.int64(0), np.int64(len(index)), 0)]
    while len(todo) > 0:
        lo, hi, depth = todo.pop()
        unsorted = np.uint64(64 - _radix(index, lo, hi, ids[depth], keys))
        start = lo
        while start < hi:
            top = keys[start] >> unsorted
            stop = start + 1
            while stop < hi and keys[stop] >> unsorted == top:
                stop += 1
            if stop - start <= _SMALL:
                for k in range(start + 1, stop):
                    key = keys[k]
                    moved = index[k]
                    at = k
                    while at > start and (
                        key < keys[at - 1]
                        or (key == keys[at - 1] and before(h, c, o, high, low, times, moved, index[at - 1]))
                    ):
                        keys[at] = keys[at - 1]
                        index[at] = index[at - 1]
                        at -= 1
                    keys[at] = key
                    index[at] = moved
            else:
                constant = True
                for k in range(start + 1, stop):
                    if keys[k] != keys[start]:
                        constant = False
                        break
                if constant and depth < 4:
                    todo.append((start, stop, depth + 1))
                elif not constant and stop - start >= _MANY:
                    todo.append((start, stop, depth))
                else:
                    _by_comparison(index, start, stop, ids, times)
            start = stop


@kernel(I64_NEW(IDS, I64))
def sort_index(ids, times):
    """The permutation that sorts entries by identity, then time: `index[k]` is the entry at place k."""
    h, c, o, high, low = ids
    size = len(times)
    index = np.arange(size)
    is_sorted = True
    for k in range(1, size):
        if before(h, c, o, high, low, times, k, k - 1):
            is_sorted = False
            break
    if not is_sorted:
        if size <= _SMALL:
            _by_comparison(index, 0, size, ids, times)
        else:
            _by_radix(index, ids, times)
    return index
