# mypy: allow-untyped-defs
"""What a merge left in its scratch, carried to where the merged batch will lie: lanes, and rows copied in their order.

Always: an entry is carried away once it can no longer change; a lane that has held one value so far takes no room; a row
is copied once, however many entries it has, and long runs of neighbours in one copy. Called by
`headrace.engine.batch.merger`, which gives the room.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, helper, kernel
from headrace.engine.kernels.gather import BITS, OFFSETS64, _look, _valid
from headrace.engine.kernels.memory import address, copy, load_i64, load_u8, store_i64, store_u8
from headrace.engine.kernels.merge import _NEW, BEGUN, FLAGS, HELD, PLACE, ROWS, SCRATCH, SHIFT, TIES, WRITTEN

AT, VALUE = range(2)
"""Columns of the table of lanes: where the lane lies, 0 while it needs no room; and the one value that it has till then.
Rows are the five identity lanes, times, diffs and positions; these need none while entry k has row k."""

VALIDITY, VALUES, DATA, FILLED, NULLS = range(5)
"""Columns of the table of buffers, a row a column of the payload: where they lie (0: there is none), how many bytes the
last one holds, and how many nulls there are."""

_POSITIONS = 7

_LONG = 8
"""Runs of so many rows, on average, are copied run by run; shorter ones row by row, so that no read waits for another."""


@helper
def _wide(scratch, lanes, stop, begun):
    """The first lane that needs room for entries 1 … stop - 1 of the scratch and has none, or -1."""
    for lane in range(7):
        if lanes[lane, AT] == 0 and not (lane == 3 or lane == 4):
            if not begun:
                lanes[lane, VALUE] = scratch[lane, 1]
            # No loop here leaves before its end: such a one takes entries several at a time.
            value, differing = lanes[lane, VALUE], 0
            for k in range(1, stop):
                differing |= scratch[lane, k] ^ value
            if differing != 0:
                return lane
    if lanes[_POSITIONS, AT] == 0:
        new = _NEW
        for k in range(1, stop):
            new &= scratch[FLAGS, k]
        if new == 0:
            return _POSITIONS
    return -1


@helper
def _ties(scratch, stop, begun):
    """How many of the entries 1 … stop - 1 of the scratch are of a new row that has the key and order of the entry before."""
    ties = 0
    for k in range(1 if begun else 2, stop):
        differing = scratch[0, k] ^ scratch[0, k - 1]
        differing |= scratch[1, k] ^ scratch[1, k - 1]
        differing |= scratch[2, k] ^ scratch[2, k - 1]
        ties += (differing == 0) & (scratch[FLAGS, k] & _NEW != 0)
    return ties


@helper
def _carry(scratch, lanes, state, stop, places):
    """Copy the lanes of entries 1 … stop - 1; `places` becomes the place of each row; returns how many rows these are."""
    base = address(scratch)
    width = scratch.shape[1] * 8
    written = state[WRITTEN]
    for lane in range(7):
        if lanes[lane, AT] != 0:
            copy(lanes[lane, AT] + written * 8, base + lane * width + 8, (stop - 1) * 8)
    state[TIES] += _ties(scratch, stop, state[BEGUN] != 0)
    at = lanes[_POSITIONS, AT]
    if at == 0:
        copy(address(places), base + PLACE * width + 8, (stop - 1) * 8)
        return stop - 1
    rows, first = 0, state[ROWS]
    for k in range(1, stop):
        # Written whether it is a new row or not: which of them is, nothing could guess.
        places[rows] = scratch[PLACE, k]
        rows += scratch[FLAGS, k] & _NEW
        store_i64(at + (written + k - 1) * 8, first + rows - 1)
    return rows


@helper
def _runs(places, rows, shift):
    """How many runs of neighbours, none of both payloads, the rows are."""
    count = 1
    for k in range(1, rows):
        count += (places[k] != places[k - 1] + 1) | (places[k] == shift)
    return count if rows > 0 else 0


@helper
def _find_runs(places, rows, shift, runs):
    """Fill `runs` with the rows' runs: (source, place, rows)."""
    count = 0
    for k in range(rows):
        place = places[k]
        if k > 0 and place == places[k - 1] + 1 and place != shift:
            runs[2, count - 1] += 1
        else:
            runs[0, count] = place >= shift
            runs[1, count] = place - shift if place >= shift else place
            runs[2, count] = 1
            count += 1


@helper
def _copy_fixed(width, runs, count, heads, base):
    at = base
    for r in range(count):
        s = runs[0, r]
        size = runs[2, r] * width
        copy(at, heads[s, 1] + (heads[s, 3] + runs[1, r]) * width, size)
        at += size


@helper
def _copy_single(width, places, rows, shift, heads, base):
    """As `_copy_fixed`, row by row: `places` from `shift` on lie in the second payload."""
    one, two = heads[0, 1] + heads[0, 3] * width, heads[1, 1] + (heads[1, 3] - shift) * width
    for k in range(rows):
        place = places[k]
        at, source = base + k * width, (two if place >= shift else one) + place * width
        # A copy of a size that is known here takes an instruction or two.
        if width == 8:
            copy(at, source, 8)
        elif width == 4:
            copy(at, source, 4)
        elif width == 16:
            copy(at, source, 16)
        else:
            copy(at, source, width)


@helper
def _copy_bits(places, rows, shift, heads, base, row):
    for k in range(rows):
        s = np.int64(places[k] >= shift)
        i = heads[s, 3] + places[k] - s * shift
        bit = (load_u8(heads[s, 1] + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1)
        at = base + ((row + k) >> 3)
        store_u8(at, load_u8(at) | (bit << np.uint8((row + k) & 7)))


@helper
def _copy_bytes(runs, count, heads, place, row):
    """Copy values of varying length; `place`: the buffers of the output. Returns how many bytes it holds afterwards."""
    offsets = place[VALUES] + row * 8
    data = place[DATA]
    filled = place[FILLED]
    for r in range(count):
        s = runs[0, r]
        begins = heads[s, 1] + (heads[s, 3] + runs[1, r]) * 8
        begin = load_i64(begins)
        for k in range(1, runs[2, r] + 1):
            offsets += 8
            store_i64(offsets, load_i64(begins + k * 8) - begin + filled)
        size = load_i64(begins + runs[2, r] * 8) - begin
        if size > 0:
            copy(data + filled, heads[s, 2] + begin, size)
        filled += size
    return filled


@helper
def _copy_texts(places, rows, shift, heads, place, row):
    """As `_copy_bytes`, row by row: `places` from `shift` on lie in the second payload.

    First it is read of all rows where their values begin, and then these, so that no read waits for that of another row:
    where rows lie as they came, and not in the batch's order, most reads miss the cache.
    """
    offsets = place[VALUES] + row * 8
    filled = place[FILLED]
    one, two = heads[0, 1] + heads[0, 3] * 8, heads[1, 1] + (heads[1, 3] - shift) * 8
    sources, ends = np.empty(rows, np.int64), np.empty(rows, np.int64)
    for k in range(rows):
        at = places[k]
        begins = (two if at >= shift else one) + at * 8
        begin = load_i64(begins)
        filled += load_i64(begins + 8) - begin
        sources[k] = (heads[1, 2] if at >= shift else heads[0, 2]) + begin
        ends[k] = filled
        store_i64(offsets + (k + 1) * 8, filled)
    begin = place[FILLED]
    for k in range(rows):
        if ends[k] > begin:
            copy(place[DATA] + begin, sources[k], ends[k] - begin)
        begin = ends[k]
    return filled


@helper
def _copy_validity(places, rows, shift, heads, base, row):
    """Copy which values are there; returns how many are not."""
    nulls = 0
    for k in range(rows):
        s = np.int64(places[k] >= shift)
        if _valid(heads[s, 0], heads[s, 3] + places[k] - s * shift):
            at = base + ((row + k) >> 3)
            store_u8(at, load_u8(at) | (np.uint8(1) << np.uint8((row + k) & 7)))
        else:
            nulls += 1
    return nulls


@helper
def _copy_rows(structs, steps, buffers, places, rows, state):
    """Copy the rows behind those that the payload has; returns how many it has then."""
    row, shift = state[ROWS], state[SHIFT]
    count = _runs(places, rows, shift)
    # Runs that are short are not even looked up: the rows stand for themselves.
    is_short = rows < _LONG * count
    runs = np.empty((3, 0 if is_short else count), np.int64)
    if not is_short:
        _find_runs(places, rows, shift, runs)
    heads = np.empty((2, 4), np.int64)
    for c in range(len(steps)):
        width = steps[c, 1]
        place = buffers[c]
        for s in range(2):
            _look(structs[s], steps[c, 0], width, heads, s)
        if place[VALIDITY] != 0:
            place[NULLS] += _copy_validity(places, rows, shift, heads, place[VALIDITY], row)
        if width == BITS:
            _copy_bits(places, rows, shift, heads, place[VALUES], row)
        elif width == OFFSETS64:
            if is_short:
                place[FILLED] = _copy_texts(places, rows, shift, heads, place, row)
            else:
                place[FILLED] = _copy_bytes(runs, count, heads, place, row)
        elif is_short:
            _copy_single(width, places, rows, shift, heads, place[VALUES] + row * width)
        else:
            _copy_fixed(width, runs, count, heads, place[VALUES] + row * width)
    return row + rows


@kernel(types.int64(SCRATCH, SCRATCH, I64, I64_TABLE, SCRATCH, I64_NEW, types.boolean))
def append(scratch, lanes, structs, steps, buffers, state, everything):
    """Carry away the entries of the scratch, the last one only if `everything` was merged.

    Or do nothing, if a lane needs room: returns which one, or else -1. `structs`: the two payloads; `steps`: (column,
    width, lane) a column, as for `assemble`; `lanes`, `buffers`: as described above, the room being for all of both batches.
    """
    stop = state[HELD] - (not everything)
    if stop <= 1:
        return -1
    lane = _wide(scratch, lanes, stop, state[BEGUN] != 0)
    if lane >= 0:
        return lane
    places = np.empty(stop, np.int64)
    size = _carry(scratch, lanes, state, stop, places)
    rows = _copy_rows(structs, steps, buffers, places, size, state)
    held = state[HELD]
    for lane in range(len(scratch)):
        scratch[lane, 0] = scratch[lane, stop - 1]
        for k in range(stop, held):
            scratch[lane, 1 + k - stop] = scratch[lane, k]
    state[HELD] = 1 + held - stop
    state[WRITTEN] += stop - 1
    state[ROWS] = rows
    state[BEGUN] = 1
    return -1
