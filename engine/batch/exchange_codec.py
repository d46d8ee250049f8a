"""Updates as buffers, for another shard to read where they lie: no row is copied or spelt out.

Always: `received(sent(updates, schema), schema)` equals the updates; lanes of one value go as one value; both sides know
the schema, which does not travel. Called by the dataflow's exchanges and by hosts that carry changes and outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.batch.gather_rows import indices, without_columns
from headrace.engine.batch.sort_layout import stretched
from headrace.engine.batch.updates import Int64s, Updates

Message = Sequence[Any]
"""Buffers, each anything that has Python's buffer protocol and lies in one piece."""

NOTHING: Message = ()

_EMPTY = memoryview(b"")


def compact(updates: Updates) -> Updates:
    """The same updates, which are some; a lane of one value takes no memory and is known by its stride of 0."""
    times, diffs = (_short(lane) for lane in (updates.times, updates.diffs))
    if times is updates.times and diffs is updates.diffs:
        return updates
    return updates.at(times, diffs)


def sent(updates: Updates | None) -> Message:
    """The buffers of `updates`; none at all where there are none."""
    if updates is None or not len(updates):
        return NOTHING
    rows = updates.rows
    if any(column.offset for column in rows.columns):
        rows = rows.take(indices(np.arange(rows.num_rows)))
    lanes = [_short(lane) for lane in (updates.times, updates.diffs)]
    time, diff = (None if lane.strides[0] else int(lane[0]) for lane in lanes)
    nulls = [column.null_count for column in rows.columns]
    head = np.array([len(updates), time is None, time or 0, diff is None, diff or 0, *nulls], np.int64)
    out: list[Any] = [head]
    out += [np.ascontiguousarray(lane) for lane in lanes if lane.strides[0]]
    for column, missing in zip(rows.columns, nulls, strict=True):
        out += _buffers(column, missing > 0)
    return out


def _buffers(column: pa.Array, has_nulls: bool) -> list[Any]:
    """What of a column's buffers its values take up; the column begins where they do."""
    validity, values, *data = column.buffers()
    size, arrow = len(column), column.type
    bits = (size + 7) >> 3
    out = [validity.slice(0, bits)] if has_nulls else []
    if not data:
        return [*out, values.slice(0, bits if pa.types.is_boolean(arrow) else size * arrow.byte_width)]
    large = pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow)
    offsets = np.frombuffer(values, np.int64 if large else np.int32, size + 1)
    end = int(offsets[-1])
    return [*out, offsets, data[0].slice(0, end) if end else _EMPTY]


def received(message: Message, schema: pa.Schema) -> Updates | None:
    """The updates in `message`, whose memory they keep; None for NOTHING."""
    if not len(message):
        return None
    parts: Iterator[Any] = iter(message)
    size, times_vary, time, diffs_vary, diff, *nulls = np.frombuffer(next(parts), np.int64).tolist()
    times = _lane(next(parts) if times_vary else None, time, size)
    diffs = _lane(next(parts) if diffs_vary else None, diff, size)
    if not len(schema):
        return Updates(without_columns(schema, size), times, diffs)
    columns = []
    for field, missing in zip(schema, nulls, strict=True):
        buffers = [pa.py_buffer(next(parts)) if missing else None]
        buffers += [pa.py_buffer(next(parts)) for _ in range(2 if _varies(field.type) else 1)]
        columns.append(pa.Array.from_buffers(field.type, size, buffers, missing))
    return Updates(pa.RecordBatch.from_arrays(columns, schema=schema), times, diffs)


def _varies(arrow: pa.DataType) -> bool:
    large = pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow)
    return bool(large or pa.types.is_string(arrow) or pa.types.is_binary(arrow))


def _short(lane: Int64s) -> Int64s:
    """A lane that has one value alone as one of stride 0."""
    if lane.strides[0] == 0 or lane[-1] != lane[0] or not bool((lane == lane[0]).all()):
        return lane
    return stretched(lane[:1].copy(), len(lane))


def _lane(buffer: Any | None, value: int, size: int) -> Int64s:
    if buffer is None:
        return stretched(np.array([value], np.int64), size)
    return np.frombuffer(buffer, np.int64)
