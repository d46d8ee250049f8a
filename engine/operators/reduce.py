"""Reduce: the groups that change, at each epoch at which they do.

Always: a group's state is one row of the output arrangement; a group without aggregates changes only when it comes and
goes; sums of lanes and extremes cost what changed, never the
size of a group, and only what needs all values of a group (`holistic_aggregates`) reads them; each epoch at which a group changes
gets its own -old and +new; a result that cannot be (bigint out of range) is an error update, retracted when it comes
right. Called by the dataflow's reduce nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import Assembly, concat_rows, conformed, take_rows
from headrace.engine.batch.keys import Keys, fingerprint
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels import small_reduce
from headrace.engine.kernels.reduce import sum_packed
from headrace.engine.operators.aggregates import MESSAGE, first_message, results_of
from headrace.engine.operators.delta import QUIET, Delta, concat, rows_of, take
from headrace.engine.operators.group_versions import Versions, corrections_of, group, versions_of
from headrace.engine.operators.holistic_aggregates import sum_at_versions
from headrace.engine.operators.linear import present, split
from headrace.engine.operators.min_max import Changes, extreme_at_versions, prior_values, taken
from headrace.engine.operators.ranks import row_ranks
from headrace.engine.operators.reduce_input import Input, input_of, summed_up
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.operators.small_reduce import Laid, Plan, regrouped
from headrace.engine.operators.value_history import Clock, Stream, least
from headrace.engine.schema import BYTEA, DataType
from headrace.engine.trace.lookup import LATEST, Matches
from headrace.engine.trace.spine import Spine

FEW = 256
"""Below so many updates one call that does it all costs less than its steps one by one."""


class State(NamedTuple):
    """What a reduce keeps and reads, all but `kept` with the step's updates.

    `layout`: of the output arrangement, whose key columns are those of the rows; `kept`: that arrangement before the
    step, or None while there is none. By group and with the value as last column: `extremes`, ordered by value, one an
    extreme of the shape; `wholes`, one a whole of the shape. `images`: the keys alone, where they have images.
    """

    layout: Layout
    kept: Spine | None
    extremes: Sequence[Spine] = ()
    wholes: Sequence[Spine] = ()
    images: Spine | None = None
    plan: Plan | None = None


class Kept(NamedTuple):
    """Updates of the output arrangement of `layout`, laid out only when it is known which of them anybody may ask for.

    `key`, `lanes`, `values`: of each its columns; `versions`: which state of its group it is of, None if that is not known.
    """

    layout: Layout
    key: Sequence[pa.Array]
    lanes: Int64s
    values: Sequence[pa.Array]
    times: Int64s
    diffs: Int64s
    versions: Int64s | None

    def updates(self, since: int | None = None) -> Updates | None:
        """All of them; with `since` without the states that came and went again by then."""
        size = len(self.times)
        key, lanes, values, times, diffs = self.key, self.lanes, self.values, self.times, self.diffs
        if since is not None and self.versions is not None and size:
            gone = (self.versions[1:] == self.versions[:-1]) & (times[1:] <= since)
            stay = np.flatnonzero(~(np.append(gone, False) | np.append(False, gone)))
            if len(stay) < size:
                at = pa.array(stay)
                key, values = [column.take(at) for column in key], [column.take(at) for column in values]
                lanes, times, diffs, size = lanes[stay], times[stay], diffs[stay], len(stay)
        if not size:
            return None
        return Updates(rows_of([*key, packed_lanes(lanes), *values], self.layout.arrow, size), times, diffs)


def reduce_changes(
    shape: Shape,
    state: State,
    updates: Updates | None,
    distinct: Sequence[Updates | None],
    lower: int,
    *,
    initial: bool,
) -> tuple[Kept | Laid | None, Delta]:
    """(updates of the output arrangement, updates of the result) that `updates` make.

    `distinct`: for each of the shape's, what they make of (key columns …, value). `initial`: nothing was ever emitted,
    so that a reduce without a key gets its one row at `lower`.
    """
    put = None
    if shape.key == 0 and shape.is_sums and updates is not None and len(updates) >= FEW:
        put = summed_up(shape, state.layout, updates, lower if initial else None)
    if put is not None:
        updates = Updates(put.rows[0], put.times, put.diffs)
    elif shape.key == 0 and initial:
        updates = concat([nothing_at(shape.types, lower), updates])
    if updates is None:
        return None, QUIET
    is_simple = shape.is_sums or state.plan is not None
    if put is None and is_simple and state.kept is not None and not initial and len(updates) < FEW:
        made = _few_changes(shape, state, state.kept, updates, lower - 1)
        if made is not None:
            return made
    if put is None:
        put = input_of(shape, state.layout, updates, distinct)
    found = group(put.keys, put.times)
    changes = Changes(updates, found.ids[: len(updates)], put.keys.take(found.first), lower - 1)
    kept = None if state.kept is None else state.kept.gather(changes.keys, changes.since)
    prior = prior_lanes(shape, kept, found.count)
    states = versions_of(found, put.times, put.diffs, put.lanes, prior, lower - 1)
    clock = Clock(states.starts(found.count), states.times)

    def look(spine: Spine) -> Matches:
        return spine.gather(changes.keys, changes.since)

    def extreme_at(k: int) -> tuple[pa.Array, Int64s]:
        before = _prior_extreme(shape, kept, k, found.count)
        return extreme_at_versions(shape.extremes[k], before, changes, clock, state.extremes[k])

    return corrected(shape, state, put, states, Lookup(clock, look, extreme_at), initial=initial)


class Lookup(NamedTuple):
    """How the values of the groups are found at the versions of `clock`.

    `look`: all updates of the groups in an arrangement; `extreme_at`: the values of the extreme k, as `Held` has them.
    """

    clock: Clock
    look: Callable[[Spine], Matches]
    extreme_at: Callable[[int], tuple[pa.Array, Int64s]]


def corrected(
    shape: Shape, state: State, put: Input, states: Versions, lookup: Lookup, *, initial: bool
) -> tuple[Kept | None, Delta]:
    """The updates of the output arrangement, and of the result, that lead from each version of `states` to the next."""
    held: Held = []
    for k in range(len(shape.extremes)):
        values, at = lookup.extreme_at(k)
        held.append((values, at))
        states.same[1:] &= at[1:] == at[:-1]
    held += _wholes(shape, state, lookup, states.same)
    key_rows, key_at = _keys(shape, state, put, states, lookup)
    live = (states.lanes[:, 0] > 0).astype(np.uint8)
    if shape.key == 0:
        live[:] = 1
        live[0] = 0 if initial else 1
    version, times, diffs = corrections_of(states, live)
    if not len(version):
        return None, QUIET
    key = take_rows(key_rows, key_at[version]).columns
    lanes = states.lanes[version]
    values = [taken(value, at[version]) for value, at in held]
    kept = Kept(state.layout, key, lanes, values, times, diffs, version)
    if shape.key and not shape.slots:
        return kept, _present(shape, states, key_rows, key_at)
    return kept, _results(shape, key, lanes, values, times, diffs)


def _few_changes(
    shape: Shape, state: State, kept: Spine, updates: Updates, before: int
) -> tuple[Kept | Laid | None, Delta] | None:
    """`reduce_changes` of a few updates, where it takes no more than sums, in one call of a kernel; None if it takes more."""
    if state.plan is not None:
        return regrouped(state.plan, shape, state.layout, (kept, state.extremes), updates, before)
    here = updates.struct.address
    is_shown = bool(shape.key) and not shape.slots
    numbers = (before, shape.key, shape.lanes, shape.least if is_shown else 0)
    table, plan = kept.view.table, state.layout.sealing
    found, lanes, shown, how = small_reduce.regroup(
        here, plan, shape.reads, updates.times, updates.diffs, table, numbers
    )
    if how == small_reduce.LONG:
        return None
    if not len(lanes):
        return None, QUIET

    def keys(assembly: Assembly, at: Int64s) -> Exported:
        return assembly.picked(np.array([here]), np.zeros((1, at.shape[1]), np.int64), at[:1])

    key = keys(state.layout.assembly(range(shape.key)), found).rows.columns
    put = Kept(state.layout, key, lanes, [], found[1], found[2], None)
    if not is_shown:
        return put, _results(shape, key, lanes, [], found[1], found[2])
    if not shown.shape[1]:
        return put, QUIET
    return put, Delta(Updates(keys(Assembly.of(shape.schema.arrow, range(shape.key)), shown), shown[1], shown[2]), None)


def _present(shape: Shape, states: Versions, key_rows: pa.RecordBatch, key_at: Int64s) -> Delta:
    """The groups that come and go, and those whose key is shown in another image: how many rows they have is not shown."""
    same = np.ones(len(states.groups), np.int64)
    if shape.has_images:
        same[1:] = key_at[1:] == key_at[:-1]
    live = (states.lanes[:, 0] >= shape.least).astype(np.uint8)
    version, times, diffs = corrections_of(states._replace(same=same), live)
    if not len(version):
        return QUIET
    rows = rows_of(take_rows(key_rows, key_at[version]).columns, shape.schema.arrow, len(version))
    return Delta(Updates(rows, times, diffs), None)


def prior_lanes(shape: Shape, kept: Matches | None, count: int) -> Int64s:
    """The lanes of each group before the step, from what its output arrangement holds of it."""
    prior = np.zeros((count, shape.lanes), np.int64)
    if kept is not None and len(kept):
        sum_packed(kept.structs, kept.places, shape.key, kept.probe, kept.diffs, prior)
    return prior


def _prior_extreme(shape: Shape, kept: Matches | None, k: int, count: int) -> pa.Array:
    """The extreme k of each group before the step."""
    if kept is None or not len(kept):
        return pa.nulls(count, shape.extremes[k].kind.arrow)
    return prior_values(kept.rows([shape.key + 1 + k]).column(0), kept.probe, count)


Held = list[tuple[pa.Array, Int64s]]
"""Values, and for each version the place of its own, negative for null."""


def _wholes(shape: Shape, state: State, lookup: Lookup, same: Int64s) -> Held:
    """The sums over whole groups at each version, then their error; where they differ from the last one, `same` is 0."""
    if not shape.wholes:
        return []
    clock = lookup.clock
    size = len(clock.times)
    columns: list[pa.Array] = []
    messages: pa.Array | None = None
    for slot, spine in zip(shape.wholes, state.wholes, strict=True):
        matches = lookup.look(spine)
        values = matches.rows([shape.key]).column(0)
        stream = stream_of(matches, values)
        computed, fault = sum_at_versions(slot, stream, clock)
        columns.append(computed)
        messages = first_message(messages, fault)
    columns.append(pa.nulls(size, MESSAGE) if messages is None else messages)
    high, low = fingerprint(pa.RecordBatch.from_arrays(columns, names=[str(k) for k in range(len(columns))]))
    same[1:] &= (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    places = np.arange(size)
    return [(column, places) for column in columns]


def _keys(shape: Shape, state: State, put: Input, states: Versions, lookup: Lookup) -> tuple[pa.RecordBatch, Int64s]:
    """(rows of the key columns, the place in them of each version's): the least live image where a type has several."""
    if state.images is None:
        first = put.rows[0].schema
        return concat_rows([conformed(rows, first) for rows in put.rows]), states.rows
    matches = lookup.look(state.images)
    rows = matches.rows()
    # A version that is not shown may have no live image; nobody asks for its place.
    at = least(row_ranks(rows.columns, shape.key_types), stream_of(matches, None), lookup.clock)
    states.same[1:] &= at[1:] == at[:-1]
    return rows, at


def stream_of(matches: Matches, values: pa.Array | None) -> Stream:
    """The values that are not null, as they come and go; None: of the entries themselves."""
    stream = Stream(matches.probe, matches.times, matches.diffs, values)
    if values is None or not values.null_count:
        return stream
    return stream.at(np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)))


def results_from(shape: Shape, accumulators: Updates | None) -> Delta:
    """The result's content from the content of the output arrangement."""
    if accumulators is None or not len(accumulators):
        return QUIET
    lanes = unpacked(accumulators.rows.column(shape.key), shape.lanes)
    if shape.least > 1:
        enough = np.flatnonzero(lanes[:, 0] >= shape.least)
        accumulators, lanes = take(accumulators, enough), lanes[enough]
    rows = accumulators.rows
    key, values = rows.columns[: shape.key], rows.columns[shape.key + 1 :]
    return _results(shape, key, lanes, values, accumulators.times, accumulators.diffs)


def _results(
    shape: Shape, key: Sequence[pa.Array], lanes: Int64s, values: Sequence[pa.Array], times: Int64s, diffs: Int64s
) -> Delta:
    """`values`: of the extremes, then of the wholes, then their error."""
    columns, messages = _result_columns(shape, lanes, values)
    rows = rows_of([*key, *columns], shape.schema.arrow, len(times))
    return split(Updates(rows, times, diffs), messages)


def _result_columns(shape: Shape, lanes: Int64s, values: Sequence[pa.Array]) -> tuple[list[pa.Array], pa.Array | None]:
    """The aggregates of each group, and why there are none."""
    columns, messages = results_of(lanes, shape.slots, {k: values[place] for k, place in shape.places.items()})
    if shape.wholes and values[-1].null_count < len(lanes):
        messages = first_message(messages, values[-1])
    return columns, messages


class Reduced:
    """The results of a reduce, looked up in the arrangement of its state. `layout`: of the results, by their key.

    `settled`: gives that arrangement, with all that is known to lie in it; `plan`: how a kernel lays results out, if one does.
    """

    def __init__(self, shape: Shape, settled: Callable[[], Spine], layout: Layout, plan: Plan | None) -> None:
        self.shape = shape
        self.settled = settled
        self.plan = plan
        self._layout = layout

    def __len__(self) -> int:
        return len(self.settled())

    def gather(self, keys: Keys, since: int | None = None, until: int | None = None, most: int = LATEST) -> Matches:
        """As `Spine.gather`; states of one result are not consolidated. Raises DiffOverflow."""
        shape, found = self.shape, self.settled().gather(keys, since, until, most)
        rows = found.rows()
        lanes = unpacked(rows.column(shape.key), shape.lanes)
        columns, messages = _result_columns(shape, lanes, rows.columns[shape.key + 1 :])
        made = rows_of([*rows.columns[: shape.key], *columns], self._layout.arrow, len(found))
        results = Matches.of_rows((found.probe, found.times, found.diffs, found.row), Exported(made), self._layout)
        shown = lanes[:, 0] >= shape.least if shape.key else np.ones(len(found), np.bool_)
        if messages is not None:
            shown &= ~present(messages)
        return results if shown.all() else results.take(np.flatnonzero(shown))


def packed_lanes(lanes: Int64s) -> pa.Array:
    """int64[rows, lanes] as one binary column."""
    rows, width = lanes.shape
    offsets = np.arange(0, (rows + 1) * width * 8, width * 8)
    return pa.Array.from_buffers(BYTEA.arrow, rows, [None, pa.py_buffer(offsets), pa.py_buffer(lanes)])


def unpacked(column: pa.Array, width: int) -> Int64s:
    """The lanes of a column made by `packed_lanes`: int64[rows, width]."""
    rows = len(column)
    if not rows:
        return np.empty((0, width), np.int64)
    _, offsets, data = column.buffers()
    start = np.frombuffer(offsets, np.int64, 1, column.offset * 8)[0]
    return np.frombuffer(data, np.int64, rows * width, int(start)).reshape(rows, width)


def nothing_at(types: Sequence[DataType], time: int) -> Updates:
    """One row of nulls whose diff is zero: a time at which a group without rows is looked at."""
    columns = [pa.nulls(1, kind.arrow) for kind in types]
    rows = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])
    return Updates(rows, np.array([time]), np.zeros(1, np.int64))
