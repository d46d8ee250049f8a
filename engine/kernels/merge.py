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


@kernel(types.int64(I64_TABLE, SCRATCH, I64_NEW, types.int64))
def merge(table, scratch, state, fuel):
    """Merge into the scratch until it is full, all is read or `fuel` entries are; returns the fuel left.

    `table`: a row for the left and one for the right batch, as `entries` describes it. Place 0 of the scratch is an entry
    that was carried away already (none before BEGUN).
    """
    a = held(table, 0)
    b = held(table, 1)
    words = scratch.view(np.uint64)
    left, right, size = state[LEFT], state[RIGHT], state[HELD]
    since, until, kept, shift = state[SINCE], state[UNTIL], state[KEPT], state[SHIFT]
    first = 0 if state[BEGUN] else 1
    wanted = state[PRINTS] != 0
    a_size, b_size, room = a[SIZE], b[SIZE], scratch.shape[1]
    a_keeps = wanted or a[HIGH] != 0
    b_keeps = wanted or b[HIGH] != 0
    a_known: Any = False
    b_known: Any = False
    from_left: Any = False
    ai = al = bi = bl = np.uint64(0)
    for k in range(1, size):
        if wanted and scratch[FLAGS, k] & _KNOWN == 0:  # since when they are wanted, an entry was left behind
            words[3, k], words[4, k] = _placed(table, scratch[PLACE, k], shift)
            scratch[FLAGS, k] |= _KNOWN
    ah = word(a, HASH, left) if left < a_size else np.uint64(0)
    bh = word(b, HASH, right) if right < b_size else np.uint64(0)
    while fuel > 0 and size < room and (left < a_size or right < b_size):
        if right >= b_size:
            from_left = True
        elif left >= a_size:
            from_left = False
        elif ah != bh:
            from_left = ah < bh
        else:
            ac, bc = word(a, CHECK, left), word(b, CHECK, right)
            ao, bo = word(a, ORDER, left), word(b, ORDER, right)
            if ac != bc:
                from_left = ac < bc
            elif ao != bo:
                from_left = ao < bo
            else:
                if not a_known:
                    ai, al = fingerprint(a, left)
                    a_known = True
                if not b_known:
                    bi, bl = fingerprint(b, right)
                    b_known = True
                if ai != bi:
                    from_left = ai < bi
                elif al != bl:
                    from_left = al < bl
                else:
                    from_left = fact(a, TIMES, left) <= fact(b, TIMES, right)
        fuel -= 1
        if from_left:
            if a_keeps and not a_known:
                ai, al = fingerprint(a, left)
                a_known = True
            h, c, o, hi, lo, known = ah, word(a, CHECK, left), word(a, ORDER, left), ai, al, a_known
            time, diff, place = fact(a, TIMES, left), fact(a, DIFFS, left), position(a, left)
            left += 1
            a_known = False
            if left < a_size:
                ah = word(a, HASH, left)
        else:
            if b_keeps and not b_known:
                bi, bl = fingerprint(b, right)
                b_known = True
            h, c, o, hi, lo, known = bh, word(b, CHECK, right), word(b, ORDER, right), bi, bl, b_known
            time, diff, place = fact(b, TIMES, right), fact(b, DIFFS, right), position(b, right) + shift
            right += 1
            b_known = False
            if right < b_size:
                bh = word(b, HASH, right)
        if time & EPOCHS >= until:
            continue
        time = advanced(time, since, kept)
        last = size - 1
        flags = _NEW
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
                place = scratch[PLACE, last]
                flags = 0
        words[0, size], words[1, size], words[2, size], words[3, size], words[4, size] = h, c, o, hi, lo
        scratch[5, size], scratch[6, size], scratch[PLACE, size] = time, diff, place
        scratch[FLAGS, size] = flags | (_KNOWN if known else 0)
        size += 1
    state[LEFT], state[RIGHT], state[HELD] = left, right, size
    return fuel
