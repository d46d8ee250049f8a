# mypy: allow-untyped-defs
"""What stands for a group in one round of a loop: whether and how often its row is there, or its least or greatest value.

Always: nothing is kept of what was sent; sums of it are what stood just before the round, one round of the scope back, one
of the scope around, and both (inclusion and exclusion), so that all is read off the arrangement of what came in. Batches
come as a table of addresses, which `entries` describes. Called by `headrace.engine.iteration.loop_groups`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64_TABLE, U64, helper, kernel, repeated
from headrace.engine.kernels.consolidate import overflows
from headrace.engine.kernels.entries import DIFFS, ORDER, SIZE, STRUCT, TIMES, fact, position, word
from headrace.engine.kernels.lookup import _guess, _is_key, _seek, _seek_past
from headrace.engine.kernels.memory import load_i64, load_u8
from headrace.engine.kernels.reduce import _least_of_group
from headrace.engine.kernels.sort import sort_index
from headrace.engine.kernels.times import EPOCHS, ROUNDS

BATCH, POSITION, TIME, DIFF, COPIES = range(5)
"""Rows of what is found: where a row lies, and from which epoch on it stands once more or less, having so many copies."""

COPIES_OF, LEAST, GREATEST = range(3)
"""What is asked of a group."""

_LOST = -2

_OUTER, _INNER = 1, 2
"""Of an entry: it is of an earlier outer round; of an earlier inner one."""

_SPARSE = 8
"""A batch of so many entries a probe is looked through by guesses, a smaller one from probe to probe."""

_MUCH = 1 << 62
_FEW = 24
_WORK = 4096
"""Looking through a group for each epoch costs less than a tree of it up to about so many looks."""

_TABLE: Any = types.Array(types.int64, 2, "C")
_FOUND: Any = types.Tuple((_TABLE, types.int64, _TABLE, types.int64, types.boolean))  # type: ignore[no-untyped-call]


@helper
def _sweep(table, hashes, checks, order, spans):
    """Fill spans[k, 2b] and spans[k, 2b + 1] with where batch b has the key of the k-th probe; returns the most of a key.

    A probe whose key is that of the one before has none.
    """
    count = len(order)
    guesses = np.empty(count, np.int64)
    for b in range(len(table)):
        hash_at, hash_step, check_at, check_step = table[b, 0], table[b, 1], table[b, 2], table[b, 3]
        size = table[b, SIZE]
        sparse = size >= _SPARSE * count
        if sparse and size > 0:
            _guess(hash_at, hash_step, size, hashes, order, guesses)
        end = 0
        for k in range(count):
            hashed, check = hashes[order[k]], checks[order[k]]
            if k > 0 and hashed == hashes[order[k - 1]] and check == checks[order[k - 1]]:
                spans[k, 2 * b] = spans[k, 2 * b + 1] = end
                continue
            guess = guesses[k] if sparse else end
            begin = _seek(hash_at, hash_step, check_at, check_step, (end, size), guess, hashed, check)
            end = begin
            if begin < size and _is_key(hash_at, hash_step, check_at, check_step, begin, hashed, check):
                end = _seek_past(hash_at, hash_step, check_at, check_step, begin, size, hashed, check)
            spans[k, 2 * b] = begin
            spans[k, 2 * b + 1] = end
    most = 0
    for k in range(count):
        size = 0
        for b in range(len(table)):
            size += spans[k, 2 * b + 1] - spans[k, 2 * b]
        most = max(most, size)
    return most


@helper
def _is_null(batch, column, i):
    """True if entry `i` has no value in a column of its row."""
    struct = batch[STRUCT]
    child = load_i64(load_i64(struct + 48) + column * 8)
    if load_i64(child + 8) == 0:
        return False
    at = load_i64(child + 16) + load_i64(struct + 16) + position(batch, i)
    return (load_u8(load_i64(load_i64(child + 40)) + (at >> 3)) >> (at & 7)) & 1 == 0


@helper
def _ordered(keys, more, order, size):
    """The first `size` places of `order` sorted by `keys`, then by `more`; equal ones as they are."""
    for k in range(size):
        order[k] = k
    if size > _FEW:
        by_more = np.argsort(more[:size], kind="mergesort")
        order[:size] = by_more[np.argsort(keys[:size][by_more], kind="mergesort")]
        return
    for k in range(1, size):
        at = k
        while at > 0 and (
            keys[order[at - 1]] > keys[k] or (keys[order[at - 1]] == keys[k] and more[order[at - 1]] > more[k])
        ):
            order[at] = order[at - 1]
            at -= 1
        order[at] = k


@helper
def _first(order, runs, group, size, epoch, part):
    """The run of the first value, along `order`, of which some are there at `epoch`, or -1; of entries of `part` alone.

    `_LOST` if there are more of a value than fit 64 bits.
    """
    times, diffs, parts = group
    k = 0
    while k < size:
        run = runs[order[k]]
        total = 0
        while k < size and runs[order[k]] == run:
            entry = order[k]
            if times[entry] <= epoch and parts[entry] & part == part:
                more = total + diffs[entry]
                if overflows(total, diffs[entry], more):
                    return _LOST
                total = more
            k += 1
        if total > 0:
            return run
    return -1


@helper
def _firsts(order, runs, group, size, epochs, standing):
    """Fill standing[part, v] with `_first` at each of `epochs`; false if one is `_LOST`."""
    times, diffs, parts = group
    lost = False
    most = np.int64(0)
    for k in range(size):
        most = max(most, diffs[k], ~diffs[k])
    for part in range(4):
        if size * len(epochs) <= _WORK or most >= _MUCH // size:
            for v in range(len(epochs)):
                standing[part, v] = _first(order, runs, group, size, epochs[v], part)
                lost |= standing[part, v] == _LOST
            continue
        chosen = np.empty(size, np.int64)
        n = 0
        for k in range(size):
            if parts[order[k]] & part == part:
                chosen[n] = order[k]
                n += 1
        out = np.empty(len(epochs), np.int64)
        _least_of_group(chosen[:n], runs, times, diffs, epochs, out)
        for v in range(len(epochs)):
            standing[part, v] = runs[out[v]] if out[v] >= 0 else -1
    return not lost


@helper
def _told(found, n, terms, epoch, entries):
    """Write what changes at `epoch`: of `terms` (value, how often) those that do not cancel; returns the place after.

    `entries`: where the row of value v lies, or of all where there is but one row.
    """
    values, weights, count = terms
    batches, places = entries
    for a in range(count):
        if weights[a] == 0:
            continue
        weight = weights[a]
        for b in range(a + 1, count):
            if values[b] == values[a]:
                weight += weights[b]
                weights[b] = 0
        if weight != 0:
            entry = values[a] if len(batches) > 1 else 0
            found[BATCH, n] = batches[entry]
            found[POSITION, n] = places[entry]
            found[TIME, n] = epoch
            found[DIFF, n] = weight
            found[COPIES, n] = values[a]
            n += 1
    return n


@helper
def _roomy(found, n, more):
    """`found`, or its first `n` columns in a block with room for `more`."""
    if n + more <= found.shape[1]:
        return found
    wider = np.empty((found.shape[0], 2 * found.shape[1] + more), np.int64)
    for lane in range(found.shape[0]):
        wider[lane, :n] = found[lane, :n]
    return wider


# One function: in parts under 60 lines a closure of 640 edges took 1.3 times as long, for the arrays handed on a group.
@kernel(_FOUND(I64_TABLE, U64, U64, repeated(types.int64, 4), repeated(types.int64, 4)))
def stand(table, hashes, checks, moment, asked):
    """How what stands of each key in a round changes: (updates, how many, (probe, later round), how many, overflow).

    `moment`: the round, the bits of the outer of two rounds or of the only one, the last epoch before the step, and the
    one to which earlier ones are advanced. `asked`: which of `COPIES_OF` …; how many copies a row needs to stand; 1 if
    it stands together with their number; the column of the value. Keys that are asked for twice are answered once.
    """
    now, outer, since, floor = moment
    what, least, exact, column = asked
    inner = ROUNDS & ~outer
    count = len(hashes)
    order = sort_index((hashes, checks, checks, checks, checks), np.zeros(count, np.int64))
    spans = np.empty((count, 2 * len(table)), np.int64)
    most = _sweep(table, hashes, checks, order, spans)
    found = np.empty((5, count + 64), np.int64)
    later = np.empty((2, count + 64), np.int64)
    room = np.empty((4, most), np.int64)
    times, diffs, parts, runs = room[0], room[1], room[2], room[3]
    words = np.empty((2, most), np.uint64)
    places, batches, at, by = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64), words[0]
    epochs = np.empty(most + 1, np.int64)
    standing = np.empty((4, most + 1), np.int64)
    sums, before = np.zeros(4, np.int64), np.zeros(4, np.int64)
    values, weights = np.empty(8, np.int64), np.empty(8, np.int64)
    no_words = words[1]
    no_words[:] = np.uint64(0)
    n = 0
    due = 0
    overflow = False
    for k in range(count):
        size = 0
        first, last = EPOCHS, since
        in_order = True
        soonest = -1
        for b in range(len(table)):
            batch = table[b]
            for i in range(spans[k, 2 * b], spans[k, 2 * b + 1]):
                time = fact(batch, TIMES, i)
                reached = max(time & outer, now & outer) | max(time & inner, now & inner)
                if reached != now:
                    if inner == 0:
                        # From there the next one is seen.
                        soonest = reached if soonest < 0 else min(soonest, reached)
                    elif due == 0 or later[0, due - 1] != order[k] or later[1, due - 1] != reached:
                        later = _roomy(later, due, 1)
                        later[0, due], later[1, due] = order[k], reached
                        due += 1
                    continue
                times[size] = max(time & EPOCHS, floor)
                diffs[size] = fact(batch, DIFFS, i)
                back = time ^ now
                parts[size] = (_OUTER if back & outer != 0 else 0) | (_INNER if back & inner != 0 else 0)
                batches[size], places[size] = b, i
                if times[size] > since:
                    first, last = min(first, times[size]), max(last, times[size])
                in_order &= size == 0 or times[size] >= times[size - 1]
                size += 1
        if soonest >= 0:
            later = _roomy(later, due, 1)
            later[0, due], later[1, due] = order[k], soonest
            due += 1
        if last == since:
            continue
        if size == 1:
            if parts[0] == 0 and diffs[0] >= (least if what == COPIES_OF else 1):
                found = _roomy(found, n, 1)
                found[BATCH, n] = batches[0]
                found[POSITION, n] = position(table[batches[0]], places[0])
                found[TIME, n] = times[0]
                found[DIFF, n] = 1
                found[COPIES, n] = diffs[0]
                n += 1
            continue
        found = _roomy(found, n, 8 * size)
        if what == COPIES_OF:
            if not in_order:
                for j in range(size):
                    by[j] = np.uint64(times[j])
                _ordered(by, no_words, at, size)
            sums[:] = 0
            j = 0
            places[0] = position(table[batches[0]], places[0])
            while j < size:
                epoch = times[j if in_order else at[j]]
                before[:] = sums
                while j < size:
                    entry = j if in_order else at[j]
                    if times[entry] != epoch:
                        break
                    for part in range(4):
                        if parts[entry] & part == part:
                            total = sums[part] + diffs[entry]
                            overflow |= overflows(sums[part], diffs[entry], total)
                            sums[part] = total
                    j += 1
                if epoch <= since:
                    continue
                for part in range(4):
                    sign = -1 if part == 1 or part == 2 else 1
                    values[2 * part] = sums[part] if exact else 1
                    values[2 * part + 1] = before[part] if exact else 1
                    weights[2 * part] = sign if sums[part] >= least else 0
                    weights[2 * part + 1] = -sign if before[part] >= least else 0
                n = _told(found, n, (values, weights, 8), epoch, (batches[:1], places[:1]))
            continue
        for j in range(size):
            mine = word(table[batches[j]], ORDER, places[j])
            words[0, j] = mine if what == LEAST else ~mine
            words[1, j] = _is_null(table[batches[j]], column, places[j])
            epochs[j + 1] = times[j]
        _ordered(words[1], words[0], at, size)
        for j in range(size):
            here = at[j]
            above = at[j - 1] if j > 0 else here
            same = words[0, here] == words[0, above] and words[1, here] == words[1, above]
            runs[here] = runs[above] if j > 0 and same else here
        for j in range(size):
            places[j] = position(table[batches[j]], places[j])
        no_words[:size] = np.uint64(0)
        epochs[0] = since
        if first == last:
            epochs[1] = first
        some = epochs[:2] if first == last else np.unique(epochs[: size + 1])
        if not _firsts(at, runs, (times, diffs, parts), size, some, standing):
            overflow = True
            break
        for v in range(1, len(some)):
            for part in range(4):
                sign = -1 if part == 1 or part == 2 else 1
                values[2 * part], values[2 * part + 1] = standing[part, v], standing[part, v - 1]
                weights[2 * part] = sign if values[2 * part] >= 0 else 0
                weights[2 * part + 1] = -sign if values[2 * part + 1] >= 0 else 0
            n = _told(found, n, (values, weights, 8), some[v], (batches, places))
    return found, n, later, due, overflow
