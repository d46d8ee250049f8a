# mypy: allow-untyped-defs
"""Loose entries made into sorted, consolidated lanes; and lanes looked through for what can be left out.

Always: of the entries of equal (row, time) one stays, with the sum of their diffs, unless that is zero; a sum that does
not fit 64 bits is told, never wrapped. Called by `headrace.engine.batch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import (
    FACTS,
    I64,
    I64_NEW,
    I64_OUT,
    I64_TABLE,
    IDS,
    U64_NEW,
    helper,
    kernel,
    repeated,
)
from headrace.engine.kernels.entries import DIFFS, SIZE, TIMES, fact, fingerprint, position, word
from headrace.engine.kernels.sort import before, sort_index
from headrace.engine.kernels.times import ROUNDS, advanced

_PART = 4096
"""Entries that are sorted together within the cache."""

_OUT_IDS = repeated(U64_NEW, 5)
_OUT_FACTS = repeated(I64_NEW, 3)
_SEALED: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.int64, types.int64))  # type: ignore[no-untyped-call]

FEW = 1024
"""Below so many entries `seal_few` is the cheaper call, and the room that it leaves unused is no loss."""


@helper
def overflows(left, right, total):
    """True if `total`, the wrapped sum of `left` and `right`, lost a carry."""
    return (left >= 0) == (right >= 0) and (total >= 0) != (left >= 0)


@kernel(repeated(types.int64, 3)(IDS, FACTS, _OUT_IDS, _OUT_FACTS, types.int64))
def _seal_into(ids, facts, out_ids, out_facts, size):
    """Sort and consolidate, writing from place `size` on; returns (size after, distinct rows, 1 after an overflow)."""
    h, c, o, high, low = ids
    times, diffs, positions = facts
    out_h, out_c, out_o, out_high, out_low = out_ids
    out_times, out_diffs, out_positions = out_facts
    index = sort_index(ids, times)
    distinct = 0
    lost = 0
    begin = size
    last = 0
    place = 0
    for k in range(len(index)):
        entry = index[k]
        if (
            k == 0
            or h[entry] != h[last]
            or low[entry] != low[last]
            or high[entry] != high[last]
            or c[entry] != c[last]
            or o[entry] != o[last]
        ):
            distinct += size > begin
            begin = size
            place = positions[entry]
        last = entry
        time = times[entry]
        diff = diffs[entry]
        if size > begin and out_times[size - 1] == time:
            total = out_diffs[size - 1] + diff
            if overflows(out_diffs[size - 1], diff, total):
                lost = 1
            out_diffs[size - 1] = total
            size -= total == 0
        elif diff != 0:
            # A helper that is given arrays would count references to them at each row.
            if size < len(out_h):
                out_h[size] = h[entry]
            if size < len(out_c):
                out_c[size] = c[entry]
            if size < len(out_o):
                out_o[size] = o[entry]
            if size < len(out_high):
                out_high[size] = high[entry]
            if size < len(out_low):
                out_low[size] = low[entry]
            out_times[size] = time
            out_diffs[size] = diff
            out_positions[size] = place
            size += 1
    return size, distinct + (size > begin), lost


@helper
def _scatter(lane, hashes, shift, starts, out):
    """Copy `lane` to `out` by the top bits of the hash; of a flat lane, its one value."""
    if lane.strides[0] == 0:
        out[0] = lane[0]
        return
    places = starts.copy()
    for k in range(len(hashes)):
        bucket = hashes[k] >> shift
        out[places[bucket]] = lane[k]
        places[bucket] += 1


@helper
def _copy(scattered, lo, hi, part):
    """Copy scattered[lo:hi] to the front of `part`; one value (a flat lane) fills it."""
    flat = len(scattered) == 1
    for k in range(hi - lo):
        part[k] = scattered[0] if flat else scattered[lo + k]
    return part[: hi - lo]


@helper
def _seal_parts(ids, facts, out_ids, out_facts):
    """As `_seal_into`, by parts that fit the cache: entries are first partitioned by the top bits of their hash.

    They are partitioned into the output's own memory: a part is copied from there, sorted, and written back, never beyond
    where it began. Fresh memory costs more than a copy within the cache.
    """
    hashes = ids[0]
    bits = 1
    while bits < 11 and (len(hashes) >> bits) > _PART:
        bits += 1
    shift = np.uint64(64 - bits)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for k in range(len(hashes)):
        starts[np.int64(hashes[k] >> shift) + 1] += 1
    largest = starts.max()
    starts = np.cumsum(starts)
    for lane in range(5):
        _scatter(ids[lane], hashes, shift, starts, out_ids[lane])
    for lane in range(3):
        _scatter(facts[lane], hashes, shift, starts, out_facts[lane])
    h, c, o = np.empty(largest, np.uint64), np.empty(largest, np.uint64), np.empty(largest, np.uint64)
    high, low = np.empty(largest, np.uint64), np.empty(largest, np.uint64)
    times, diffs, places = np.empty(largest, np.int64), np.empty(largest, np.int64), np.empty(largest, np.int64)
    time, diff = out_facts[0][0], out_facts[1][0]
    size = 0
    distinct = 0
    lost = 0
    for k in range(len(starts) - 1):
        lo = starts[k]
        hi = starts[k + 1]
        part_ids = (
            _copy(out_ids[0], lo, hi, h),
            _copy(out_ids[1], lo, hi, c),
            _copy(out_ids[2], lo, hi, o),
            _copy(out_ids[3], lo, hi, high),
            _copy(out_ids[4], lo, hi, low),
        )
        part_facts = (
            _copy_fact(facts[0], time, out_facts[0], lo, hi, times),
            _copy_fact(facts[1], diff, out_facts[1], lo, hi, diffs),
            _copy(out_facts[2], lo, hi, places),
        )
        size, rows, more = _seal_into(part_ids, part_facts, out_ids, out_facts, size)
        distinct += rows
        lost |= more
    return size, distinct, lost


@helper
def _copy_fact(lane, value, scattered, lo, hi, part):
    """As `_copy`; a flat fact has its value in `value`, since sums may differ and its output is written in full."""
    if lane.strides[0] != 0:
        return _copy(scattered, lo, hi, part)
    for k in range(hi - lo):
        part[k] = value
    return part[: hi - lo]


@kernel(repeated(types.int64, 3)(IDS, FACTS, _OUT_IDS, _OUT_FACTS))
def seal(ids, facts, out_ids, out_facts):
    """Sort and consolidate into `out_ids` and `out_facts`; returns (entries, distinct rows, 1 after an overflow).

    The outputs have room for all entries; of a flat identity lane (stride 0) for one. Equal rows at several times share
    the position of the first.
    """
    if len(facts[0]) < 4 * _PART:
        return _seal_into(ids, facts, out_ids, out_facts, 0)
    return _seal_parts(ids, facts, out_ids, out_facts)


@helper
def _seal_block(ids, facts):
    count = len(facts[0])
    block = np.empty((8, count), np.int64)
    lanes = block.view(np.uint64)
    out = (lanes[0], lanes[1], lanes[2], lanes[3], lanes[4])
    size, distinct, lost = _seal_into(ids, facts, out, (block[5], block[6], block[7]), 0)
    return block, size, distinct, lost


@kernel(_SEALED(IDS, FACTS))
def seal_few(ids, facts):
    """As `seal`, with room of its own, in one block: (block, entries, distinct rows, 1 after an overflow).

    Rows of the block are the five identity lanes (as int64), each in full, and the three facts: handing Python one array
    costs a microsecond, handing it eight costs eight.
    """
    return _seal_block(ids, facts)


@kernel(_SEALED(I64_TABLE, I64, types.int64))
def seal_batches(table, shifts, since):
    """The entries of several batches as `seal_few` leaves them, times advanced to `since`.

    `table`: a row a batch, as `entries` describes it; `shifts`: what is added to each one's positions.
    """
    total = 0
    for b in range(len(table)):
        total += table[b, SIZE]
    lanes = np.empty((8, total), np.int64)
    words = lanes.view(np.uint64)
    at = 0
    for b in range(len(table)):
        batch = table[b]
        for lane in range(3):
            for k in range(batch[SIZE]):
                words[lane, at + k] = word(batch, 2 * lane, k)
        for k in range(batch[SIZE]):
            words[3, at + k], words[4, at + k] = fingerprint(batch, k)
            lanes[5, at + k] = advanced(fact(batch, TIMES, k), since, ROUNDS)
            lanes[6, at + k] = fact(batch, DIFFS, k)
            lanes[7, at + k] = position(batch, k) + shifts[b]
        at += batch[SIZE]
    return _seal_block((words[0], words[1], words[2], words[3], words[4]), (lanes[5], lanes[6], lanes[7]))


@kernel(types.boolean(I64))
def is_constant(lane):
    """True if all entries are equal."""
    for k in range(1, len(lane)):  # noqa: SIM110
        if lane[k] != lane[0]:
            return False
    return True


@kernel(repeated(types.int64, 2)(IDS, I64_OUT, I64_OUT))
def rank_rows(ids, positions, keep):
    """Renumber the `positions` of sorted entries in place by the order of their rows; `keep` gets the old ones.

    Entries of one row share a position. Returns (rows, how many of them have the key and order of the row before); `keep`
    has room for all rows.
    """
    h, c, o, _, _ = ids
    count = 0
    ties = 0
    old = np.int64(-1)
    for k in range(len(positions)):
        if positions[k] != old:
            old = positions[k]
            ties += k > 0 and h[k] == h[k - 1] and c[k] == c[k - 1] and o[k] == o[k - 1]
            if count < len(keep):
                keep[count] = old
            count += 1
        positions[k] = count - 1
    return count, ties


@kernel(types.int64(IDS, I64))
def first_unsorted(ids, times):
    """The first entry that does not sort strictly after the one before it, or -1: the check of a batch's order."""
    h, c, o, high, low = ids
    for k in range(1, len(times)):
        if not before(h, c, o, high, low, times, k - 1, k):
            return k
    return -1
