"""The join of a few changes in one call of a kernel, where both sides are looked up in plain traces.

Always: what it gives is what `join_trace` gives of either side, one behind the other. Called by the dataflow's join nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.engine.batch.gather_rows import Assembly, Picked
from headrace.engine.batch.keys import HashPlan
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels import entries, small_join
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.filtered_trace import Index
from headrace.engine.operators.reduce import Reduced
from headrace.engine.trace.spine import Spine

FEW = 256
"""Below so many updates one call that does it all costs less than its steps one by one."""

_NO_TIMES: Int64s = np.empty(0, np.int64)
_NO_TABLE: Int64s = np.empty((0, entries.COLUMNS), np.int64)
_ALL: Int64s = np.empty((0, 4), np.int64)


class Side(NamedTuple):
    """What changed on one side, how its keys are hashed, which of its columns count (None: all), and its own trace."""

    updates: Updates | None
    layout: Layout
    slim: HashPlan | None
    searched: Index | None

    @property
    def is_few(self) -> bool:
        """Whether one call can take its changes, and look others up in it."""
        return (self.searched is None or isinstance(self.searched, Spine)) and len(self.updates or ()) < FEW


def join_few(left: Side, right: Side, since: int, assembly: Assembly, *, strictly: bool = False) -> Delta | None:
    """The rows that the changes of both sides make; None where that takes more than one call.

    The left's meet the right as it is at their times, or (`strictly`) just before, the right's the left just before.
    `assembly`: of the rows, from lane 0 the left's.
    """
    if not (left.is_few and right.is_few and len(assembly.steps)):
        return None
    one, two = left.updates, right.updates
    block, data, where, words, facts, how = small_join.join_few(
        (0 if one is None else one.struct.address, 0 if two is None else two.struct.address),
        (
            left.layout.sealing,
            right.layout.sealing,
            _ALL if left.slim is None else left.slim.steps,
            _ALL if right.slim is None else right.slim.steps,
        ),
        (
            _NO_TIMES if one is None else one.times,
            _NO_TIMES if one is None else one.diffs,
            _NO_TIMES if two is None else two.times,
            _NO_TIMES if two is None else two.diffs,
        ),
        (_table(left.searched), _table(right.searched)),
        since,
        strictly,
        assembly.steps,
    )
    if how == small_join.LONG:
        return None
    size = facts.shape[1]
    if not size:
        return QUIET
    rows = Picked(assembly.itself, size, words, (block, data, where, words))
    return Delta(Updates(rows, facts[0], facts[1]), None)


def look_up_few(side: Side, results: Reduced, since: int, assembly: Assembly, *, strictly: bool) -> Delta | None:
    """As `join_few`, of one side's changes and the results of a reduce; None where that takes more than one call."""
    plan, changes = results.plan, side.updates
    if plan is None or changes is None or not side.is_few or not len(assembly.steps) or not len(plan.read.steps):
        return None
    shape = results.shape
    block, data, where, words, facts, how = small_join.join_results(
        changes.struct.address,
        (side.layout.sealing, _ALL if side.slim is None else side.slim.steps, plan.shows),
        changes.times,
        changes.diffs,
        results.settled().view.table,
        strictly,
        (plan.read.steps, assembly.steps),
        (since, shape.key, shape.lanes, shape.least),
    )
    if how == small_join.LONG:
        return None
    size = facts.shape[1]
    if not size:
        return QUIET
    return Delta(Updates(Picked(assembly.itself, size, words, (block, data, where, words)), facts[0], facts[1]), None)


def _table(index: Index | None) -> Int64s:
    return index.view.table if isinstance(index, Spine) else _NO_TABLE
