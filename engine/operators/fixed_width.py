"""Fixed-width Arrow columns as numpy lanes.

Always: a lane has one entry a row, nulls read as zero. Called by the aggregates and by ranking.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.engine.batch.updates import Int64s


def int_values(column: pa.Array) -> Int64s:
    """Integers, booleans, dates, times and timestamps as int64."""
    width = column.type.bit_width
    if pt.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pt.is_temporal(column.type):
        column = column.view(pa.int64() if width == 64 else pa.int32())
    if column.null_count:
        column = column.fill_null(0)
    values: Int64s = column.to_numpy(zero_copy_only=False)
    return values if values.dtype == np.int64 else values.astype(np.int64)


def float_bits(column: pa.Array) -> Int64s:
    """Reals and doubles as the bits of doubles."""
    if not pt.is_float64(column.type):
        column = column.cast(pa.float64())
    if column.null_count:
        column = column.fill_null(0.0)
    values: Int64s = column.to_numpy(zero_copy_only=False).view(np.int64)
    return values


def decimal_words(column: pa.Array) -> tuple[Int64s, Int64s]:
    """decimal128 as its low and high 64-bit words."""
    n = len(column)
    if not n:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    words = np.frombuffer(column.buffers()[1], np.int64, 2 * n, column.offset * 16)
    low, high = words[0::2], words[1::2]
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return np.where(valid, low, 0), np.where(valid, high, 0)
    return low, high
