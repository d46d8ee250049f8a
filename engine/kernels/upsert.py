"""The loops of a table's intake: which image a key holds before and after each change, and what an epoch changed.

Images are integers: 0 … n-1 is the row of change i, n + m the m-th prior row read from the trace, -1 no row. Always:
changes are walked in their own order, so the last one of an epoch stands. Called by the upsert operators alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, U64, kernel, repeated

U8 = types.Array(types.uint8, 1, "A", readonly=True)
U8_NEW = types.Array(types.uint8, 1, "C")
_NETTED: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.int64))  # type: ignore[no-untyped-call]


@kernel(_NETTED(I64, I64, I64, I64, U8, U8, I64))
def net(order, groups, fills, epochs, removes, partial, current):  # type: ignore[no-untyped-def]
    """What each (group, epoch) changed: (block, updates, bad changes).

    `order`: changes by group, then as they come; `fills`: change whose image before it fills an unchanged column, or -1
    for the key's own; `removes`: 1 for a delete; `partial`: 1 where any column is unchanged; `current`: the image a
    group holds before the first change. Rows of the block: image, time and diff of each update, the old image before
    the new one; then, one entry a change, the image that fills it (-1: none) and 1 where a partial change finds nothing
    to fill from: it does nothing.
    """
    count = len(groups)
    block = np.empty((5, 2 * count), np.int64)
    held = current.copy()
    before = np.empty(count, np.int64)
    after = np.empty(count, np.int64)
    failed = 0
    for i in range(count):
        g = groups[i]
        before[i] = held[g]
        block[3, i] = -1
        block[4, i] = 0
        if removes[i]:
            held[g] = -1
        elif partial[i]:
            source = before[fills[i]] if fills[i] >= 0 else before[i]
            if source < 0:
                block[4, i] = 1
                failed += 1
            else:
                block[3, i] = source
                held[g] = i
        else:
            held[g] = i
        after[i] = held[g]
    n = 0
    k = 0
    while k < count:
        first = order[k]
        last = first
        while k < count and groups[order[k]] == groups[first] and epochs[order[k]] == epochs[first]:
            last = order[k]
            k += 1
        if before[first] == after[last]:
            continue
        if before[first] >= 0:
            block[0, n] = before[first]
            block[1, n] = epochs[first]
            block[2, n] = -1
            n += 1
        if after[last] >= 0:
            block[0, n] = after[last]
            block[1, n] = epochs[first]
            block[2, n] = 1
            n += 1
    return block, n, failed


@kernel(types.Array(types.int64, 2, "C")(I64, I64, I64_TABLE))
def place(images, rows, prior):  # type: ignore[no-untyped-def]
    """Where each image's row lies: int64[2, images], payload and position.

    An image below the number of changes lies in payload 0 at `rows[image]`; the others at `prior`, whose payloads follow.
    """
    found = np.empty((2, len(images)), np.int64)
    count = len(rows)
    for k in range(len(images)):
        image = images[k]
        if image < count:
            found[0, k] = 0
            found[1, k] = rows[image]
        else:
            found[0, k] = prior[0, image - count] + 1
            found[1, k] = prior[1, image - count]
    return found


@kernel(types.int64(U64, U64, I64, I64, I64_NEW))
def unequal(high, low, times, diffs, kept):  # type: ignore[no-untyped-def]
    """Fill `kept` with the updates other than pairs of -1 and +1 of one row at one time; returns how many."""
    n = 0
    k = 0
    while k < len(times):
        pair = k + 1 < len(times) and diffs[k] == -1 and diffs[k + 1] == 1 and times[k] == times[k + 1]
        if pair and high[k] == high[k + 1] and low[k] == low[k + 1]:
            k += 2
            continue
        kept[n] = k
        n += 1
        k += 1
    return n


@kernel(types.void(U8, I64, I64_NEW))
def fill_forward(unchanged, fill_image, sources):  # type: ignore[no-untyped-def]
    """For one column: the image that holds the value of each change, through chains of unchanged values."""
    n = len(unchanged)
    for i in range(n):
        sources[i] = i
        if unchanged[i] and fill_image[i] >= 0:
            image = fill_image[i]
            sources[i] = image if image >= n else sources[image]


@kernel(types.int64(repeated(I64, 3), U8, I64_NEW, types.Array(types.int64, 2, "C"), U8_NEW))
def net_counts(changes, kinds, counts, found, bad):  # type: ignore[no-untyped-def]
    """Net multiplicity of each (image, epoch) of a keyless table. kinds: 0 insert, 1 retract, 2 truncate.

    `changes`: the changes by group, then as they come; the group of each of these; and the epoch of each change. `counts`:
    live copies of a group's image, updated in place. Rows of `found`, which has room for all changes: a change of the
    group, time, diff, how many copies there were before, and the group. `bad`, zeros: becomes 1 for a retract of a row
    that is not there. Returns how many are found.
    """
    order, groups, epochs = changes
    n = 0
    i = 0
    count = len(order)
    while i < count:
        first = order[i]
        group = groups[i]
        epoch = epochs[first]
        start = counts[group]
        live = start
        while i < count and groups[i] == group and epochs[order[i]] == epoch:
            c = order[i]
            if kinds[c] == 0:
                live += 1
            elif kinds[c] == 2:
                live = 0
            elif live > 0:
                live -= 1
            else:
                bad[c] = 1
            i += 1
        counts[group] = live
        if live != start:
            found[0, n], found[1, n], found[2, n], found[3, n], found[4, n] = first, epoch, live - start, start, group
            n += 1
    return n
