# mypy: allow-untyped-defs
"""Looking keys up in all batches of a trace at once: interpolating seeks, then the updates found, in canonical order.

Always: the answer is ordered by (probe, row, time) and, within a probe, consolidated; it depends on the updates in the
trace and not on how they lie in batches. Batches come as a table of addresses, which `entries` describes. Called by
`headrace.engine.trace.lookup`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64_TABLE, U64, helper, kernel
from headrace.engine.kernels.consolidate import overflows
from headrace.engine.kernels.entries import DIFFS, ORDER, SIZE, TIMES, fact, fingerprint, position, word
from headrace.engine.kernels.memory import load_u64
from headrace.engine.kernels.sort import sort_index
from headrace.engine.kernels.times import ROUNDS, advanced

_LOOKS = 3

_DENSE = 128
"""Where a batch has at most so many entries a probe all of it is passed over: that is read in order, and guessed less."""

_STRIDE = 16
"""So many entries are passed over at a time."""

_FEW = 24
"""Up to so many entries of a key are sorted by insertion."""
_FOUND: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.boolean))  # type: ignore[no-untyped-call]


@helper
def _less(hash_at, hash_step, check_at, check_step, i, hashed, check):
    """True if the key of entry `i`, of lanes that lie there with these strides, sorts before (hashed, check)."""
    mine = load_u64(hash_at + i * hash_step)
    return mine < hashed or (mine == hashed and load_u64(check_at + i * check_step) < check)


@helper
def _is_key(hash_at, hash_step, check_at, check_step, i, hashed, check):
    return load_u64(hash_at + i * hash_step) == hashed and load_u64(check_at + i * check_step) == check


@helper
def _guess(hash_at, hash_step, size, hashes, order, guesses):
    """About where each probe's hash lies among `size` entries (at least one), if hashes are spread evenly.

    Each look leaves an error of about the square root of the one before. All probes take a look before the first takes
    its second: reads that do not wait for each other hide the memory's latency.
    """
    density = size / 18446744073709551616.0
    for k in range(len(order)):
        guesses[k] = min(np.int64(np.float64(hashes[order[k]]) * density), size - 1)
    for _ in range(_LOOKS):
        for k in range(len(order)):
            hashed = hashes[order[k]]
            here = load_u64(hash_at + guesses[k] * hash_step)
            gap = hashed - here if hashed >= here else here - hashed
            move = np.int64(np.float64(gap) * density)
            guess = guesses[k] + (move if hashed >= here else -move)
            guesses[k] = min(max(guess, 0), size - 1)


@helper
def _seek(hash_at, hash_step, check_at, check_step, span, guess, hashed, check):
    """The first entry in `span` (start, end) whose key does not sort before (hashed, check), looked for from `guess` on."""
    start, size = span
    if start >= size or not _less(hash_at, hash_step, check_at, check_step, start, hashed, check):
        return start
    guess = max(guess, start)
    step = 1
    if _less(hash_at, hash_step, check_at, check_step, guess, hashed, check):
        low = guess
        high = guess + step
        while high < size and _less(hash_at, hash_step, check_at, check_step, high, hashed, check):
            low = high
            step <<= 1
            high = low + step
        high = min(high, size)
    else:
        high = guess
        low = guess - step
        while low > start and not _less(hash_at, hash_step, check_at, check_step, low, hashed, check):
            high = low
            step <<= 1
            low = high - step
        low = max(low, start)
    while low + 1 < high:
        middle = (low + high) >> 1
        if _less(hash_at, hash_step, check_at, check_step, middle, hashed, check):
            low = middle
        else:
            high = middle
    return high


@helper
def _sweep(hash_at, hash_step, check_at, check_step, span, hashed, check):
    """As `_seek`, where what is looked for is near: entries are passed over many at a time, and the last ones counted."""
    at, size = span
    while at + _STRIDE < size and load_u64(hash_at + (at + _STRIDE) * hash_step) < hashed:
        at += _STRIDE
    # Counting has no branch that nothing can guess.
    less = 0
    for k in range(at, min(at + _STRIDE, size)):
        less += load_u64(hash_at + k * hash_step) < hashed
    at += less
    while at < size and _less(hash_at, hash_step, check_at, check_step, at, hashed, check):
        at += 1
    return at


@helper
def _seek_past(hash_at, hash_step, check_at, check_step, start, size, hashed, check):
    """The first entry after `start` of another key than (hashed, check), which entry `start` has."""
    step = 1
    low = start
    while low + step < size and _is_key(hash_at, hash_step, check_at, check_step, low + step, hashed, check):
        low += step
        step <<= 1
    high = min(low + step, size)
    while low + 1 < high:
        middle = (low + high) >> 1
        if _is_key(hash_at, hash_step, check_at, check_step, middle, hashed, check):
            low = middle
        else:
            high = middle
    return high


@helper
def _ranges(table, hashes, checks, order, begins, ends):
    """Fill begins[b, probe] and ends[b, probe] with each batch's entries of each probe; returns their count."""
    total = 0
    guesses = np.empty(len(order), np.int64)
    for b in range(len(table)):
        hash_at, hash_step, check_at, check_step = table[b, 0], table[b, 1], table[b, 2], table[b, 3]
        size = table[b, SIZE]
        is_dense = size <= _DENSE * len(order)
        if size > 0 and not is_dense:
            _guess(hash_at, hash_step, size, hashes, order, guesses)
        begin = 0
        end = 0
        for k in range(len(order)):
            probe = order[k]
            hashed = hashes[probe]
            check = checks[probe]
            if k == 0 or hashed != hashes[order[k - 1]] or check != checks[order[k - 1]]:
                if is_dense:
                    begin = _sweep(hash_at, hash_step, check_at, check_step, (end, size), hashed, check)
                else:
                    begin = _seek(hash_at, hash_step, check_at, check_step, (end, size), guesses[k], hashed, check)
                end = begin
                if begin < size and _is_key(hash_at, hash_step, check_at, check_step, begin, hashed, check):
                    end = _seek_past(hash_at, hash_step, check_at, check_step, begin, size, hashed, check)
            begins[b, probe] = begin
            ends[b, probe] = end
            total += end - begin
    return total


@helper
def _before(order, high, low, time, other_order, other_high, other_low, other_time):
    if order != other_order:
        return order < other_order
    if high != other_high:
        return high < other_high
    if low != other_low:
        return low < other_low
    return time < other_time


@helper
def _insertion(block, words, orders, lo, hi):
    """As `_sort`, for few entries."""
    for k in range(lo + 1, hi):
        batch, position, time, diff = block[1, k], block[2, k], block[3, k], block[4, k]
        order, high, low = orders[k], words[5, k], words[6, k]
        at = k
        while at > lo and _before(
            order, high, low, time, orders[at - 1], words[5, at - 1], words[6, at - 1], block[3, at - 1]
        ):
            for lane in range(1, 7):
                block[lane, at] = block[lane, at - 1]
            orders[at] = orders[at - 1]
            at -= 1
        block[1, at], block[2, at], block[3, at], block[4, at] = batch, position, time, diff
        orders[at], words[5, at], words[6, at] = order, high, low


@helper
def _sort(block, words, orders, lo, hi):
    """Sort entries lo … hi - 1 of the block by (order, row, time)."""
    first = orders[lo:hi]
    index = sort_index((first, first, first, words[5, lo:hi], words[6, lo:hi]), block[3, lo:hi])
    for lane in range(1, 7):
        moved = block[lane, lo:hi].copy()
        for k in range(hi - lo):
            block[lane, lo + k] = moved[index[k]]


@helper
def _settle(block, orders, total):
    """Sort the entries of each probe by (order, row, time) and add up those alike; returns (entries left, overflow)."""
    words = block.view(np.uint64)
    size = 0
    overflow = False
    lo = 0
    while lo < total:
        hi = lo + 1
        is_sorted = True
        while hi < total and block[0, hi] == block[0, lo]:
            is_sorted = is_sorted and not _before(
                orders[hi], words[5, hi], words[6, hi], block[3, hi],
                orders[hi - 1], words[5, hi - 1], words[6, hi - 1], block[3, hi - 1],
            )  # fmt: skip
            hi += 1
        if not is_sorted:
            if hi - lo <= _FEW:
                _insertion(block, words, orders, lo, hi)
            else:
                _sort(block, words, orders, lo, hi)
        first = size
        for k in range(lo, hi):
            last = size - 1
            if (
                last >= first
                and block[5, k] == block[5, last]
                and block[6, k] == block[6, last]
                and block[3, k] == block[3, last]
            ):
                total_diff = block[4, last] + block[4, k]
                overflow |= overflows(block[4, last], block[4, k], total_diff)
                block[4, last] = total_diff
                size -= total_diff == 0
            else:
                if size < k:
                    for lane in range(7):
                        block[lane, size] = block[lane, k]
                size += 1
        lo = hi
    return size, overflow


@helper
def _number_rows(block, size):
    """Replace the fingerprints of sorted entries by the number of their row: a probe's updates of one row share it."""
    row = -1
    last_high = np.int64(0)
    last_low = np.int64(0)
    for k in range(size):
        high, low = block[5, k], block[6, k]
        if k == 0 or block[0, k] != block[0, k - 1] or high != last_high or low != last_low:
            row += 1
        last_high, last_low = high, low
        block[5, k] = row


@kernel(_FOUND(I64_TABLE, U64, U64, types.int64, types.int64, types.int64))
def gather(table, hashes, checks, since, until, most):
    """All updates of the keys, at times < `until`, advanced to `since`.

    Returns (block, entries, overflow): the block's rows are probe, batch, position, time, diff, the number of the update's
    row among the distinct rows of the answer, and room, one entry an update. Probes may repeat and need no order. Where
    the keys have more than `most` updates none is read, and the entries are -1.
    """
    count = len(hashes)
    zeros = np.zeros(count, np.int64)
    order = sort_index((hashes, checks, checks, checks, checks), zeros)
    begins = np.empty((len(table), count), np.int64)
    ends = np.empty((len(table), count), np.int64)
    total = _ranges(table, hashes, checks, order, begins, ends)
    if total > most:
        return np.empty((7, 0), np.int64), -1, False
    block = np.empty((7, total), np.int64)
    words = block.view(np.uint64)
    orders = np.empty(total, np.uint64)
    places = np.empty(total, np.int64)
    size = 0
    several = False
    for probe in range(count):
        start = size
        for b in range(len(table)):
            batch = table[b]
            for i in range(begins[b, probe], ends[b, probe]):
                time = fact(batch, TIMES, i)
                if time >= until:
                    continue
                block[0, size] = probe
                block[1, size] = b
                block[2, size] = position(batch, i)
                block[3, size] = advanced(time, since, ROUNDS)
                block[4, size] = fact(batch, DIFFS, i)
                orders[size] = word(batch, ORDER, i)
                places[size] = i
                size += 1
        if size > start + 1:
            # Fingerprints only order and settle the entries of one key.
            several = True
            for k in range(start, size):
                words[5, k], words[6, k] = fingerprint(table[block[1, k]], places[k])
    overflow = False
    if several:
        size, overflow = _settle(block, orders, size)
    _number_rows(block, size)
    return block, size, overflow
