"""Functions of whole groups inside of a scope that iterates: one round, at all epochs of the step at once.

Always: what is sent at (epoch, round) is what the function makes of a group's rows up to then, less what was sent before
then. Nothing is kept of that: sums of what was sent are the function's values just before this round, one round of the
scope back, one of the scope around, and both. A group that changed is looked at again in each later round in which its
history has updates. Called by the dataflow's group nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.kernels.times import EPOCHS, ROUNDS
from headrace.engine.operators.delta import QUIET, Delta, concat, negated
from headrace.engine.operators.group_versions import group
from headrace.engine.operators.rounds import Later, Moment, by_round
from headrace.engine.trace.lookup import Matches
from headrace.engine.trace.spine import Spine

OfGroups = Callable[[Updates, Int64s, int], Delta]
"""(updates of groups, their ascending group numbers, the epoch `since`) → the changes of the function's value after `since`."""


def group_round(of: OfGroups, spine: Spine, keys: Keys, moment: Moment) -> tuple[Delta, Later]:
    """For the groups `keys` in the moment's round: (updates of the function's values, groups to look at again).

    `spine`: holds the groups' rows, with those of this round. Raises DiffOverflow.
    """
    keys = keys.take(group(keys).first)
    since = moment.lower - 1
    # While a loop is filled, all that lies in an arrangement from outside is of this step.
    found = spine.gather(keys, moment.lower if moment.floor < moment.lower else since)
    reached = moment.reached(found.times)
    here = reached == moment.now
    later = _due(keys, found.probe[~here], reached[~here])
    outer, inner = (((found.times ^ moment.now) & bits) != 0 for bits in (moment.outer, ROUNDS & ~moment.outer))
    sent = [
        _values(of, found, here, since),
        _negated(_values(of, found, here & outer, since)),
        _negated(_values(of, found, here & inner, since)),
        _values(of, found, here & outer & inner, since),
    ]
    return Delta(_net([d.rows for d in sent]), _net([d.errors for d in sent])), later


def _due(keys: Keys, probes: Int64s, rounds: Int64s) -> Later:
    """The keys at the places `probes` by the round in which each is due, each once a round."""
    order = np.lexsort((probes, rounds))
    probes, rounds = probes[order], rounds[order]
    new = np.ones(len(probes), np.bool_)
    new[1:] = (probes[1:] != probes[:-1]) | (rounds[1:] != rounds[:-1])
    return by_round(keys, probes[new], rounds[new])


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
