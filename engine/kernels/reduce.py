"""The loops of a reduce: groups, and the state of every group at every time at which it changes (its versions).

A *version* is a group's state at one time; versions of a group stand together in time order, the first being its state
before the step. Always: accumulators are plain sums of int64 lanes, so that retracting undoes adding exactly. Called by
the reduce operators alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, U64, helper, kernel, repeated
from headrace.engine.kernels.memory import load_i64
from headrace.engine.kernels.sort import sort_index

U8 = types.Array(types.uint8, 1, "A", readonly=True)
U8_NEW = types.Array(types.uint8, 1, "C")
_GROUPED: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64))  # type: ignore[no-untyped-call]
_ROWS = repeated(I64, 4)
TABLE_NEW = types.Array(types.int64, 2, "C")

LOW = 0xFFFFFFFF
TOP, BOTTOM = divmod(10**38 - 1, 2**64)
"""The two words of the greatest decimal128; its negative has the words ~TOP and -BOTTOM."""


@kernel(types.boolean(I64, types.int64, types.int64))
def all_within(times, lower, upper):  # type: ignore[no-untyped-def]
    """True if every time t has lower ≤ t < upper."""
    inside = True
    for k in range(len(times)):
        inside = inside and lower <= times[k] < upper
    return inside


@kernel(_GROUPED(U64, U64, I64))
def group_rows(hashes, checks, times):  # type: ignore[no-untyped-def]
    """Number the groups of equal keys by key: (block, groups).

    Rows of the block: the rows by group, then time, then as they came; each row's group; a row of each group.
    """
    index = sort_index((hashes, checks, checks, checks, checks), times)
    block = np.empty((3, len(index)), np.int64)
    n = 0
    for k in range(len(index)):
        row = index[k]
        last = index[k - 1]
        if k == 0 or hashes[row] != hashes[last] or checks[row] != checks[last]:
            block[2, n] = row
            n += 1
        block[0, k] = row
        block[1, row] = n - 1
    return block, n


@kernel(types.void(I64, I64_TABLE, types.int64, I64, I64, TABLE_NEW))
def sum_packed(structs, places, column, groups, diffs, totals):  # type: ignore[no-untyped-def]
    """Add diff × lanes of every row into its group's totals, the lanes packed in a binary column of the rows' payloads.

    `structs`: addresses of the payloads' ArrowArrays; `places`: int64[2, rows], payload and position of each row.
    """
    for k in range(len(groups)):
        struct = structs[places[0, k]]
        child = load_i64(load_i64(struct + 48) + column * 8)
        buffers = load_i64(child + 40)
        at = load_i64(child + 16) + load_i64(struct + 16) + places[1, k]
        data = load_i64(buffers + 16) + load_i64(load_i64(buffers + 8) + at * 8)
        for c in range(totals.shape[1]):
            totals[groups[k], c] += diffs[k] * load_i64(data + c * 8)


@kernel(types.int64(_ROWS, I64_TABLE, I64_TABLE, types.int64, TABLE_NEW, TABLE_NEW))
def versions(rows, lanes, prior, before, out, out_lanes):  # type: ignore[no-untyped-def]
    """Every group's lanes before the step (at time `before`) and after each time at which rows of it come.

    `rows`: the rows by group, then time; and of each row its group, time and diff. Fills `out`: group, time, a row of
    the group, and 1 where the lanes equal those of the version above. Outputs hold at least rows + groups. Returns the
    number of versions.
    """
    order, groups, times, diffs = rows
    n = 0
    k = 0
    count = len(order)
    width = lanes.shape[1]
    while k < count:
        row = order[k]
        group = groups[row]
        out[0, n] = group
        out[1, n] = before
        out[2, n] = row
        out[3, n] = 0
        for c in range(width):
            out_lanes[n, c] = prior[group, c]
        n += 1
        while k < count and groups[order[k]] == group:
            time = times[order[k]]
            out[0, n] = group
            out[1, n] = time
            out[2, n] = row
            for c in range(width):
                out_lanes[n, c] = out_lanes[n - 1, c]
            while k < count and groups[order[k]] == group and times[order[k]] == time:
                r = order[k]
                for c in range(width):
                    out_lanes[n, c] += diffs[r] * lanes[r, c]
                k += 1
            same = 1
            for c in range(width):
                if out_lanes[n, c] != out_lanes[n - 1, c]:
                    same = 0
                    break
            out[3, n] = same
            n += 1
    return n


@kernel(types.int64(I64, I64, U8, I64, TABLE_NEW))
def corrections(groups, times, live, same, out):  # type: ignore[no-untyped-def]
    """From versions to updates: -1 where a live version ends, +1 where one begins, nothing where `same`.

    Fills `out`: version, time and diff of each, at most two a version; returns how many.
    """
    n = 0
    for v in range(1, len(groups)):
        if groups[v] != groups[v - 1] or (same[v] and live[v] == live[v - 1]):
            continue
        if live[v - 1]:
            out[0, n] = v - 1
            out[1, n] = times[v]
            out[2, n] = -1
            n += 1
        if live[v]:
            out[0, n] = v
            out[1, n] = times[v]
            out[2, n] = 1
            n += 1
    return n


@kernel(types.void(I64_TABLE, I64_NEW, U8_NEW))
def narrow(limbs, values, bad):  # type: ignore[no-untyped-def]
    """Sums of (low, high) 16-bit limbs as int64; `bad` 1 where the sum does not fit."""
    for i in range(limbs.shape[0]):
        high = limbs[i, 1] + (limbs[i, 0] >> 16)
        lost = high < -140737488355328 or high > 140737488355327
        bad[i] = 1 if lost else 0
        values[i] = 0 if lost else (high << 16) | (limbs[i, 0] & 0xFFFF)


@kernel(types.void(I64_TABLE, TABLE_NEW, U8_NEW))
def widen(limbs, values, bad):  # type: ignore[no-untyped-def]
    """Sums of 2 or 4 32-bit limbs as two's complement (low, high) 64-bit words; `bad` 1 beyond ±(10^38 - 1)."""
    last = limbs.shape[1] - 1
    for i in range(limbs.shape[0]):
        carry = 0
        low = 0
        high = 0
        for c in range(4):
            total = carry + (limbs[i, c] if c <= last else 0)
            carry = total >> 32
            digit = total & LOW
            if c < 2:
                low |= digit << (32 * c)
            else:
                high |= digit << (32 * (c - 2))
        fits = carry == (high >> 63)
        if fits and (high > TOP or high < ~TOP):
            fits = False
        elif fits and high == TOP:
            fits = 0 <= low <= BOTTOM
        elif fits and high == ~TOP:
            fits = -BOTTOM <= low < 0
        values[i, 0] = low
        values[i, 1] = high
        bad[i] = 0 if fits else 1


@kernel(types.void(I64, I64, I64, I64, I64_TABLE, I64, I64, TABLE_NEW))
def sums_at_versions(order, probe, times, diffs, lanes, starts, version_times, out):  # type: ignore[no-untyped-def]
    """Sums of diff × lanes of each group's rows up to each version's time.

    `order`: rows by group then time; group g's versions are starts[g] … starts[g+1]. `out` must be zero.
    """
    k = 0
    width = lanes.shape[1]
    for g in range(len(starts) - 1):
        while k < len(order) and probe[order[k]] < g:
            k += 1
        for v in range(starts[g], starts[g + 1]):
            if v > starts[g]:
                for c in range(width):
                    out[v, c] = out[v - 1, c]
            while k < len(order) and probe[order[k]] == g and times[order[k]] <= version_times[v]:
                r = order[k]
                for c in range(width):
                    out[v, c] += diffs[r] * lanes[r, c]
                k += 1


@helper
def _least_of_group(order, ranks, times, diffs, version_times, out):  # type: ignore[no-untyped-def]
    """The versions of one group; `first` is a tree of the least live place below each of its nodes."""
    size = len(order)
    width = 1
    while width < size:
        width <<= 1
    first = np.full(2 * width, size, np.int64)
    live = np.zeros(size, np.int64)
    place = np.zeros(size, np.int64)
    when = np.empty(size, np.int64)
    for k in range(size):
        same = k > 0 and ranks[order[k]] == ranks[order[k - 1]]
        place[k] = place[k - 1] if same else k
        when[k] = times[order[k]]
    by_time = np.argsort(when, kind="mergesort")
    done = 0
    for v in range(len(version_times)):
        while done < size and when[by_time[done]] <= version_times[v]:
            at = place[by_time[done]]
            was = live[at] > 0
            live[at] += diffs[order[by_time[done]]]
            done += 1
            if (live[at] > 0) == was:
                continue
            node = width + at
            first[node] = size if was else at
            while node > 1:
                node >>= 1
                least = min(first[2 * node], first[2 * node + 1])
                if first[node] == least:
                    break
                first[node] = least
        out[v] = order[first[1]] if first[1] < size else -1


@kernel(types.void(I64, I64, I64, I64, I64, I64, I64, I64_NEW))
def least_at_versions(order, probe, ranks, times, diffs, starts, version_times, out):  # type: ignore[no-untyped-def]
    """The first row, along `order`, whose rank is live at each version, or -1. `order`: rows by group, then by rank."""
    k = 0
    count = len(order)
    for g in range(len(starts) - 1):
        while k < count and probe[order[k]] < g:
            k += 1
        end = k
        while end < count and probe[order[end]] == g:
            end += 1
        begin, stop = starts[g], starts[g + 1]
        _least_of_group(order[k:end], ranks, times, diffs, version_times[begin:stop], out[begin:stop])
        k = end
