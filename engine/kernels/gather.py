# mypy: allow-untyped-defs
"""Rows picked from several Arrow payloads, copied into fresh Arrow buffers: every gather of the engine, in one call.

Always: output row k of a column is row `positions[lane, k]` of payload `sources[lane, k]`, whatever the payloads' own
offsets; bytes of a null are zero; what is read is never written. Called by `headrace.engine.batch.gather_rows`, which owns the
meaning of a plan and wraps the buffers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, helper, kernel
from headrace.engine.kernels.memory import address, copy, load_i32, load_i64, load_u8

BITS, OFFSETS32, OFFSETS64 = 0, -4, -8
"""Widths of a plan that are no number of bytes: booleans, and strings or binaries by the width of their offsets."""

NULLS, VALIDITY, VALUES, LENGTH, DATA, BYTES = range(6)
"""Columns of the table of places: null count; where the bitmap begins (-1: none), and the values or offsets and how long
these are, all in the first block; where the bytes begin in the second, and how many they are."""

_BITMAP, _VALUES, _DATA, _OFFSET = range(4)
_UNKNOWN = -1
_BYTES: Any = types.Array(types.uint8, 1, "C")
_TABLE: Any = types.Array(types.int64, 2, "C")
_ASSEMBLED: Any = types.Tuple((_BYTES, _BYTES, _TABLE, I64_NEW))  # type: ignore[no-untyped-call]

WORDS, COUNT, CHILDREN, HERE = 10, 4, 6, 7
"""Of a struct of Arrow's C data interface, as far as kernels read it, and of the pointers to its buffers: how many words;
where the number of children stands, and their address. HERE: the payload's own address, where kernels read nothing."""


@helper
def _look(struct, column, width, heads, s):
    """Fill heads[s] with where the column of payload `s` lies. `struct`: address of the payload's ArrowArray."""
    child = load_i64(load_i64(struct + 48) + column * 8)
    buffers = load_i64(child + 40)
    heads[s, _BITMAP] = load_i64(buffers) if load_i64(child + 8) != 0 else 0
    heads[s, _VALUES] = load_i64(buffers + 8)
    heads[s, _DATA] = load_i64(buffers + 16) if width < 0 else 0
    heads[s, _OFFSET] = load_i64(child + 16) + load_i64(struct + 16)


@helper
def _valid(bitmap, i):
    return bitmap == 0 or (load_u8(bitmap + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1) != 0


@helper
def _span(values, i, width):
    """Where the bytes of entry `i` begin, and how many they are. `values`: address of the offsets."""
    if width == OFFSETS64:
        begin = load_i64(values + i * 8)
        return begin, load_i64(values + i * 8 + 8) - begin
    first = np.int64(load_i32(values + i * 4))
    return first, np.int64(load_i32(values + i * 4 + 4)) - first


@helper
def _measure(structs, column, width, sources, positions, heads):
    """Look up the payloads that a column is picked from; returns how many nulls and bytes it has."""
    nulls = 0
    total = 0
    for k in range(len(sources)):
        s = sources[k]
        if heads[s, _BITMAP] == _UNKNOWN:
            _look(structs[s], column, width, heads, s)
        bitmap = heads[s, _BITMAP]
        if bitmap != 0 or width < 0:
            i = heads[s, _OFFSET] + positions[k]
            if not _valid(bitmap, i):
                nulls += 1
            elif width < 0:
                total += _span(heads[s, _VALUES], i, width)[1]
    return nulls, total


@helper
def _fill_fixed(width, sources, positions, heads, base):
    """Write values of a fixed width to address `base`."""
    for k in range(len(sources)):
        s = sources[k]
        i = heads[s, _OFFSET] + positions[k]
        if _valid(heads[s, _BITMAP], i):
            copy(base + k * width, heads[s, _VALUES] + i * width, width)


@helper
def _fill_words(sources, positions, heads, out):
    """As `_fill_fixed`, for the commonest width, of eight bytes."""
    for k in range(len(sources)):
        s = sources[k]
        i = heads[s, _OFFSET] + positions[k]
        out[k] = load_i64(heads[s, _VALUES] + i * 8) if _valid(heads[s, _BITMAP], i) else 0


@helper
def _fill_bits(sources, positions, heads, out):
    for k in range(len(sources)):
        s = sources[k]
        i = heads[s, _OFFSET] + positions[k]
        if _valid(heads[s, _BITMAP], i):
            bit = (load_u8(heads[s, _VALUES] + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1)
            out[k >> 3] |= bit << np.uint8(k & 7)


@helper
def _fill_bytes(width, sources, positions, heads, offsets, base):
    """Write offsets (of `width`) and the bytes they mark, from address `base` on."""
    at = 0
    offsets[0] = 0
    for k in range(len(sources)):
        s = sources[k]
        i = heads[s, _OFFSET] + positions[k]
        if _valid(heads[s, _BITMAP], i):
            begin, length = _span(heads[s, _VALUES], i, width)
            if length > 0:
                copy(base + at, heads[s, _DATA] + begin, length)
                at += length
        offsets[k + 1] = at


@helper
def _fill_validity(sources, positions, heads, out):
    for k in range(len(sources)):
        s = sources[k]
        if _valid(heads[s, _BITMAP], heads[s, _OFFSET] + positions[k]):
            out[k >> 3] |= np.uint8(1) << np.uint8(k & 7)


@helper
def _lay_out(plan, count, places):
    """Give every buffer its place, each at a multiple of 16 bytes; returns the sizes of both blocks."""
    fixed = 0
    data = 0
    bits = (((count + 7) >> 3) + 15) & ~15
    for c in range(len(plan)):
        width = plan[c, 1]
        place = places[c]
        place[VALIDITY] = -1
        if place[NULLS] > 0:
            place[VALIDITY] = fixed
            fixed += bits
        place[VALUES] = fixed
        if width == BITS:
            place[LENGTH] = (count + 7) >> 3
        else:
            place[LENGTH] = count * width if width > 0 else (count + 1) * -width
        fixed += (place[LENGTH] + 15) & ~15
        place[DATA] = data
        data += (place[BYTES] + 15) & ~15
    return fixed, data


@helper
def _describe(plan, count, places, base, data):
    """The ArrowArray structs of the rows, as one array that begins with that of the record batch."""
    width = len(plan)
    words = np.zeros(WORDS + width * (WORDS + 1), np.int64)
    here = address(words)
    words[0], words[3], words[COUNT] = count, 1, width
    words[CHILDREN], words[HERE] = here + WORDS * 8, here
    for c in range(width):
        at = WORDS + width + c * WORDS
        place = places[c]
        words[WORDS + c] = here + at * 8
        words[at], words[at + 1], words[at + 3] = count, place[NULLS], 3 if plan[c, 1] < 0 else 2
        words[at + 5] = here + (at + 7) * 8
        words[at + 7] = base + place[VALIDITY] if place[NULLS] > 0 else 0
        words[at + 8] = base + place[VALUES]
        words[at + 9] = data + place[DATA]
    return words


@kernel(_ASSEMBLED(I64, I64_TABLE, I64_TABLE, I64_TABLE))
def assemble(structs, plan, sources, positions):
    """Pick rows: (block, bytes, places, words), of which `places` says where in the blocks each column's buffers lie.

    `structs`: addresses of the payloads' ArrowArrays; `plan`: (column in the payloads, width, lane) a column of the
    output; `sources`, `positions`: int64[lanes, rows]. `words`: the rows' own ArrowArray, for other kernels.
    """
    count = sources.shape[1]
    heads = np.empty((len(plan), len(structs), 4), np.int64)
    places = np.empty((len(plan), 6), np.int64)
    for c in range(len(plan)):
        for s in range(len(structs)):
            heads[c, s, _BITMAP] = _UNKNOWN
        lane = plan[c, 2]
        places[c, NULLS], places[c, BYTES] = _measure(
            structs, plan[c, 0], plan[c, 1], sources[lane], positions[lane], heads[c]
        )
    size, total = _lay_out(plan, count, places)
    block = np.zeros(size, np.uint8)
    data = np.empty(total, np.uint8)
    for c in range(len(plan)):
        width = plan[c, 1]
        picked = sources[plan[c, 2]]
        at = positions[plan[c, 2]]
        place = places[c]
        if place[NULLS] > 0:
            _fill_validity(picked, at, heads[c], block[place[VALIDITY] :])
        values = block[place[VALUES] :]
        if width == BITS:
            _fill_bits(picked, at, heads[c], values)
        elif width == 8:
            _fill_words(picked, at, heads[c], values[: count * 8].view(np.int64))
        elif width > 0:
            _fill_fixed(width, picked, at, heads[c], address(values))
        elif width == OFFSETS64:
            offsets = values[: (count + 1) * 8].view(np.int64)
            _fill_bytes(width, picked, at, heads[c], offsets, address(data) + place[DATA])
        else:
            short = values[: (count + 1) * 4].view(np.int32)
            _fill_bytes(width, picked, at, heads[c], short, address(data) + place[DATA])
    return block, data, places, _describe(plan, count, places, address(block), address(data))
