# mypy: allow-untyped-defs
"""A few rows taken from their payload to a sealed batch in one call: what a small step costs is calls, not rows.

Always: the lanes are those that hashing, sorting and consolidating one after the other would give. Called by
`headrace.engine.batch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, helper, kernel, repeated
from headrace.engine.kernels.consolidate import _seal_into
from headrace.engine.kernels.entries import IMAGE as IMAGE_AT
from headrace.engine.kernels.entries import STRUCT, locate
from headrace.engine.kernels.hashing import BYTES32, BYTES64, D128, FIXED, IMAGE, _fixed_word, _valid, hash_rows
from headrace.engine.kernels.lookup import gather
from headrace.engine.kernels.memory import load_i32, load_i64, load_u8
from headrace.engine.kernels.order_images import order_lane
from headrace.engine.kernels.reduce import group_rows
from headrace.engine.kernels.times import EPOCHS
from headrace.engine.kernels.upsert import U8, net, net_counts

SEALED, OVERFLOW, OUTSIDE = range(3)
"""How it went: a sum does not fit 64 bits; a time lies outside of the window."""

WHOLE, NETTED, LONG = range(3)
"""How an intake went: the rows are the updates, all new; or those found are; or it takes more than this (a truncate)."""

_DELETE, _TRUNCATE, _RETRACT = 1, 2, 4
_LATEST = 9223372036854775807
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
_SEALED: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.int64))  # type: ignore[no-untyped-call]
_SETTLED: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.boolean))  # type: ignore[no-untyped-call]
_TAKEN: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.int64, types.boolean))  # type: ignore[no-untyped-call]


@kernel(_SEALED(types.int64, I64_TABLE, I64, I64, repeated(types.int64, 3), I64_NEW))
def seal_rows(struct, plan, times, diffs, window, located):
    """Hash, sort and consolidate the rows at address `struct`: (block, distinct rows, how it went).

    `plan`: int64[rows, 4]: (key columns, 1 if the key is exact, column of the order or -1, mask of the hash), then the
    steps of the key, (code, form, width, 0) of the order, then the steps of the whole row. `window`: epochs are ≥
    window[0] and < window[1], those of later rounds ≥ window[2]. Rows of the block are the five identity lanes, times,
    diffs and positions; `located`, which has the address of what hashes images already, becomes the batch's row in the
    table that `entries` describes.
    """
    count = len(times)
    block = np.empty((8, count), np.int64)
    for k in range(count):
        epoch = times[k] & EPOCHS
        if times[k] < 0 or epoch >= window[1] or epoch < (window[0] if epoch == times[k] else window[2]):
            return block, 0, OUTSIDE
    keys = plan[0, 0]
    lanes = np.empty((5, count), np.uint64)
    hash_rows(struct, plan[1 : 1 + keys], plan[0, 1] != 0, plan.view(np.uint64)[0, 3], lanes[0], lanes[1])
    hash_rows(struct, plan[2 + keys :], False, _FULL, lanes[3], lanes[4])
    if plan[0, 2] < 0:
        lanes[2] = 0
    else:
        shape = plan[1 + keys]
        order_lane(struct, plan[0, 2], (shape[0], shape[1], shape[2]), lanes[2])
    words = block.view(np.uint64)
    size, distinct, lost = _seal_into(
        (lanes[0], lanes[1], lanes[2], lanes[3], lanes[4]),
        (times, diffs, np.arange(count)),
        (words[0], words[1], words[2], words[3], words[4]),
        (block[5], block[6], block[7]),
        0,
    )
    locate(
        (words[0, :size], words[1, :size], words[2, :size], words[3, :size], words[4, :size]),
        (block[5, :size], block[6, :size], block[7, :size]),
        struct,
        plan[2 + keys :],
        located[IMAGE_AT],
        located,
    )
    return block, distinct, OVERFLOW if lost else SEALED


@kernel(_SETTLED(types.int64, I64_TABLE, I64, I64, types.boolean))
def settle(struct, steps, times, diffs, by_time):
    """Add up the rows at address `struct` whose images by the plan `steps` are equal: (block, how many, overflow).

    Rows of the block: times, diffs, and positions of the first of equal rows; ordered by fingerprint and time, or by time
    first.
    """
    count = len(times)
    lanes = np.empty((3, count), np.uint64)
    hash_rows(struct, steps, False, _FULL, lanes[0], lanes[1])
    lanes[2] = 0
    words = np.empty((5, count), np.uint64)
    block = np.empty((3, count), np.int64)
    size, _, lost = _seal_into(
        (lanes[0], lanes[1], lanes[2], lanes[2], lanes[2]),
        (times, diffs, np.arange(count)),
        (words[0], words[1], words[2], words[3], words[4]),
        (block[0], block[1], block[2]),
        0,
    )
    if by_time:
        for k in range(1, size):
            if block[0, k] < block[0, k - 1]:
                order = np.argsort(block[0, :size], kind="mergesort")
                for lane in range(3):
                    block[lane, :size] = block[lane, :size][order]
                break
    return block, size, lost != 0


@helper
def _bytes_at(values, data, i, code, width):
    """Where the bytes of entry `i` begin, and how many they are."""
    if code == BYTES64:
        begin = load_i64(values + i * 8)
        return data + begin, load_i64(values + i * 8 + 8) - begin
    if code == BYTES32:
        first = np.int64(load_i32(values + i * 4))
        return data + first, np.int64(load_i32(values + i * 4 + 4)) - first
    size = 16 if code == D128 else width
    return values + i * size, size


@helper
def _alike(struct, i, other, j, steps):
    """True if row `i` of the payload at address `struct` and row `j` of the one at `other` have identical images."""
    for k in range(len(steps)):
        code = steps[k, 1]
        one = load_i64(load_i64(struct + 48) + steps[k, 0] * 8)
        two = load_i64(load_i64(other + 48) + steps[k, 0] * 8)
        a = load_i64(one + 16) + load_i64(struct + 16) + i
        b = load_i64(two + 16) + load_i64(other + 16) + j
        left, right = load_i64(one + 40), load_i64(two + 40)
        is_there = _valid(load_i64(left) if load_i64(one + 8) != 0 else 0, a)
        if is_there != _valid(load_i64(right) if load_i64(two + 8) != 0 else 0, b):
            return False
        if not is_there:
            continue
        left_values, right_values = load_i64(left + 8), load_i64(right + 8)
        if code in (D128, BYTES32, BYTES64, FIXED):
            varies = code in (BYTES32, BYTES64)
            width = steps[k, 3]
            at, size = _bytes_at(left_values, load_i64(left + 16) if varies else 0, a, code, width)
            other_at, other_size = _bytes_at(right_values, load_i64(right + 16) if varies else 0, b, code, width)
            if size != other_size:
                return False
            for n in range(size):
                if load_u8(at + n) != load_u8(other_at + n):
                    return False
        elif _fixed_word(left_values, a, code, IMAGE) != _fixed_word(right_values, b, code, IMAGE):
            return False
    return True


@kernel(_TAKEN(types.int64, I64_TABLE, I64, U8, I64_TABLE, types.int64))
def take_in(struct, plan, epochs, kinds, table, since):
    """What upserts of whole rows, at address `struct`, make of a keyed table: (updates found, how many, how, overflow).

    `plan`: as of `seal_rows`; `table`: the table's own batches, read at `since`. Rows of what is found: the payload (0 is
    the upserts' own, b + 1 that of batch b), the position in it, time and diff; a delete before the row that replaces it,
    and neither where the two have the same image.
    """
    count = len(epochs)
    found = np.empty((4, 2 * count), np.int64)
    removes = np.zeros(count, np.uint8)
    has_removes = False
    for k in range(count):
        if kinds[k] == _TRUNCATE:
            return found, 0, LONG, False
        if kinds[k] == _DELETE:
            removes[k] = 1
            has_removes = True
    keys = plan[0, 0]
    hashes, checks = np.empty(count, np.uint64), np.empty(count, np.uint64)
    hash_rows(struct, plan[1 : 1 + keys], plan[0, 1] != 0, plan.view(np.uint64)[0, 3], hashes, checks)
    none = np.zeros(count, np.int64)
    grouped, groups = group_rows(hashes, checks, none)
    first_hashes, first_checks = np.empty(groups, np.uint64), np.empty(groups, np.uint64)
    for g in range(groups):
        first_hashes[g] = hashes[grouped[2, g]]
        first_checks[g] = checks[grouped[2, g]]
    matches, size, overflow = gather(table, first_hashes, first_checks, since, _LATEST, _LATEST)
    if overflow:
        return found, 0, NETTED, True
    if size == 0 and groups == count and not has_removes:
        return found, 0, WHOLE, False
    current = np.full(groups, -1, np.int64)
    for m in range(size):
        current[matches[0, m]] = count + m
    block, changes, _ = net(grouped[0], grouped[1], none, epochs, removes, np.zeros(count, np.uint8), current)
    structs = table[:, STRUCT]
    n = 0
    for k in range(changes):
        image = block[0, k]
        found[0, n] = 0 if image < count else matches[1, image - count] + 1
        found[1, n] = image if image < count else matches[2, image - count]
        found[2, n] = block[1, k]
        found[3, n] = block[2, k]
        n += 1
        if n >= 2 and found[3, n - 1] == 1 and found[3, n - 2] == -1 and found[2, n - 1] == found[2, n - 2]:
            old = struct if found[0, n - 2] == 0 else structs[found[0, n - 2] - 1]
            new = struct if found[0, n - 1] == 0 else structs[found[0, n - 1] - 1]
            if _alike(old, found[1, n - 2], new, found[1, n - 1], plan[2 + keys :]):
                n -= 2
    return found, n, NETTED, False


@helper
def _images_by_key(ids, firsts, count):
    """The images by the group of their key: those of key k stand from place starts[k] to starts[k + 1].

    `ids`: of each row the group of its key, of which there are `count`; `firsts`: of each image a row.
    """
    starts = np.zeros(count + 1, np.int64)
    for g in range(len(firsts)):
        starts[ids[firsts[g]] + 1] += 1
    for k in range(count):
        starts[k + 1] += starts[k]
    places = starts.copy()
    images = np.empty(len(firsts), np.int64)
    for g in range(len(firsts)):
        key = ids[firsts[g]]
        images[places[key]] = g
        places[key] += 1
    return starts, images


@kernel(_TAKEN(types.int64, I64_TABLE, I64, U8, I64_TABLE, types.int64))
def count_in(struct, plan, epochs, kinds, table, since):
    """What inserts and retractions of rows, at address `struct`, make of a multiset: (updates, how many, how, overflow).

    As `take_in`, but rows of what is found are position, time, diff and how many copies there were before; a retraction of
    a row that is not there takes more than this, as a truncate does. Where each change is an update of its own they stand
    as they came, and the rows are all of them.
    """
    count = len(epochs)
    found = np.empty((5, count), np.int64)
    removes = np.zeros(count, np.uint8)
    for k in range(count):
        if kinds[k] == _TRUNCATE:
            return found, 0, LONG, False
        removes[k] = kinds[k] == _RETRACT
    keys = plan[0, 0]
    hashes, checks = np.empty(count, np.uint64), np.empty(count, np.uint64)
    none = np.zeros(count, np.int64)
    hash_rows(struct, plan[1 : 1 + keys], plan[0, 1] != 0, plan.view(np.uint64)[0, 3], hashes, checks)
    keyed, key_groups = group_rows(hashes, checks, none)
    first_hashes, first_checks = np.empty(key_groups, np.uint64), np.empty(key_groups, np.uint64)
    for g in range(key_groups):
        first_hashes[g] = hashes[keyed[2, g]]
        first_checks[g] = checks[keyed[2, g]]
    matches, size, overflow = gather(table, first_hashes, first_checks, since, _LATEST, _LATEST)
    if overflow:
        return found, 0, NETTED, True
    hash_rows(struct, plan[2 + keys :], False, _FULL, hashes, checks)
    grouped, groups = group_rows(hashes, checks, none)
    counts = np.zeros(groups, np.int64)
    starts, images = _images_by_key(keyed[1], grouped[2, :groups], key_groups)
    for m in range(size):
        for at in range(starts[matches[0, m]], starts[matches[0, m] + 1]):
            g = images[at]
            if _alike(struct, grouped[2, g], table[matches[1, m], STRUCT], matches[2, m], plan[2 + keys :]):
                counts[g] += matches[4, m]
                break
    bad = np.zeros(count, np.uint8)
    n = net_counts((grouped[0], grouped[1][grouped[0]], epochs), removes, counts, found, bad)
    for k in range(count):
        if bad[k]:
            return found, 0, LONG, False
    if n < count:
        return found, n, NETTED, False
    # Each change is one update: in the order in which they came their rows need not be moved.
    whole = np.empty((4, count), np.int64)
    for k in range(count):
        at = found[0, k]
        whole[0, at], whole[1, at], whole[2, at], whole[3, at] = at, found[1, k], found[2, k], found[3, k]
    return whole, n, WHOLE, False
