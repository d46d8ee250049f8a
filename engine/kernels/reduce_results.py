# mypy: allow-untyped-defs
"""What aggregates show of the states of their groups, laid out as columns that kernels and Arrow read.

Always: a value is that which the operator shows from the same sums; what may not fit is told, never cut. Called by kernels that
take a few changes through a reduce, or look its results up.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.kernels.compiler import helper
from headrace.engine.kernels.gather import CHILDREN, WORDS
from headrace.engine.kernels.gather import COUNT as COLUMNS
from headrace.engine.kernels.memory import address, load_i64
from headrace.engine.kernels.numeric_average import ROOM, quotients
from headrace.engine.kernels.reduce import narrow, widen

COUNT, EVERY, SOME, NARROW, WIDE, NARROW_AVERAGE, WIDE_AVERAGE = range(7)
"""What an aggregate shows: a count; whether all, or some, are true; a sum of limbs of 16 or of 32 bits, or its average."""

_MANY_SMALL = 1 << 47
"""So many terms, or `FEW` of wide ones, are more than a sum's limbs hold for certain."""

FEW = 1 << 31


@helper
def lay_column(words, columns, c, size, nulls, bits, values, data):
    """Describe column `c` of rows whose struct is `words`: where its bitmap, its values or offsets, and its bytes lie."""
    here = address(words)
    at = WORDS + columns + c * WORDS
    words[WORDS + c] = here + at * 8
    words[at], words[at + 1], words[at + 3] = size, nulls, 3 if data != 0 else 2
    words[at + 5] = here + (at + 7) * 8
    words[at + 7], words[at + 8], words[at + 9] = bits if nulls > 0 else 0, values, data


@helper
def _show(show, lanes, cells, bits, texts):
    """Fill `cells` with what an aggregate shows of each row of `lanes`: (nulls, whether all of it could be shown).

    `show`: what is shown, the first lane, how many there are, digits behind the point. `bits`: which rows have a value;
    `texts`: what averages are written to, `cells` being offsets then.
    """
    how, first, width, scale = show[0], show[1], show[2], show[3]
    size = len(lanes)
    counts = np.empty(size, np.int64)
    skipped = np.zeros(size, np.uint8)
    nulls = 0
    for k in range(size):
        counts[k] = lanes[k, first]
        if how == COUNT:
            cells[k] = counts[k]
        elif counts[k] <= 0:
            skipped[k] = 1
            nulls += 1
        else:
            bits[k >> 3] |= np.uint8(1) << np.uint8(k & 7)
    if how == COUNT:
        return 0, True
    if how in (EVERY, SOME):
        flags = cells.view(np.uint8)
        for k in range(size):
            if (lanes[k, first + 1] == counts[k]) if how == EVERY else (lanes[k, first + 1] > 0):
                flags[k >> 3] |= np.uint8(1) << np.uint8(k & 7)
        return nulls, True
    limbs = np.ascontiguousarray(lanes[:, first + 1 : first + width])
    bad = np.zeros(size, np.uint8)
    sums = np.zeros((size, 2), np.int64)
    is_narrow = how in (NARROW, NARROW_AVERAGE)
    if is_narrow:
        values = np.empty(size, np.int64)
        narrow(limbs, values, bad)
        for k in range(size):
            sums[k, 0], sums[k, 1] = values[k], values[k] >> 63
    else:
        widen(limbs, sums, bad)
    for k in range(size):
        if bad[k] != 0 or counts[k] >= (_MANY_SMALL if is_narrow else FEW):
            return 0, False
    if how in (NARROW_AVERAGE, WIDE_AVERAGE):
        offsets = cells[: size + 1]
        return nulls, quotients(sums[:, 0], sums[:, 1], scale, counts, skipped, offsets, texts)
    for k in range(size):
        if how == NARROW:
            cells[k] = sums[k, 0]
        else:
            cells[2 * k], cells[2 * k + 1] = sums[k, 0], sums[k, 1]
    return nulls, True


@helper
def shown_states(structs, matches, size, shape):
    """Keep of `matches`, a block of `gather`, the states that are shown: (how many, the lanes of each).

    `shape`: as `join_results` has it; behind the columns of the key the packed lanes stand.
    """
    _, key, width, least = shape
    lanes = np.empty((size, width), np.int64)
    kept = 0
    for k in range(size):
        struct = structs[matches[1, k]]
        child = load_i64(load_i64(struct + 48) + key * 8)
        buffers = load_i64(child + 40)
        at = load_i64(child + 16) + load_i64(struct + 16) + matches[2, k]
        data = load_i64(buffers + 16) + load_i64(load_i64(buffers + 8) + at * 8)
        if key > 0 and load_i64(data) < least:
            continue
        for c in range(width):
            lanes[kept, c] = load_i64(data + c * 8)
        for row in range(6):
            matches[row, kept] = matches[row, k]
        kept += 1
    return kept, np.ascontiguousarray(lanes[:kept])


@helper
def lay_shows(lanes, shows):
    """What aggregates show of each row of `lanes`, a column each: (their struct, what holds them, whether all fit)."""
    size, columns = len(lanes), len(shows)
    words = np.zeros(WORDS + columns * (WORDS + 1), np.int64)
    cells = np.zeros((columns, 2 * size + 2), np.int64)
    bits = np.zeros((columns, ((size + 7) >> 3) + 8), np.uint8)
    texts = np.empty((columns, size * ROOM + 1), np.uint8)
    words[0], words[3], words[COLUMNS], words[CHILDREN] = size, 1, columns, address(words) + WORDS * 8
    fits = True
    for c in range(columns):
        fits &= show_column(words, columns, c, shows[c], lanes, cells[c], bits[c], texts[c])
    return words, cells, bits, texts, fits


@helper
def show_column(words, columns, c, show, lanes, cells, bits, texts):
    """Column `c` of the rows whose struct is `words`: what an aggregate shows; whether all of it could be shown."""
    nulls, fits = _show(show, lanes, cells, bits, texts)
    data = np.int64(address(texts)) if show[0] in (NARROW_AVERAGE, WIDE_AVERAGE) else np.int64(0)
    lay_column(words, columns, c, len(lanes), nulls, np.int64(address(bits)), np.int64(address(cells)), data)
    return fits
