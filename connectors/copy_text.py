"""COPY text: rows as Postgres writes them, one line of COPY's text format for each.

Invariant: two rows have the same line exactly when they have the same image (numeric scale and minus zero included), so a
line can stand for its row. The sinks call it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.operators.expressions.datetime import calendar_text as calendar
from headrace.engine.schema import DataType, Kind, Schema

_FREE_TEXT = {Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR, Kind.BYTEA, Kind.JSON, Kind.JSONB, Kind.OTHER}
_SPECIAL = "[\\\\\n\r\t]"
_WHOLE = {Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT}
_STAMPS = {Kind.TIMESTAMP: "", Kind.TIMESTAMPTZ: "+00"}
_1970 = datetime(1970, 1, 1)
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})

Texts = tuple[str | None, ...]
"""The texts of one row."""


def text_columns(schema: Schema, rows: pa.RecordBatch) -> list[pa.Array]:
    """Every column of `rows` as its text."""
    return [to_text(values, column.type) for column, values in zip(schema.columns, rows.columns, strict=True)]


def text_rows(schema: Schema, rows: pa.RecordBatch) -> list[Texts]:
    """The same texts row by row, made value by value: for a few hundred rows faster than Arrow's kernels are called."""
    columns = [texts(values, column.type) for column, values in zip(schema.columns, rows.columns, strict=True)]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def texts(values: pa.Array, datatype: DataType) -> list[str | None]:
    """The text of each value of a column, made one by one."""
    kind = datatype.kind
    if kind in _WHOLE:
        return [None if v is None else str(v) for v in values.to_pylist()]
    if kind is Kind.NUMERIC and datatype.fixed_scale:
        return [None if v is None else format(v, "f") for v in values.to_pylist()]
    if kind in _STAMPS:
        zone = _STAMPS[kind]
        return [None if v is None else _stamp(v, zone) for v in values.view(pa.int64()).to_pylist()]
    found: list[str | None] = to_text(values, datatype).to_pylist()
    return found


def _stamp(micros: int, zone: str) -> str:
    low, high = calendar.PLAIN_MICROS
    if not low <= micros < high:
        return calendar.stamp_image(micros, zone)
    text = str(_1970 + timedelta(microseconds=micros))
    return (text.rstrip("0") if len(text) > 19 else text) + zone


def line(row: Texts) -> str:
    """One row's line of COPY's text format, the same as `lines` makes of its fields."""
    plain = "\t".join(["\\N" if t is None else t for t in row])
    if "\\" not in plain and "\n" not in plain and "\r" not in plain and plain.count("\t") == max(len(row) - 1, 0):
        return plain
    return "\t".join(["\\N" if t is None else t.translate(_ESCAPES) for t in row])


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
