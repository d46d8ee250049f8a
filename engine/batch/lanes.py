"""Lanes made for sealed batches: room for them, and what of them can be told without keeping every entry.

Always: a lane of one value has stride 0, and one that is left out no entries. Called by batches, mergers and intakes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.engine.batch.keys import UInt64s
from headrace.engine.batch.sort_layout import Lane, shortened, stretched
from headrace.engine.batch.updates import Int64s
from headrace.engine.kernels import consolidate as kernels
from headrace.engine.kernels import large_batch


def room_for(lanes: Sequence[UInt64s], count: int) -> tuple[UInt64s, ...]:
    """Room for as many entries of each lane, of a flat one for one."""
    # It is numpy's, which asks the system for huge pages: that makes touching fresh memory ten times cheaper.
    return tuple(np.empty(1 if lane.strides[0] == 0 else count, np.uint64) for lane in lanes)


def given_back(lanes: Sequence[UInt64s], room: Sequence[UInt64s], size: int) -> tuple[UInt64s, ...]:
    """What of `room_for` holds `size` entries."""
    pairs = zip(lanes, room, strict=True)
    return tuple(stretched(out, size) if lane.strides[0] == 0 else shortened(out, size) for lane, out in pairs)


def elided(lane: Lane) -> Lane:
    """`lane`, or one of stride 0 if all its entries are equal."""
    if lane.strides[0] == 0 or lane[0] != lane[-1] or not kernels.is_constant(lane.view(np.int64)):
        return lane
    return stretched(lane[:1].copy(), len(lane))


def reordered(lane: Lane, order: Int64s) -> Lane:
    """The entries of `lane` in this order."""
    return lane if lane.strides[0] == 0 else lane[order]


def few_ties(ties: int, size: int) -> bool:
    """True if fingerprints need not be kept: so few rows of `size` entries share key and order with the row before."""
    return ties * large_batch.FEW_TIES <= size


def left_out(lane: Lane, really: bool) -> Lane:
    """`lane`, or one of no entries."""
    return lane[:0].copy() if really else lane
