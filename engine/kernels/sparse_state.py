# mypy: allow-untyped-defs
"""Rows of 64-bit lanes that stand once each, found by any of their lanes through chained hash tables of places.

A table is `heads` (a power of two of places, -1 for none) and `nexts` (one place a row): rows of one slot are a chain, the
latest first. Invariant: rows are linked in the order of their places, so that taking the last ones out undoes it. A match is
settled by the lanes themselves. Called by `headrace.engine.recursion.state`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import helper, kernel
from headrace.engine.kernels.hashing import scramble

ABSENT = 2147483647
"""The round of a row that is not there."""

OVERFLOWED = -1
"""In the place of a count of rows: a row has more derivations in a round than 32 bits hold."""

LANES = types.Array(types.int64, 2, "C")
_I32 = types.Array(types.int32, 1, "C")
TABLE: Any = types.Tuple((types.Array(types.int64, 1, "C"), _I32, _I32))  # type: ignore[no-untyped-call]
"""The lanes of its keys, `heads` and `nexts`."""
FACTS: Any = types.UniTuple(_I32, 2)  # type: ignore[no-untyped-call]
"""The rounds and the counts of rows."""
TWO: Any = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
_PAIRS: Any = types.Tuple((_I32, _I32, types.int64))  # type: ignore[no-untyped-call]
BLOCK = 64
"""So many keys are looked at ahead."""
_SEED = np.uint64(0x9E3779B97F4A7C15)


@helper
def hash_at(lanes, i, columns):
    """The hash of some lanes of a row."""
    found = _SEED
    for k in range(len(columns)):
        found = scramble(found ^ np.uint64(lanes[i, columns[k]])) + _SEED
    return found


@helper
def _hash_of(keys, i):
    """The hash of all lanes of a key: as `hash_at` of the row that it is looked for in."""
    found = _SEED
    for k in range(keys.shape[1]):
        found = scramble(found ^ np.uint64(keys[i, k])) + _SEED
    return found


@helper
def meets(lanes, place, columns, keys, i):
    """Whether a row has a key in some of its lanes."""
    equal = True
    for k in range(len(columns)):
        equal = equal and lanes[place, columns[k]] == keys[i, k]
    return equal


@helper
def same(lanes, place, rows, i):
    """Whether a row is another one, lane by lane."""
    equal = True
    for k in range(rows.shape[1]):
        equal = equal and lanes[place, k] == rows[i, k]
    return equal


@helper
def warmed(keys, start, lanes, rounds, heads, slots):
    """Look at what the next keys will be compared with: reads that do not wait for each other hide the memory's latency.

    Leaves their slots in `slots`, and what it read behind them, so that it is read.
    """
    mask = np.uint64(len(heads) - 1)
    count = min(len(keys) - start, BLOCK)
    for j in range(count):
        slots[j] = np.int64(_hash_of(keys, start + j) & mask)
    found = np.int64(0)
    for j in range(count):
        place = heads[slots[j]]
        if place >= 0:
            found ^= lanes[place, 0] + rounds[place]
    slots[BLOCK] = found
    return count


@kernel(types.void(LANES, TABLE, types.int64, types.int64))
def link(lanes, table, start, stop):
    """Put the rows [start, stop) into a table."""
    columns, heads, nexts = table
    mask = np.uint64(len(heads) - 1)
    for i in range(start, stop):
        slot = np.int64(hash_at(lanes, i, columns) & mask)
        nexts[i] = heads[slot]
        heads[slot] = i


@kernel(types.void(LANES, TABLE, types.int64, types.int64))
def unlink(lanes, table, start, stop):
    """Take the last rows, [start, stop), out of a table, the latest first."""
    columns, heads, nexts = table
    mask = np.uint64(len(heads) - 1)
    for i in range(stop - 1, start - 1, -1):
        heads[np.int64(hash_at(lanes, i, columns) & mask)] = nexts[i]


@kernel(_I32(LANES, LANES, TABLE, TWO))
def look_up(keys, lanes, table, nulls):
    """For each key the last row that has it, or -1. `nulls`: rows with any of these bits in that lane (-1: none) have no key."""
    columns, heads, nexts = table
    lane, bits = nulls
    found = np.empty(len(keys), np.int32)
    slots = np.empty(BLOCK + 1, np.int64)
    for i in range(len(keys)):
        if i % BLOCK == 0:
            warmed(keys, i, lanes, nexts, heads, slots)
        place = heads[slots[i % BLOCK]]
        while place >= 0 and not (
            meets(lanes, place, columns, keys, i) and (lane < 0 or lanes[place, lane] & bits == 0)
        ):
            place = nexts[place]
        found[i] = place
    return found


@helper
def counted(rows, i, slot, lanes, facts, table, size, now):
    """Add a row to those of the round `now`, for which there is room: how many rows there are then, or OVERFLOWED."""
    rounds, counts = facts
    _, heads, nexts = table
    place = heads[slot]
    while place >= 0 and not same(lanes, place, rows, i):
        place = nexts[place]
    if place >= 0:
        if rounds[place] == now:
            if counts[place] == ABSENT:
                return OVERFLOWED
            counts[place] += 1
        return size
    for k in range(rows.shape[1]):
        lanes[size, k] = rows[i, k]
    rounds[size] = now
    counts[size] = 1
    nexts[size] = heads[slot]
    heads[slot] = size
    return size + 1


@kernel(TWO(LANES, types.int64, LANES, FACTS, TABLE, types.int64, types.int64))
def count_in(rows, start, lanes, facts, table, size, now):
    """Add rows, from the `start`th on, to those of the round `now`: new ones stand once, others of that round count one more.

    Returns (rows that stand, rows done); it stops where there is no room, and with OVERFLOWED.
    """
    rounds, _ = facts
    _, heads, _ = table
    slots = np.empty(BLOCK + 1, np.int64)
    limit = min(len(rounds), len(heads))
    for i in range(start, len(rows)):
        if (i - start) % BLOCK == 0:
            warmed(rows, i, lanes, rounds, heads, slots)
        if size >= limit:
            return size, i
        size = counted(rows, i, slots[(i - start) % BLOCK], lanes, facts, table, size, now)
        if size == OVERFLOWED:
            return OVERFLOWED, i
    return size, len(rows)


@kernel(TWO(LANES, types.int64, LANES, FACTS, TABLE, types.int64, _I32))
def place_in(rows, start, lanes, facts, table, size, places):
    """Where rows stand, from the `start`th on; those that stand nowhere are put last, as not there.

    Returns (rows that stand, rows done); it stops where there is no room.
    """
    rounds, counts = facts
    _, heads, nexts = table
    slots = np.empty(BLOCK + 1, np.int64)
    limit = min(len(rounds), len(heads))
    for i in range(start, len(rows)):
        if (i - start) % BLOCK == 0:
            warmed(rows, i, lanes, rounds, heads, slots)
        slot = slots[(i - start) % BLOCK]
        place = heads[slot]
        while place >= 0 and not same(lanes, place, rows, i):
            place = nexts[place]
        if place < 0:
            if size >= limit:
                return size, i
            for k in range(rows.shape[1]):
                lanes[size, k] = rows[i, k]
            rounds[size] = ABSENT
            counts[size] = 0
            nexts[size] = heads[slot]
            heads[slot] = size
            place = size
            size += 1
        places[i] = place
    return size, len(rows)


@kernel(_PAIRS(LANES, LANES, TABLE, _I32, types.int64, TWO, types.int64))
def probe(keys, lanes, table, rounds, latest, nulls, most):
    """Each key with every row that has it and came in round `latest` or before: positions of keys, places, rows looked at.

    `nulls`: rows with any of these bits in that lane (-1: none) have no key. It stops, with what it has, once more than
    `most` rows were looked at.
    """
    columns, heads, nexts = table
    lane, bits = nulls
    room = 2 * len(keys) + 16
    ones = np.empty(room, np.int32)
    places = np.empty(room, np.int32)
    slots = np.empty(BLOCK + 1, np.int64)
    size = 0
    visited = 0
    for i in range(len(keys)):
        if i % BLOCK == 0:
            warmed(keys, i, lanes, rounds, heads, slots)
        place = heads[slots[i % BLOCK]]
        visited += 1
        while place >= 0:
            visited += 1
            if (
                rounds[place] <= latest
                and meets(lanes, place, columns, keys, i)
                and (lane < 0 or lanes[place, lane] & bits == 0)
            ):
                if size == room:
                    room *= 2
                    wider = np.empty(room, np.int32)
                    wider[:size] = ones
                    ones = wider
                    wider = np.empty(room, np.int32)
                    wider[:size] = places
                    places = wider
                ones[size] = i
                places[size] = place
                size += 1
            place = nexts[place]
        if visited > most:
            break
    return ones[:size].copy(), places[:size].copy(), visited
