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
from headrace.engine.kernels.memory import load_i64
from headrace.engine.kernels.reduce import group_rows
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
def _pairs(side, times, diffs, table, since, strictly):
    """What one side's updates meet in the other's batches: (block, pairs, how).

    `side`: the address of its rows, how their keys are hashed, and the plan of the columns that count, if not all do. Rows
    of the block: the update's row, the batch and the position in it of its partner, time and diff.
    """
    struct, plan, slim = side
    count = len(times)
    keys = plan[0, 0]
    found = np.empty((5, MANY), np.int64)
    if count == 0:
        return found, 0, DONE
    when, net, rows = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    if len(slim) > 0:
        settled, count, lost = settle(struct, slim, times, diffs, False)
        if lost:
            return found, 0, LONG
        for k in range(count):
            when[k], net[k], rows[k] = settled[0, k], settled[1, k], settled[2, k]
    else:
        for k in range(count):
            when[k], net[k], rows[k] = times[k], diffs[k], k
    all_hashes, all_checks = np.empty(len(times), np.uint64), np.empty(len(times), np.uint64)
    hash_rows(struct, plan[1 : 1 + keys], plan[0, 1] != 0, plan.view(np.uint64)[0, 3], all_hashes, all_checks)
    hashes, checks = np.empty(count, np.uint64), np.empty(count, np.uint64)
    n = 0
    for k in range(count):
        row = rows[k]
        if _has_null(struct, plan, keys, row):
            continue
        when[n], net[n], rows[n] = when[k], net[k], row
        hashes[n], checks[n] = all_hashes[row], all_checks[row]
        n += 1
    if n == 0:
        return found, 0, DONE
    grouped, groups = group_rows(hashes[:n], checks[:n], when[:n])
    first_hashes, first_checks = np.empty(groups, np.uint64), np.empty(groups, np.uint64)
    for g in range(groups):
        first_hashes[g] = hashes[grouped[2, g]]
        first_checks[g] = checks[grouped[2, g]]
    matches, size, overflow = gather(table, first_hashes, first_checks, since, _LATEST, _MOST)
    if overflow or size < 0:
        return found, 0, LONG
    if size == 0:
        return found, 0, DONE
    asking, at, by = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        row = grouped[0, k]
        asking[k], at[k], by[k] = grouped[1, row], when[row], net[row]
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
        found[0, k] = rows[grouped[0, pairs[ASKER, k]]]
        found[1, k] = matches[1, match]
        found[2, k] = matches[2, match]
        found[3, k] = pairs[TIME, k]
        found[4, k] = pairs[DIFF, k]
    return found, some, DONE


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
        return (
            np.empty(0, np.uint8),
            np.empty(0, np.uint8),
            np.empty((0, 6), np.int64),
            np.empty(0, np.int64),
            facts,
            LONG,
        )
    if count == 0:
        return (
            np.empty(0, np.uint8),
            np.empty(0, np.uint8),
            np.empty((0, 6), np.int64),
            np.empty(0, np.int64),
            facts,
            DONE,
        )
    block, data, where, words = assemble(places, steps, sources, positions)
    return block, data, where, words, facts, DONE
