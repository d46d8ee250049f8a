# mypy: allow-untyped-defs
"""A few changes of two sides taken to the rows of their join in one call: what a small step costs is calls, not rows.

Always: the rows are those that hashing, grouping, looking up, pairing and picking one after the other would give, in that
order. Called by the join operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, helper, kernel, repeated
from headrace.engine.kernels.entries import STRUCT
from headrace.engine.kernels.gather import assemble
from headrace.engine.kernels.hashing import _valid, hash_rows
from headrace.engine.kernels.history import BEGIN, COPIES, END, GROUP, UPDATE, lifespans
from headrace.engine.kernels.join import ASKER, CURSOR, DIFF, SPAN, TIME, meet
from headrace.engine.kernels.lookup import gather
from headrace.engine.kernels.memory import address, load_i64
from headrace.engine.kernels.reduce import group_rows
from headrace.engine.kernels.reduce_results import lay_shows, shown_states
from headrace.engine.kernels.small_batch import settle

DONE, LONG = range(2)
"""How it went: or it takes more than this (many pairs, or a number that does not fit 64 bits)."""

MANY = 256
"""So many pairs take more than this."""

_MOST = 4096
"""And so many updates of the keys that are looked up."""

_LATEST = 9223372036854775807
_BYTES: Any = types.Array(types.uint8, 1, "C")
_TABLE: Any = types.Array(types.int64, 2, "C")
_JOINED: Any = types.Tuple((_BYTES, _BYTES, _TABLE, I64_NEW, _TABLE, types.int64))  # type: ignore[no-untyped-call]


@helper
def _has_null(struct, plan, keys, row):
    """True if a key column of a row of the payload at address `struct` is NULL."""
    for k in range(keys):
        child = load_i64(load_i64(struct + 48) + plan[1 + k, 0] * 8)
        if load_i64(child + 8) != 0:
            at = load_i64(child + 16) + load_i64(struct + 16) + row
            if not _valid(load_i64(load_i64(child + 40)), at):
                return True
    return False


@helper
def _asked(side, times, diffs):
    """What one side asks for: (time, diff and row of each update, the block of `group_rows`, hashes and checks of its keys, how).

    `side`: the address of its rows, how their keys are hashed, and the plan of the columns that count, if not all do. Updates
    whose key has a NULL ask for nothing.
    """
    struct, plan, slim = side
    count = len(times)
    keys = plan[0, 0]
    facts = np.empty((3, count), np.int64)
    how = DONE
    if len(slim) > 0 and count > 0:
        settled, count, lost = settle(struct, slim, times, diffs, False)
        how = LONG if lost else DONE
        for k in range(count):
            facts[0, k], facts[1, k], facts[2, k] = settled[0, k], settled[1, k], settled[2, k]
    else:
        for k in range(count):
            facts[0, k], facts[1, k], facts[2, k] = times[k], diffs[k], k
    all_hashes, all_checks = np.empty(len(times), np.uint64), np.empty(len(times), np.uint64)
    hash_rows(struct, plan[1 : 1 + keys], plan[0, 1] != 0, plan.view(np.uint64)[0, 3], all_hashes, all_checks)
    hashes, checks = np.empty(count, np.uint64), np.empty(count, np.uint64)
    n = 0
    for k in range(count):
        row = facts[2, k]
        if _has_null(struct, plan, keys, row):
            continue
        for lane in range(3):
            facts[lane, n] = facts[lane, k]
        hashes[n], checks[n] = all_hashes[row], all_checks[row]
        n += 1
    facts = np.ascontiguousarray(facts[:, :n])
    grouped, groups = group_rows(hashes[:n], checks[:n], facts[0])
    first = np.empty((2, groups), np.uint64)
    for g in range(groups):
        first[0, g] = hashes[grouped[2, g]]
        first[1, g] = checks[grouped[2, g]]
    return facts, grouped, first, how


@helper
def _met(facts, grouped, matches, size, strictly):
    """The pairs of what was asked for and what was found: (block, pairs, how).

    Rows of the block: the update's row, the batch and the position in it of its partner, time and diff.
    """
    found = np.empty((5, MANY), np.int64)
    n = facts.shape[1]
    asking, at, by = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        row = grouped[0, k]
        asking[k], at[k], by[k] = grouped[1, row], facts[0, row], facts[1, row]
    lives, spans, lost = lifespans(matches[0, :size], matches[5, :size], matches[3, :size], matches[4, :size])
    if lost:
        return found, 0, LONG
    cursor, live = np.zeros(CURSOR, np.int64), np.empty(spans, np.int64)
    alive = (lives[GROUP, :spans], lives[BEGIN, :spans], lives[END, :spans], lives[COPIES, :spans])
    pairs, some, unfit = meet((asking, at, by), alive, strictly, MANY, cursor, live)
    if unfit > 0 or cursor[0] < n:
        return found, 0, LONG
    for k in range(some):
        match = lives[UPDATE, pairs[SPAN, k]]
        found[0, k] = facts[2, grouped[0, pairs[ASKER, k]]]
        found[1, k] = matches[1, match]
        found[2, k] = matches[2, match]
        found[3, k] = pairs[TIME, k]
        found[4, k] = pairs[DIFF, k]
    return found, some, DONE


@helper
def _pairs(side, times, diffs, table, since, strictly):
    """What one side's updates meet in the other's batches, as `_met` gives it."""
    if len(times) > 0:
        facts, grouped, first, how = _asked(side, times, diffs)
        if how == LONG:
            return np.empty((5, 0), np.int64), 0, LONG
        if first.shape[1] > 0:
            matches, size, overflow = gather(table, first[0], first[1], since, _LATEST, _MOST)
            if overflow or size < 0:
                return np.empty((5, 0), np.int64), 0, LONG
            if size > 0:
                return _met(facts, grouped, matches, size, strictly)
    return np.empty((5, 0), np.int64), 0, DONE


@helper
def _nothing(how):
    """No rows, and how it went."""
    none = np.empty(0, np.uint8)
    return none, none, np.empty((0, 6), np.int64), np.empty(0, np.int64), np.empty((2, 0), np.int64), how


@kernel(
    _JOINED(
        repeated(types.int64, 2),
        repeated(I64_TABLE, 4),
        repeated(I64, 4),
        repeated(I64_TABLE, 2),
        types.int64,
        types.boolean,
        I64_TABLE,
    )
)
def join_few(structs, plans, updates, tables, since, strictly, steps):
    """The rows of a join that a few changes make: those of `assemble`, times and diffs of each, and how it went.

    `structs`: addresses of both sides' rows; `plans`: of each side, as `small_batch.seal_rows` has it, how keys are hashed,
    then for each the columns that count, empty where all do; `updates`: times and diffs of the left, then of the right;
    `tables`: both sides' batches, read at `since`. The left meets what is live at its times, or `strictly` just before them,
    the right always just before. `steps`: how rows are put together, lane 0 being the left.
    """
    left = structs[0], plans[0], plans[2]
    right = structs[1], plans[1], plans[3]
    one, ones, how = _pairs(left, updates[0], updates[1], tables[1], since, strictly)
    if how == DONE:
        two, twos, how = _pairs(right, updates[2], updates[3], tables[0], since, True)
    else:
        two, twos = one, 0
    count = ones + twos if how == DONE else 0
    batches = len(tables[0])
    places = np.empty(2 + batches + len(tables[1]), np.int64)
    places[0], places[1] = structs[0], structs[1]
    places[2 : 2 + batches] = tables[0][:, STRUCT]
    places[2 + batches :] = tables[1][:, STRUCT]
    sources, positions = np.zeros((2, count), np.int64), np.empty((2, count), np.int64)
    facts = np.empty((2, count), np.int64)
    for k in range(count):
        if k < ones:
            positions[0, k] = one[0, k]
            sources[1, k], positions[1, k] = 2 + batches + one[1, k], one[2, k]
            facts[0, k], facts[1, k] = one[3, k], one[4, k]
        else:
            m = k - ones
            sources[0, k], positions[0, k] = 2 + two[1, m], two[2, m]
            sources[1, k], positions[1, k] = 1, two[0, m]
            facts[0, k], facts[1, k] = two[3, m], two[4, m]
    if how != DONE or count >= MANY:
        return _nothing(LONG)
    if count == 0:
        return _nothing(DONE)
    block, data, where, words = assemble(places, steps, sources, positions)
    return block, data, where, words, facts, DONE


@kernel(
    _JOINED(
        types.int64,
        repeated(I64_TABLE, 3),
        I64,
        I64,
        I64_TABLE,
        types.boolean,
        repeated(I64_TABLE, 2),
        repeated(types.int64, 4),
    )
)
def join_results(struct, plans, times, diffs, table, strictly, steps, shape):
    """As `join_few`, of one side's changes and the results of a reduce, which are made of its states.

    `plans`: how the side's keys are hashed, the columns that count, empty where all do, and what aggregates show, as
    `regroup_rows` has it; `table`: the states' batches; `steps`: how a result is put together of its state (lane 0) and of
    what aggregates show (lane 1), then how a row of the join is of the side's and of a result; `shape`: the time at which the
    states are read, columns of the key, lanes of a group, and how many rows a group needs to be shown.
    """
    facts, grouped, first, how = _asked((struct, plans[0], plans[1]), times, diffs)
    if how == LONG:
        return _nothing(LONG)
    if first.shape[1] == 0:
        return _nothing(DONE)
    matches, size, overflow = gather(table, first[0], first[1], shape[0], _LATEST, _MOST)
    if overflow or size < 0:
        return _nothing(LONG)
    structs = table[:, STRUCT].copy()
    size, lanes = shown_states(structs, matches, size, shape)
    if size == 0:
        return _nothing(DONE)
    words, cells, bits, texts, fits = lay_shows(lanes, plans[2])
    if not fits:
        return _nothing(LONG)
    places = np.empty(len(structs) + 1, np.int64)
    places[: len(structs)], places[len(structs)] = structs, address(words)
    sources, positions = np.empty((2, size), np.int64), np.empty((2, size), np.int64)
    for k in range(size):
        sources[0, k], positions[0, k] = matches[1, k], matches[2, k]
        sources[1, k], positions[1, k] = len(structs), k
        # From here on a match's row is its result.
        matches[1, k], matches[2, k] = 1, k
    made, made_data, _, results = assemble(places, steps[0], sources, positions)
    found, count, how = _met(facts, grouped, matches, size, strictly)
    if how == LONG or count >= MANY:
        return _nothing(LONG)
    if count == 0:
        return _nothing(DONE)
    both = np.empty(2, np.int64)
    both[0], both[1] = struct, address(results)
    lanes_of, rows_of, of = (
        np.empty((2, count), np.int64),
        np.empty((2, count), np.int64),
        np.empty((2, count), np.int64),
    )
    for k in range(count):
        lanes_of[0, k], rows_of[0, k] = 0, found[0, k]
        lanes_of[1, k], rows_of[1, k] = found[1, k], found[2, k]
        of[0, k], of[1, k] = found[3, k], found[4, k]
    block, data, where, own = assemble(both, steps[1], lanes_of, rows_of)
    # What the rows were read from is held until here.
    held = cells.size + bits.size + texts.size + lanes.size + made.size + made_data.size + len(words) + len(results)
    return block, data, where, own, of, DONE if held > 0 else LONG
