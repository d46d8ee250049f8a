"""Rows as Postgres writes them: each column as its output text, and each row as one line of COPY's text format.

Always: two rows have the same line exactly when they have the same identical image (numeric scale, minus zero), so a
line stands for its row when a sink consolidates. Called by the sinks; the engine's lanes come in, text goes out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.operators.expressions.images import to_text
from engine.schema import Kind, Schema

_FREE_TEXT = {Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR, Kind.BYTEA, Kind.JSON, Kind.JSONB, Kind.OTHER}
_SPECIAL = "[\\\\\n\r\t]"


def text_columns(schema: Schema, rows: pa.RecordBatch) -> list[pa.Array]:
    """Every column of `rows` as its text."""
    return [to_text(values, column.type) for column, values in zip(schema.columns, rows.columns, strict=True)]


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def copy_fields(schema: Schema, texts: list[pa.Array]) -> list[pa.Array]:
    """The fields of COPY's text format: what could end a field or a line is escaped; null stays null."""
    fields = []
    for column, text in zip(schema.columns, texts, strict=True):
        escaped = text
        if column.type.kind in _FREE_TEXT and pc.any(pc.match_substring_regex(text, _SPECIAL)).as_py():
            for raw, safe in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
                escaped = pc.replace_substring(escaped, raw, safe)
        fields.append(escaped)
    return fields


def lines(fields: list[pa.Array], count: int) -> pa.Array:
    """One line of COPY's text format a row, without its end; of no fields, `count` empty lines."""
    if not fields:
        return pa.repeat(_text(""), count)
    return pc.binary_join_element_wise(*fields, _text("\t"), null_handling="replace", null_replacement="\\N")


def payload(copy_lines: pa.Array) -> memoryview:
    """The lines, each ended, as the bytes that COPY reads."""
    ended = pc.binary_join_element_wise(copy_lines, _text(""), _text("\n"))
    if isinstance(ended, pa.ChunkedArray):
        ended = ended.combine_chunks()
    if not len(ended):
        return memoryview(b"")
    offsets = np.frombuffer(ended.buffers()[1], np.int64)[ended.offset : ended.offset + len(ended) + 1]
    return memoryview(ended.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
