"""Rows as JSON objects, as the Kafka sink writes them and the command prints them.

A numeric, which JSON's numbers would round, is a string with Postgres's text; times are ISO 8601. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors import copy_text
from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.schema import Column, Kind

_FEW = 512
"""Values up to which texts are made one by one: Arrow's kernels cost more to call than to run."""
_NATIVE = {Kind.BOOLEAN, Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT}


def _json_column(column: Column, values: pa.Array) -> list[Any]:
    """The JSON value of each of a column's values."""
    kind = column.type.kind
    if kind in _NATIVE:
        return list(values.to_pylist())
    if kind in (Kind.REAL, Kind.DOUBLE):
        # the shortest text that reads back as the same number; JSON has none for NaN and the infinities
        texts = to_text(values, column.type).to_pylist()
        finite = pc.is_finite(values).fill_null(True).to_pylist()
        return [t if t is None or not f else orjson.Fragment(t) for t, f in zip(texts, finite, strict=True)]
    texts = copy_text.texts(values, column.type) if len(values) <= _FEW else to_text(values, column.type).to_pylist()
    if kind in (Kind.JSON, Kind.JSONB):
        return [None if t is None else orjson.Fragment(t) for t in texts]
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return [None if t is None else _iso(t) for t in texts]
    return list(texts)


def _iso(text: str) -> str:
    """Postgres's timestamp as ISO 8601 writes it: T between date and time, minutes in the offset."""
    if "infinity" in text or text.endswith("BC"):
        return text
    text = text.replace(" ", "T", 1)
    return f"{text}:00" if text.endswith("+00") else text


def json_objects(columns: Sequence[Column], rows: Sequence[pa.Array], count: int) -> list[bytes]:
    """Rows as JSON objects by column name, in column order; of no columns, empty objects."""
    names = [c.name for c in columns]
    listed = [_json_column(c, values) for c, values in zip(columns, rows, strict=True)]
    if not listed:
        return [b"{}"] * count
    # orjson's own bytes keep the four KiB that it wrote them in: a copy takes what it holds
    return [b"%b" % orjson.dumps(dict(zip(names, row, strict=True))) for row in zip(*listed, strict=True)]


def json_rows(columns: Sequence[Column], rows: pa.RecordBatch) -> list[bytes]:
    """Each row as a JSON object, as the Kafka sink writes it."""
    return json_objects(columns, rows.columns, rows.num_rows)
