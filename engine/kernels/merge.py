# mypy: allow-untyped-defs
"""The merge of two sorted batches, a piece at a time, as far as the fuel goes, to be called again from where it stopped.

Always: what comes out is sorted and consolidated, with times advanced to `since`; the two inputs are only read. A piece
is written to a scratch of fixed size, so that it stays in the processor's cache until `append` carries it away; its last
entry may still change and stays behind. The merger in `engine.batch.merger` owns scratch and state between calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from engine.kernels.compiler import I64_NEW, I64_TABLE, helper, kernel
from engine.kernels.consolidate import overflows
from engine.kernels.entries import (
    CHECK,
    DIFFS,
    HASH,
    HIGH,
    ORDER,
    SIZE,
    TIMES,
    fact,
    fingerprint,
    held,
    image,
    position,
    word,
)
from engine.kernels.times import EPOCHS, advanced

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

_NEW, _KNOWN = 1, 2
"""Flags: the entry is the first of its row; its fingerprint is there."""

SCRATCH: Any = types.Array(types.int64, 2, "C")


@helper
def _placed(table, place, shift):
    """The fingerprint of a row by its place; its batch keeps none."""
    return image(table[1], place - shift) if place >= shift else image(table[0], place)


@helper
def _is_last(table, scratch, words, last, entry, state):
    """True if `entry` (place, high, low, known), of the same key and order as entry `last` of the scratch, is of its row.

    Within a batch places tell rows apart; between batches fingerprints do. Returns also the entry's fingerprint, if that
    had to be found out.
    """
    place, high, low, known = entry
    shift = state[SHIFT]
    other = scratch[PLACE, last]
    if place == other:
        return True, high, low, known
    if (place >= shift) == (other >= shift):
        return False, high, low, known
    if not known:
        high, low = _placed(table, place, shift)
    if scratch[FLAGS, last] & _KNOWN == 0:
        words[3, last], words[4, last] = _placed(table, other, shift)
        scratch[FLAGS, last] |= _KNOWN
    return high == words[3, last] and low == words[4, last], high, low, True


@helper
def _know_all(table, scratch, words, size, shift):
    """Make the fingerprints that entries 1 … size - 1 of the scratch lack, which were left behind before any was wanted."""
    for k in range(1, size):
        if scratch[FLAGS, k] & _KNOWN == 0:
            words[3, k], words[4, k] = _placed(table, scratch[PLACE, k], shift)
            scratch[FLAGS, k] |= _KNOWN


@helper
def _side(a, left, b, right):
    """How entry `left` of one batch stands to entry `right` of the other, of the same hash: -1 before, 1 behind, 0 by its
    fingerprint."""
    ac, bc = word(a, CHECK, left), word(b, CHECK, right)
    ao, bo = word(a, ORDER, left), word(b, ORDER, right)
    if ac != bc:
        return -1 if ac < bc else 1
    return 0 if ao == bo else -1 if ao < bo else 1


@helper
def _by_print(high, low, time, other_high, other_low, other_time):
    """As `_side`, by fingerprint and time; what is alike comes from the left."""
    if high != other_high:
        return -1 if high < other_high else 1
    if low != other_low:
        return -1 if low < other_low else 1
    return -1 if time <= other_time else 1


@kernel(types.int64(I64_TABLE, SCRATCH, I64_NEW, types.int64))
def merge(table, scratch, state, fuel):
    """Merge into the scratch until it is full, all is read or `fuel` entries are; returns the fuel left.

    `table`: the left and the right batch, as `entries` describes them. Place 0 of the scratch is carried away (from BEGUN on).
    """
    a, b, words = held(table, 0), held(table, 1), scratch.view(np.uint64)
    left, right, size, first = state[LEFT], state[RIGHT], state[HELD], 0 if state[BEGUN] else 1
    since, until, kept, shift, wanted = state[SINCE], state[UNTIL], state[KEPT], state[SHIFT], state[PRINTS] != 0
    a_size, b_size, a_keeps, b_keeps = a[SIZE], b[SIZE], wanted or a[HIGH] != 0, wanted or b[HIGH] != 0
    a_known = b_known = False
    ai = al = bi = bl = np.uint64(0)
    _know_all(table, scratch, words, size if wanted else 0, shift)
    ah = word(a, HASH, left) if left < a_size else np.uint64(0)
    bh = word(b, HASH, right) if right < b_size else np.uint64(0)
    while fuel > 0 and size < scratch.shape[1] and (left < a_size or right < b_size):
        if ah != bh or left >= a_size or right >= b_size:
            side = -1 if right >= b_size or (left < a_size and ah < bh) else 1
        else:
            side = _side(a, left, b, right)
            if side == 0:
                ai, al = (ai, al) if a_known else fingerprint(a, left)
                bi, bl = (bi, bl) if b_known else fingerprint(b, right)
                a_known = b_known = True
                side = _by_print(ai, al, fact(a, TIMES, left), bi, bl, fact(b, TIMES, right))
        fuel -= 1
        if side < 0:
            if a_keeps and not a_known:
                ai, al = fingerprint(a, left)
            h, c, o, hi, lo, known = ah, word(a, CHECK, left), word(a, ORDER, left), ai, al, a_keeps or a_known
            time, diff, place = fact(a, TIMES, left), fact(a, DIFFS, left), position(a, left)
            left, a_known = left + 1, False
            ah = word(a, HASH, left) if left < a_size else ah
        else:
            if b_keeps and not b_known:
                bi, bl = fingerprint(b, right)
            h, c, o, hi, lo, known = bh, word(b, CHECK, right), word(b, ORDER, right), bi, bl, b_keeps or b_known
            time, diff, place = fact(b, TIMES, right), fact(b, DIFFS, right), position(b, right) + shift
            right, b_known = right + 1, False
            bh = word(b, HASH, right) if right < b_size else bh
        if time & EPOCHS >= until:
            continue
        time, last, flags = advanced(time, since, kept), size - 1, _NEW
        if last >= first and h == words[0, last] and c == words[1, last] and o == words[2, last]:
            same, hi, lo, known = _is_last(table, scratch, words, last, (place, hi, lo, known), state)
            if same:
                if scratch[5, last] == time:
                    total = scratch[6, last] + diff
                    if overflows(scratch[6, last], diff, total):
                        state[OVERFLOW] = 1
                    scratch[6, last] = total
                    size -= total == 0
                    continue
                place, flags = scratch[PLACE, last], 0
        words[0, size], words[1, size], words[2, size], words[3, size], words[4, size] = h, c, o, hi, lo
        scratch[5, size], scratch[6, size], scratch[PLACE, size] = time, diff, place
        scratch[FLAGS, size] = flags | (_KNOWN if known else 0)
        size += 1
    state[LEFT], state[RIGHT], state[HELD] = left, right, size
    return fuel
