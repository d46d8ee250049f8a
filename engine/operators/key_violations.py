"""The errors of a declared key: one for each key with more than one live row.

Always: the message names the view and the key's values and not the count, so that it is retracted exactly when the key
is single again. Called by the dataflow's key checks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.updates import Updates
from headrace.engine.operators.delta import errors_at, take
from headrace.engine.operators.expressions.core.columns import MESSAGE


def repeated_keys(counts: Updates, view: str, names: Sequence[str]) -> Updates | None:
    """Errors from updates of (key columns …, count); `names`: of the key columns."""
    count = counts.struct.column(len(names)).to_numpy(zero_copy_only=False)
    many = np.flatnonzero(count > 1)
    if not len(many):
        return None
    found = take(counts, many)
    values = [_text(column) for column in found.rows.columns[:-1]]
    separators = ["", *([", "] * (len(values) - 1))]
    parts = [part for pair in zip(separators, values, strict=True) for part in pair]
    shown = pc.binary_join_element_wise(
        *[pa.scalar(p, MESSAGE) if isinstance(p, str) else p for p in parts], pa.scalar("", MESSAGE)
    )
    head = pa.scalar(f"view {view}: more than one row for the key ({', '.join(names)}) = (", MESSAGE)
    messages = pc.binary_join_element_wise(head, shown, pa.scalar(")", MESSAGE), pa.scalar("", MESSAGE))
    return errors_at(messages, found.times, found.diffs)


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_large_binary(column.type):
        column = pa.array([None if v is None else "\\x" + v.hex() for v in column.to_pylist()], MESSAGE)
    return column.cast(MESSAGE).fill_null("null")
