"""Every type through the sink into a real Postgres: what is read there is, byte for byte, what Postgres prints."""

from __future__ import annotations

from collections import Counter

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from headrace.connectors import copy_text
from headrace.connectors.postgres import bulk_copy
from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import SinkView, ViewChanges
from headrace.engine.schema import Column, DataType, Kind, Schema
from tests.contracts.sink import frontier
from tests.contracts.test_postgres_sink import read_texts

SAMPLES: dict[str, list[str | None]] = {
    "boolean": ["t", "f", None],
    "smallint": ["-32768", "32767", None],
    "integer": ["-2147483648", "0"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "real": ["0.1", "-0", "NaN", "Infinity", "-Infinity", "1e+20", "1.1754944e-38", "3.4028235e+38", "1.6777216e+07"],
    "double precision": ["0.1", "-0", "NaN", "Infinity", "-Infinity", "1e+20", "5e-324", "1.7976931348623157e+308",
                         "123456789012345.67", "1e+15", "100000"],
    "numeric": ["NaN", "Infinity", "-Infinity", "1.50", "0.000000000000000000001", "1" + "0" * 60 + ".25"],
    "numeric(20,10)": ["0.0000000001", "0.0000000000", "-1234567890.0123456789", None],
    "numeric(5,0)": ["12345", "-1"],
    "text": ["", "a\tb\nc\rd\\e\\N", "{\"x\",NULL}", "NULL", "été 🜚", "'; drop table x --", None],
    "character varying(3)": ["abc", "", "ééé"],
    "character(4)": ["ab  ", "    "],
    "bytea": ["\\x", "\\x00ff5c0a", None],
    "date": ["1970-01-01", "infinity", "-infinity", "4713-01-01 BC", "0001-12-31 BC", "9999-12-31", "5874897-12-31"],
    "time without time zone": ["00:00:00", "23:59:59.999999", "24:00:00", "12:30:00.5"],
    "timestamp without time zone": ["1970-01-01 00:00:00", "infinity", "-infinity", "4713-01-01 00:00:00 BC",
                                    "294246-12-31 23:59:59.999999", "2024-02-29 12:00:00.1", "1600-02-29 10:20:30"],
    "timestamp with time zone": ["1969-12-31 23:59:59.999999+00", "infinity", "-infinity", "2024-03-31 01:30:00+00"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": ["{\"a\":  1.10, \"a\": 2}", "\"x\\ny\"", "null"],
    "jsonb": ["{\"a\": 1.10}", "[1, \"\\\"\"]"],
    "inet": ["192.168.0.1/24", "::1"],
    "interval": ["1 year 2 mons -3 days +04:05:06.5", "-00:00:01", "1 day"],
    "integer[]": ["{}", "{1,NULL,3}", "{{1,2},{3,4}}"],
    "text[]": ["{\"a,b\",\"\\\"\",\"NULL\",NULL,\"\\\\\"}"],
    "numeric(5,2)[]": ["{1.50,2.00}"],
    "bit(3)": ["101"],
    "bit varying": ["10101"],
    "mood": ["happy", "so \"so\""],
    "int4range": ["[1,5)", "empty"],
    "point": ["(1.5,-2)"],
    "money_unknown_here": ["anything"],
}  # fmt: skip
"""Texts as Postgres prints them, by type; the last type is not known to the target."""


def lane_of(spelled: str, values: list[str | None], connection: psycopg.Connection[tuple[object, ...]]) -> pa.Array:
    """The lane of texts, made by another way than `image` goes back: Postgres's own binary numbers."""
    type_ = DataType.parse(spelled)
    lane = type_.arrow
    if pa.types.is_large_string(lane):
        return pa.array(values, lane)
    if type_.kind is Kind.BYTEA:
        return pa.array([None if v is None else bytes.fromhex(v[2:]) for v in values], lane)
    if type_.kind is Kind.BOOLEAN:
        return pa.array([None if v is None else v == "t" for v in values], lane)
    if type_.kind in (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        width = 4 if type_.kind is Kind.DATE else 8
        ends = (-(1 << (8 * width - 1)), (1 << (8 * width - 1)) - 1)
        shift = {4: 10_957, 8: 0 if type_.kind is Kind.TIME else 946_684_800_000_000}[width]
        found: list[int | None] = []
        for value in values:
            if value is None:
                found.append(None)
                continue
            send = {"date": "date_send", "time without time zone": "time_send"}.get(spelled)
            send = send or ("timestamptz_send" if type_.kind is Kind.TIMESTAMPTZ else "timestamp_send")
            row = connection.execute(f"SELECT {send}(%s::{spelled})", (value,)).fetchone()  # type: ignore[arg-type]
            assert row is not None
            number = int.from_bytes(row[0], "big", signed=True)  # type: ignore[arg-type]
            found.append(number if number in ends else number + shift)
        return pa.array(found, pa.int32() if width == 4 else pa.int64()).view(lane)
    if type_.kind in (Kind.REAL, Kind.DOUBLE):
        return pa.array([None if v is None else float(v) for v in values], lane)
    return pa.array(values, pa.string()).cast(lane)


@pytest.mark.parametrize("many", [False, True], ids=["arrays", "copy"])
@pytest.mark.parametrize("key", [["id"], None], ids=["keyed", "keyless"])
def test_every_type_arrives_exactly(
    database: str,
    key: list[str] | None,
    many: bool,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if many:
        monkeypatch.setattr(bulk_copy, "FEW", -1)
    height = max(map(len, SAMPLES.values()))
    columns = [Column("id", DataType.parse("bigint"), nullable=False)]
    columns += [Column(f"c {spelled}%", DataType.parse(spelled)) for spelled in SAMPLES]
    schema = Schema.of(columns, key)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TYPE public.mood AS ENUM ('happy', 'so \"so\"')")
        connection.execute("SET timezone = 'UTC'")
        lanes = [pa.array(range(height), pa.int64())]
        for spelled, values in SAMPLES.items():
            lanes.append(lane_of(spelled, values + [None] * (height - len(values)), connection))
    rows = pa.RecordBatch.from_arrays(lanes, schema=schema.arrow)
    view = SinkView("every type", schema, schema.key, "f")
    sink = PostgresSink("group", database)
    request.addfinalizer(sink.close)
    sink.open([view])
    empty = ViewChanges(schema.empty(), np.array([], np.int64), np.array([], np.int64), True)
    sink.write({view.name: empty}, frontier(1))
    ones = np.ones(height, np.int64)
    sink.write({view.name: ViewChanges(rows, ones * 2, ones)}, frontier(2))
    expected = Counter(
        (str(i), *[values[i] if i < len(values) else None for values in SAMPLES.values()]) for i in range(height)
    )
    with psycopg.connect(database) as connection:
        connection.execute("SET timezone = 'UTC'; SET intervalstyle = 'postgres'; SET datestyle = 'ISO, YMD'")
        assert read_texts(connection, view.name, schema.names) == expected
    images = [a.to_pylist() for a in copy_text.text_columns(schema, rows)]
    assert Counter(zip(*images, strict=True)) == expected
    one_by_one = copy_text.text_rows(schema, rows)
    assert one_by_one == list(zip(*images, strict=True)), "made row by row they are the same"
    lines = copy_text.lines(copy_text.copy_fields(schema, copy_text.text_columns(schema, rows)), height).to_pylist()
    assert [copy_text.line(row) for row in one_by_one] == lines
    sink.write({view.name: ViewChanges(rows, ones * 3, -ones)}, frontier(3))
    with psycopg.connect(database) as connection:
        assert not read_texts(connection, view.name, schema.names)
