"""What runs along every edge of a dataflow: the updates of a collection's rows and of its errors.

Always: `None` stands for no updates at all, so that a quiet edge costs nothing. Called by every operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.gather_rows import concat_rows as joined_rows
from headrace.engine.batch.gather_rows import conformed, put_together, taken
from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.schema import TEXT, Column, Schema

ERRORS = Schema((Column("error", TEXT),))
"""The schema of every collection's error side: one message a row."""


class Delta(NamedTuple):
    """Updates of rows and of errors; None where there are none."""

    rows: Updates | None
    errors: Updates | None


QUIET = Delta(None, None)

_LEAST = np.iinfo(np.int64).min


def take(updates: Updates, positions: Int64s) -> Updates:
    """The updates at `positions`, in that order."""
    return Updates(taken(updates.struct, positions), updates.times[positions], updates.diffs[positions])


def keep(updates: Updates | None, mask: Bools) -> Updates | None:
    """The updates where `mask` holds, or None if there are none."""
    if updates is None or mask.all():
        return updates
    positions = np.flatnonzero(mask)
    return take(updates, positions) if len(positions) else None


def errors_at(messages: pa.Array, times: Int64s, diffs: Int64s) -> Updates:
    """Error updates; `messages` is a large_string array, one a time."""
    rows = pa.RecordBatch.from_arrays([messages], schema=ERRORS.arrow)
    return Updates(rows, times, diffs)


def concat(parts: Iterable[Updates | None]) -> Updates | None:
    """All updates of `parts`, one after the other. All parts have the schema of the first."""
    some = [part for part in parts if part is not None and len(part)]
    if not some:
        return None
    if len(some) == 1:
        return some[0]
    return Updates(
        put_together([part.struct for part in some]) or concat_rows([part.rows for part in some]),
        np.concatenate([part.times for part in some]),
        np.concatenate([part.diffs for part in some]),
    )


def concat_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Payloads of one schema as one payload."""
    schema = parts[0].schema
    return joined_rows([conformed(part, schema) for part in parts])


def rows_of(columns: Sequence[pa.Array], schema: pa.Schema, length: int) -> pa.RecordBatch:
    """A payload from its columns; `length` counts when there is no column."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), length, [None]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def negated(updates: Updates | None) -> Updates | None:
    """The same updates with every diff's sign changed. Raises DiffOverflow: -2^63 has no opposite in 64 bits."""
    if updates is not None and bool((updates.diffs == _LEAST).any()):
        raise DiffOverflow
    return None if updates is None else Updates(updates.rows, updates.times, -updates.diffs)
