# mypy: allow-untyped-defs
"""Joins of rows of 64-bit lanes that are counted in as they are found: no list of what is found is made.

Invariant: what `count_joined` leaves is what `probe` and then `count_in` leave, and `count_rounds` what a `count_joined` a round.
Rows wait in a block before they are counted, so that their slots are looked at together; both stop for room and go on where
they were. Called by `headrace.engine.recursion.state`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import helper, kernel
from headrace.engine.kernels.sparse_state import (
    BLOCK,
    FACTS,
    LANES,
    OVERFLOWED,
    TABLE,
    TWO,
    counted,
    hash_at,
    meets,
    warmed,
)

_STORE: Any = types.Tuple((LANES, FACTS, TABLE))  # type: ignore[no-untyped-call]
"""The lanes of rows, what is told of them, and one of their tables."""
_ASKED: Any = types.UniTuple(types.int64, 3)  # type: ignore[no-untyped-call]
_OWN: Any = types.Tuple((types.Array(types.int64, 1, "C"), types.int64, types.int64, LANES))  # type: ignore[no-untyped-call]
_TAKEN: Any = types.Tuple((LANES, types.int64, types.int64))  # type: ignore[no-untyped-call]


@helper
def _taken_over(block, filled, pairs, lanes, place, found_nulls, row_nulls):
    """Lanes of a row from what is found, with the bits of those that are NULL."""
    for k in range(len(pairs)):
        block[filled, pairs[k, 0]] = lanes[place, pairs[k, 1]]
        if row_nulls >= 0 and found_nulls >= 0:
            missing = (lanes[place, found_nulls] >> pairs[k, 1]) & 1
            block[filled, row_nulls] |= missing << pairs[k, 0]


@helper
def _counted_all(block, filled, slots, target, size, now):
    """Count the rows of a block in the round `now`: how many rows there are then, or OVERFLOWED."""
    lanes, facts, table = target
    warmed(block[:filled], 0, lanes, facts[0], table[1], slots)
    for j in range(filled):
        size = counted(block, j, slots[j], lanes, facts, table, size, now)
        if size == OVERFLOWED:
            return size
    return size


@kernel(types.boolean(LANES, LANES, _STORE, _ASKED, _TAKEN, _STORE, types.int64, types.Array(types.int64, 1, "C")))
def count_joined(keys, begun, probed, asked, taken, target, now, done):
    """As `probe` and then `count_in`, without a list of what is found: each key with every row that has it becomes a row of
    `target`, in the round `now`.

    `begun`: of each key the row, but for the lanes that come from what is found; `asked`: the latest round, and as `nulls` of
    `probe`; `taken`: pairs of lanes, of the row and of what is found, and the lanes of both's NULL bits (-1: none). `done`, 0 at
    first: keys done, the place to go on from and one, rows of `target` (or OVERFLOWED), rows looked at, rows found.
    Returns whether it is over; else there is no room for more rows.
    """
    lanes, (rounds, _), (columns, heads, nexts) = probed
    latest, lane, bits = asked
    pairs, row_nulls, found_nulls = taken
    wide = begun.shape[1]
    block = np.empty((BLOCK, wide), np.int64)
    slots, target_slots = np.empty(BLOCK + 1, np.int64), np.empty(BLOCK + 1, np.int64)
    limit = min(len(target[1][0]), len(target[2][1]))
    i, place, size, visited, found = done[0], done[1] - 1, done[2], done[3], done[4]
    if size + BLOCK > limit:
        return False
    warm = first = i
    filled = 0
    while True:
        while place >= 0 and filled < BLOCK:
            visited += 1
            if (
                rounds[place] <= latest
                and meets(lanes, place, columns, keys, i - 1)
                and (lane < 0 or lanes[place, lane] & bits == 0)
            ):
                for k in range(wide):
                    block[filled, k] = begun[i - 1, k]
                _taken_over(block, filled, pairs, lanes, place, found_nulls, row_nulls)
                filled += 1
            place = nexts[place]
        if filled == BLOCK or i == len(keys):
            size = _counted_all(block, filled, target_slots, target, size, now)
            found += filled
            filled = 0
            done[0], done[1], done[2], done[3], done[4] = i, place + 1, size, visited, found
            if size == OVERFLOWED or (i == len(keys) and place < 0):
                return True
            if size + BLOCK > limit:
                return False
        if place < 0 and i < len(keys):
            if i == warm:
                first = i
                warm += warmed(keys, i, lanes, rounds, heads, slots)
            place = heads[slots[i - first]]
            i += 1
            visited += 1


@helper
def _warmed_at(rows, start, stop, columns, lanes, rounds, heads, slots):
    """As `warmed`, of rows whose keys are some of their lanes."""
    mask = np.uint64(len(heads) - 1)
    count = min(stop - start, BLOCK)
    for j in range(count):
        slots[j] = np.int64(hash_at(rows, start + j, columns) & mask)
    found = np.int64(0)
    for j in range(count):
        place = heads[slots[j]]
        if place >= 0:
            found ^= lanes[place, 0] + rounds[place]
    slots[BLOCK] = found
    return count


@helper
def _same_at(lanes, place, columns, rows, i, own):
    equal = True
    for k in range(len(columns)):
        equal = equal and lanes[place, columns[k]] == rows[i, own[k]]
    return equal


@kernel(types.boolean(_STORE, _OWN, _STORE, _ASKED, _TAKEN, TWO, types.Array(types.int64, 1, "C")))
def count_rounds(target, own, probed, asked, taken, until, done):
    """Round after round, `count_joined` of the rows that the round before brought: they have the keys, and become rows again.

    `own`: the lanes that are a row's key, the lane of its NULLs' bits and those of the key, and pairs as of `taken` for what a
    new row has of it; `until`: the last round, and the most rows. `done`: rows done, the place to go on from and one, rows of
    `target` (or OVERFLOWED), rows looked at, rows found, the round, where the last one's rows end, and where they begin.
    Returns whether a round is over after which there is none: nothing is new, it was the last, or there are too many rows; else
    there is no room for more.
    """
    key, own_nulls, own_bits, own_pairs = own
    lanes, (rounds, _), (columns, heads, nexts) = probed
    latest, lane, bits = asked
    pairs, row_nulls, found_nulls = taken
    own_rows = target[0]
    limit = min(len(target[1][0]), len(target[2][1]))
    block = np.empty((BLOCK, own_rows.shape[1]), np.int64)
    slots, target_slots = np.empty(BLOCK + 1, np.int64), np.empty(BLOCK + 1, np.int64)
    i, place, size, now, upper = done[0], done[1] - 1, done[2], done[5], done[6]
    visited, found = done[3], done[4]
    if size + BLOCK > limit:
        return False
    warm = first = i
    filled = 0
    while True:
        while place >= 0 and filled < BLOCK:
            visited += 1
            if (
                rounds[place] <= latest
                and _same_at(lanes, place, columns, own_rows, i - 1, key)
                and (lane < 0 or lanes[place, lane] & bits == 0)
            ):
                if row_nulls >= 0:
                    block[filled, row_nulls] = 0
                _taken_over(block, filled, own_pairs, own_rows, i - 1, row_nulls, row_nulls)
                _taken_over(block, filled, pairs, lanes, place, found_nulls, row_nulls)
                filled += 1
            place = nexts[place]
        if filled == BLOCK or i == upper:
            size = _counted_all(block, filled, target_slots, target, size, now)
            found += filled
            filled = 0
            over = False
            if size != OVERFLOWED and i == upper and place < 0:
                over = size == upper or now >= until[0] or size > until[1]
                done[7] = upper
                if not over:
                    now += 1
                warm = upper
                upper = size
            done[0], done[1], done[2] = i, place + 1, size
            done[3], done[4], done[5], done[6] = visited, found, now, upper
            if over or size == OVERFLOWED:
                return True
            if size + BLOCK > limit:
                return False
        if place < 0 and i < upper:
            if i == warm:
                first = i
                warm += _warmed_at(own_rows, i, upper, key, lanes, rounds, heads, slots)
            if own_nulls < 0 or own_rows[i, own_nulls] & own_bits == 0:
                place = heads[slots[i - first]]
            i += 1
            visited += 1
