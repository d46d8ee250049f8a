"""Functions of whole groups inside of a scope that iterates: one round, at all epochs of the step at once.

Always: what is sent at (epoch, round) is what the function makes of a group's rows up to then, less what was sent before
then. Nothing is kept of that: sums of what was sent are the function's values just before this round, one round of the
scope back, one of the scope around, and both. A group that changed is looked at again in each later round in which its
history has updates. Called by the dataflow's group nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.batch.consolidation import consolidate
from engine.batch.keys import Keys
from engine.batch.updates import Bools, Int64s, Updates
from engine.kernels.times import EPOCHS, ROUNDS
from engine.operators.delta import QUIET, Delta, concat, negated
from engine.operators.groups import group
from engine.operators.rounds import Later, Moment
from engine.trace.lookup import Matches
from engine.trace.spine import Spine

OfGroups = Callable[[Updates, Int64s, int], Delta]
"""(updates of groups, ascending numbers of these, the epoch `since`) to how the function's value changes after `since`."""


def group_round(of: OfGroups, spine: Spine, keys: Keys, moment: Moment) -> tuple[Delta, Later]:
    """(updates of the function's values, groups to look at again) of the moment's round, for the groups `keys`.

    `spine`: holds the groups' rows, with those of this round. Raises DiffOverflow.
    """
    keys = keys.take(group(keys).first)
    since = moment.lower - 1
    # While a loop is filled, all that lies in an arrangement from outside is of this step.
    found = spine.gather(keys, moment.lower if moment.floor < moment.lower else since)
    reached = moment.reached(found.times)
    here = reached == moment.now
    later = [(at, keys.take(np.unique(found.probe[reached == at]))) for at in np.unique(reached[~here]).tolist()]
    outer, inner = (((found.times ^ moment.now) & bits) != 0 for bits in (moment.outer, ROUNDS & ~moment.outer))
    sent = [
        _values(of, found, here, since),
        _negated(_values(of, found, here & outer, since)),
        _negated(_values(of, found, here & inner, since)),
        _values(of, found, here & outer & inner, since),
    ]
    return Delta(_net([d.rows for d in sent]), _net([d.errors for d in sent])), later


def _values(of: OfGroups, found: Matches, chosen: Bools, since: int) -> Delta:
    """How the function's value changes of those of `found` that are `chosen`."""
    some = found.take(np.flatnonzero(chosen))
    times = some.times & EPOCHS
    if not bool((times > since).any()):
        return QUIET
    return of(Updates(some.rows(), times, some.diffs), some.probe, since)


def _negated(delta: Delta) -> Delta:
    return Delta(negated(delta.rows), negated(delta.errors))


def _net(parts: list[Updates | None]) -> Updates | None:
    both = concat(parts)
    if both is None or sum(part is not None for part in parts) == 1:
        return both
    net = consolidate(both)
    return net if len(net) else None
