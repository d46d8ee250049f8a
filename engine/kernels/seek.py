# mypy: allow-untyped-defs
"""Looking keys up in all batches of a trace at once: galloping seeks, then the updates found, in canonical order.

Always: the answer is ordered by (probe, row, time) and, within a probe, consolidated; it depends on the updates in the
trace and not on how they lie in batches. Batches come as a table of addresses: one row a batch, of (address, stride)
for the five identity lanes, times, diffs and positions, then the count of entries and the address of the payload's
struct. Called by `engine.trace.lookup`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from engine.kernels.compiler import FACTS, I64_NEW, I64_TABLE, IDS, U64, helper, kernel
from engine.kernels.consolidate import SIZE, overflows
from engine.kernels.memory import address, load_i64, load_u64
from engine.kernels.order import sort_index

COLUMNS = 18
"""Width of a row of the table of batches."""

STRUCT = 17
"""Where in it the address of the payload's struct stands."""

_TIMES, _DIFFS, _POSITIONS = 10, 12, 14
_FOUND: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.boolean))  # type: ignore[no-untyped-call]


@kernel(types.void(IDS, FACTS, types.int64, I64_NEW))
def locate(ids, facts, struct, out):
    """One row of the table of batches: where these lanes and this payload lie, for as long as their owner keeps them."""
    for k in range(5):
        out[2 * k] = address(ids[k])
        out[2 * k + 1] = ids[k].strides[0]
    for k in range(3):
        out[10 + 2 * k] = address(facts[k])
        out[11 + 2 * k] = facts[k].strides[0]
    out[SIZE] = len(facts[0])
    out[STRUCT] = struct


@helper
def _less(batch, i, hashed, check):
    """True if the key of entry `i` sorts before (hashed, check)."""
    mine = load_u64(batch[0] + i * batch[1])
    return mine < hashed or (mine == hashed and load_u64(batch[2] + i * batch[3]) < check)


@helper
def _is_key(batch, i, hashed, check):
    return load_u64(batch[0] + i * batch[1]) == hashed and load_u64(batch[2] + i * batch[3]) == check


@helper
def _gallop(batch, start, hashed, check):
    """The first entry at or after `start` whose key does not sort before (hashed, check)."""
    size = batch[SIZE]
    if start >= size or not _less(batch, start, hashed, check):
        return start
    step = 1
    low = start
    while low + step < size and _less(batch, low + step, hashed, check):
        low += step
        step <<= 1
    high = min(low + step, size)
    while low + 1 < high:
        middle = (low + high) >> 1
        if _less(batch, middle, hashed, check):
            low = middle
        else:
            high = middle
    return high


@helper
def _gallop_past(batch, start, hashed, check):
    """The first entry after `start` of another key than (hashed, check), which entry `start` has."""
    size = batch[SIZE]
    step = 1
    low = start
    while low + step < size and _is_key(batch, low + step, hashed, check):
        low += step
        step <<= 1
    high = min(low + step, size)
    while low + 1 < high:
        middle = (low + high) >> 1
        if _is_key(batch, middle, hashed, check):
            low = middle
        else:
            high = middle
    return high


@helper
def _ranges(table, hashes, checks, order, begins, ends):
    """Fill begins[b, probe] and ends[b, probe] with each batch's entries of each probe; returns their count."""
    total = 0
    for b in range(len(table)):
        batch = table[b]
        at = 0
        for k in range(len(order)):
            probe = order[k]
            if k > 0 and hashes[probe] == hashes[order[k - 1]] and checks[probe] == checks[order[k - 1]]:
                begins[b, probe] = begins[b, order[k - 1]]
                ends[b, probe] = ends[b, order[k - 1]]
            else:
                at = _gallop(batch, at, hashes[probe], checks[probe])
                begins[b, probe] = at
                if at < batch[SIZE] and _is_key(batch, at, hashes[probe], checks[probe]):
                    at = _gallop_past(batch, at, hashes[probe], checks[probe])
                ends[b, probe] = at
            total += ends[b, probe] - begins[b, probe]
    return total


@helper
def _consolidate(lo, hi, out, halves):
    """Add up neighbours of equal (row, time) in out[lo:hi]; returns (end, overflow)."""
    _, batches, positions, times, diffs = out
    high, low = halves
    size = lo
    overflow = False
    for k in range(lo, hi):
        last = size - 1
        if last >= lo and high[k] == high[last] and low[k] == low[last] and times[k] == times[last]:
            total = diffs[last] + diffs[k]
            overflow |= overflows(diffs[last], diffs[k], total)
            diffs[last] = total
            if total == 0:
                size -= 1
        else:
            batches[size] = batches[k]
            positions[size] = positions[k]
            times[size] = times[k]
            diffs[size] = diffs[k]
            high[size] = high[k]
            low[size] = low[k]
            size += 1
    return size, overflow


@helper
def _sort(lo, hi, orders, out, halves):
    """Sort out[lo:hi] by (order, row, time)."""
    lanes = (orders[: hi - lo], orders[: hi - lo], orders[: hi - lo], halves[0][lo:hi], halves[1][lo:hi])
    index = sort_index(lanes, out[3][lo:hi])
    for lane in out[1:]:
        moved = lane[lo:hi].copy()
        for k in range(hi - lo):
            lane[lo + k] = moved[index[k]]
    for half in halves:
        moved_half = half[lo:hi].copy()
        for k in range(hi - lo):
            half[lo + k] = moved_half[index[k]]


@kernel(_FOUND(I64_TABLE, U64, U64, types.int64, types.int64))
def gather(table, hashes, checks, since, until):
    """All updates of the keys, at times < `until`, advanced to `since`.

    Returns (block, entries, overflow): the block's rows are probe, batch, position, time, diff and the high and low
    halves of the fingerprint, one entry an update. Probes may repeat and need no order.
    """
    count = len(hashes)
    zeros = np.zeros(count, np.int64)
    order = sort_index((hashes, checks, checks, checks, checks), zeros)
    begins = np.empty((len(table), count), np.int64)
    ends = np.empty((len(table), count), np.int64)
    total = _ranges(table, hashes, checks, order, begins, ends)
    block = np.empty((7, total), np.int64)
    lanes = block.view(np.uint64)
    out = (block[0], block[1], block[2], block[3], block[4])
    halves = (lanes[5], lanes[6])
    orders = np.empty(total, np.uint64)
    size = 0
    overflow = False
    for probe in range(count):
        start = size
        sources = 0
        for b in range(len(table)):
            batch = table[b]
            sources += begins[b, probe] < ends[b, probe]
            for i in range(begins[b, probe], ends[b, probe]):
                time = load_i64(batch[_TIMES] + i * batch[_TIMES + 1])
                if time >= until:
                    continue
                out[0][size] = probe
                out[1][size] = b
                out[2][size] = load_i64(batch[_POSITIONS] + i * batch[_POSITIONS + 1])
                out[3][size] = max(time, since)
                out[4][size] = load_i64(batch[_DIFFS] + i * batch[_DIFFS + 1])
                orders[size - start] = load_u64(batch[4] + i * batch[5])
                halves[0][size] = load_u64(batch[6] + i * batch[7])
                halves[1][size] = load_u64(batch[8] + i * batch[9])
                size += 1
        if size - start > 1:
            if sources > 1:
                _sort(start, size, orders, out, halves)
            size, lost = _consolidate(start, size, out, halves)
            overflow |= lost
    return block, size, overflow
