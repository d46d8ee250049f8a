"""How one value of a type without a lane becomes Postgres's text of it, whatever its encoding.

`image_of` is asked once a table and column and gives a function of one JSON value. `numeric_image` does the same for
numbers, whose plain decimal text is also the way into a decimal lane. Called by the column decoders.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson

from headrace.connectors.formats import temporal, text_output
from headrace.connectors.formats.encodings import Form, Wire, element_type
from headrace.connectors.formats.table_specs import CannotDecode
from headrace.engine.schema import DataType, Kind

Mapped = Callable[[Any], Any]

FLOAT_WORDS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

ALPHABETS: Final[dict[Form, Callable[[str], bytes]]] = {
    Form.BYTES: lambda text: binascii.a2b_base64(text, strict_mode=True),
    Form.BYTES_URL: lambda text: base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True),
    Form.BYTES_HEX: bytes.fromhex,
}


def numeric_image(kind: DataType, wire: Wire) -> Mapped | None:
    """One value of a numeric → plain decimal text; None where the encoding cannot be exact."""
    if wire.form in (Form.DECIMAL_TEXT, Form.TEXT):
        return text_output.numeric_text
    if wire.form is Form.DECIMAL_BYTES:
        return lambda value: text_output.unscaled_text(text_output.unscaled(value), wire.scale)
    if wire.form is Form.DECIMAL_STRUCT:
        return lambda value: text_output.unscaled_text(text_output.unscaled(value["value"]), value["scale"])
    if wire.form is Form.INTEGER:
        # beyond 64 bits a parser gives the nearest double, whose digits are not the number's
        return _whole
    if wire.form is Form.FLOAT and kind.precision is not None and kind.precision <= 15:
        return _short_decimal
    if wire.form is Form.FLOAT:
        raise CannotDecode(f"{kind} as a double is not exact", "set decimal.handling.mode=string on the connector")
    return None


def _short_decimal(value: object) -> str:
    """A double that stands for at most 15 digits: its shortest text is the decimal it came from."""
    if isinstance(value, str):
        return text_output.numeric_text(value)
    return format(Decimal(repr(value)), "f")


_BIT: Final = re.compile(r"bit\s*(?:\(\s*(\d+)\s*\))?")


def by_name(kind: DataType, wire: Wire) -> Wire:
    """What a declared name tells about an encoding that a Connect schema leaves open."""
    name = (kind.name or "").lower()
    if name == "hstore" and wire.form is Form.TEXT:
        return Wire(Form.HSTORE_JSON)
    bit = _BIT.fullmatch(name)
    if wire.form in (Form.BITS, Form.BOOLEAN) and bit:
        return Wire(Form.BITS, length=int(bit[1] or 1))
    return wire


def image_of(kind: DataType, wire: Wire) -> Mapped:
    """One value, written as `wire`, of type `kind` → Postgres's text of it. Raises CannotDecode where there is none."""
    wire = by_name(kind, wire)
    form = wire.form
    if form is Form.ARRAY:
        return _array_image(kind, wire)
    if kind.kind is Kind.NUMERIC or (kind.name or "").lower() == "money":
        text = numeric_image(kind, wire)
        if text is not None:
            return text
    if form is Form.BITS and wire.length is None:
        raise CannotDecode("bit varying loses its leading zeros on the way", "cast the column to text in the source")
    if form is Form.INTERVAL_US:
        raise CannotDecode(
            "an interval in microseconds has lost its months and days", "set interval.handling.mode=string"
        )
    if form is Form.FLOAT:
        return _float4_image if kind.kind is Kind.REAL else _float8_image
    if form in ALPHABETS:
        to_bytes = ALPHABETS[form]
        return lambda v: text_output.bytea_text(to_bytes(v))
    if form is Form.BITS:
        return lambda v: text_output.bits_text(v, wire.length)
    return _IMAGES[form]


_JAVA_ARRAY: Final = re.compile(r"\[+(L[\w.$]+;|[BCDFIJSZ])@[0-9a-f]{1,8}")
"""What Java calls an array that nobody turned into text."""

_ARRAY_HINT: Final = "leave the column out of the table, or keep its values in a column of text in the source"


def _array_image(kind: DataType, wire: Wire) -> Mapped:
    element = element_type(kind)
    if element is None or wire.element is None:
        raise CannotDecode(f"{kind} is written as an array")
    one = image_of(element, wire.element)

    def nested(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str) and _JAVA_ARRAY.fullmatch(value):
            raise CannotDecode("Debezium does not send arrays of more than one dimension", _ARRAY_HINT)
        return [nested(v) for v in value] if isinstance(value, list) else one(value)

    def image(value: Any) -> str:
        if not isinstance(value, list):
            raise CannotDecode("not an array")
        return text_output.array_text(nested(value))

    return image


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CannotDecode("not a string")
    return value


def _whole(value: Any) -> str:
    if type(value) is not int:
        raise CannotDecode("not an integer")
    return str(value)


def _pairs(value: Any) -> str:
    if not isinstance(value, dict):
        raise CannotDecode("not a map")
    return text_output.hstore_text(value)


def _float8_image(value: Any) -> str:
    return text_output.float8_text(FLOAT_WORDS[value] if isinstance(value, str) else value)


def _float4_image(value: Any) -> str:
    return text_output.float4_text(FLOAT_WORDS[value] if isinstance(value, str) else value)


def _stamp(to_micros: Mapped, zone: str = "") -> Mapped:
    return lambda value: temporal.timestamp_text(to_micros(value), zone)


_IMAGES: Final[dict[Form, Mapped]] = {
    Form.TEXT: _text,
    Form.INTEGER: _whole,
    Form.BOOLEAN: lambda v: {True: "t", False: "f"}[v],
    Form.DECIMAL_TEXT: text_output.numeric_text,
    Form.DATE_DAYS: lambda v: temporal.date_text(temporal.date_from_days(v)),
    Form.DATE_ISO: lambda v: temporal.date_text(temporal.date_from_iso(v)),
    Form.TIME_MS: lambda v: temporal.time_text(temporal.time_from_ms(v)),
    Form.TIME_US: lambda v: temporal.time_text(temporal.time_from_us(v)),
    Form.TIME_NS: lambda v: temporal.time_text(temporal.time_from_ns(v)),
    Form.TIME_ISO: lambda v: temporal.time_text(temporal.time_from_iso(v)),
    Form.STAMP_MS: _stamp(temporal.micros_from_ms),
    Form.STAMP_US: _stamp(temporal.micros_from_us),
    Form.STAMP_NS: _stamp(temporal.micros_from_ns),
    Form.STAMP_ISO: _stamp(temporal.micros_from_iso),
    Form.ZONED_STAMP: _stamp(temporal.micros_from_iso, "+00"),
    Form.ZONED_TIME: temporal.timetz_text,
    Form.INTERVAL_ISO: text_output.interval_text,
    Form.MAP: _pairs,
    Form.HSTORE_JSON: lambda v: _pairs(orjson.loads(v)),
    Form.POINT: text_output.point_text,
}
