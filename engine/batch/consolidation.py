"""Loose updates made canonical."""

from __future__ import annotations

import numpy as np

from engine.batch.batch import seal_lanes
from engine.batch.keys import fingerprint
from engine.batch.layout import constant_lane
from engine.batch.payload import take_rows
from engine.batch.updates import Updates


def consolidate(updates: Updates) -> Updates:
    """Equal (row image, time) added up, zeros dropped, ordered by (time, fingerprint): the canonical form.

    The same updates in any order and any division give the same result. Raises DiffOverflow.
    """
    if len(updates) <= 1:
        return updates if len(updates) == 0 or updates.diffs[0] != 0 else _none(updates)
    high, low = fingerprint(updates.rows)
    none = constant_lane(0, len(updates))
    facts = (updates.times, updates.diffs, np.arange(len(updates)))
    _, (times, diffs, positions), _ = seal_lanes((high, low, none, none, none), facts)
    if len(times) and times.min() != times.max():
        order = np.argsort(times, kind="stable")
        times, diffs, positions = times[order], diffs[order], positions[order]
    if len(positions) == len(updates) and (positions[1:] > positions[:-1]).all():
        return updates
    return Updates(take_rows(updates.rows, positions), times, diffs)


def _none(updates: Updates) -> Updates:
    return Updates(updates.rows.slice(0, 0), updates.times[:0], updates.diffs[:0])
