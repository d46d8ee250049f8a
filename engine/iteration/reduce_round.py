"""Reduce inside of a scope that iterates: one round, at all epochs of the step at once.

Always: what a group should show at (epoch, round) is worked out from everything at epochs and rounds up to those, and
what is sent is that less what was sent at them before. What the output arrangement holds at a time stands for what came
in at it: lanes are sums, so the lanes of its updates add up to those of the input's. A group that changed is looked at
again in each later round in which its history has updates. Called by the dataflow's reduce nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels.times import EPOCHS
from headrace.engine.operators.delta import QUIET, Delta, concat, negated
from headrace.engine.operators.group_versions import group, versions_of
from headrace.engine.operators.reduce import (
    Lookup,
    State,
    corrected,
    nothing_at,
    prior_lanes,
    results_from,
    stream_of,
    unpacked,
)
from headrace.engine.operators.reduce_input import Input, input_of
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.operators.rounds import Later, Moment
from headrace.engine.operators.value_history import Clock, least
from headrace.engine.trace.lookup import Matches
from headrace.engine.trace.spine import Spine


class Round(NamedTuple):
    """The input of one round. `updates`, `distinct`: as for `reduce_changes`. `again`: groups to look at though nothing of
    theirs came.

    `initial`: nothing was ever emitted before this step, and the step begins: a group without a key gets its row.
    """

    updates: Updates | None
    distinct: Sequence[Updates | None]
    again: Sequence[Keys]
    initial: bool


def reduce_round(
    shape: Shape, state: State, come: Round, moment: Moment, *, first_step: bool
) -> tuple[Updates | None, Delta, Later]:
    """For the moment's round: (updates of the output arrangement, updates of the result, groups to look at again).

    `first_step`: the scope's first one. Raises DiffOverflow.
    """
    assert state.kept is not None
    updates = come.updates
    if shape.key == 0 and come.initial:
        updates = concat([nothing_at(shape.types, moment.lower), updates])
    put = _put(shape, state.layout, updates, come.distinct)
    keys = _joined([put.keys, *come.again])
    if not len(keys):
        return None, QUIET, []
    groups = found = group(keys, None if come.again else put.times)
    history = _History(shape, state, keys.take(groups.first), moment)
    own = history.own
    at = np.arange(groups.count)
    if come.again or own is not None or history.marks:
        put, owners = _with_history(shape, put, groups.ids[: len(put.keys)], history)
        if not len(put.keys):
            return None, QUIET, history.later
        found = group(put.keys, put.times)
        at[:] = -1
        at[owners] = found.ids
    since = moment.lower - 1
    before = _of(history.before, at)
    states = versions_of(found, put.times, put.diffs, put.lanes, prior_lanes(shape, before, found.count), since)
    clock = Clock(states.starts(found.count), states.times)

    def look(spine: Spine) -> Matches:
        matches = _of(history.values[id(spine)], at)
        assert matches is not None
        return matches

    def extreme_at(k: int) -> tuple[pa.Array, Int64s]:
        matches = look(state.extremes[k])
        stream = stream_of(matches, matches.rows([shape.key]).column(0))
        return stream.values, least(shape.extremes[k].ranks(stream.values), stream, clock)

    made, delta = corrected(shape, state, put, states, Lookup(clock, look, extreme_at), initial=first_step)
    kept = None if made is None else made.updates()
    if own is None:
        return kept, delta, history.later
    net = concat([kept, negated(own)])
    assert net is not None
    net = consolidate(net)
    if not len(net):
        return None, QUIET, history.later
    delta = results_from(shape, net)
    rows = None if delta.rows is None else consolidate(delta.rows)
    return net, Delta(rows if rows is not None and len(rows) else None, delta.errors), history.later


class _History:
    """What the groups `keys` have been up to this round.

    Of the output arrangement `before` the step, and as updates of the step's `own` epochs, of the groups `owners`; of the
    arrangements of values, by spine, all `values`, and as `marks` what changed in earlier rounds of the step.
    """

    def __init__(self, shape: Shape, state: State, keys: Keys, moment: Moment) -> None:
        assert state.kept is not None
        self.keys = keys
        self.later: Later = []
        self.values: dict[int, Matches] = {}
        self.own: Updates | None = None
        self.owners = np.empty(0, np.int64)
        kept = self._counting(state.kept.gather(keys, moment.lower - 1), moment)
        recent = kept.times >= moment.lower
        if recent.any():
            own = kept.take(np.flatnonzero(recent))
            kept = kept.take(np.flatnonzero(~recent))
            self.own, self.owners = own.updates(), own.probe
        self.before = kept
        self.marks: list[Matches] = []
        looked = [*state.extremes, *state.wholes, *([] if state.images is None else [state.images])]
        for spine in looked:
            found = spine.gather(self.keys, moment.lower - 1)
            self.values[id(spine)] = self._counting(found, moment)
            # What came in this round is looked at in any case.
            before = np.flatnonzero((found.times & EPOCHS >= moment.lower) & ~moment.is_new(found.times))
            if len(before):
                marks, _ = moment.parted(found.take(before))
                self.marks += [marks] if len(marks) else []
        self._width = shape.key

    def _counting(self, found: Matches, moment: Moment) -> Matches:
        """The updates that count in this round. A group with updates of a later round is due in that round."""
        now, later = moment.parted(found)
        self.later += [(at, self.keys.take(np.unique(matches.probe))) for at, matches in later]
        return now

    def parts(self) -> list[tuple[pa.RecordBatch, Int64s, Int64s]]:
        """The updates found in the step: rows that begin with the key columns, their times, their groups; those of `own` come
        first.
        """
        found = [] if self.own is None else [(self.own.rows, self.own.times, self.owners)]
        columns = range(self._width)
        found += [(marks.rows(columns), marks.times, marks.probe) for marks in self.marks]
        return found


def _with_history(shape: Shape, put: Input, owners: Int64s, history: _History) -> tuple[Input, Int64s]:
    """`put` and the groups of its rows, with what the output arrangement holds of the step, and with marks, as zeros."""
    parts = history.parts()
    rows, keys, times, diffs, lanes, ids = list(put.rows), [put.keys], [put.times], [put.diffs], [put.lanes], [owners]
    columns = list(range(shape.key))
    for part, when, groups in parts:
        size = len(when)
        own = history.own if not ids[1:] and history.own is not None else None
        rows.append(part.select(columns))
        times.append(when)
        ids.append(groups)
        keys.append(history.keys.take(groups))
        diffs.append(np.zeros(size, np.int64) if own is None else own.diffs)
        some = np.zeros((size, shape.lanes), np.int64)
        lanes.append(some if own is None else unpacked(own.rows.column(shape.key), shape.lanes))
    joined = Input(rows, np.concatenate(times), np.concatenate(diffs), _joined(keys), np.concatenate(lanes))
    return joined, np.concatenate(ids)


def _put(shape: Shape, layout: Layout, updates: Updates | None, distinct: Sequence[Updates | None]) -> Input:
    if updates is None:
        none = np.empty(0, np.int64)
        types = [pa.nulls(0, kind.arrow) for kind in shape.types]
        names = [f"c{i}" for i in range(len(types))]
        updates = Updates(pa.RecordBatch.from_arrays(types, names=names), none, none)
    return input_of(shape, layout, updates, distinct)


def _joined(parts: Sequence[Keys]) -> Keys:
    some = [part for part in parts if len(part)] or list(parts[:1])
    if len(some) == 1:
        return some[0]
    return Keys(np.concatenate([k.hash for k in some]), np.concatenate([k.check for k in some]))


def _of(matches: Matches | None, at: Int64s) -> Matches | None:
    """`matches` renumbered by `at`, without the matches that it gives no group."""
    if matches is None:
        return None
    probe = at[matches.probe]
    if len(probe) and int(probe.min()) < 0:
        kept = np.flatnonzero(probe >= 0)
        matches, probe = matches.take(kept), probe[kept]
    return Matches(probe, *[getattr(matches, name) for name in _REST])


_REST = ("times", "diffs", "row", "places", "structs", "batches", "layout")
