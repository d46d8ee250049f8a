"""The least or greatest value of each group at each version, without looking at the rest of the group.

Always: the value from before the step is known, so that only a group that loses it is looked up, in an arrangement of
the values by group whose order lane follows them: from the old value on, up to the first that is live throughout the
step. Nulls do not count; of equal values the least image is shown by min, the greatest by max. Called by `reduce`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.gather_rows import indices
from headrace.engine.batch.keys import Keys, UInt64s, order_lane
from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.operators.ranks import ranks_of
from headrace.engine.operators.value_history import Clock, Stream, least
from headrace.engine.schema import DataType
from headrace.engine.trace.spine import Spine

_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Extreme(NamedTuple):
    """The least value of a column of a reduce's input, or the `greatest`."""

    column: int
    kind: DataType
    greatest: bool

    def ranks(self, values: pa.Array) -> Int64s:
        """Ranks of which the least is the one wanted."""
        found = ranks_of(values, self.kind, images=True)
        return ~found if self.greatest else found


class Changes(NamedTuple):
    """What a step does: its updates, the group of each, and the key of each group. `since`: the last epoch before it."""

    updates: Updates
    ids: Int64s
    keys: Keys
    since: int


def extreme_at_versions(
    extreme: Extreme, prior: pa.Array, changes: Changes, clock: Clock, spine: Spine
) -> tuple[pa.Array, Int64s]:
    """(values, at): `values[at[v]]` is the value at version v, null where at[v] < 0; `at` changes when the value does.

    `prior`: each group's value before the step, null where it had none; `spine`: the values by group, with the step's
    updates.
    """
    updates, count = changes.updates, len(changes.keys)
    values = updates.struct.column(extreme.column)
    both = pa.concat_arrays([prior, values])
    valid = _valid(both)
    ranks = extreme.ranks(both)
    lost = _lost(ranks, valid, changes)
    stream = Stream(
        np.concatenate([np.arange(count), changes.ids]),
        np.concatenate([np.full(count, changes.since), updates.times]),
        np.concatenate([np.ones(count, np.int64), updates.diffs]),
        both,
    )
    kept = valid & ~lost[stream.probe]
    if not kept.all():
        places = np.flatnonzero(kept)
        stream, ranks = stream.at(places), ranks[places]
    if lost.any():
        stream = _joined(stream, _looked_up(extreme, both, valid, np.flatnonzero(lost), changes, spine))
        ranks = extreme.ranks(stream.values)
    return stream.values, least(ranks, stream, clock)


def taken(values: pa.Array, at: Int64s) -> pa.Array:
    """`values` at the positions `at`, null where they are negative."""
    if len(at) and int(at.min()) < 0:
        return values.take(pa.array(at, mask=at < 0))
    return values.take(indices(at))


def _lost(ranks: Int64s, valid: Bools, changes: Changes) -> Bools:
    """Groups of which some row with the value from before the step is retracted."""
    count, ids = len(changes.keys), changes.ids
    gone = (changes.updates.diffs < 0) & valid[count:] & valid[ids] & (ranks[count:] == ranks[ids])
    lost = np.zeros(count, np.bool_)
    lost[ids[gone]] = True
    return lost


def _looked_up(
    extreme: Extreme, both: pa.Array, valid: Bools, groups: Int64s, changes: Changes, spine: Spine
) -> Stream:
    """The values that may be extreme in `groups`, from the trace. `both`: values before the step, then of its updates."""
    bounds = _bounds(extreme, both, valid, changes)[groups]
    ends = spine.first_live(changes.keys.take(groups), bounds, changes.since, backward=extreme.greatest)
    values = ends.column(len(spine.layout.schema.columns) - 1)
    stream = Stream(groups[ends.probe], ends.times, ends.diffs, values)
    return stream.at(np.flatnonzero(_valid(values))) if values.null_count else stream


def _bounds(extreme: Extreme, both: pa.Array, valid: Bools, changes: Changes) -> UInt64s:
    """The order lane of each group beyond which nothing is live: neither before the step nor in it."""
    rows = pa.RecordBatch.from_arrays([both], names=["value"])
    lanes = order_lane(rows, [0], [extreme.kind])
    probe = np.concatenate([np.arange(len(changes.keys)), changes.ids])
    bounds = np.full(len(changes.keys), 0 if extreme.greatest else _FULL, np.uint64)
    some = valid if not valid.all() else slice(None)
    (np.maximum if extreme.greatest else np.minimum).at(bounds, probe[some], lanes[some])
    return bounds


def _joined(one: Stream, two: Stream) -> Stream:
    return Stream(
        np.concatenate([one.probe, two.probe]),
        np.concatenate([one.times, two.times]),
        np.concatenate([one.diffs, two.diffs]),
        pa.concat_arrays([one.values, two.values]),
    )


def _valid(values: pa.Array) -> Bools:
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    found: Bools = values.is_valid().to_numpy(zero_copy_only=False)
    return found


def prior_values(column: pa.Array, probe: Int64s, count: int) -> pa.Array:
    """The entry of `column` of each of `count` groups, null for those not in `probe`, the groups of the entries, ascending."""
    if len(probe) == count:
        return column
    at = np.full(count, -1, np.int64)
    at[probe] = np.arange(len(probe))
    return taken(column, at)
