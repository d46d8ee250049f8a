# mypy: allow-untyped-defs
"""The merge of two sorted batches, as far as the fuel goes, to be called again from where it stopped.

Always: what is written is sorted and consolidated, with times advanced to `since`; the two inputs are only read. The
merger in `engine.batch.merger` owns the state between calls.
"""

from __future__ import annotations

from numba import types

from engine.kernels.compiler import FACTS, I64_NEW, I64_OUT, IDS, U64_OUT, helper, kernel, repeated
from engine.kernels.consolidate import overflows
from engine.kernels.times import EPOCHS, advanced

LEFT, RIGHT, WRITTEN, SINCE, UNTIL, SHIFT, DISTINCT, OVERFLOW, KEPT = range(9)
"""Slots of the state: entries read of each side and written; epochs advance to SINCE, and those ≥ UNTIL are left out;
positions of the right side move by SHIFT; distinct rows written; 1 after an overflow; the bits of rounds that are kept."""

_OUT_IDS = repeated(U64_OUT, 5)
_OUT_FACTS = repeated(I64_OUT, 3)


@helper
def _comes_first(c, o, high, low, time, other_c, other_o, other_high, other_low, other_time):
    """True if the first of two entries of one hash sorts before or with the second."""
    if c != other_c:
        return c < other_c
    if o != other_o:
        return o < other_o
    if high != other_high:
        return high < other_high
    if low != other_low:
        return low < other_low
    return time <= other_time


@kernel(types.int64(IDS, FACTS, IDS, FACTS, _OUT_IDS, _OUT_FACTS, I64_NEW, types.int64))
def merge(a_ids, a_facts, b_ids, b_facts, out_ids, out_facts, state, fuel):
    """Merge until done or `fuel` entries are read; returns the fuel left."""
    # Lanes are taken out of their tuples here: within the loop each access to one would count a reference.
    (ah, ac, ao, ai, al), (at, ad, ap) = a_ids, a_facts
    (bh, bc, bo, bi, bl), (bt, bd, bp) = b_ids, b_facts
    (oh, oc, oo, oi, ol), (ot, od, op) = out_ids, out_facts
    left, right, size, distinct = state[LEFT], state[RIGHT], state[WRITTEN], state[DISTINCT]
    since, until, shift, kept = state[SINCE], state[UNTIL], state[SHIFT], state[KEPT]
    while fuel > 0 and (left < len(at) or right < len(bt)):
        if left >= len(at) or right >= len(bt):
            from_left = left < len(at)
        elif ah[left] != bh[right]:
            from_left = ah[left] < bh[right]
        else:
            from_left = _comes_first(
                ac[left], ao[left], ai[left], al[left], at[left], bc[right], bo[right], bi[right], bl[right], bt[right]
            )
        if from_left:
            h, c, o, hi, lo = ah[left], ac[left], ao[left], ai[left], al[left]
            time, diff, place = at[left], ad[left], ap[left]
            left += 1
        else:
            h, c, o, hi, lo = bh[right], bc[right], bo[right], bi[right], bl[right]
            time, diff, place = bt[right], bd[right], bp[right] + shift
            right += 1
        fuel -= 1
        if time & EPOCHS >= until:
            continue
        time = advanced(time, since, kept)
        last = size - 1
        if size > 0 and h == oh[last] and lo == ol[last] and hi == oi[last] and c == oc[last] and o == oo[last]:
            if ot[last] == time:
                total = od[last] + diff
                if overflows(od[last], diff, total):
                    state[OVERFLOW] = 1
                od[last] = total
                if total == 0:
                    size = last
                    last -= 1
                    if last < 0 or h != oh[last] or lo != ol[last] or hi != oi[last] or c != oc[last] or o != oo[last]:
                        distinct -= 1
                continue
            place = op[last]
        else:
            distinct += 1
        oh[size], oc[size], oo[size], oi[size], ol[size] = h, c, o, hi, lo
        ot[size], od[size], op[size] = time, diff, place
        size += 1
    state[LEFT], state[RIGHT], state[WRITTEN], state[DISTINCT] = left, right, size, distinct
    return fuel
