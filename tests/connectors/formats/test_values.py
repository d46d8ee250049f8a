"""The values of columns as Debezium writes them: the lane of each, what is refused by name, and what was not sent."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.formats.column_decoders import decoder
from headrace.connectors.formats.debezium import DebeziumFormat
from headrace.connectors.formats.encodings import Form, Wire
from headrace.connectors.formats.table_specs import CannotDecode, ConfigurationRefused, Encodings
from headrace.engine.schema import DataType
from tests.connectors.formats.events import PLACEHOLDER, decode, envelope, table


def one(kind: str, value: Any, **encodings: Any) -> Any:
    """The lane's raw content for one value of a column, by every path; the reason where it is refused."""
    results = []
    for count in (1, 20, 70):
        spec = table("public.t", {"id": "bigint", "v": kind})
        decoded = decode(spec, [envelope("c", None, {"id": i, "v": value}) for i in range(count)], **encodings)
        if decoded.undecodable:
            assert len(decoded.undecodable) == count
            results.append(f"refused: {decoded.undecodable[0].reason}")
        else:
            results.append(raw(decoded.changes[0].rows.column(1)[0]))
    assert all(r == results[0] for r in results), results
    return results[0]


def raw(scalar: pa.Scalar) -> Any:
    return scalar.value if scalar.is_valid and hasattr(scalar, "value") else scalar.as_py()


VALUES = [
    ("bigint", 9007199254740993, 9007199254740993, {}),
    ("numeric(12,2)", "-0.10", Decimal("-0.10"), {}),
    ("numeric(38,0)", "9" * 38, Decimal("9" * 38), {}),
    ("numeric", "1" + "0" * 60 + ".500", "1" + "0" * 60 + ".500", {}),
    ("numeric", "NAN", "NaN", {}),
    ("numeric", "POSITIVE_INFINITY", "Infinity", {}),
    ("numeric(12,2)", 10.5, Decimal("10.50"), {"decimal_handling_mode": "double"}),
    ("double precision", "-Infinity", float("-inf"), {}),
    ("double precision", 5e-324, 5e-324, {}),
    ("date", 17109, 17109, {}),
    ("date", -622191234, 2**31 - 1, {}),
    ("date", -2147472691, -(2**31), {}),
    ("date", "2016-11-04Z", 17109, {"time_precision_mode": "isostring"}),
    ("time", 49890123000, 49890123000, {}),
    ("time(3)", 86400000000, 86400000000, {"time_precision_mode": "microseconds"}),
    ("time", "13:51:30.123Z", 49890123000, {"time_precision_mode": "isostring"}),
    ("time", 49890123000000, 49890123000, {"time_precision_mode": "nanoseconds"}),
    ("timestamp", 1478267490123456, 1478267490123456, {}),
    ("timestamp", 1478267490123, 1478267490123000, {"time_precision_mode": "connect"}),
    ("timestamp", 1478267490123456000, 1478267490123456, {"time_precision_mode": "nanoseconds"}),
    ("timestamp", 2**63 - 1, 2**63 - 1, {"time_precision_mode": "nanoseconds"}),
    ("timestamp", 9223372036825200000, 2**63 - 1, {}),
    ("timestamp", "-290308-12-21T19:59:27.6Z", -(2**63), {"time_precision_mode": "isostring"}),
    ("timestamp", "2016-11-04T13:51:30.123456Z", 1478267490123456, {"time_precision_mode": "isostring"}),
    ("timestamptz", "2016-11-04T11:51:30.123456Z", 1478260290123456, {}),
    ("timestamptz", "2016-11-04T13:51:30.123456+02:00", 1478260290123456, {}),
    ("timestamptz", "+21016-11-04T06:51:30.123456Z", 601060287090123456, {}),
    ("timestamptz", "infinity", 2**63 - 1, {}),
    ("timestamp", 2**63 - 3, 2**63 - 3, {}),
    ("timestamptz", "+294247-01-10T04:00:54.775805Z", 2**63 - 3, {}),
    ("timestamp", -210866803200000000, -210866803200000000, {}),
    ("bytea", "AQL/", b"\x01\x02\xff", {}),
    ("bytea", "AQL_", b"\x01\x02\xff", {"binary_handling_mode": "base64-url-safe"}),
    ("bytea", "0102ff", b"\x01\x02\xff", {"binary_handling_mode": "hex"}),
    ("text", "nul \x00 😀 \ud7ff", "nul \x00 😀 \ud7ff", {}),
    ("interval", "P1Y2M3DT4H5M6.78S", "1 year 2 mons 3 days 04:05:06.78", {}),
    ("interval", "P0Y-1M2DT0H0M-1.5S", "-1 mons +2 days -00:00:01.5", {}),
    ("interval", "P0Y0M0DT0H0M0S", "00:00:00", {}),
    ("time with time zone", "11:51:30.123789Z", "11:51:30.123789+00", {}),
    ("bit(3)", "BQ==", "101", {}),
    ("bit(8)", "Ag==", "00000010", {}),
    ("bit(1)", True, "1", {}),
    ("hstore", '{"bb":"2","a":null}', '"a"=>NULL, "bb"=>"2"', {}),
    ("hstore", {"b": 'q"'}, '"b"=>"q\\""', {"hstore_handling_mode": "map"}),
    ("point", {"x": 1.0, "y": -2.5, "wkb": "AQ==", "srid": None}, "(1,-2.5)", {}),
    ("oid", 4000000000, "4000000000", {}),
    ("money", "-1234.11", "-1234.11", {}),
    ("mood", "it's", "it's", {}),
    ("integer[]", [1, None, -3], "{1,NULL,-3}", {}),
    ("text[]", ["a b", "", "null", 'q"\\', "{", "ok", None], '{"a b","","null","q\\"\\\\","{",ok,NULL}', {}),
    ("double precision[]", [1.0, 1e15, 1e-5, 123456.5, "NaN"], "{1,1e+15,1e-05,123456.5,NaN}", {}),
    ("real[]", [3.3, 1e6], "{3.3,1e+06}", {}),
    ("bytea[]", ["AQI="], '{"\\\\x0102"}', {}),
    ("boolean[]", [True, False], "{t,f}", {}),
    ("date[]", [17109], "{2016-11-04}", {}),
    ("timestamp(3)[]", [1478267490123], '{"2016-11-04 13:51:30.123"}', {}),
    ("timestamptz[]", ["2016-11-04T11:51:30Z"], '{"2016-11-04 11:51:30+00"}', {}),
    ("timestamptz[]", ["+292269055-12-02T23:00:00.000000Z", "infinity"], "{-infinity,infinity}", {}),
    ("numeric(5,2)[]", ["1.20"], "{1.20}", {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sent", "lane", "encodings"), VALUES, ids=lambda v: str(v)[:24])
def test_a_value_and_its_lane(kind: str, sent: Any, lane: Any, encodings: dict[str, Any]) -> None:
    assert one(kind, sent, **encodings) == lane


# What Debezium 3.6.3 sends of 294276-12-31, the same a microsecond before midnight, and of 294247-01-10 04:00:54.775808.
LATE = [
    ("timestamp", 2**63 - 1),
    ("timestamp", -9223372036853775810),
    ("timestamp", -(2**63)),
    ("timestamp[]", [2**63 - 1]),
    ("timestamptz", "+294276-12-31T23:59:59.999999Z"),
    ("timestamptz", "+294247-01-10T04:00:54.775807Z"),
    ("timestamptz[]", ["+294276-12-31T23:59:59.999999Z"]),
]
REFUSED = [
    ("numeric(12,2)", "JxA=", {}, "decimal.handling.mode"),
    ("numeric", "JxA=", {}, "decimal.handling.mode"),
    ("numeric(3,2)", "NAN", {}, "declare it as numeric"),
    ("numeric(12,2)", "1.005", {}, ""),
    ("numeric", 1.5, {"decimal_handling_mode": "double"}, "decimal.handling.mode=string"),
    ("interval", 37091106780000, {"interval_handling_mode": "numeric"}, "interval.handling.mode=string"),
    ("bit varying(8)", "AQ==", {}, "cast the column to text"),
    ("tsquery", "eA==", {}, "leave the column out"),
    ("timestamp", 1, {"time_precision_mode": "nanoseconds"}, ""),
    *((kind, sent, {}, "column of text") for kind, sent in LATE),
    ("timestamp", 9224317929600000, {"time_precision_mode": "connect"}, "column of text"),
    ("timestamp", "+294276-12-31T23:59:59.999999Z", {"time_precision_mode": "isostring"}, "column of text"),
    ("integer", 2**31, {}, ""),
    ("integer", 1.0, {}, ""),
    ("text", 5, {}, ""),
    ("date", 2**31 - 1, {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sent", "encodings", "hint"), REFUSED, ids=lambda v: str(v)[:24])
def test_what_cannot_be_exact_is_refused_by_name(kind: str, sent: Any, encodings: dict[str, Any], hint: str) -> None:
    spec = table("public.t", {"id": "bigint", "v": kind})
    decoded = decode(spec, [envelope("c", None, {"id": 1, "v": sent})], **encodings)
    (bad,) = decoded.undecodable
    assert (bad.table, bad.topic, bad.partition, bad.offset) == ("public.t", "p.public.t", 3, 100)
    assert bad.reason.startswith("column v: ")
    assert hint in bad.hint
    assert not decoded.changes


def test_precise_decimals_without_schema_are_refused_before_the_start() -> None:
    spec = table("public.t", {"id": "bigint", "v": "numeric(12,2)"})
    with pytest.raises(ConfigurationRefused, match=r"decimal\.handling\.mode=string"):
        DebeziumFormat("s", "p", {spec.name: spec}, Encodings(decimal_handling_mode="precise"))
    with pytest.raises(ConfigurationRefused, match=r"time\.precision\.mode"):
        Encodings(time_precision_mode="structured")


def test_the_declared_precision_decides_in_adaptive_mode() -> None:
    spec = table("public.t", {"id": "bigint", "v": "timestamp", "w": "time"}, precisions={"v": 3, "w": 0})
    decoded = decode(spec, [envelope("c", None, {"id": 1, "v": 1478267490123, "w": 1000})])
    row = decoded.changes[0].rows
    assert (raw(row.column(1)[0]), raw(row.column(2)[0])) == (1478267490123000, 1000000)


PLACEHOLDERS = [
    ("text", PLACEHOLDER),
    ("jsonb", PLACEHOLDER),
    ("numeric", PLACEHOLDER),
    ("bytea", base64.b64encode(PLACEHOLDER.encode()).decode()),
    ("text[]", [PLACEHOLDER]),
    ("bytea[]", [base64.b64encode(PLACEHOLDER.encode()).decode()]),
    ("integer[]", list(PLACEHOLDER.encode())),
    ("numeric[]", PLACEHOLDER),
    ("hstore", json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))),
    ("hstore", {PLACEHOLDER: PLACEHOLDER}),
    ("uuid[]", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
]


@pytest.mark.parametrize("count", [1, 20, 70])
@pytest.mark.parametrize(("kind", "sent"), PLACEHOLDERS, ids=lambda v: str(v)[:16])
def test_an_unchanged_toasted_value_is_no_data(kind: str, sent: Any, count: int) -> None:
    spec = table("public.t", {"id": "bigint", "v": kind})
    values = [envelope("u", None, {"id": i, "v": sent if i else None}) for i in range(count + 1)]
    (changes,) = decode(spec, values).changes
    assert changes.unchanged[1].tolist() == [False] + [True] * count
    assert changes.rows.column(1).null_count == count + 1


def test_a_configured_placeholder() -> None:
    spec = table("public.t", {"id": "bigint", "v": "text"})
    values = [envelope("u", None, {"id": 1, "v": "gone"}), envelope("u", None, {"id": 1, "v": PLACEHOLDER})]
    (changes,) = decode(spec, values, unavailable_value="hex:676f6e65").changes
    assert changes.unchanged[1].tolist() == [True, False]
    assert changes.rows.column(1).to_pylist() == [None, PLACEHOLDER]


@pytest.mark.parametrize("name", ["[Ljava.lang.String;@2c86d48f", "[I@152e537b", "[[D@1"])
def test_an_array_of_arrays_that_came_as_its_name_is_refused(name: str) -> None:
    (refused,) = decode(
        table("public.t", {"id": "bigint", "v": "text[]"}), [envelope("c", None, {"id": 1, "v": [name]})]
    ).undecodable
    assert "more than one dimension" in refused.reason
    (changes,) = decode(
        table("public.t", {"id": "bigint", "v": "text[]"}), [envelope("c", None, {"id": 1, "v": ["[I@x"]})]
    ).changes
    assert changes.rows.column(1).to_pylist() == ["{[I@x}"]


@pytest.mark.parametrize("count", [1, 70])
def test_a_whole_number_that_lost_its_digits_is_no_numeric(count: int) -> None:
    """Beyond 64 bits the parser gives the nearest double: near is not enough for a numeric."""
    made = decoder(DataType.parse("numeric(38,0)"), Wire(Form.INTEGER))
    assert made.array([None, 2**63 - 1] * count).to_pylist() == [None, Decimal(2**63 - 1)] * count
    with pytest.raises(CannotDecode, match="not an integer"):
        made.array([float(2**64)] * count)
