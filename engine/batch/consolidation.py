"""Loose updates made canonical."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow, Facts, seal_lanes
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import take_rows, taken
from headrace.engine.batch.keys import HashPlan, hash_rows, image_plan, lanes_of
from headrace.engine.batch.sort_layout import constant_lane
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels import small_batch
from headrace.engine.kernels.upsert import unequal

_FEW = 256
"""For fewer updates than this one call that does all steps costs less than a call for each step."""

_MANY, _SAMPLE, _COPIES = 8192, 1024, 4
"""From so many updates on a sample of so many tells whether they are there so many times each, and are added up."""

_SIGN = np.uint64(1 << 63)


def consolidate(updates: Updates, plan: HashPlan | None = None) -> Updates:
    """Equal (row image, time) added up, zeros dropped, ordered by (time, fingerprint): the canonical form.

    The same updates in any order and any division give the same result. `plan`: how their rows' images are hashed,
    where the caller has it. Raises DiffOverflow.
    """
    if len(updates) <= 1:
        return updates if len(updates) == 0 or updates.diffs[0] != 0 else _none(updates)
    times, diffs, positions = _settled(updates, plan or image_plan(updates.struct.schema), by_time=True)
    if len(positions) == len(updates) and (positions[1:] > positions[:-1]).all():
        return updates
    return Updates(taken(updates.struct, positions), times, diffs)


def netted(updates: Updates, plan: HashPlan) -> tuple[Int64s, Int64s, Int64s]:
    """Times, diffs and positions of the updates left when rows count as equal whose images under `plan` are.

    Positions are those of the first of equal rows. Ordered by fingerprint, then time. Raises DiffOverflow.
    """
    return _settled(updates, plan, by_time=False)


def without_pairs(updates: Updates, plan: HashPlan) -> Int64s | None:
    """The positions of the updates left when an old row and the new one behind it cancel, whose images under `plan` are equal;
    None for all. A table's changes stand so; equal rows that stand apart are left as they are.
    """
    if not (updates.diffs < 0).any():
        return None
    high, low, _ = lanes_of(updates, plan)
    kept = np.empty(len(updates), np.int64)
    left = unequal(high, low, updates.times, updates.diffs, kept)
    return None if left == len(kept) else kept[:left]


def netted_at(
    rows: pa.RecordBatch, at: Int64s, times: Int64s, diffs: Int64s, plan: HashPlan
) -> tuple[Int64s, Int64s, Int64s]:
    """As `netted`, for updates of the rows at the positions `at`. A position may occur several times; its row is hashed once."""
    if len(at) < _FEW:
        times, diffs, positions = netted(Updates(take_rows(rows, at), times, diffs), plan)
        return times, diffs, at[positions]
    ones, twos, _ = hash_rows(Exported(rows), rows.num_rows, plan)
    none = constant_lane(0, len(at))
    return seal_lanes((ones[at], twos[at], none, none, none), (times, diffs, at))[1]


def thinned(updates: Updates) -> Updates:
    """The updates, or what they add up to where equal ones are many: those need not be kept, sent, nor worked on."""
    if len(updates) < _MANY or not _repeats(updates):
        return updates
    try:
        return consolidate(updates)
    except DiffOverflow:
        return updates  # whoever counts them says so


def _repeats(updates: Updates) -> bool:
    """True if a sample has as many equal updates as where each is there so many times."""
    at = np.linspace(0, len(updates) - 1, _SAMPLE).astype(np.int64)
    some = Updates(taken(updates.struct, at), updates.times[at], updates.diffs[at])
    high, _, _ = lanes_of(some, image_plan(some.struct.schema))
    order = np.lexsort((high, some.times))
    high, times = high[order], some.times[order]
    equal = int(np.count_nonzero((high[1:] == high[:-1]) & (times[1:] == times[:-1])))
    # Of n updates, c times each, a sample of s has about s² c / 2 n that are like one before.
    return equal * 2 * len(updates) >= _COPIES * _SAMPLE * _SAMPLE


def _settled(updates: Updates, plan: HashPlan, *, by_time: bool) -> Facts:
    """Times, diffs and positions; `by_time`: ordered by time first."""
    count = len(updates)
    if count < _FEW:
        block, size, overflow = small_batch.settle(
            updates.struct.address, plan.steps, updates.times, updates.diffs, by_time
        )
        if overflow:
            raise DiffOverflow
        return block[0, :size], block[1, :size], block[2, :size]
    high, low, _ = lanes_of(updates, plan)
    none = constant_lane(0, count)
    facts = updates.times, updates.diffs, np.arange(count)
    if by_time and bool((facts[0] != facts[0][0]).any()):
        return seal_lanes((facts[0].view(np.uint64) ^ _SIGN, high, low, none, none), facts)[1]
    return seal_lanes((high, low, none, none, none), facts)[1]


def _none(updates: Updates) -> Updates:
    return Updates(updates.rows.slice(0, 0), updates.times[:0], updates.diffs[:0])
