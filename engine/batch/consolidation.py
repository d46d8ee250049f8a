"""Loose updates made canonical."""

from __future__ import annotations

import numpy as np

from engine.batch.batch import seal_lanes
from engine.batch.keys import HashPlan, image_plan, lanes_of
from engine.batch.layout import constant_lane
from engine.batch.payload import take_rows
from engine.batch.updates import Int64s, Updates


def consolidate(updates: Updates, plan: HashPlan | None = None) -> Updates:
    """Equal (row image, time) added up, zeros dropped, ordered by (time, fingerprint): the canonical form.

    The same updates in any order and any division give the same result. `plan`: how their rows' images are hashed,
    where the caller has it. Raises DiffOverflow.
    """
    if len(updates) <= 1:
        return updates if len(updates) == 0 or updates.diffs[0] != 0 else _none(updates)
    high, low, _ = lanes_of(updates, plan or image_plan(updates.rows.schema))
    none = constant_lane(0, len(updates))
    facts = (updates.times, updates.diffs, np.arange(len(updates)))
    _, (times, diffs, positions), _ = seal_lanes((high, low, none, none, none), facts)
    if len(times) > 1 and bool((times != times[0]).any()):
        order = np.argsort(times, kind="stable")
        times, diffs, positions = times[order], diffs[order], positions[order]
    if len(positions) == len(updates) and (positions[1:] > positions[:-1]).all():
        return updates
    return Updates(take_rows(updates.rows, positions), times, diffs)


def netted(updates: Updates, plan: HashPlan) -> tuple[Int64s, Int64s, Int64s]:
    """Times, diffs and positions of the updates left when rows count as equal whose images under `plan` are.

    Positions are those of the first of equal rows. Ordered by fingerprint, then time. Raises DiffOverflow.
    """
    high, low, _ = lanes_of(updates, plan)
    none = constant_lane(0, len(updates))
    return seal_lanes((high, low, none, none, none), (updates.times, updates.diffs, np.arange(len(updates))))[1]


def _none(updates: Updates) -> Updates:
    return Updates(updates.rows.slice(0, 0), updates.times[:0], updates.diffs[:0])
