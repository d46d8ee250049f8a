# mypy: allow-untyped-defs
"""The merge of two sorted batches, a piece at a time, as far as the fuel goes, to be called again from where it stopped.

Always: what comes out is sorted and consolidated, with times advanced to `since`; the two inputs are only read. A piece
is written to a scratch of fixed size, so that it stays in the processor's cache until `merge_output` carries it away; its last
entry may still change and stays behind. The merger in `headrace.engine.batch.merger` owns scratch and state between calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64_NEW, I64_TABLE, helper, kernel
from headrace.engine.kernels.consolidate import overflows
from headrace.engine.kernels.entries import (
    CHECK,
    DIFFS,
    HASH,
    HIGH,
    LOW,
    ORDER,
    POSITIONS,
    SIZE,
    TIMES,
    fact,
    fingerprint,
    held,
    image,
    word,
)
from headrace.engine.kernels.memory import address, load_i64, load_u64, move
from headrace.engine.kernels.times import EPOCHS, advanced

LEFT, RIGHT, HELD, SINCE, UNTIL, KEPT, SHIFT, PRINTS, OVERFLOW, WRITTEN, ROWS, TIES, BEGUN = range(13)
"""Slots of the state. Of a merge: entries read of each side; places of the scratch in use; epochs advance to SINCE, those
≥ UNTIL are left out, and of rounds the bits KEPT stay; positions of the right side move by SHIFT; 1 where each entry's
fingerprint is wanted; 1 after an overflow. Of `append`: entries and rows written, and how many of the rows have the key
and order of the row before; 1 once there was a first entry."""

SLOTS = 13

PLACE, FLAGS = 7, 8
"""Rows of the scratch, after the five identity lanes, times and diffs: the row's place, in the left payload or, from SHIFT
on, the right one; and what is known of the entry."""

LANES = 9

_NEW, _KNOWN, _RIGHT = 1, 2, 1
"""Flags: the entry is the first of its row; its fingerprint is there. Before these are known: it is of the right side."""

_LONG = 16
"""So many entries are moved lane by lane; fewer entry by entry."""

SCRATCH: Any = types.Array(types.int64, 2, "C")


@helper
def _placed(table, place, shift):
    """The fingerprint of a row by its place; its batch keeps none."""
    return image(table[1], place - shift) if place >= shift else image(table[0], place)


@helper
def _know(table, scratch, words, begin, end, shift):
    """Make the fingerprints that entries `begin` … `end` - 1 of the scratch lack."""
    for k in range(begin, end):
        if scratch[FLAGS, k] & _KNOWN == 0:
            words[3, k], words[4, k] = _placed(table, scratch[PLACE, k], shift)
            scratch[FLAGS, k] |= _KNOWN


@helper
def _by_key(a, left, b, right):
    """How entry `left` of one batch stands to entry `right` of the other, of the same hash, by check and order: -1, 0 or 1."""
    ac, bc = word(a, CHECK, left), word(b, CHECK, right)
    ao, bo = word(a, ORDER, left), word(b, ORDER, right)
    if ac != bc:
        return -1 if ac < bc else 1
    return 0 if ao == bo else -1 if ao < bo else 1


@helper
def _by_print(left, right, high, low, other_high, other_low):
    """0 if the left entry comes first by fingerprint, then time, and 1 if the right one does; what is alike comes from the left.

    Without a branch, as nothing could guess which it is.
    """
    later = np.int64(right < left)
    low_later = np.int64(other_low < low) | (np.int64(other_low == low) & later)
    return np.int64(other_high < high) | (np.int64(other_high == high) & low_later)


@helper
def _order(a, b, scratch, words, at, end):
    """Which entries come next, up to place `end` of the scratch: their hashes, sides and indices; returns `at` after them.

    `at`: entries read of the left and of the right, and the first place. An index stands where the entry's place will, a
    side where its flags will, with _KNOWN if its fingerprint had to be made and is there.
    """
    left, right, size = at
    hashes, high, low, index, sides = words[0], words[3], words[4], scratch[PLACE], scratch[FLAGS]
    a_at, a_step, b_at, b_step = a[HASH], a[HASH + 1], b[HASH], b[HASH + 1]
    a_known = b_known = False
    made = a[HIGH] == 0 or b[HIGH] == 0
    ai = al = bi = bl = np.uint64(0)
    while size < end and left < a[SIZE] and right < b[SIZE]:
        # In so many steps neither side runs out.
        for _ in range(min(end - size, a[SIZE] - left, b[SIZE] - right)):
            ah, bh = load_u64(a_at + left * a_step), load_u64(b_at + right * b_step)
            side = np.int64(bh < ah)
            if ah == bh:
                by_key = _by_key(a, left, b, right)
                side = np.int64(by_key > 0)
                if by_key == 0:
                    ai, al = (ai, al) if a_known else fingerprint(a, left)
                    bi, bl = (bi, bl) if b_known else fingerprint(b, right)
                    a_known = b_known = made
                    side = _by_print(fact(a, TIMES, left), fact(b, TIMES, right), ai, al, bi, bl)
            hashes[size] = min(ah, bh)
            index[size] = left + side * (right - left)
            sides[size] = side
            if a_known | b_known:
                if a_known and side == 0:
                    high[size], low[size], sides[size], a_known = ai, al, _KNOWN, False
                elif b_known and side == 1:
                    high[size], low[size], sides[size], b_known = bi, bl, _RIGHT | _KNOWN, False
            left, right, size = left + 1 - side, right + side, size + 1
    # What was made of an entry that did not come yet is made again.
    for k in range(size, min(end, size + a[SIZE] - left)):
        hashes[k], index[k], sides[k] = word(a, HASH, left), left, 0
        left, size = left + 1, k + 1
    for k in range(size, min(end, size + b[SIZE] - right)):
        hashes[k], index[k], sides[k] = word(b, HASH, right), right, _RIGHT
        right, size = right + 1, k + 1
    return left, right, size


@helper
def _fetch(a, b, lane, scratch, row, begin, end):
    """Fill places `begin` … `end` - 1 of a row of the scratch from the lane of the entries that stand there."""
    out, index, sides = scratch[row], scratch[PLACE], scratch[FLAGS]
    a_at, a_step, b_at, b_step = a[lane], a[lane + 1], b[lane], b[lane + 1]
    if a_step == 0 and b_step == 0 and a[SIZE] > 0 and b[SIZE] > 0 and load_i64(a_at) == load_i64(b_at):
        out[begin:end] = load_i64(a_at)
        return
    # Which side an entry is of nothing could guess: it is reckoned with.
    there, step = b_at - a_at, b_step - a_step
    if step == 0:
        for k in range(begin, end):
            out[k] = load_i64(a_at + (there & -(sides[k] & _RIGHT)) + index[k] * a_step)
    else:
        for k in range(begin, end):
            right = -(sides[k] & _RIGHT)
            out[k] = load_i64(a_at + (there & right) + index[k] * (a_step + (step & right)))


@helper
def _find_places(a, b, scratch, begin, end):
    """As `_fetch`, the positions, which one side at least has, in place of the indices."""
    out, sides = scratch[PLACE], scratch[FLAGS]
    a_at, a_step, b_at, b_step = a[POSITIONS], a[POSITIONS + 1], b[POSITIONS], b[POSITIONS + 1]
    for k in range(begin, end):
        side = sides[k] & _RIGHT
        at = b_at if side else a_at
        if at != 0:
            out[k] = load_i64(at + out[k] * (b_step if side else a_step))


@helper
def _leave_out(scratch, begin, end, until):
    """Leave out the entries at epochs ≥ `until` among those at places `begin` … `end` - 1; returns where they end then."""
    size = begin
    for k in range(begin, end):
        if scratch[5, k] & EPOCHS < until:
            for row in range(LANES):
                scratch[row, size] = scratch[row, k]
            size += 1
    return size


@helper
def _fetch_all(a, b, scratch, begin, end, state):
    """Fetch what the entries hold that `_order` put at places `begin` … `end` - 1; returns where those that stay end."""
    known = a[HIGH] != 0 and b[HIGH] != 0
    if known:
        _fetch(a, b, HIGH, scratch, 3, begin, end)
        _fetch(a, b, LOW, scratch, 4, begin, end)
    _fetch(a, b, CHECK, scratch, 1, begin, end)
    _fetch(a, b, ORDER, scratch, 2, begin, end)
    _fetch(a, b, TIMES, scratch, 5, begin, end)
    _fetch(a, b, DIFFS, scratch, 6, begin, end)
    if state[UNTIL] <= EPOCHS:
        end = _leave_out(scratch, begin, end, state[UNTIL])
    since, kept, shift = state[SINCE], state[KEPT], state[SHIFT]
    times, places, flags = scratch[5], scratch[PLACE], scratch[FLAGS]
    for k in range(begin, end):
        times[k] = advanced(times[k], since, kept)
    flag = _NEW | (_KNOWN if known else 0)
    if a[POSITIONS] != 0 or b[POSITIONS] != 0:
        _find_places(a, b, scratch, begin, end)
    for k in range(begin, end):
        places[k] += shift & -(flags[k] & _RIGHT)
        flags[k] = flags[k] & _KNOWN | flag
    return end


@helper
def _close_up(scratch, begin, end, size):
    """Move the entries at places `begin` … `end` - 1 to `size` …, no further on; returns where they end then."""
    count = end - begin
    if begin != size and count < _LONG:
        for k in range(count):
            for row in range(LANES):
                scratch[row, size + k] = scratch[row, begin + k]
    elif begin != size:
        base, width = address(scratch), scratch.shape[1] * 8
        for row in range(LANES):
            move(base + row * width + size * 8, base + row * width + begin * 8, count * 8)
    return size + count


@helper
def _settle(table, scratch, words, begin, end, state):
    """Add up what is alike of the entries at places `begin` … `end` - 1 and the one before; returns where they end then."""
    first = 0 if state[BEGUN] else 1
    hashes, checks, orders, high, low = words[0], words[1], words[2], words[3], words[4]
    times, diffs, places, flags = scratch[5], scratch[6], scratch[PLACE], scratch[FLAGS]
    shift, start, size = state[SHIFT], begin, begin
    for k in range(begin, end):
        # Those from `start` on have yet to close up to the `size` that stay before them.
        last = k - 1 if start < k else size - 1
        if last < first or hashes[k] != hashes[last] or checks[k] != checks[last] or orders[k] != orders[last]:
            continue
        # Within a batch places tell rows apart; between batches fingerprints do.
        same = places[k] == places[last]
        if (places[k] >= shift) != (places[last] >= shift):
            if flags[k] & flags[last] & _KNOWN == 0:
                _know(table, scratch, words, last, last + 1, shift)
                _know(table, scratch, words, k, k + 1, shift)
            same = (high[k] == high[last]) & (low[k] == low[last])
        if same and times[last] == times[k]:
            total = diffs[last] + diffs[k]
            if overflows(diffs[last], diffs[k], total):
                state[OVERFLOW] = 1
            diffs[last] = total
            stop = last + (total != 0) if start < k else start
            if start == k and total == 0:
                size -= 1
            size, start = _close_up(scratch, start, stop, size), k + 1
        elif same:
            places[k] = places[last]
            flags[k] &= ~_NEW
    return _close_up(scratch, start, end, size)


@kernel(types.int64(I64_TABLE, SCRATCH, I64_NEW, types.int64))
def merge(table, scratch, state, fuel):
    """Merge into the scratch until it is full, all is read or `fuel` entries are; returns the fuel left.

    `table`: the left and the right batch, as `entries` describes them. Place 0 of the scratch is carried away (from BEGUN on).
    """
    a, b, words = held(table, 0), held(table, 1), scratch.view(np.uint64)
    left, right, size = state[LEFT], state[RIGHT], state[HELD]
    while fuel > 0 and size < scratch.shape[1] and (left < a[SIZE] or right < b[SIZE]):
        read, begin = left + right, size
        left, right, size = _order(a, b, scratch, words, (left, right, size), size + min(scratch.shape[1] - size, fuel))
        fuel -= left + right - read
        size = _fetch_all(a, b, scratch, begin, size, state)
        size = _settle(table, scratch, words, begin, size, state)
        if 2 * size > scratch.shape[1]:
            break  # what came together left some room, but little
    if state[PRINTS] != 0:
        # Those that were left behind before any was wanted lack them too.
        _know(table, scratch, words, 1, size, state[SHIFT])
    state[LEFT], state[RIGHT], state[HELD] = left, right, size
    return fuel
