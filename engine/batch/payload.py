"""Moving Arrow rows: take and concatenate, by the cheapest way for the count.

Always: the result holds exactly the rows asked for, in the order asked for. Called by batches, mergers and lookups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from engine.batch.updates import Int64s

_FEW = 3
"""Up to so many rows, joining slices is cheaper than a take of every column (13 µs against 33 µs for ten columns)."""


def indices(positions: Int64s) -> pa.Int64Array:
    """`positions` as an Arrow array, without a copy where they are contiguous."""
    flat = np.ascontiguousarray(positions)
    return pa.Array.from_buffers(pa.int64(), len(flat), [None, pa.py_buffer(flat)])


def take_rows(rows: pa.RecordBatch, positions: Int64s) -> pa.RecordBatch:
    """The rows at `positions`, in that order."""
    size = len(positions)
    if rows.num_columns == 0:
        return without_columns(rows.schema, size)
    if size == 0:
        return rows.slice(0, 0)
    if size == 1:
        return rows.slice(int(positions[0]), 1)
    if size <= _FEW:
        return pa.concat_batches([rows.slice(int(p), 1) for p in positions])
    return rows.take(indices(positions))


def concat_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of `parts`, of which there is at least one, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].num_columns == 0:
        return without_columns(parts[0].schema, sum(p.num_rows for p in parts))
    return pa.concat_batches(parts)


def without_columns(schema: pa.Schema, size: int) -> pa.RecordBatch:
    """`size` rows of no columns."""
    column = pa.nulls(size)
    return pa.RecordBatch.from_arrays([column], names=["none"]).select([]).cast(schema)


def gather_rows(parts: Sequence[pa.RecordBatch], sources: Int64s, positions: Int64s) -> pa.RecordBatch:
    """Row k is `parts[sources[k]]` at `positions[k]`; at least one part."""
    size = len(positions)
    if len(parts) == 1:
        return take_rows(parts[0], positions)
    if size == 0:
        return parts[0].slice(0, 0)
    first = int(sources[0])
    if size == 1 or bool((sources == first).all()):
        return take_rows(parts[first], positions)
    if size <= _FEW:
        return concat_rows([parts[int(s)].slice(int(p), 1) for s, p in zip(sources, positions, strict=True)])
    order = np.argsort(sources, kind="stable")
    used, starts = np.unique(sources[order], return_index=True)
    bounds = np.append(starts, size)
    pieces = [take_rows(parts[int(s)], positions[order[a:b]]) for s, a, b in zip(used, bounds, bounds[1:], strict=False)]
    rank = np.empty(size, np.int64)
    rank[order] = np.arange(size)
    return take_rows(concat_rows(pieces), rank)
