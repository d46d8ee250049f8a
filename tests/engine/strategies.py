"""Hypothesis strategies for rows of every type and for updates of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headrace.engine.batch import Updates
from headrace.engine.schema import Column, DataType, Schema

_DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))
_SECONDS = st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2050, 1, 1))
_NUMERAL = st.sampled_from(
    ["0", "0.0", "1", "1.0", "1.00", "-1.5", "-1.50", "10", "100", "100.0", "NaN", "0.05", "1e0"[:1]]
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "smallint": st.integers(-3, 3) | st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    "real": st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]) | st.floats(width=32),
    "double precision": st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]) | st.floats(),
    "numeric(12,2)": st.integers(-(10**12), 10**12).map(lambda n: Decimal(n).scaleb(-2)),
    "numeric(38,0)": (st.integers(-3, 3) | st.integers(-(10**38) + 1, 10**38 - 1)).map(Decimal),
    "numeric": _NUMERAL,
    "text": st.sampled_from(["", "a", "b", "a "]) | st.text(max_size=40),
    "character(8)": st.sampled_from(["", " ", "a", "a ", "a  ", " a"]),
    "bytea": st.binary(max_size=20),
    "date": _DAYS,
    "time without time zone": st.times(),
    "timestamp without time zone": _SECONDS,
    "timestamp with time zone": _SECONDS.map(lambda t: t.replace(tzinfo=dt.UTC)),
    "jsonb": st.sampled_from(['{"a": 1}', "null", "[]"]),
}
"""Postgres type → values of it as pyarrow takes them."""

TYPES = tuple(VALUES)


def schema_of(types: Sequence[str]) -> Schema:
    return Schema(tuple(Column(f"c{k}", DataType.parse(t)) for k, t in enumerate(types)))


def rows_of(types: Sequence[str], values: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows from tuples; decimals are given their lane's scale."""
    schema = schema_of(types).arrow
    columns = [pa.array([row[k] for row in values], schema.field(k).type) for k in range(len(types))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@st.composite
def some_types(draw: st.DrawFn, at_most: int = 4) -> list[str]:
    return draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=at_most))


def row_values(types: Sequence[str]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(st.none() | VALUES[t] for t in types))


@st.composite
def some_updates(
    draw: st.DrawFn, types: Sequence[str], lower: int = 0, upper: int = 4, max_size: int = 40, pool_size: int = 6
) -> Updates:
    """Updates at lower ≤ time < upper over a small pool of rows, so that they meet and cancel."""
    pool = draw(st.lists(row_values(types), min_size=1, max_size=pool_size))
    drawn = draw(
        st.lists(
            st.tuples(st.sampled_from(pool), st.integers(lower, upper - 1), st.sampled_from([-2, -1, 1, 1, 3])),
            max_size=max_size,
        )
    )
    rows = rows_of(types, [d[0] for d in drawn])
    return Updates(rows, np.array([d[1] for d in drawn], np.int64), np.array([d[2] for d in drawn], np.int64))
