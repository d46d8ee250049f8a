"""What a step brings to the groups of a reduce: keys, times, diffs, and what each row adds to the lanes of its group.

Invariant: lane 0 counts rows; sums over distinct values come as rows of their own. Where all rows are one group of sums
alone, one row a time stands for all that come at it, so that no row of that group is hashed or sorted. Called by `reduce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.keys import Keys
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels.reduce import all_within
from headrace.engine.operators.aggregates import add_lanes
from headrace.engine.operators.delta import rows_of
from headrace.engine.operators.reduce_layout import Shape

_MOST = 1 << 31
"""Below so many rows, of below so many copies each, the sum of their diffs fits 64 bits."""


class Input(NamedTuple):
    """The updates of a step: of the rows, then of distinct values. `rows`: parts that begin with the key columns."""

    rows: Sequence[pa.RecordBatch]
    times: Int64s
    diffs: Int64s
    keys: Keys
    lanes: Int64s


def input_of(shape: Shape, layout: Layout, updates: Updates, distinct: Sequence[Updates | None]) -> Input:
    """All updates as one, with what each adds to the lanes of its group."""
    schema = layout.assembly(range(shape.key)).schema
    parts = [updates, *(part for part in distinct if part is not None)]
    lanes = (np.zeros if shape.distinct else np.empty)((sum(len(p) for p in parts), shape.lanes), np.int64)
    size = len(updates)
    _fill_lanes(shape, updates, lanes[:size])
    if len(parts) == 1:
        rows = [_key_columns(updates, schema)]
        return Input(rows, updates.times, updates.diffs, layout.keys_of(updates), lanes)
    for column, part in zip(shape.distinct, distinct, strict=True):
        if part is None:
            continue
        for slot in shape.distinct_slots:
            if slot.column == column:
                wanted = lanes[size : size + len(part), slot.first : slot.first + slot.width]
                add_lanes(part.struct, shape.key, slot, wanted)
        size += len(part)
    keys = [layout.keys_of(part) for part in parts]
    return Input(
        [_key_columns(part, schema) for part in parts],
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.diffs for part in parts]),
        Keys(np.concatenate([k.hash for k in keys]), np.concatenate([k.check for k in keys])),
        lanes,
    )


def _fill_lanes(shape: Shape, updates: Updates, lanes: Int64s) -> None:
    """Write what each row adds to the lanes of its group, those of distinct values left out."""
    lanes[:, 0] = 1
    for slot in shape.plain:
        assert slot.column is not None
        add_lanes(updates.struct, slot.column, slot, lanes[:, slot.first : slot.first + slot.width])


def summed_up(shape: Shape, layout: Layout, updates: Updates, begins: int | None) -> Input | None:
    """As `input_of`, where all rows are one group and it keeps only sums: one row a time, without columns, that stands for
    all of it. `begins`: a time at which nothing comes, or None. None where a sum of the diffs might not fit 64 bits.
    """
    if len(updates) >= _MOST or not all_within(updates.diffs, -_MOST, _MOST):
        return None
    lanes = np.empty((len(updates), shape.lanes), np.int64)
    _fill_lanes(shape, updates, lanes)
    lanes *= updates.diffs[:, None]
    times = updates.times
    if bool((times[1:] < times[:-1]).any()):
        by_time = np.argsort(times, kind="stable")
        lanes, times = lanes[by_time], times[by_time]
    starts = np.flatnonzero(np.append(True, times[1:] != times[:-1]))
    times, sums = times[starts], np.add.reduceat(lanes, starts)
    if begins is not None:
        times, sums = np.append(begins, times), np.append(np.zeros((1, shape.lanes), np.int64), sums, axis=0)
    rows = Updates(rows_of([], pa.schema([]), len(times)), times, np.ones(len(times), np.int64))
    return Input([rows.rows], rows.times, rows.diffs, layout.keys_of(rows), sums)


def _key_columns(updates: Updates, schema: pa.Schema) -> pa.RecordBatch:
    return rows_of([updates.struct.column(k) for k in range(len(schema))], schema, len(updates))
