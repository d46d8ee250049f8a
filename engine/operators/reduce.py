"""Reduce over aggregates that are sums of lanes: a group's state is one row of its output arrangement.

Always: work is proportional to the changed rows, never to the size of a group; each epoch at which a group changes gets
its own -old and +new; a result that cannot be (bigint out of range) is an error update, retracted when it comes right.
Called by the dataflow's reduce nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.batch.layout import Layout
from engine.batch.payload import take_rows
from engine.batch.updates import Int64s, Updates
from engine.kernels.reduce import same_as_last, sum_lanes
from engine.operators.aggregates import Slot, lanes_of, results_of
from engine.operators.delta import QUIET, Delta, concat, rows_of
from engine.operators.groups import corrections_of, group, versions_of
from engine.operators.linear import split
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

    def accumulator_schema(self) -> Schema:
        """The rows of the output arrangement: key columns ++ the lanes, packed in one column."""
        lanes = Column("lanes", BYTEA, nullable=False)
        return Schema((*self.schema.columns[: self.key], lanes), key=tuple(range(self.key)))


def reduce_sums(
    shape: Shape, layout: Layout, spine: Spine | None, updates: Updates | None, lower: int, *, initial: bool
) -> tuple[Updates | None, Delta]:
    """(updates of the output arrangement, updates of the result) that `updates` make.

    `layout`: of the output arrangement, whose key columns are those of the rows; `spine`: that arrangement before the
    updates, or None while there is none. `initial`: nothing was ever emitted, so
    that a reduce without a key gets its one row at `lower`.
    """
    whole = shape.key == 0
    if whole and initial:
        updates = concat([nothing_at(shape.types, lower), updates])
    if updates is None:
        return None, QUIET
    keys = layout.keys_of(updates)
    found = group(keys, updates.times)
    prior = np.zeros((found.count, shape.lanes), np.int64)
    if spine is not None:
        matches = spine.gather(keys.take(found.first), lower - 1)
        if len(matches.probe):
            packed = matches.rows([shape.key]).column(0)
            sum_lanes(matches.probe, matches.diffs, unpacked(packed, shape.lanes), prior)
    states = versions_of(found, updates, lanes_of(updates.rows, shape.slots), prior, lower - 1)
    same = np.empty(len(states.times), np.uint8)
    same_as_last(states.lanes, same)
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
    kept = Updates(rows_of([*key_columns, packed_lanes(lanes)], layout.arrow, len(version)), times, diffs)
    return kept, _results(shape, key_columns, lanes, times, diffs)


def results_from(shape: Shape, accumulators: Updates | None) -> Delta:
    """The result's content from the content of the output arrangement."""
    if accumulators is None or not len(accumulators):
        return QUIET
    rows = accumulators.rows
    lanes = unpacked(rows.column(shape.key), shape.lanes)
    return _results(shape, rows.columns[: shape.key], lanes, accumulators.times, accumulators.diffs)


def _results(shape: Shape, key: Sequence[pa.Array], lanes: Int64s, times: Int64s, diffs: Int64s) -> Delta:
    values, messages = results_of(lanes, shape.slots)
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
