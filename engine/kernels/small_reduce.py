# mypy: allow-untyped-defs
"""A few updates taken to the corrections of their groups in one call: a reduce whose state is sums of lanes alone.

Always: what comes out is what grouping, looking up, adding and comparing one after the other would give. Called by the
reduce operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, helper, kernel, repeated
from headrace.engine.kernels.entries import STRUCT
from headrace.engine.kernels.first_live import first_live
from headrace.engine.kernels.gather import CHILDREN, WORDS, assemble
from headrace.engine.kernels.gather import COUNT as COLUMNS
from headrace.engine.kernels.hashing import D128, _valid, hash_rows
from headrace.engine.kernels.hashing import I32 as HALF
from headrace.engine.kernels.hashing import I64 as WORD
from headrace.engine.kernels.lookup import gather
from headrace.engine.kernels.memory import address, load_i16, load_i32, load_i64
from headrace.engine.kernels.numeric_average import ROOM
from headrace.engine.kernels.reduce import corrections, group_rows, sum_packed, versions
from headrace.engine.kernels.reduce_results import FEW, lay_column, show_column
from headrace.engine.kernels.sum_lanes import contributions

DONE, LONG = range(2)
"""How it went: or it takes more than this (a count that may not fit 64 bits)."""

_SOME = 1 << 62
_SIGN, _LAST = np.uint64(1 << 63), np.uint64(0xFFFFFFFFFFFFFFFF)
_LATEST = 9223372036854775807
_TABLE: Any = types.Array(types.int64, 2, "C")
_BYTES: Any = types.Array(types.uint8, 1, "C")
_ROWS = (_BYTES, _BYTES, _TABLE, I64_NEW)
_LAID: Any = types.Tuple((*_ROWS, *_ROWS, _TABLE, I64_NEW, types.int64))  # type: ignore[no-untyped-call]
_GROUPED: Any = types.Tuple((_TABLE, _TABLE, _TABLE, types.int64))  # type: ignore[no-untyped-call]


@helper
def _states(struct, plan, slots, times, diffs, table, shape):
    """The states of the groups of the rows at address `struct`: (how, groups, keys, matches, states, sums).

    As `regroup` has its arguments. `groups`: the block of `group_rows`; `keys`: hash and check of each group; `matches`: its
    rows in `table`; `states` and `sums`: of each version what `versions` fills.
    """
    before, width, size, _ = shape
    count = len(times)
    lanes = np.empty((count, size), np.int64)
    keys = plan[0, 0]
    hashes, checks = np.empty(count, np.uint64), np.empty(count, np.uint64)
    hash_rows(struct, plan[1 : 1 + keys], plan[0, 1] != 0, plan.view(np.uint64)[0, 3], hashes, checks)
    grouped, groups = group_rows(hashes, checks, times)
    first = np.empty((2, groups), np.uint64)
    for g in range(groups):
        first[0, g] = hashes[grouped[2, g]]
        first[1, g] = checks[grouped[2, g]]
    matches, found, overflow = gather(table, first[0], first[1], before, _LATEST, _LATEST)
    prior = np.zeros((groups, size), np.int64)
    places = np.ascontiguousarray(matches[1:3, :found])
    sum_packed(table[:, STRUCT], places, width, matches[0, :found], matches[4, :found], prior)
    few = not overflow
    for k in range(count):
        few = few and -FEW <= diffs[k] < FEW
    for g in range(groups):
        few = few and -_SOME <= prior[g, 0] < _SOME
    states = np.empty((4, count + groups), np.int64)
    sums = np.empty((count + groups, size), np.int64)
    n = 0
    if few:
        lanes[:, 0] = 1
        for s in range(len(slots)):
            at = slots[s, 2]
            contributions(struct, slots[s, 0], slots[s, 1], lanes[:, at : at + slots[s, 3]])
        n = versions((grouped[0], grouped[1], times, diffs), lanes, prior, before, states, sums)
    kept = np.ascontiguousarray(matches[:, :found])
    used = np.ascontiguousarray(sums[:n])
    return DONE if few else LONG, grouped, first, kept, np.ascontiguousarray(states[:, :n]), used


@helper
def _corrected(states, sums, width):
    """The updates that lead from each version of the groups to the next: version, time and diff of each."""
    n = len(sums)
    live = np.empty(n, np.uint8)
    for v in range(n):
        live[v] = width == 0 or sums[v, 0] > 0
    kept = np.empty((3, 2 * n), np.int64)
    some = corrections(states[0], states[1], live, states[3], kept)
    return np.ascontiguousarray(kept[:, :some])


@kernel(_GROUPED(types.int64, I64_TABLE, I64_TABLE, I64, I64, I64_TABLE, repeated(types.int64, 4)))
def regroup(struct, plan, slots, times, diffs, table, shape):
    """The corrections of the groups of the rows at address `struct`: (kept, lanes, shown, how).

    `plan`: how keys are hashed, as `few` has it; `slots`: (column, what is read, first lane, lanes) of each sum; `table`:
    the groups' own batches, as `entries` describes them; `shape`: the groups' time before the step, columns of the key, lanes
    of a group, and how many rows a group needs to be shown (0: all that are kept). Columns of `kept` are a row of the
    group, time and diff of each update of the groups' state, which has its row of `lanes`; of `shown` likewise where
    groups are only said to be there.
    """
    how, _groups, _keys, _matches, states, sums = _states(struct, plan, slots, times, diffs, table, shape)
    kept = _corrected(states, sums, shape[1])
    size, least = shape[2], shape[3]
    out = np.empty((kept.shape[1], size), np.int64)
    for k in range(kept.shape[1]):
        for c in range(size):
            out[k, c] = sums[kept[0, k], c]
        kept[0, k] = states[2, kept[0, k]]
    n = len(sums)
    shown = np.empty((3, 2 * n), np.int64)
    others = 0
    if least > 0:
        seen = np.empty(n, np.uint8)
        for v in range(n):
            seen[v] = sums[v, 0] >= least
        others = corrections(states[0], states[1], seen, np.ones(n, np.int64), shown)
        for k in range(others):
            shown[0, k] = states[2, shown[0, k]]
    return kept, out, np.ascontiguousarray(shown[:, :others]), how


@helper
def _value(struct, column, row, code):
    """A value of a payload: (whether it is not NULL, the value, whether that fits 64 bits)."""
    child = load_i64(load_i64(struct + 48) + column * 8)
    at = load_i64(child + 16) + load_i64(struct + 16) + row
    buffers = load_i64(child + 40)
    if load_i64(child + 8) != 0 and not _valid(load_i64(buffers), at):
        return False, np.int64(0), True
    values = load_i64(buffers + 8)
    if code == D128:
        low, high = load_i64(values + at * 16), load_i64(values + at * 16 + 8)
        return True, low, high == low >> 63
    if code == WORD:
        return True, load_i64(values + at * 8), True
    if code == HALF:
        return True, np.int64(load_i32(values + at * 4)), True
    return True, np.int64(load_i16(values + at * 2)), True


@helper
def _bounds(struct, grouped, count, matches, structs, extreme, bounds):
    """Fill `bounds` with the order of each group's last value on that side, before the step or in it; false if one is unknown."""
    column, code, of_state, greatest = extreme[0], extreme[1], extreme[2], extreme[4] != 0
    bounds[:] = np.uint64(0) if greatest else _LAST
    for k in range(count + matches.shape[1]):
        if k < count:
            group = grouped[1, k]
            there, value, fits = _value(struct, column, k, code)
        else:
            m = k - count
            group = matches[0, m]
            there, value, fits = _value(structs[matches[1, m]], of_state, matches[2, m], code)
        if not fits:
            return False
        if there:
            order = np.uint64(value) ^ _SIGN
            bounds[group] = max(bounds[group], order) if greatest else min(bounds[group], order)
    return True


@helper
def _extremes(found, size, structs, extreme, states, values, there):
    """Fill `values` and `there` with the extreme of each version's group, from what `first_live` found; false if one is unknown.

    Versions of which it differs from the one above are no longer `same`.
    """
    of_own, code = extreme[3], extreme[1]
    own, is_value = np.empty(size, np.int64), np.empty(size, np.bool_)
    for k in range(size):
        is_value[k], own[k], fits = _value(structs[found[1, k]], of_own, found[2, k], code)
        if not fits:
            return False
    begin = 0
    for v in range(states.shape[1]):
        group, time = states[0, v], states[1, v]
        while begin < size and found[0, begin] < group:
            begin += 1
        total = 0
        k = begin
        last = begin
        while k < size and found[0, k] == group:
            if is_value[k]:
                if k > last and own[k] != own[last]:
                    if total > 0:
                        break
                    total = 0
                last = k
                if found[3, k] <= time:
                    total += found[4, k]
            k += 1
        there[v] = 1 if total > 0 else 0
        values[v] = own[last] if total > 0 else 0
        if v > 0 and states[0, v - 1] == group and (there[v] != there[v - 1] or values[v] != values[v - 1]):
            states[3, v] = 0
    return True


@helper
def _lay(values, there, versions_of, code, cells, bits):
    """Lay the extremes of some versions out as a column; how many are NULL."""
    nulls = 0
    halves, quarters = cells.view(np.int32), cells.view(np.int16)
    for k in range(len(versions_of)):
        v = versions_of[k]
        if there[v] == 0:
            nulls += 1
            continue
        bits[k >> 3] |= np.uint8(1) << np.uint8(k & 7)
        if code == D128:
            cells[2 * k], cells[2 * k + 1] = values[v], values[v] >> 63
        elif code == WORD:
            cells[k] = values[v]
        elif code == HALF:
            halves[k] = values[v]
        else:
            quarters[k] = values[v]
    return nulls


@kernel(
    _LAID(
        types.int64,
        repeated(I64_TABLE, 4),
        I64,
        I64,
        repeated(I64_TABLE, 2),
        repeated(types.int64, 4),
        repeated(I64_TABLE, 2),
    )
)
def regroup_rows(struct, plans, times, diffs, tables, shape, steps):
    """As `regroup`, with the rows laid out: (those kept, those shown, times and diffs of both, reads in vain, how it went).

    `plans`: how keys are hashed; the sums as `regroup` has them; of each extreme its column, lane, column in the state and
    in its own trace, 1 if it is the greatest, and which of its batches is the first, and how many they are; of each other
    aggregate what is shown, its first lane, its lanes, and digits behind the point. `tables`: the groups' own batches, then
    those of the extremes, values by group and in order. `steps`: how the rows that are kept, and those that are shown, are
    put together: lane 0 is a row of the group, lane 1 the packed lanes, the extremes and the other aggregates.
    """
    extremes, shows = plans[2], plans[3]
    how, grouped, first, matches, states, sums = _states(struct, plans[0], plans[1], times, diffs, tables[0], shape)
    n = len(sums)
    values, there = np.zeros((len(extremes), n), np.int64), np.zeros((len(extremes), n), np.uint8)
    vain = np.zeros(len(extremes), np.int64)
    bounds = np.empty(first.shape[1], np.uint64)
    structs = tables[0][:, STRUCT].copy()
    for e in range(len(extremes) if how == DONE else 0):
        extreme = extremes[e]
        if not _bounds(struct, grouped, len(times), matches, structs, extreme, bounds):
            how = LONG
            break
        own = tables[1][extreme[5] : extreme[5] + extreme[6]].copy()
        found, size, visited, overflow = first_live(own, first[0], first[1], bounds, extreme[4] != 0, shape[0])
        vain[e] = visited - size
        if overflow or not _extremes(found, size, own[:, STRUCT].copy(), extreme, states, values[e], there[e]):
            how = LONG
            break
    kept = _corrected(states, sums, shape[1])
    size = kept.shape[1] if how == DONE else 0
    lanes = np.empty((size, shape[2]), np.int64)
    for k in range(size):
        for c in range(shape[2]):
            lanes[k, c] = sums[kept[0, k], c]
    columns = 1 + len(extremes) + len(shows)
    words = np.zeros(WORDS + columns * (WORDS + 1), np.int64)
    cells = np.zeros((columns, 2 * size + 2), np.int64)
    bits = np.zeros((columns, ((size + 7) >> 3) + 8), np.uint8)
    texts = np.empty((columns, size * ROOM + 1), np.uint8)
    words[0], words[3], words[COLUMNS], words[CHILDREN] = size, 1, columns, address(words) + WORDS * 8
    for k in range(size + 1):
        cells[0, k] = k * shape[2] * 8
    lay_column(words, columns, 0, size, 0, 0, np.int64(address(cells[0])), np.int64(address(lanes)))
    for e in range(len(extremes)):
        c = 1 + e
        nulls = _lay(values[e], there[e], kept[0, :size], extremes[e, 1], cells[c], bits[c])
        lay_column(words, columns, c, size, nulls, np.int64(address(bits[c])), np.int64(address(cells[c])), 0)
    for s in range(len(shows)):
        c = 1 + len(extremes) + s
        if not show_column(words, columns, c, shows[s], lanes, cells[c], bits[c], texts[c]):
            how = LONG
    if how == LONG:
        size = 0
    sources, positions = np.zeros((2, size), np.int64), np.empty((2, size), np.int64)
    facts = np.empty((2, size), np.int64)
    for k in range(size):
        sources[1, k] = 1
        positions[0, k], positions[1, k] = states[2, kept[0, k]], k
        facts[0, k], facts[1, k] = kept[1, k], kept[2, k]
    places = np.empty(2, np.int64)
    places[0], places[1] = struct, address(words)
    block, data_of, where, own_words = assemble(places, steps[0], sources, positions)
    block2, data2, where2, words2 = assemble(places, steps[1], sources, positions)
    # What the rows were read from is held until here.
    held = len(words) + cells.size + bits.size + texts.size + lanes.size
    return block, data_of, where, own_words, block2, data2, where2, words2, facts, vain, how if held > 0 else LONG
