# mypy: allow-untyped-defs
"""The least (or greatest) rows of a key that count: read from one end of the order lane, as far as needed and no more.

Always: what is found for a key ends with a row that is live throughout the step, and with all rows of its order lane,
so that the extreme value at every time of the step is among it; rows that cancelled before the step are passed over.
The answer depends on the updates in the trace and not on how they lie in batches. Called by `headrace.engine.trace.lookup`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64_TABLE, U64, helper, kernel
from headrace.engine.kernels.consolidate import overflows
from headrace.engine.kernels.entries import DIFFS, ORDER, TIMES, fact, fingerprint, position, word
from headrace.engine.kernels.lookup import _ranges
from headrace.engine.kernels.sort import sort_index

_FOUND: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.int64, types.boolean))  # type: ignore[no-untyped-call]
_ROOM = 64
_NULL = np.uint64(0xFFFFFFFFFFFFFFFF)
"""The order lane of NULL. A value may share it, so a row there never counts as an extreme that stands."""


@helper
def _order(batch, i):
    return word(batch, ORDER, i)


@helper
def _past(batch, low, high, bound, include):
    """The first entry in [low, high) whose order lane is beyond `bound` (or is `bound`, with `include`), else `high`."""
    while low < high:
        middle = (low + high) >> 1
        order = _order(batch, middle)
        if order < bound or (order == bound and not include):
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _compare(one, i, two, j):
    """-1, 0 or 1 as row `i` of one batch sorts before, with or after row `j` of another, within a key."""
    a, b = _order(one, i), _order(two, j)
    if a != b:
        return -1 if a < b else 1
    (high, low), (other_high, other_low) = fingerprint(one, i), fingerprint(two, j)
    if high != other_high:
        return -1 if high < other_high else 1
    if low != other_low:
        return -1 if low < other_low else 1
    return 0


@helper
def _next(table, lows, highs, backward):
    """The batch whose next row comes first, or -1."""
    best = -1
    for b in range(len(table)):
        if lows[b] >= highs[b]:
            continue
        if best < 0:
            best = b
        elif backward:
            if _compare(table[b], highs[b] - 1, table[best], highs[best] - 1) > 0:
                best = b
        elif _compare(table[b], lows[b], table[best], lows[best]) < 0:
            best = b
    return best


@helper
def _run(batch, low, high, backward):
    """[begin, end): the entries of the next row of a batch, which share its position."""
    if backward:
        begin = high - 1
        while begin > low and position(batch, begin - 1) == position(batch, high - 1):
            begin -= 1
        return begin, high
    end = low + 1
    while end < high and position(batch, end) == position(batch, low):
        end += 1
    return low, end


@helper
def _take(table, lows, highs, best, backward, since, out, size):
    """Move all batches past the next row and write its updates from place `size` on: as of `since`, then each later one.

    Returns (the block, made wider if need be; size after; entries read; overflow; whether the row is live throughout).
    """
    first = size
    total = 0
    read = 0
    overflow = False
    row = table[best]
    at = highs[best] - 1 if backward else lows[best]
    size += 1
    for b in range(len(table)):
        if lows[b] >= highs[b]:
            continue
        batch = table[b]
        if b != best and _compare(batch, highs[b] - 1 if backward else lows[b], row, at) != 0:
            continue
        begin, end = _run(batch, lows[b], highs[b], backward)
        if backward:
            highs[b] = begin
        else:
            lows[b] = end
        read += end - begin
        for i in range(begin, end):
            time = fact(batch, TIMES, i)
            diff = fact(batch, DIFFS, i)
            place = first
            if time <= since:
                more = total + diff
                overflow |= overflows(total, diff, more)
                total = more
            else:
                if size == out.shape[1]:
                    wider = np.empty((out.shape[0], 2 * size), np.int64)
                    wider[:, :size] = out
                    out = wider
                place = size
                size += 1
                out[3, place] = time
                out[4, place] = diff
            out[1, place] = b
            out[2, place] = position(batch, i)
    live = total > 0
    running = total
    for place in range(first + 1, size):
        running += out[4, place]
        live = live and running > 0
    if total == 0:
        for place in range(first + 1, size):
            for lane in range(1, 5):
                out[lane, place - 1] = out[lane, place]
        size -= 1
    else:
        out[1, first] = best
        out[2, first] = position(row, at)
        out[3, first] = since
        out[4, first] = total
    return out, size, read, overflow, live


@kernel(_FOUND(I64_TABLE, U64, U64, U64, types.boolean, types.int64))
def first_live(table, hashes, checks, bounds, backward, since):
    """The updates of each key's rows, by the order lane from its bound on, up to a row that is live throughout.

    `bounds`: one order lane a key, below which (`backward`: above which) the caller knows that no row is live at `since`
    or later. Times are advanced to `since`. Live throughout: at `since` and after each later update. Returns
    (block, entries, updates read, overflow); the block's rows are probe, batch, position, time and diff. Keys may repeat
    and need no order; within one, rows stand as they were read, the updates of a row by time.
    """
    count = len(hashes)
    order = sort_index((hashes, checks, checks, checks, checks), np.zeros(count, np.int64))
    begins = np.empty((len(table), count), np.int64)
    ends = np.empty((len(table), count), np.int64)
    _ranges(table, hashes, checks, order, begins, ends)
    out = np.empty((5, _ROOM), np.int64)
    lows = np.empty(len(table), np.int64)
    highs = np.empty(len(table), np.int64)
    size = 0
    visited = 0
    overflow = False
    for probe in range(count):
        for b in range(len(table)):
            lows[b] = begins[b, probe]
            highs[b] = ends[b, probe]
            if backward:
                highs[b] = _past(table[b], lows[b], highs[b], bounds[probe], False)
            else:
                lows[b] = _past(table[b], lows[b], highs[b], bounds[probe], True)
        stands = False
        last = _NULL
        while True:
            best = _next(table, lows, highs, backward)
            if best < 0:
                break
            here = _order(table[best], highs[best] - 1 if backward else lows[best])
            if stands and here != last:
                break
            last = here
            if size == out.shape[1]:
                wider = np.empty((5, 2 * size), np.int64)
                wider[:, :size] = out
                out = wider
            start = size
            out, size, read, lost, live = _take(table, lows, highs, best, backward, since, out, size)
            out[0, start:size] = probe
            visited += read
            overflow |= lost
            stands = stands or (live and here != _NULL)
    return out, size, visited, overflow
