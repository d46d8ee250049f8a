"""Rows as Postgres writes them: each column as its output text, and each row as one line of COPY's text format.

Always: two rows have the same line exactly when they have the same identical image (numeric scale, minus zero), so a
line stands for its row when a sink consolidates. Called by the sinks; the engine's lanes come in, text goes out.
"""

from __future__ import annotations

import binascii
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.schema import DataType, Kind, Schema

_FREE_TEXT = {Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR, Kind.BYTEA, Kind.JSON, Kind.JSONB, Kind.OTHER}
_DAY_US = 86_400_000_000
_YEAR_1, _YEAR_10000 = -719_162, 2_932_897
"""Days since 1970 of 0001-01-01 and 10000-01-01, between which Arrow prints dates as Postgres does."""


def text_column(values: pa.Array, type_: DataType) -> pa.Array:
    """Postgres's output text of a column, as large_string; null stays null."""
    kind = type_.kind
    if kind is Kind.BYTEA:
        return pa.array([None if v is None else _hex(v) for v in values.to_pylist()], pa.large_string())
    if kind is Kind.BOOLEAN:
        return pc.if_else(values, _scalar("t"), _scalar("f"))
    if kind in (Kind.REAL, Kind.DOUBLE):
        return _float_text(values)
    if kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return _moment_text(values, kind)
    if kind is Kind.TIME:
        micros = values.cast(pa.int64())
        return pa.array([None if v is None else _clock(v) for v in micros.to_pylist()], pa.large_string())
    text = values.cast(pa.large_string())
    if kind is Kind.NUMERIC and pc.any(pc.match_substring(text, "E")).as_py():  # Arrow turns to exponents below 1e-6
        return pa.array([None if v is None else f"{Decimal(v):f}" for v in text.to_pylist()], pa.large_string())
    return text


def _scalar(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


def _hex(value: bytes) -> str:
    return "\\x" + binascii.hexlify(value).decode()


def _float_text(values: pa.Array) -> pa.Array:
    text = values.cast(pa.large_string())
    for ours, theirs in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        text = pc.if_else(pc.equal(text, ours), _scalar(theirs), text)
    return text


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _moment_text(values: pa.Array, kind: Kind) -> pa.Array:
    """Dates and timestamps; the lane's least and greatest integers are -infinity and infinity."""
    physical = values.cast(pa.int32() if kind is Kind.DATE else pa.int64())
    numbers = physical.fill_null(0).to_numpy(zero_copy_only=False)
    unit = 1 if kind is Kind.DATE else _DAY_US
    plain = (numbers >= _YEAR_1 * unit) & (numbers < _YEAR_10000 * unit)
    if plain.all():
        if kind is Kind.DATE:
            return values.cast(pa.large_string())
        return _stamp_text(pa.array(numbers, mask=np.asarray(physical.is_null())), kind)
    ends = np.iinfo(numbers.dtype)
    found: list[str | None] = []
    for value in physical.to_pylist():
        if value is None:
            found.append(None)
        elif value in (ends.min, ends.max):
            found.append("infinity" if value == ends.max else "-infinity")
        else:
            found.append(_far_moment(value, kind))
    return pa.array(found, pa.large_string())


def _stamp_text(micros: pa.Array, kind: Kind) -> pa.Array:
    """Timestamps of the years 1 to 9999; the zeros that end a fraction go, those of a whole second stay."""
    whole = pa.array(micros.fill_null(0).to_numpy(zero_copy_only=False) % 1_000_000 == 0)
    seconds = micros.cast(pa.timestamp("us")).cast(pa.timestamp("s"), safe=False).cast(pa.large_string())
    fraction = pc.utf8_rtrim(micros.cast(pa.timestamp("us")).cast(pa.large_string()), characters="0")
    text = pc.if_else(whole, seconds, fraction)
    return pc.binary_join_element_wise(text, _scalar("+00"), _scalar("")) if kind is Kind.TIMESTAMPTZ else text


def _far_moment(value: int, kind: Kind) -> str:
    """A date or timestamp outside the years 1 to 9999: the proleptic calendar repeats every 400 years (146,097 days)."""
    days, micros = (value, 0) if kind is Kind.DATE else divmod(value, _DAY_US)
    cycles = (days - _YEAR_1) // 146_097
    near = date(1, 1, 1) + timedelta(days=days - _YEAR_1 - cycles * 146_097)
    year = near.year + 400 * cycles
    text = f"{year if year > 0 else 1 - year:04d}-{near.month:02d}-{near.day:02d}"
    if kind is not Kind.DATE:
        text += f" {_clock(micros)}" + ("+00" if kind is Kind.TIMESTAMPTZ else "")
    return text if year > 0 else f"{text} BC"


def text_columns(schema: Schema, rows: pa.RecordBatch) -> list[pa.Array]:
    """Every column of `rows` as its text."""
    return [text_column(values, column.type) for column, values in zip(schema.columns, rows.columns, strict=True)]


def copy_fields(schema: Schema, texts: list[pa.Array]) -> list[pa.Array]:
    """The fields of COPY's text format: what could end a field or a line is escaped; null stays null."""
    fields = []
    for column, text in zip(schema.columns, texts, strict=True):
        escaped = text
        if column.type.kind in _FREE_TEXT:
            for raw, safe in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
                escaped = pc.replace_substring(escaped, raw, safe)
        fields.append(escaped)
    return fields


def lines(fields: list[pa.Array], count: int) -> pa.Array:
    """One line of COPY's text format a row, without its end; of no fields, `count` empty lines."""
    if not fields:
        return pa.repeat(_scalar(""), count)
    return pc.binary_join_element_wise(*fields, _scalar("\t"), null_handling="replace", null_replacement="\\N")


def payload(copy_lines: pa.Array) -> memoryview:
    """The lines, each ended, as the bytes that COPY reads."""
    ended = pc.binary_join_element_wise(copy_lines, _scalar(""), _scalar("\n"))
    if isinstance(ended, pa.ChunkedArray):
        ended = ended.combine_chunks()
    if not len(ended):
        return memoryview(b"")
    offsets = np.frombuffer(ended.buffers()[1], np.int64)[ended.offset : ended.offset + len(ended) + 1]
    return memoryview(ended.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
