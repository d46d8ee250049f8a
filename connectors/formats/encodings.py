"""Encodings: how a column's values stand in a message, by its Connect schema or its declared type.

A `Wire` says everything about the encoding and nothing about the column's own type; `column_decoders.decoder` brings the two
together. Pure; called when a table's decoder is made, never for a message.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.connectors.formats.table_specs import CannotDecode, Encodings
from headrace.engine.errors import TypeNotSupported
from headrace.engine.schema import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    NUMERIC,
    REAL,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    DataType,
    Kind,
)


class Form(enum.Enum):
    """The ways in which a value is written; named in refusals."""

    BOOLEAN = "a boolean"
    INTEGER = "an integer"
    FLOAT = "a floating-point number"
    TEXT = "a string"
    DECIMAL_BYTES = "a precise decimal"
    DECIMAL_STRUCT = "a precise decimal of variable scale"
    DECIMAL_TEXT = "a decimal string"
    DATE_DAYS = "days"
    DATE_ISO = "an ISO date"
    TIME_MS = "milliseconds of a day"
    TIME_US = "microseconds of a day"
    TIME_NS = "nanoseconds of a day"
    TIME_ISO = "an ISO time"
    STAMP_MS = "milliseconds"
    STAMP_US = "microseconds"
    STAMP_NS = "nanoseconds"
    STAMP_ISO = "an ISO timestamp"
    ZONED_STAMP = "an ISO timestamp with zone"
    ZONED_TIME = "an ISO time with zone"
    INTERVAL_ISO = "an ISO interval"
    INTERVAL_US = "an interval in microseconds"
    BYTES = "base64"
    BYTES_URL = "URL-safe base64"
    BYTES_HEX = "hexadecimal"
    BITS = "bits"
    MAP = "a map"
    HSTORE_JSON = "an hstore as JSON"
    POINT = "a point"
    ARRAY = "an array"


@dataclass(frozen=True)
class Wire:
    """One encoding. `scale`: of DECIMAL_BYTES. `length`: of BITS. `element`: of ARRAY."""

    form: Form
    scale: int = 0
    length: int | None = None
    element: Wire | None = None


_BINARY: Final = {"bytes": Form.BYTES, "base64": Form.BYTES, "base64-url-safe": Form.BYTES_URL, "hex": Form.BYTES_HEX}

_LITERAL: Final[Mapping[str, tuple[Form, DataType]]] = {
    "boolean": (Form.BOOLEAN, BOOLEAN),
    "int8": (Form.INTEGER, SMALLINT),
    "int16": (Form.INTEGER, SMALLINT),
    "int32": (Form.INTEGER, INTEGER),
    "int64": (Form.INTEGER, BIGINT),
    "float": (Form.FLOAT, REAL),
    "float32": (Form.FLOAT, REAL),
    "double": (Form.FLOAT, DOUBLE),
    "float64": (Form.FLOAT, DOUBLE),
    "string": (Form.TEXT, TEXT),
    "bytes": (Form.BYTES, BYTEA),
}


def other(name: str) -> DataType:
    """A type carried as its text image under Postgres's name for it."""
    return DataType(Kind.OTHER, name=name)


_LOGICAL: Final[Mapping[str, tuple[Form, DataType]]] = {
    "io.debezium.data.Uuid": (Form.TEXT, UUID),
    "io.debezium.data.Json": (Form.TEXT, DataType(Kind.JSON)),
    "io.debezium.data.Enum": (Form.TEXT, other("enum")),
    "io.debezium.data.EnumSet": (Form.TEXT, other("enum")),
    "io.debezium.data.Ltree": (Form.TEXT, other("ltree")),
    "io.debezium.data.Xml": (Form.TEXT, other("xml")),
    "io.debezium.data.TsVector": (Form.TEXT, other("tsvector")),
    "io.debezium.data.geometry.Point": (Form.POINT, other("point")),
    "io.debezium.data.VariableScaleDecimal": (Form.DECIMAL_STRUCT, NUMERIC),
    "io.debezium.time.Date": (Form.DATE_DAYS, DATE),
    "org.apache.kafka.connect.data.Date": (Form.DATE_DAYS, DATE),
    "io.debezium.time.IsoDate": (Form.DATE_ISO, DATE),
    "io.debezium.time.Time": (Form.TIME_MS, TIME),
    "org.apache.kafka.connect.data.Time": (Form.TIME_MS, TIME),
    "io.debezium.time.MicroTime": (Form.TIME_US, TIME),
    "io.debezium.time.NanoTime": (Form.TIME_NS, TIME),
    "io.debezium.time.IsoTime": (Form.TIME_ISO, TIME),
    "io.debezium.time.Timestamp": (Form.STAMP_MS, TIMESTAMP),
    "org.apache.kafka.connect.data.Timestamp": (Form.STAMP_MS, TIMESTAMP),
    "io.debezium.time.MicroTimestamp": (Form.STAMP_US, TIMESTAMP),
    "io.debezium.time.NanoTimestamp": (Form.STAMP_NS, TIMESTAMP),
    "io.debezium.time.IsoTimestamp": (Form.STAMP_ISO, TIMESTAMP),
    "io.debezium.time.ZonedTimestamp": (Form.ZONED_STAMP, TIMESTAMPTZ),
    "io.debezium.time.ZonedTime": (Form.ZONED_TIME, other("time with time zone")),
    "io.debezium.time.Interval": (Form.INTERVAL_ISO, other("interval")),
    "io.debezium.time.MicroDuration": (Form.INTERVAL_US, other("interval")),
}


def from_connect(field: Mapping[str, Any]) -> tuple[Wire, DataType | None]:
    """The encoding of a Connect field, and the type to give it where none is declared (None: the field does not tell).

    Raises CannotDecode by name for what no column can be decoded from.
    """
    literal, logical = str(field.get("type")), str(field.get("name") or "")
    parameters = field.get("parameters") or {}
    if logical == "org.apache.kafka.connect.data.Decimal":
        scale = int(parameters.get("scale", "0"))
        precision = parameters.get("connect.decimal.precision")
        return Wire(Form.DECIMAL_BYTES, scale), DataType(Kind.NUMERIC, int(precision) if precision else None, scale)
    if logical == "io.debezium.data.Bits":
        # the field is the same for bit(24) and bit varying(24), whose leading zeros are lost on the way
        return Wire(Form.BITS), propagated(field)
    if logical in _LOGICAL:
        form, kind = _LOGICAL[logical]
        return Wire(form), propagated(field) or kind
    if literal == "array":
        element, of = from_connect(field.get("items") or {})
        return Wire(Form.ARRAY, element=element), propagated(field) or (of and other(f"{of.sql()}[]"))
    if literal == "map":
        return Wire(Form.MAP), other("hstore")
    if literal in _LITERAL and not logical.startswith("io.debezium."):
        form, kind = _LITERAL[literal]
        return Wire(form), propagated(field) or kind
    raise CannotDecode(f"{logical or literal} is not decoded", "leave the column out of the table, or cast it to text")


def propagated(field: Mapping[str, Any]) -> DataType | None:
    """The column's type in the source, if the connector sends it (column.propagate.source.type)."""
    parameters = field.get("parameters") or {}
    name = parameters.get("__debezium.source.column.type")
    if not name:
        return None
    name = str(name).lower()
    if name.startswith("_"):
        name = f"{name[1:]}[]"
    if name in ("varchar", "bpchar", "char") and parameters.get("__debezium.source.column.length"):
        name = f"{name}({parameters['__debezium.source.column.length']})"
    if name == "numeric" and parameters.get("__debezium.source.column.scale") is not None:
        length = parameters.get("__debezium.source.column.length", "0")
        name = f"numeric({length},{parameters['__debezium.source.column.scale']})" if length != "0" else name
    try:
        return DataType.parse(name)
    except TypeNotSupported:
        return None


_UNSENT: Final = re.compile(
    r"(tsquery|pg_lsn|jsonpath|refcursor|xid8?|cid|tid|pg_snapshot|txid_snapshot|box|lseg|path|polygon|circle|line"
    r"|geometry|geography|vector|halfvec|sparsevec|\w*multirange)\b"
)
"""Types that Debezium leaves out, sends as unknown bytes, or as structs that we do not turn back into an image."""

_KINDS: Final[Mapping[Kind, Form]] = {
    Kind.BOOLEAN: Form.BOOLEAN,
    Kind.SMALLINT: Form.INTEGER,
    Kind.INTEGER: Form.INTEGER,
    Kind.BIGINT: Form.INTEGER,
    Kind.REAL: Form.FLOAT,
    Kind.DOUBLE: Form.FLOAT,
    Kind.TEXT: Form.TEXT,
    Kind.VARCHAR: Form.TEXT,
    Kind.BPCHAR: Form.TEXT,
    Kind.UUID: Form.TEXT,
    Kind.JSON: Form.TEXT,
    Kind.JSONB: Form.TEXT,
    Kind.TIMESTAMPTZ: Form.ZONED_STAMP,
}


def from_declared(kind: DataType, encodings: Encodings, precision: int = 6) -> Wire:
    """The encoding that the settings give a declared column of a schemaless message. Raises CannotDecode by name.

    `precision`: fractional digits of a time or timestamp.
    """
    if kind.kind in _KINDS:
        return Wire(_KINDS[kind.kind])
    if kind.kind is Kind.NUMERIC:
        if encodings.decimal_handling_mode == "precise":
            raise CannotDecode(
                "precise decimals cannot be decoded without a schema",
                "set decimal.handling.mode=string on the connector, or let its messages carry their schema",
            )
        return Wire(Form.FLOAT if encodings.decimal_handling_mode == "double" else Form.DECIMAL_TEXT)
    if kind.kind is Kind.BYTEA:
        return Wire(_BINARY[encodings.binary_handling_mode])
    mode = encodings.time_precision_mode
    if kind.kind is Kind.DATE:
        return Wire(Form.DATE_ISO if mode == "isostring" else Form.DATE_DAYS)
    if kind.kind in (Kind.TIME, Kind.TIMESTAMP):
        return Wire(_clock_form(kind.kind is Kind.TIME, mode, precision))
    return _from_name(kind, encodings, precision)


def _clock_form(is_time: bool, mode: str, precision: int) -> Form:
    millis = mode == "connect" or (precision <= 3 and (mode == "adaptive" or (mode != "isostring" and not is_time)))
    if mode in ("microseconds", "nanoseconds"):
        millis = False
    if mode == "isostring":
        return Form.TIME_ISO if is_time else Form.STAMP_ISO
    if mode == "nanoseconds":
        return Form.TIME_NS if is_time else Form.STAMP_NS
    if millis:
        return Form.TIME_MS if is_time else Form.STAMP_MS
    return Form.TIME_US if is_time else Form.STAMP_US


def element_type(kind: DataType) -> DataType | None:
    """The element of an array type (`integer[]`, `_int4`, `text[][]`), or None where it is not one."""
    name = (kind.name or "").strip()
    if kind.kind is not Kind.OTHER:
        return None
    if name.endswith("]"):
        return DataType.parse(re.sub(r"(\s*\[\d*\])+$", "", name))
    return DataType.parse(name[1:]) if name.startswith("_") and len(name) > 1 else None


def _from_name(kind: DataType, encodings: Encodings, precision: int) -> Wire:
    element = element_type(kind)
    if element is not None:
        return Wire(
            Form.ARRAY, element=from_declared(element, encodings, declared_precision(kind.name or "", precision))
        )
    name = " ".join((kind.name or "").lower().split())
    base = name.split("(")[0].strip()
    if _UNSENT.match(base):
        raise CannotDecode(f"{base} is not decoded", "leave the column out, or cast it to text in the source")
    if base == "interval" or base.startswith("interval "):
        return Wire(Form.INTERVAL_ISO if encodings.interval_handling_mode == "string" else Form.INTERVAL_US)
    if base in ("timetz", "time with time zone") or re.fullmatch(r"time\s*\(\d\) with time zone", name):
        return Wire(Form.ZONED_TIME)
    if name.startswith("timestamp") and name.endswith("with time zone"):
        return Wire(Form.ZONED_STAMP)
    if base in ("bit varying", "varbit"):
        return Wire(Form.BITS)
    if base == "bit":
        digits = re.search(r"\((\d+)\)", name)
        return Wire(Form.BITS, length=int(digits[1]) if digits else 1)
    if base in ("oid", "regclass", "regtype"):
        return Wire(Form.INTEGER)
    if base == "money":
        return Wire(Form.FLOAT if encodings.decimal_handling_mode == "double" else Form.DECIMAL_TEXT)
    if base == "hstore":
        return Wire(Form.MAP if encodings.hstore_handling_mode == "map" else Form.HSTORE_JSON)
    return Wire(Form.POINT if base == "point" else Form.TEXT)


def declared_precision(data_type: str, default: int = 6) -> int:
    """The fractional digits of a declared `time(3)` or `timestamp(0) with time zone`; `default` where it has none."""
    match = re.match(r"\s*_?(?:time|timestamp|timestamptz|timetz)\s*\((\d)\)", data_type.lower())
    return int(match[1]) if match else default
