# mypy: allow-untyped-defs
"""Many loose entries sorted and consolidated by their keys alone: fingerprints are made only of rows that share key and order.

Always: what comes out is what `consolidate.seal` would give, without fingerprints; where many rows share key and order
it is not done. Entries are partitioned by their hash into the output's own memory, and each part is settled within the
cache and written back, never beyond where it began: what many rows cost is fresh memory. Called by `headrace.engine.batch`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, U64, U64_NEW, helper, kernel, repeated
from headrace.engine.kernels.consolidate import _PART, _copy, _scatter, _seal_into
from headrace.engine.kernels.entries import image
from headrace.engine.kernels.sort import sort_index

FEW_TIES = 8
"""Fingerprints are kept if more than one of so many entries has a row whose key and order the row before has."""

_SAMPLE_BITS = 6
"""Of the keys that begin with so many zeros it is told beforehand how many share theirs."""

_KEYS = repeated(U64, 3)
_TIMED = repeated(I64, 2)
_OUT_KEYS = repeated(U64_NEW, 3)
_OUT_FACTS = repeated(I64_NEW, 3)


@helper
def _is_shared(hashes, shift):
    """True if too many of the hashes below 1 << `shift` are not alone."""
    count = 0
    for k in range(len(hashes)):
        count += hashes[k] >> shift == 0
    sample = np.empty(count, np.uint64)
    at = 0
    for k in range(len(hashes)):
        if hashes[k] >> shift == 0:
            sample[at] = hashes[k]
            at += 1
    index = sort_index((sample, sample, sample, sample, sample), np.zeros(count, np.int64))
    shared = 0
    for k in range(1, count):
        shared += sample[index[k]] == sample[index[k - 1]]
    return shared * FEW_TIES > count


@helper
def _deal(hashes, shift, starts, out, places):
    """Copy the hashes, and where each came from, by their top bits."""
    ends = starts.copy()
    for k in range(len(hashes)):
        hashed = hashes[k]
        bucket = np.int64(hashed >> shift)
        at = ends[bucket]
        ends[bucket] = at + 1
        out[at] = hashed
        places[at] = k


@helper
def _ordered(lanes, facts, block, rows):
    """Sort a part's `lanes` (hash, check, order, place) into `block`, with times and diffs of the entries' own places.

    Fingerprints are made of those that share key and order. Returns (how many do with the entry before, whether a diff is
    zero).
    """
    h, c, o, places = lanes
    times, diffs = facts
    words = block.view(np.uint64)
    size = len(h)
    nothing = words[3, :size]
    nothing[:] = 0
    index = sort_index((h, c, o, nothing, nothing), np.zeros(size, np.int64))
    ties = 0
    zeros = False
    words[4, :size] = 0
    for k in range(size):
        entry = index[k]
        place = np.int64(places[entry])
        words[0, k], words[1, k], words[2, k] = h[entry], c[entry], o[entry]
        block[5, k], block[6, k], block[7, k] = times[place], diffs[place], place
        zeros |= diffs[place] == 0
        if (
            k > 0
            and words[0, k] == words[0, k - 1]
            and words[1, k] == words[1, k - 1]
            and words[2, k] == words[2, k - 1]
        ):
            if not (words[3, k - 1] | words[4, k - 1]):
                words[3, k - 1], words[4, k - 1] = image(rows, block[7, k - 1])
            words[3, k], words[4, k] = image(rows, place)
            ties += 1
    return ties, zeros


@helper
def _settled(block, count, spare):
    """Consolidate `count` entries of the block into `spare`: (entries left, rows, of them with the key and order of the row
    before, 1 if lost)."""
    words, others = block.view(np.uint64), spare.view(np.uint64)
    size, distinct, lost = _seal_into(
        (words[0, :count], words[1, :count], words[2, :count], words[3, :count], words[4, :count]),
        (block[5, :count], block[6, :count], block[7, :count]),
        (others[0], others[1], others[2], others[3], others[4]),
        (spare[5], spare[6], spare[7]),
        0,
    )
    ties = 0
    for k in range(1, size):
        if spare[7, k] != spare[7, k - 1]:
            ties += (
                others[0, k] == others[0, k - 1]
                and others[1, k] == others[1, k - 1]
                and others[2, k] == others[2, k - 1]
            )
    return size, distinct, ties, lost


@helper
def _written(block, count, out_keys, out_facts, size, flat):
    """Write `count` entries of the block from place `size` on; times and diffs from the first on that differs from those
    before. Returns whether all are alike still (`flat`: they were so far)."""
    out_h, out_c, out_o = out_keys
    times, diffs, places = out_facts
    words = block.view(np.uint64)
    for k in range(count):
        out_h[size + k] = words[0, k]
        places[size + k] = block[7, k]
    if len(out_c) > 1:
        out_c[size : size + count] = words[1, :count]
    if len(out_o) > 1:
        out_o[size : size + count] = words[2, :count]
    if size == 0 and count > 0:
        times[0], diffs[0] = block[5, 0], block[6, 0]
    if flat:
        same = True
        for k in range(count):
            same = same and block[5, k] == times[0] and block[6, k] == diffs[0]
        if same:
            return True
        times[:size] = times[0]
        diffs[:size] = diffs[0]
    times[size : size + count] = block[5, :count]
    diffs[size : size + count] = block[6, :count]
    return False


@kernel(repeated(types.int64, 5)(_KEYS, _TIMED, I64, _OUT_KEYS, _OUT_FACTS))
def seal_keys(keys, facts, rows, out_keys, out_facts):
    """Sort and consolidate: (entries, distinct rows, of them with key and order of the row before, 1 if flat, 1 if lost).

    `keys`: hash, check and order; `facts`: times and diffs; `rows`: of the entries' payload, as `entries` describes a
    batch's. Entries are -1 if too many rows share key and order. The outputs (hash, check, order; time, diff, place in the
    payload) have room for all, of a flat key lane (stride 0) for one. Flat: all times are alike and all diffs, and
    written once. Lost: a sum of diffs does not fit 64 bits.
    """
    hashes = keys[0]
    bits = 1
    while bits < 11 and (len(hashes) >> bits) > _PART:
        bits += 1
    shift = np.uint64(64 - bits)
    if _is_shared(hashes, np.uint64(64 - max(bits, _SAMPLE_BITS))):
        return -1, 0, 0, 0, 0
    starts = np.zeros((1 << bits) + 1, np.int64)
    for k in range(len(hashes)):
        starts[np.int64(hashes[k] >> shift) + 1] += 1
    largest = starts.max()
    starts = np.cumsum(starts)
    _deal(hashes, shift, starts, out_keys[0], out_facts[2])
    _scatter(keys[1], hashes, shift, starts, out_keys[1])
    _scatter(keys[2], hashes, shift, starts, out_keys[2])
    part = np.empty((4, largest), np.uint64)
    one, two = np.empty((8, largest), np.int64), np.empty((8, largest), np.int64)
    size = distinct = tied = seen = 0
    lost = np.int64(0)
    flat = True
    for k in range(len(starts) - 1):
        lo, hi = starts[k], starts[k + 1]
        lanes = (
            _copy(out_keys[0], lo, hi, part[0]),
            _copy(out_keys[1], lo, hi, part[1]),
            _copy(out_keys[2], lo, hi, part[2]),
            _copy(out_facts[2].view(np.uint64), lo, hi, part[3]),
        )
        ties, zeros = _ordered(lanes, facts, one, rows)
        count = hi - lo
        seen += ties
        if seen * FEW_TIES > max(hi, len(hashes) >> 2):
            return -1, 0, 0, 0, 0
        if ties or zeros:
            count, rows_left, more_ties, more_lost = _settled(one, count, two)
            distinct += rows_left
            tied += more_ties
            lost |= more_lost
            flat = _written(two, count, out_keys, out_facts, size, flat)
        else:
            distinct += count
            flat = _written(one, count, out_keys, out_facts, size, flat)
        size += count
    return size, distinct, tied, np.int64(flat), lost
