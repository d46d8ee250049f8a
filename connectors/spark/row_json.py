"""Arrow rows as the JSON that `types` has Spark write: for writers that get rows rather than DataFrames.

Always: a value is spelt as the decoder reads it, NULLs are written out, and a key has the bytes that Spark gives it, so that
both ways put it into the same partition. Called by the writers of format("headrace").
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc


def json_texts(columns: Mapping[str, Sequence[Any]], rows: int) -> list[bytes]:
    """Each row as a JSON object; `columns`: their values as JSON has them, see `json_values`."""
    names = list(columns)
    return [orjson.dumps(dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=True)][:rows]


def json_values(values: pa.Array) -> list[Any]:
    """The JSON value of each of a column's values."""
    kind = values.type
    if pa.types.is_decimal(kind):
        return [None if v is None else format(v, "f") for v in values.to_pylist()]
    if pa.types.is_floating(kind):
        return [_number(v, single=kind == pa.float32()) for v in values.to_pylist()]
    if pa.types.is_date(kind):
        return list(values.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind):
        micros = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        if kind.tz is None:
            return list(micros.to_pylist())
        there = np.asarray(pc.is_valid(values))
        texts = np.datetime_as_string(micros.fill_null(0).to_numpy(zero_copy_only=False).astype("M8[us]"))
        return [f"{t}Z" if is_there else None for t, is_there in zip(texts.tolist(), there.tolist(), strict=True)]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
    return list(values.to_pylist())


def _number(value: float | None, *, single: bool) -> float | str | None:
    if value is None or math.isfinite(value):
        # the shortest text of four bytes, as Spark writes it, not that of the eight that Python makes of them
        return float(str(np.float32(value))) if single and value is not None else value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
