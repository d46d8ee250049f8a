# mypy: allow-untyped-defs
"""The merge of two sorted batches, as far as the fuel goes, to be called again from where it stopped.

Always: what is written is sorted and consolidated, with times advanced to `since`; the two inputs are only read. The
merger in `engine.batch.merger` owns the state between calls.
"""

from __future__ import annotations

from numba import types

from engine.kernels.compiler import FACTS, I64_NEW, I64_OUT, IDS, U64_OUT, helper, kernel, repeated
from engine.kernels.consolidate import overflows

LEFT, RIGHT, WRITTEN, SINCE, UNTIL, SHIFT, DISTINCT, OVERFLOW = range(8)
"""Slots of the state: entries read of each side and written; times advance to SINCE, and those ≥ UNTIL are left out;
positions of the right side move by SHIFT; distinct rows written; 1 after an overflow."""

_OUT_IDS = repeated(U64_OUT, 5)
_OUT_FACTS = repeated(I64_OUT, 3)


@helper
def _order(a_ids, i, b_ids, j):
    """-1, 0 or 1 as row `i` of one side sorts before, with or after row `j` of the other."""
    if a_ids[0][i] != b_ids[0][j]:
        return -1 if a_ids[0][i] < b_ids[0][j] else 1
    if a_ids[1][i] != b_ids[1][j]:
        return -1 if a_ids[1][i] < b_ids[1][j] else 1
    if a_ids[2][i] != b_ids[2][j]:
        return -1 if a_ids[2][i] < b_ids[2][j] else 1
    if a_ids[3][i] != b_ids[3][j]:
        return -1 if a_ids[3][i] < b_ids[3][j] else 1
    if a_ids[4][i] != b_ids[4][j]:
        return -1 if a_ids[4][i] < b_ids[4][j] else 1
    return 0


@helper
def _is_last(ids, i, out_ids, last):
    return (
        ids[0][i] == out_ids[0][last]
        and ids[4][i] == out_ids[4][last]
        and ids[3][i] == out_ids[3][last]
        and ids[1][i] == out_ids[1][last]
        and ids[2][i] == out_ids[2][last]
    )


@helper
def _write(ids, facts, i, shift, out_ids, out_facts, state):
    """Add entry `i` to what is written: a new entry, or a sum with the last one."""
    if facts[0][i] >= state[UNTIL]:
        return
    time = max(facts[0][i], state[SINCE])
    diff = facts[1][i]
    at = state[WRITTEN]
    place = facts[2][i] + shift
    if at > 0 and _is_last(ids, i, out_ids, at - 1):
        last = at - 1
        if out_facts[0][last] == time:
            total = out_facts[1][last] + diff
            if overflows(out_facts[1][last], diff, total):
                state[OVERFLOW] = 1
            out_facts[1][last] = total
            if total == 0:
                state[WRITTEN] = last
                if last == 0 or not _is_last(ids, i, out_ids, last - 1):
                    state[DISTINCT] -= 1
            return
        place = out_facts[2][last]
    else:
        state[DISTINCT] += 1
    out_ids[0][at] = ids[0][i]
    out_ids[1][at] = ids[1][i]
    out_ids[2][at] = ids[2][i]
    out_ids[3][at] = ids[3][i]
    out_ids[4][at] = ids[4][i]
    out_facts[0][at] = time
    out_facts[1][at] = diff
    out_facts[2][at] = place
    state[WRITTEN] = at + 1


@kernel(types.int64(IDS, FACTS, IDS, FACTS, _OUT_IDS, _OUT_FACTS, I64_NEW, types.int64))
def merge(a_ids, a_facts, b_ids, b_facts, out_ids, out_facts, state, fuel):
    """Merge until done or about `fuel` entries are read (equal rows are not parted); returns the fuel left."""
    left = state[LEFT]
    right = state[RIGHT]
    a_size = len(a_facts[0])
    b_size = len(b_facts[0])
    shift = state[SHIFT]
    while fuel > 0 and (left < a_size or right < b_size):
        if right >= b_size:
            way = -1
        elif left >= a_size:
            way = 1
        else:
            way = _order(a_ids, left, b_ids, right)
        if way == 0:
            way = -1 if a_facts[0][left] <= b_facts[0][right] else 1
        if way < 0:
            _write(a_ids, a_facts, left, 0, out_ids, out_facts, state)
            left += 1
        else:
            _write(b_ids, b_facts, right, shift, out_ids, out_facts, state)
            right += 1
        fuel -= 1
    state[LEFT] = left
    state[RIGHT] = right
    return fuel
