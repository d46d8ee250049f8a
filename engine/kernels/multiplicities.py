# mypy: allow-untyped-defs
"""How many copies of a key there are after each change of it: what operators that only count read off an arrangement.

Always: the key is the whole row, so that a key's updates, batch after batch, stand in the order of their times, one a time,
and adding up their diffs is counting; a count that does not fit 64 bits is told, never wrapped. Batches come as a table of
addresses, which `entries` describes. Called by `headrace.engine.operators.counts` and the intake of tables without a key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64_NEW, I64_TABLE, U64, kernel
from headrace.engine.kernels.consolidate import overflows
from headrace.engine.kernels.entries import DIFFS, TIMES, fact, position
from headrace.engine.kernels.lookup import _ranges
from headrace.engine.kernels.sort import sort_index

PROBE, BATCH, POSITION, TIME, DIFF, COPIES = range(6)
"""Rows of what `tally` finds: of which key, where it lies, and from when on it is shown once more or less, having so many
copies."""

_FOUND: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.boolean))  # type: ignore[no-untyped-call]
_COPIES: Any = types.Tuple((I64_NEW, types.boolean))  # type: ignore[no-untyped-call]


@kernel(_FOUND(I64_TABLE, U64, U64, types.int64, types.int64, types.int64, types.boolean, types.boolean))
def tally(table, hashes, checks, since, until, least, exact, whole):
    """What is shown of each key otherwise at the times after `since` and before `until`: (block, updates, overflow).

    A key is shown while it has at least `least` copies; if `exact`, together with their number, so that it is shown anew
    when that changes. A key asked for again is passed over; but if `whole`, each is answered, with what is shown at `since`.
    """
    count = len(hashes)
    order = sort_index((hashes, checks, checks, checks, checks), np.zeros(count, np.int64))
    begins = np.empty((len(table), count), np.int64)
    ends = np.empty((len(table), count), np.int64)
    _ranges(table, hashes, checks, order, begins, ends)
    again = np.zeros(count, np.uint8)
    entries = 0
    for k in range(count):
        here, last = order[k], order[k - 1]
        again[here] = k and not whole and hashes[here] == hashes[last] and checks[here] == checks[last]
        for b in range(0 if again[here] else len(table)):
            entries += ends[b, here] - begins[b, here]
    block = np.empty((6, 2 * entries), np.int64)
    n = 0
    overflow = False
    for probe in range(count):
        if again[probe]:
            continue
        copies = 0
        shown = 0
        for b in range(len(table)):
            batch = table[b]
            for i in range(begins[b, probe], ends[b, probe]):
                time = fact(batch, TIMES, i)
                if time >= until:
                    continue
                before = copies
                diff = fact(batch, DIFFS, i)
                copies = before + diff
                overflow |= overflows(before, diff, copies)
                if time <= since and not whole:
                    continue
                if time <= since:
                    n -= shown
                    before = 0
                was, is_now = before >= least, copies >= least
                first = n
                if was and (not is_now or (exact and before != copies)):
                    block[TIME, n], block[DIFF, n], block[COPIES, n] = time, -1, before
                    n += 1
                if is_now and (not was or (exact and before != copies)):
                    block[TIME, n], block[DIFF, n], block[COPIES, n] = max(time, since), 1, copies
                    n += 1
                shown = n - first
                for k in range(first, n):
                    block[PROBE, k], block[BATCH, k], block[POSITION, k] = probe, b, position(batch, i)
    return block, n, overflow


@kernel(_COPIES(I64_TABLE, U64, U64))
def copies_of(table, hashes, checks):
    """How many copies of each key there are: (copies, overflow)."""
    count = len(hashes)
    order = sort_index((hashes, checks, checks, checks, checks), np.zeros(count, np.int64))
    begins = np.empty((len(table), count), np.int64)
    ends = np.empty((len(table), count), np.int64)
    _ranges(table, hashes, checks, order, begins, ends)
    found = np.zeros(count, np.int64)
    overflow = False
    for probe in range(count):
        for b in range(len(table)):
            for i in range(begins[b, probe], ends[b, probe]):
                diff = fact(table[b], DIFFS, i)
                total = found[probe] + diff
                overflow |= overflows(found[probe], diff, total)
                found[probe] = total
    return found, overflow
