# mypy: allow-untyped-defs
"""A few updates taken to the corrections of their groups in one call: a reduce whose state is sums of lanes alone.

Always: what comes out is what grouping, looking up, adding and comparing one after the other would give. Called by the
reduce operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from engine.kernels.compiler import I64, I64_TABLE, kernel, repeated
from engine.kernels.entries import STRUCT
from engine.kernels.hashing import hash_rows
from engine.kernels.lanes import contributions
from engine.kernels.reduce import corrections, group_rows, sum_packed, versions
from engine.kernels.seek import gather

DONE, LONG = range(2)
"""How it went: or it takes more than this (a count that may not fit 64 bits)."""

_FEW = 1 << 31
_SOME = 1 << 62
_LATEST = 9223372036854775807
_TABLE: Any = types.Array(types.int64, 2, "C")
_GROUPED: Any = types.Tuple((_TABLE, _TABLE, _TABLE, types.int64))  # type: ignore[no-untyped-call]


@kernel(_GROUPED(types.int64, I64_TABLE, I64_TABLE, I64, I64, I64_TABLE, repeated(types.int64, 4)))
def regroup(struct, plan, slots, times, diffs, table, shape):
    """The corrections of the groups of the rows at address `struct`: (kept, lanes, shown, how).

    `plan`: how keys are hashed, as `few` has it; `slots`: (column, what is read, first lane, lanes) of each sum; `table`:
    the groups' own batches, as `entries` describes them; `shape`: the groups' time before the step, columns of the key, lanes
    of a group, and how many rows a group needs to be shown (0: all that are kept). Columns of `kept` are a row of the
    group, time and diff of each update of the groups' state, which has its row of `lanes`; of `shown` likewise where
    groups are only said to be there.
    """
    before, width, size, least = shape
    count = len(times)
    kept, shown = np.empty((3, 4 * count), np.int64), np.empty((3, 4 * count), np.int64)
    lanes = np.empty((count, size), np.int64)
    keys = plan[0, 0]
    hashes, checks = np.empty(count, np.uint64), np.empty(count, np.uint64)
    hash_rows(struct, plan[1 : 1 + keys], plan[0, 1] != 0, plan.view(np.uint64)[0, 3], hashes, checks)
    grouped, groups = group_rows(hashes, checks, times)
    first_hashes, first_checks = np.empty(groups, np.uint64), np.empty(groups, np.uint64)
    for g in range(groups):
        first_hashes[g] = hashes[grouped[2, g]]
        first_checks[g] = checks[grouped[2, g]]
    matches, found, overflow = gather(table, first_hashes, first_checks, before, _LATEST, _LATEST)
    prior = np.zeros((groups, size), np.int64)
    places = np.ascontiguousarray(matches[1:3, :found])
    sum_packed(table[:, STRUCT], places, width, matches[0, :found], matches[4, :found], prior)
    few = not overflow
    for k in range(count):
        few = few and -_FEW <= diffs[k] < _FEW
    for g in range(groups):
        few = few and -_SOME <= prior[g, 0] < _SOME
    if not few:
        return kept, lanes, shown, LONG
    lanes[:, 0] = 1
    for s in range(len(slots)):
        first = slots[s, 2]
        contributions(struct, slots[s, 0], slots[s, 1], lanes[:, first : first + slots[s, 3]])
    states = np.empty((4, count + groups), np.int64)
    sums = np.empty((count + groups, size), np.int64)
    n = versions((grouped[0], grouped[1], times, diffs), lanes, prior, before, states, sums)
    live, seen = np.empty(n, np.uint8), np.empty(n, np.uint8)
    for v in range(n):
        live[v] = width == 0 or sums[v, 0] > 0
        seen[v] = sums[v, 0] >= least
    some = corrections(states[0, :n], states[1, :n], live, states[3, :n], kept)
    out = np.empty((some, size), np.int64)
    for k in range(some):
        for c in range(size):
            out[k, c] = sums[kept[0, k], c]
        kept[0, k] = states[2, kept[0, k]]
    others = 0
    if least > 0:
        others = corrections(states[0, :n], states[1, :n], seen, np.ones(n, np.int64), shown)
        for k in range(others):
            shown[0, k] = states[2, shown[0, k]]
    return np.ascontiguousarray(kept[:, :some]), out, np.ascontiguousarray(shown[:, :others]), DONE
