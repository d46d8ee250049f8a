"""The loop of a join: updates that ask paired with the lifespans of rows that are live at their times.

Invariant: a pair stands at the time of the update that asks, and its diff is the exact product of that update's diff and
the copies live then; a product that does not fit int64 is marked, never wrapped. The work is linear in the updates, the
lifespans and the pairs. Called by the join and the window operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, helper, kernel, repeated

_PAIRED: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.int64))  # type: ignore[no-untyped-call]

ASKER, SPAN, TIME, DIFF, LOST = range(5)
"""Rows of the block of pairs: which update, which lifespan, the time, the product (1 where it is lost), 1 where it is."""

CURSOR = 5
"""Entries of the cursor: the next asker, the next lifespan, how many are live, how many of these the asker has met, and
whether the live ones are those of its time."""

_ROOM = 256

_SMALL = 1 << 31
_LEAST = -9223372036854775808
_MOST = 9223372036854775807


@helper
def fits(a, b):  # type: ignore[no-untyped-def]
    """True if a × b fits int64.

    Found without the product: compiled code takes it for granted that none overflows, and drops a check of one that did.
    """
    if (-_SMALL <= a < _SMALL and -_SMALL <= b < _SMALL) or a == 0 or b == 0:
        return True
    if a > 0 and b > 0:
        return a <= _MOST // b
    if a > 0:
        return b == -1 or a <= _LEAST // b
    if b > 0:
        return a == -1 or b <= _LEAST // a
    return a != _LEAST and b != _LEAST and -a <= _MOST // -b


@helper
def _advance(spans, group, now, cursor, live):  # type: ignore[no-untyped-def]
    """Drop from `live` what has ended by the time `now`, and add what of `group` has begun."""
    groups, begins, ends, _ = spans
    kept = 0
    for k in range(cursor[2]):
        if ends[live[k]] > now:
            live[kept] = live[k]
            kept += 1
    at = cursor[1]
    while at < len(groups) and groups[at] == group and begins[at] <= now:
        if ends[at] > now:
            live[kept] = at
            kept += 1
        at += 1
    cursor[1] = at
    cursor[2] = kept


@kernel(_PAIRED(repeated(I64, 3), repeated(I64, 4), types.boolean, types.int64, I64_NEW, I64_NEW))
def meet(askers, spans, strictly, room, cursor, live):  # type: ignore[no-untyped-def]
    """Each asker paired with the lifespans of its group that are live at its time: (block, pairs, lost products).

    `askers`: groups, times and diffs, by group and time; `spans`: groups, begins, ends and copies, by group and begin.
    `strictly`: live just before the asker's time. Stops at `room` pairs: called again with the same `cursor` (zeros at
    first) and `live` (room for all spans) it goes on, until cursor[0] is the number of askers.
    """
    asking, times, diffs = askers
    groups, _, _, copies = spans
    block = np.empty((5, min(room, max(len(asking), len(groups)) + _ROOM)), np.int64)
    size = 0
    lost = 0
    while cursor[0] < len(asking):
        asker = cursor[0]
        group = asking[asker]
        if cursor[4] == 0:
            if asker == 0 or asking[asker - 1] != group:
                cursor[2] = 0
                at = cursor[1]
                while at < len(groups) and groups[at] < group:
                    at += 1
                cursor[1] = at
            _advance(spans, group, times[asker] - 1 if strictly else times[asker], cursor, live)
            cursor[4] = 1
        while cursor[3] < cursor[2]:
            if size == block.shape[1]:
                if size == room:
                    return block, size, lost
                wider = np.empty((5, min(room, 2 * size)), np.int64)
                wider[:, :size] = block
                block = wider
            span = live[cursor[3]]
            fit = fits(diffs[asker], copies[span])
            block[ASKER, size] = asker
            block[SPAN, size] = span
            block[TIME, size] = times[asker]
            block[DIFF, size] = diffs[asker] * copies[span] if fit else 1
            block[LOST, size] = 0 if fit else 1
            lost += 0 if fit else 1
            size += 1
            cursor[3] += 1
        cursor[3] = 0
        cursor[4] = 0
        cursor[0] = asker + 1
    return block, size, lost
