"""The loops of a table's intake: which image a key holds before and after each change, and what an epoch changed.

Images are integers: 0 … n-1 is the row of change i, n + m the m-th prior row read from the trace, -1 no row. Always:
changes are walked in their own order, so the last one of an epoch stands. Called by the upsert operators alone.
"""

from __future__ import annotations

from numba import types

from engine.kernels.compiler import I64, I64_NEW, kernel

U8 = types.Array(types.uint8, 1, "A", readonly=True)
U8_NEW = types.Array(types.uint8, 1, "C")


@kernel(types.int64(I64, U8, I64, U8, I64_NEW, I64_NEW, I64_NEW, I64_NEW, U8_NEW))
def walk(groups, removes, fills, partial, current, before, after, fill_image, bad):  # type: ignore[no-untyped-def]
    """Image of each change's key before and after it.

    `removes`: 1 for a delete. `fills`: change whose `before` fills an unchanged column, or -1 for the key's own.
    `partial`: 1 where any column is unchanged. `current`: image a group holds, updated in place. Writes `fill_image`
    (the image that fills, -1 if none) and `bad` (1: partial and nothing to fill from; such a change does nothing).
    Returns the number of bad changes.
    """
    found = 0
    for i in range(len(groups)):
        g = groups[i]
        old = current[g]
        before[i] = old
        bad[i] = 0
        fill_image[i] = -1
        if removes[i]:
            current[g] = -1
        elif partial[i]:
            source = before[fills[i]] if fills[i] >= 0 else old
            if source < 0:
                bad[i] = 1
                found += 1
            else:
                fill_image[i] = source
                current[g] = i
        else:
            current[g] = i
        after[i] = current[g]
    return found


@kernel(types.void(U8, I64, I64_NEW))
def fill_forward(unchanged, fill_image, sources):  # type: ignore[no-untyped-def]
    """For one column: the image that holds the value of each change, through chains of unchanged values."""
    n = len(unchanged)
    for i in range(n):
        sources[i] = i
        if unchanged[i] and fill_image[i] >= 0:
            image = fill_image[i]
            sources[i] = image if image >= n else sources[image]


@kernel(types.int64(I64, I64, I64, I64, I64, I64_NEW, I64_NEW, I64_NEW))
def net_images(order, groups, epochs, before, after, old, new, times):  # type: ignore[no-untyped-def]
    """The image each (group, epoch) started and ended with, where they differ. `order`: by group, then position."""
    n = 0
    i = 0
    count = len(order)
    while i < count:
        first = order[i]
        last = first
        while i < count and groups[order[i]] == groups[first] and epochs[order[i]] == epochs[first]:
            last = order[i]
            i += 1
        if before[first] != after[last]:
            old[n] = before[first]
            new[n] = after[last]
            times[n] = epochs[first]
            n += 1
    return n


@kernel(types.int64(I64, I64, I64, U8, I64_NEW, I64_NEW, I64_NEW, I64_NEW, U8_NEW))
def net_counts(order, groups, epochs, kinds, counts, out_change, times, diffs, bad):  # type: ignore[no-untyped-def]
    """Net multiplicity of each (image, epoch) of a keyless table. kinds: 0 insert, 1 retract, 2 truncate.

    `counts`: live copies of a group's image, updated in place. `bad`: 1 for a retract of a row that is not there.
    """
    n = 0
    i = 0
    count = len(order)
    while i < count:
        first = order[i]
        start = counts[groups[first]]
        live = start
        while i < count and groups[order[i]] == groups[first] and epochs[order[i]] == epochs[first]:
            c = order[i]
            bad[c] = 0
            if kinds[c] == 0:
                live += 1
            elif kinds[c] == 2:
                live = 0
            elif live > 0:
                live -= 1
            else:
                bad[c] = 1
            i += 1
        counts[groups[first]] = live
        if live != start:
            out_change[n] = first
            times[n] = epochs[first]
            diffs[n] = live - start
            n += 1
    return n
