"""Reduce over aggregates that follow the change: sums of lanes, and extremes found from one end of an order.

Always: a group's state is one row of the output arrangement, its lanes and its extremes; work is proportional to the
changed rows, never to the size of a group; each epoch at which a group changes gets its own -old and +new; a result
that cannot be (bigint out of range) is an error update, retracted when it comes right. Called by the dataflow's reduce
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.batch.keys import Keys
from engine.batch.layout import Layout
from engine.batch.payload import take_rows
from engine.batch.updates import Int64s, Updates
from engine.kernels.reduce import same_as_last, sum_lanes
from engine.operators.aggregates import Slot, is_summable, lanes_of, results_of
from engine.operators.delta import QUIET, Delta, concat, rows_of
from engine.operators.extremes import FUNCTIONS, Changes, Extreme, extreme_at_versions, prior_values, taken
from engine.operators.groups import corrections_of, group, versions_of
from engine.operators.linear import split
from engine.operators.ranks import has_images
from engine.operators.streams import Clock
from engine.schema import BYTEA, Column, DataType, Schema
from engine.trace.spine import Spine


class Shape(NamedTuple):
    """A reduce over prepared rows: the first `key` columns are the group key, the others are arguments.

    `types`: of every column; `slots`: the aggregates; `schema`: of the result, key columns ++ one an aggregate.
    """

    key: int
    types: tuple[DataType, ...]
    slots: tuple[Slot, ...]
    schema: Schema

    @property
    def key_types(self) -> tuple[DataType, ...]:
        """The types of the key columns."""
        return self.types[: self.key]

    @property
    def lanes(self) -> int:
        """How many lanes a group has, the number of rows included."""
        return 1 + sum(slot.width for slot in self.slots)

    @property
    def extremes(self) -> tuple[Extreme, ...]:
        """The least and greatest values that are asked for, each once."""
        return tuple(dict.fromkeys(_extreme(slot) for slot in self.slots if slot.aggregate.function in FUNCTIONS))

    @property
    def follows(self) -> bool:
        """True if no aggregate and no key needs the whole group."""
        if any(has_images(kind) for kind in self.key_types):
            return False
        return all(s.aggregate.function in FUNCTIONS or is_summable(s.aggregate, s.arg) for s in self.slots)

    def accumulator_schema(self) -> Schema:
        """The rows of the output arrangement: key columns ++ the lanes, packed in one column ++ the extremes."""
        lanes = Column("lanes", BYTEA, nullable=False)
        extremes = [Column(f"{FUNCTIONS[e.greatest]}{e.column}", e.kind) for e in self.extremes]
        return Schema((*self.schema.columns[: self.key], lanes, *extremes), key=tuple(range(self.key)))


def _extreme(slot: Slot) -> Extreme:
    assert slot.column is not None
    assert slot.arg is not None
    return Extreme(slot.column, slot.arg, slot.aggregate.function == "max")


class State(NamedTuple):
    """What a reduce keeps and reads. `layout`: of the output arrangement, whose key columns are those of the rows;
    `spine`: that arrangement before the step, or None while there is none; `values`: for each extreme of the shape the
    trace of its column's values by group, with the step's updates."""

    layout: Layout
    spine: Spine | None
    values: Sequence[Spine] = ()


def reduce_changes(
    shape: Shape, state: State, updates: Updates | None, lower: int, *, initial: bool
) -> tuple[Updates | None, Delta]:
    """(updates of the output arrangement, updates of the result) that `updates` make.

    `initial`: nothing was ever emitted, so that a reduce without a key gets its one row at `lower`.
    """
    whole = shape.key == 0
    if whole and initial:
        updates = concat([nothing_at(shape.types, lower), updates])
    if updates is None:
        return None, QUIET
    keys = state.layout.keys_of(updates)
    found = group(keys, updates.times)
    groups = keys.take(found.first)
    prior, before = _prior(shape, state, groups, lower - 1)
    states = versions_of(found, updates, lanes_of(updates.rows, shape.slots), prior, lower - 1)
    same = np.empty(len(states.times), np.uint8)
    same_as_last(states.lanes, same)
    values: list[tuple[pa.Array, Int64s]] = []
    if before:
        clock = Clock(states.starts(found.count), states.times)
        changes = Changes(updates, found, groups, lower - 1)
        for extreme, old, spine in zip(shape.extremes, before, state.values, strict=True):
            values.append(extreme_at_versions(extreme, old, changes, clock, spine))
            at = values[-1][1]
            same[1:] &= at[1:] == at[:-1]
    live = (states.lanes[:, 0] > 0).astype(np.uint8)
    if whole:
        live[:] = 1
        live[0] = 0 if initial else 1
    version, times, diffs = corrections_of(states, live, same)
    if not len(version):
        return None, QUIET
    rows = updates.rows
    key_columns = take_rows(rows.select(list(range(shape.key))), states.rows[version]).columns
    lanes = states.lanes[version]
    extremes = [taken(value, at[version]) for value, at in values]
    columns = [*key_columns, packed_lanes(lanes), *extremes]
    kept = Updates(rows_of(columns, state.layout.arrow, len(version)), times, diffs)
    return kept, _results(shape, key_columns, lanes, extremes, times, diffs)


def _prior(shape: Shape, state: State, groups: Keys, as_of: int) -> tuple[Int64s, list[pa.Array]]:
    """The lanes of each group at `as_of`, and its extremes, one array for each."""
    prior = np.zeros((len(groups), shape.lanes), np.int64)
    extremes = shape.extremes
    if state.spine is None:
        return prior, [pa.nulls(len(groups), e.kind.arrow) for e in extremes]
    matches = state.spine.gather(groups, as_of)
    if not len(matches):
        return prior, [pa.nulls(len(groups), e.kind.arrow) for e in extremes]
    held = matches.rows(range(shape.key, shape.key + 1 + len(extremes)))
    sum_lanes(matches.probe, matches.diffs, unpacked(held.column(0), shape.lanes), prior)
    return prior, [prior_values(column, matches.probe, len(groups)) for column in held.columns[1:]]


def results_from(shape: Shape, accumulators: Updates | None) -> Delta:
    """The result's content from the content of the output arrangement."""
    if accumulators is None or not len(accumulators):
        return QUIET
    rows = accumulators.rows
    lanes = unpacked(rows.column(shape.key), shape.lanes)
    key, extremes = rows.columns[: shape.key], rows.columns[shape.key + 1 :]
    return _results(shape, key, lanes, extremes, accumulators.times, accumulators.diffs)


def _results(
    shape: Shape, key: Sequence[pa.Array], lanes: Int64s, extremes: Sequence[pa.Array], times: Int64s, diffs: Int64s
) -> Delta:
    known: dict[int, pa.Array] = {}
    if extremes:
        held = dict(zip(shape.extremes, extremes, strict=True))
        known = {k: held[_extreme(s)] for k, s in enumerate(shape.slots) if s.aggregate.function in FUNCTIONS}
    values, messages = results_of(lanes, shape.slots, known)
    rows = rows_of([*key, *values], shape.schema.arrow, len(times))
    return split(Updates(rows, times, diffs), messages)


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
