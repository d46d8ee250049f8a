# mypy: allow-untyped-defs
"""The first copies of each group's rows in an order: which rows can be among them, and which are, at each time of a step.

Always: what is read of a key, from one end of its order lane, ends once so many copies are live throughout the step, so
that the first ones at every time are among what was read; the work of a change is the logarithm of the group and what
is wanted of it. Called by `headrace.engine.trace.lookup` and the operator of the first rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, U64, helper, kernel, repeated
from headrace.engine.kernels.consolidate import overflows
from headrace.engine.kernels.first_live import _next, _order, _take
from headrace.engine.kernels.lookup import _ranges
from headrace.engine.kernels.sort import sort_index

_BLOCK: Any = types.Array(types.int64, 2, "C")
_FOUND: Any = types.Tuple((_BLOCK, types.int64, types.int64, types.boolean))  # type: ignore[no-untyped-call]
_CHANGES: Any = types.Tuple((_BLOCK, types.int64, types.boolean))  # type: ignore[no-untyped-call]
_ROOM = 64
_ENTRIES = repeated(I64, 5)


@helper
def _wider(block, size):
    """`block` with room for one entry after `size`."""
    if size < block.shape[1]:
        return block
    wider = np.empty((block.shape[0], 2 * size), np.int64)
    wider[:, :size] = block
    return wider


@helper
def _throughout(out, start, size, since, most):
    """How many copies, up to `most`, of the row whose updates are out[:, start:size] are live at `since` and ever after."""
    if start == size or out[3, start] != since:
        return 0
    lowest = most
    running = 0
    for k in range(start, size):
        running += out[4, k]
        lowest = min(lowest, running)
    return max(lowest, 0)


@kernel(_FOUND(I64_TABLE, U64, U64, I64_NEW, types.boolean, types.boolean, types.int64))
def first_enough(table, hashes, checks, needs, backward, exact, since):
    """The updates of each key's rows, from one end of the order lane, up to the last of `needs` copies live throughout.

    Without `exact`, all rows of that row's order lane come with it. Times are advanced to `since`. `needs` is left with
    how many copies each key lacks. Returns (block, entries, updates read, overflow) as `live.first_live` does.
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
        last = np.uint64(0)
        while True:
            best = _next(table, lows, highs, backward)
            if best < 0:
                break
            here = _order(table[best], highs[best] - 1 if backward else lows[best])
            if needs[probe] <= 0 and (exact or here != last):
                break
            last = here
            out = _wider(out, size)
            start = size
            out, size, read, lost, _ = _take(table, lows, highs, best, backward, since, out, size)
            out[0, start:size] = probe
            visited += read
            overflow |= lost
            needs[probe] -= _throughout(out, start, size, since, max(needs[probe], 0))
    return out, size, visited, overflow


@helper
def _add(tree, at, amount):
    """Add to the weight of place `at`; tree[k] sums the weights of the places before k, as many as k's last bit says."""
    at += 1
    while at < len(tree):
        tree[at] += amount
        at += at & -at


@helper
def _find(tree, skipped):
    """(the place of the copy behind `skipped` others, how many copies stand before that place)."""
    step = 1
    while 2 * step < len(tree):
        step *= 2
    place = 0
    before = 0
    while step > 0:
        if place + step < len(tree) and before + tree[place + step] <= skipped:
            place += step
            before += tree[place]
        step >>= 1
    return place, before


@helper
def _window(tree, weights, offset, limit, places, counts):
    """Fill `places` and `counts` with the `limit` copies behind `offset` others; (how many places, copies that lack)."""
    size = 0
    while limit > 0:
        place, before = _find(tree, offset)
        if place >= len(weights):
            break
        some = min(before + weights[place] - offset, limit)
        places[size] = place
        counts[size] = some
        size += 1
        offset += some
        limit -= some
    return size, limit


@helper
def _differences(old, new, first, time, out, size):
    """Write what leads from one window to the next, each a (places, counts, size), behind entry `size` of `out`."""
    i = 0
    j = 0
    while i < old[2] or j < new[2]:
        if j == new[2] or (i < old[2] and old[0][i] < new[0][j]):
            place = old[0][i]
            diff = -old[1][i]
            i += 1
        elif i == old[2] or new[0][j] < old[0][i]:
            place = new[0][j]
            diff = new[1][j]
            j += 1
        else:
            place = old[0][i]
            diff = new[1][j] - old[1][i]
            i += 1
            j += 1
        if diff != 0:
            out = _wider(out, size)
            out[0, size] = first + place
            out[1, size] = time
            out[2, size] = diff
            size += 1
    return out, size


@helper
def _group(entries, start, stop, bounds, out, size):
    """The changes of one group's window: (the block; entries in it after; overflow)."""
    _, repeats, times, diffs, _ = entries
    since, offset, limit = bounds
    count = stop - start
    width = min(limit, count)
    place = np.empty(count, np.int64)
    live = np.zeros(count, np.int64)
    weights = np.zeros(count, np.int64)
    tree = np.zeros(count + 1, np.int64)
    places = np.empty((2, width), np.int64)
    counts = np.empty((2, width), np.int64)
    for k in range(count):
        place[k] = place[k - 1] if k > 0 and repeats[start + k] else k
    by_time = np.argsort(times[start:stop], kind="mergesort")
    overflow = False
    now = 0
    held = 0
    lacking = limit
    done = 0
    time = since
    while done < count:
        time = max(since, times[start + by_time[done]])
        least = count
        while done < count and times[start + by_time[done]] <= time:
            at = place[by_time[done]]
            diff = diffs[start + by_time[done]]
            done += 1
            total = live[at] + diff
            overflow |= overflows(live[at], diff, total)
            live[at] = total
            weight = min(max(total, 0), offset + limit)
            if weight != weights[at]:
                _add(tree, at, weight - weights[at])
                weights[at] = weight
                least = min(least, at)
        if least == count or (lacking == 0 and held > 0 and least > places[now, held - 1]):
            continue
        found, lacking = _window(tree, weights, offset, limit, places[1 - now], counts[1 - now])
        if time > since:
            old = (places[now], counts[now], held)
            new = (places[1 - now], counts[1 - now], found)
            out, size = _differences(old, new, start, time, out, size)
        now = 1 - now
        held = found
    return out, size, overflow


@kernel(_CHANGES(_ENTRIES, repeated(types.int64, 3)))
def top_changes(entries, bounds):
    """The changes, after `since`, of the `limit` copies behind the first `offset` of each group: (block, size, overflow).

    `entries`: by group and then in the order of rows, of each its group, 1 where its row is that of the entry above,
    its time and diff; and its place in the caller's. `bounds`: since, offset, limit. The block's rows are the
    caller's place of an entry with the changed row, the time, the diff.
    """
    groups, _, _, _, index = entries
    out = np.empty((3, _ROOM), np.int64)
    size = 0
    overflow = False
    start = 0
    while start < len(groups):
        stop = start
        while stop < len(groups) and groups[stop] == groups[start]:
            stop += 1
        out, size, lost = _group(entries, start, stop, bounds, out, size)
        overflow |= lost
        start = stop
    for k in range(size):
        out[0, k] = index[out[0, k]]
    return out, size, overflow
