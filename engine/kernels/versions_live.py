# mypy: allow-untyped-defs
"""Which rows are live at each version of their group: lifespans of rows, and a sweep over the versions.

A *version* is the state of a group at one time; the versions of a group stand together in the order of their times.
Invariant: a sweep costs the lifespans that it passes and the rows that it returns, whatever the number of versions.
Called by the window operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import I64, I64_NEW, I64_TABLE, kernel, repeated
from headrace.engine.kernels.consolidate import overflows

UPDATE, FIRST, BEHIND, COPIES = range(4)
"""Rows of the block of lifespans: an update of the row, the first version at which the row is live, the version behind
the last one, and how many copies of the row there are meanwhile."""

ACTIVE, NEXT = range(2)
"""Of the state of a sweep: how many lifespans are active, and the next one to begin."""

_SPANS: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64, types.boolean))  # type: ignore[no-untyped-call]


@kernel(_SPANS(I64, I64, I64, I64, I64, I64))
def spans_at(groups, rows, times, diffs, starts, version_times):
    """The lifespans of rows, in the order of the rows, by versions: (block, how many, overflow).

    `groups`, `rows`, `times`, `diffs`: of each update; updates of one row share a number in `rows` and stand together in
    the order of their times. Group g's versions are starts[g] … starts[g + 1], each with its time. What happens between
    two versions counts at the later one; what happens after the last version of its group is left out.
    """
    block = np.empty((4, len(times)), np.int64)
    n = 0
    overflow = False
    copies = np.int64(0)
    version = 0
    for k in range(len(times)):
        group = groups[k]
        stop = starts[group + 1]
        if k == 0 or rows[k] != rows[k - 1]:
            copies = np.int64(0)
            version = starts[group]
        total = copies + diffs[k]
        overflow |= overflows(copies, diffs[k], total)
        copies = total
        low, high = version, stop
        while low < high:
            middle = (low + high) >> 1
            if version_times[middle] < times[k]:
                low = middle + 1
            else:
                high = middle
        version = low
        behind = stop
        if k + 1 < len(times) and rows[k + 1] == rows[k]:
            low, high = version, stop
            while low < high:
                middle = (low + high) >> 1
                if version_times[middle] < times[k + 1]:
                    low = middle + 1
                else:
                    high = middle
            behind = low
        if copies > 0 and version < behind:
            block[UPDATE, n], block[FIRST, n], block[BEHIND, n], block[COPIES, n] = k, version, behind, copies
            n += 1
    return block, n, overflow


@kernel(types.int64(I64_TABLE, repeated(types.int64, 2), I64_NEW, I64_NEW, types.Array(types.int64, 2, "C")))
def live_rows(spans, versions, state, active, found):
    """Each copy of each row that is live at versions[0] … versions[1] - 1, by version and then as rows stand.

    `spans`: lifespans by their first version, those of one version as their rows stand. `state`, `active` (room for all
    lifespans): where the sweep is; it begins with zeros and version 0, and goes on from call to call. Fills `found`, which
    has room for them all: the version, an update of the row. Returns how many.
    """
    merged = np.empty(len(active), np.int64)
    count = spans.shape[1]
    held = state[ACTIVE]
    begins = state[NEXT]
    n = 0
    for version in range(versions[0], versions[1]):
        ends = begins
        while ends < count and spans[FIRST, ends] <= version:
            ends += 1
        size = 0
        at = 0
        while at < held or begins < ends:
            if begins == ends or (at < held and spans[UPDATE, active[at]] < spans[UPDATE, begins]):
                span = active[at]
                at += 1
            else:
                span = begins
                begins += 1
            if spans[BEHIND, span] > version:
                merged[size] = span
                size += 1
        for k in range(size):
            active[k] = merged[k]
            for _ in range(spans[COPIES, merged[k]]):
                found[0, n] = version
                found[1, n] = spans[UPDATE, merged[k]]
                n += 1
        held = size
    state[ACTIVE] = held
    state[NEXT] = begins
    return n
