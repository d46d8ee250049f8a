"""What Spark is given of a view, without a session: types, moments, conditions, and batches that are not whole."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import datasource as source

from headrace.connectors.commit_place import Lsn
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.lake import view_stream
from headrace.sidecar.lake.key_filters import conditions
from headrace.sidecar.lake.view_read import Moment
from headrace.sidecar.lake.view_schema import ReadError, as_spark, from_json, from_texts, spark_schema

TYPES = {
    "boolean": "boolean", "smallint": "smallint", "integer": "int", "bigint": "bigint", "real": "float",
    "double precision": "double", "numeric(10,2)": "decimal(10,2)", "numeric(38,38)": "decimal(38,38)",
    "numeric": "string", "numeric(50,3)": "string", "text": "string", "character varying(5)": "string",
    "character(3)": "string", "bytea": "binary", "date": "date", "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp", "time without time zone": "string", "uuid": "string", "jsonb": "string",
    "integer[]": "string", "inet": "string",
}  # fmt: skip
ROW = {
    "boolean": ("t", True), "smallint": ("-7", -7), "integer": ("7", 7), "bigint": ("9007199254740993", 9007199254740993),
    "real": ("0.5", 0.5), "double precision": ("NaN", "nan"), "numeric(10,2)": ("1.50", Decimal("1.50")),
    "numeric(38,38)": ("0." + "1" * 38, Decimal("0." + "1" * 38)), "numeric": ("1.500", "1.500"),
    "numeric(50,3)": ("1.000", "1.000"), "text": ("é\n", "é\n"), "character varying(5)": ("ab", "ab"),
    "character(3)": ("a  ", "a  "), "bytea": ("\\x00ff", b"\x00\xff"), "date": ("0001-01-01", dt.date(1, 1, 1)),
    "timestamp without time zone": ("2024-02-29 12:00:00.1", dt.datetime(2024, 2, 29, 12, 0, 0, 100000)),
    "timestamp with time zone": ("2024-02-29 12:00:00+00", dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)),
    "time without time zone": ("12:00:00", "12:00:00"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "jsonb": ('{"a": 1}', '{"a": 1}'), "integer[]": ("{1,NULL}", "{1,NULL}"), "inet": ("10.0.0.1", "10.0.0.1"),
}  # fmt: skip
COLUMNS = [Column(f"c{k}", DataType.parse(t)) for k, t in enumerate(TYPES)]


def test_every_type_and_its_values() -> None:
    assert [f.dataType.simpleString() for f in spark_schema(COLUMNS).fields] == list(TYPES.values())
    texts = [[ROW[t][0] for t in TYPES], [None] * len(TYPES)]
    rows = from_texts(COLUMNS, texts)
    assert rows.schema.equals(Schema(tuple(COLUMNS)).arrow)
    first, second = as_spark(COLUMNS, rows, "v").to_pylist()
    wanted = [ROW[t][1] for t in TYPES]
    assert [str(v) if v != v else v for v in first.values()] == wanted
    assert set(second.values()) == {None}


def test_values_of_a_topic() -> None:
    kinds = {"a": "double precision", "b": "jsonb", "c": "boolean", "d": "timestamptz"}
    columns = [Column(n, DataType.parse(t)) for n, t in kinds.items()]
    rows = from_json(columns, [{"a": 0.1, "b": {"x": [1]}, "c": False, "d": "2024-02-29T12:00:00+00:00"}, {"a": None}])
    assert rows.to_pylist() == [
        {"a": 0.1, "b": '{"x":[1]}', "c": False, "d": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)},
        {"a": None, "b": None, "c": None, "d": None},
    ]


@pytest.mark.parametrize(
    ("kind", "text"), [("date", "infinity"), ("timestamptz", "-infinity"), ("timestamp", "20000-01-01 00:00:00")]
)
def test_what_spark_s_calendar_lacks_is_named(kind: str, text: str) -> None:
    columns = [Column("at", DataType.parse(kind))]
    with pytest.raises(ReadError, match="years 1 to 9999") as caught:
        as_spark(columns, from_texts(columns, [[text]]), "v")
    assert caught.value.where["column"] == "at"


def test_moments() -> None:
    sources = {"shop": Lsn(100)}
    Moment.of({}).check(7, sources, "v")
    Moment.of({"epoch": "7", "lsn": "0/64"}).check(7, sources, "v")
    for options, at, what in (
        ({"epoch": "6"}, sources, "not at hand"),
        ({"lsn": "101"}, sources, "not reached yet"),
        ({"lsn": "1"}, {**sources, "other": Lsn(5)}, "which source"),
    ):
        with pytest.raises(ReadError, match=what):
            Moment.of(options).check(7, at, "v")
    with pytest.raises(ReadError, match="no whole number"):
        Moment.of({"epoch": "x"})


def test_conditions_on_a_key() -> None:
    kinds = {"id": "bigint", 'na"me': "text", "p": "numeric"}
    key = [Column(n, DataType.parse(t)) for n, t in kinds.items()]
    asked = [
        (source.EqualTo(("id",), 7), '"id" = 7'),
        (source.In(("id",), (1, 2)), '"id" in (1, 2)'),
        (source.GreaterThanOrEqual(("id",), -1), '"id" >= -1'),
        (source.EqualTo(('na"me',), "it's"), "\"na\"\"me\" = 'it''s'"),
        (source.LessThan(('na"me',), "a"), None),
        (source.EqualTo(('na"me',), "back\\slash"), None),
        (source.EqualTo(("p",), Decimal(1)), None),
        (source.EqualTo(("id",), True), None),
        (source.EqualTo(("other",), 1), None),
        (source.EqualTo(("id", "x"), 1), None),
        (source.IsNull(("id",)), None),
    ]
    for one, text in asked:
        assert conditions([one], key) == ([] if text is None else [text]), one


Record = tuple[int, bytes, bytes, int]


def whole(monkeypatch: pytest.MonkeyPatch, start: int, stop: int, seen: list[Record], all_: list[Record]) -> None:
    def between(*_: Any, committed: bool) -> list[Record]:
        return seen if committed else all_

    monkeypatch.setattr(view_stream, "_between", between)
    view_stream._check_whole({}, "t", view_stream.Span(0, start, stop), seen)


def record(offset: int, epoch: int) -> Record:
    return offset, b"k%d" % offset, b"v", epoch


def test_a_batch_with_its_marks_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    # records 0, 1; the mark of their end; records 3, 4; this batch ends before their mark
    seen = [record(0, 1), record(1, 1), record(3, 2), record(4, 2)]
    whole(monkeypatch, 0, 5, seen, seen)
    whole(monkeypatch, 5, 8, [record(6, 3), record(7, 3)], [])  # begins with the mark


def test_an_aborted_transaction_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, aborted = [record(0, 1), record(6, 2)], [record(2, 2), record(3, 2), record(4, 2)]
    whole(monkeypatch, 0, 7, seen, sorted(seen + aborted))


def test_records_that_were_compacted_away_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [record(0, 1), record(7, 3)]  # 2 to 6 held epoch 2
    with pytest.raises(ReadError, match="compacted away"):
        whole(monkeypatch, 0, 8, seen, seen)


def test_the_engine_s_lanes_are_spark_s() -> None:
    made = as_spark(COLUMNS, from_texts(COLUMNS, []), "v")
    assert made.num_rows == 0
    assert all(not pa.types.is_large_string(f.type) for f in made.schema)
