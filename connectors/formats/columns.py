"""Column decoders: a list of JSON values of one column → its Arrow lane, exactly or not at all.

`decoder` is asked once a table and column; what it returns is called once a run. A decoder never guesses: a value it
cannot keep exactly raises, and the caller finds out whose value it was.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from connectors.formats import images, temporal
from connectors.formats.tables import CannotDecode
from connectors.formats.wire import Form, Wire, element_type
from engine.schema import DataType, Kind

Values = Sequence[Any]
Decoder = Callable[[Values], pa.Array]

_NONE: Final = type(None)
_INTEGERS: Final = frozenset((int, _NONE))
_FLOATS: Final = frozenset((float, int, _NONE))
_TEXTS: Final = frozenset((str, _NONE))

_FLOAT_WORDS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

_BASE64_ALPHABETS: Final[dict[Form, Callable[[str], bytes]]] = {
    Form.BYTES: lambda text: binascii.a2b_base64(text, strict_mode=True),
    Form.BYTES_URL: lambda text: base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True),
    Form.BYTES_HEX: bytes.fromhex,
}

Mapped = Callable[[Any], Any]


def decoder(kind: DataType, wire: Wire) -> Decoder:
    """The decoder of a column of type `kind` that is written as `wire`. Raises CannotDecode, saying why, where the two
    do not go together exactly."""
    made = _LANES.get(kind.kind, _images)(kind, wire)
    if made is None:
        raise CannotDecode(
            f"{kind} is written as {wire.form.value}", "declare the column's own type, or change how it is sent"
        )
    return made


def _typed(values: Values, allowed: frozenset[type]) -> None:
    if not allowed.issuperset(map(type, values)):
        raise CannotDecode("a value of another type than the column's")


def _each(function: Mapped, lane: pa.DataType, allowed: frozenset[type] = _TEXTS) -> Decoder:
    """Value by value: for encodings that Arrow cannot cast."""

    def decode(values: Values) -> pa.Array:
        _typed(values, allowed)
        return pa.array([None if v is None else function(v) for v in values], lane)

    return decode


def _integers(kind: DataType, wire: Wire) -> Decoder | None:
    if wire.form is not Form.INTEGER:
        return None
    lane = kind.arrow

    def decode(values: Values) -> pa.Array:
        _typed(values, _INTEGERS)
        return pa.array(values, lane)

    return decode


def _booleans(kind: DataType, wire: Wire) -> Decoder | None:
    return (lambda values: pa.array(values, pa.bool_())) if wire.form is Form.BOOLEAN else None


def _floats(kind: DataType, wire: Wire) -> Decoder | None:
    if wire.form not in (Form.FLOAT, Form.INTEGER):
        return None
    lane = kind.arrow

    def decode(values: Values) -> pa.Array:
        if not _FLOATS.issuperset(map(type, values)):
            values = [_FLOAT_WORDS[v] if isinstance(v, str) else v for v in values]
            _typed(values, _FLOATS)
        if lane == pa.float32():
            narrow = pa.array(values, lane)
            wide = pa.array(values, pa.float64())
            if not np.array_equal(np.isinf(narrow.to_numpy(False)), np.isinf(wide.to_numpy(False))):
                raise CannotDecode("a number beyond the range of real")
            return narrow
        return pa.array(values, lane)

    return decode


def _texts(kind: DataType, wire: Wire) -> Decoder | None:
    return (lambda values: pa.array(values, pa.large_string())) if wire.form is Form.TEXT else None


def _bytes(kind: DataType, wire: Wire) -> Decoder | None:
    to_bytes = _BASE64_ALPHABETS.get(wire.form)
    return None if to_bytes is None else _each(to_bytes, pa.large_binary())


def _numerics(kind: DataType, wire: Wire) -> Decoder | None:
    text = _numeric_image(kind, wire)
    if text is None:
        return None
    if not kind.fixed_scale:
        return _each(text, pa.large_string(), frozenset((str, float, int, dict, _NONE)))
    lane = kind.arrow

    def cast(texts: Values) -> pa.Array:
        try:
            return pa.array(texts, pa.string()).cast(lane)
        except pa.ArrowInvalid:
            for one in texts:
                if one in images.SPECIAL_NUMERICS:
                    raise CannotDecode(f"{one} does not fit the lane of {kind}", "declare it as numeric") from None
            raise CannotDecode(f"a value does not fit {kind}", images.DECIMAL_HINT) from None

    if wire.form is Form.DECIMAL_TEXT or wire.form is Form.TEXT:
        return cast
    if wire.form is Form.DECIMAL_BYTES and 0 <= wire.scale == lane.scale:
        return _unscaled_lane(lane)
    return lambda values: cast([None if v is None else text(v) for v in values])


def _unscaled_lane(lane: pa.DataType) -> Decoder:
    """Decimals of the lane's own scale: their integers are the lane's buffer."""

    def decode(values: Values) -> pa.Array:
        _typed(values, _TEXTS)
        integers = [0 if v is None else images.unscaled(v) for v in values]
        limit = 10**38
        if any(not -limit < i < limit for i in integers):
            raise CannotDecode("a number of more than 38 digits", "declare it as numeric")
        image = b"".join([i.to_bytes(16, "little", signed=True) for i in integers])
        nulls = None
        if None in values:
            nulls = pa.array([v is not None for v in values]).buffers()[1]
        return pa.Array.from_buffers(lane, len(values), [nulls, pa.py_buffer(image)])

    return decode


def _numeric_image(kind: DataType, wire: Wire) -> Mapped | None:
    """One value of a numeric → plain decimal text; None where the encoding cannot be exact."""
    if wire.form in (Form.DECIMAL_TEXT, Form.TEXT):
        return images.numeric_text
    if wire.form is Form.DECIMAL_BYTES:
        return lambda value: images.unscaled_text(images.unscaled(value), wire.scale)
    if wire.form is Form.DECIMAL_STRUCT:
        return lambda value: images.unscaled_text(images.unscaled(value["value"]), value["scale"])
    if wire.form is Form.INTEGER:
        return str
    if wire.form is Form.FLOAT and kind.precision is not None and kind.precision <= 15:
        return _short_decimal
    if wire.form is Form.FLOAT:
        raise CannotDecode(f"{kind} as a double is not exact", "set decimal.handling.mode=string on the connector")
    return None


def _short_decimal(value: object) -> str:
    """A double that stands for at most 15 digits: its shortest text is the decimal it came from."""
    if isinstance(value, str):
        return images.numeric_text(value)
    return format(Decimal(repr(value)), "f")


def _dates(kind: DataType, wire: Wire) -> Decoder | None:
    if wire.form is Form.DATE_ISO:
        return _each(temporal.date_from_iso, pa.date32())
    if wire.form is not Form.DATE_DAYS:
        return None
    slow = _each(temporal.date_from_days, pa.date32(), _INTEGERS)

    def decode(values: Values) -> pa.Array:
        _typed(values, _INTEGERS)
        numbers = [v for v in values if v is not None] if None in values else values
        if numbers and not temporal.FIRST_DAY <= min(numbers) <= max(numbers) <= temporal.LAST_DAY:
            return slow(values)
        return pa.array(values, pa.date32())

    return decode


def _stamped(lane: pa.DataType, function: Mapped, factor: int) -> Decoder:
    """Counts of time. Plain ones (well inside the years 1 to 9999) go to Arrow at once, others one by one."""
    slow = _each(function, lane, _INTEGERS)
    bound = 250_000_000_000_000_000 * 1000 // factor if factor else 0

    def decode(values: Values) -> pa.Array:
        _typed(values, _INTEGERS)
        numbers = [v for v in values if v is not None] if None in values else values
        if factor == 1 and numbers and -bound < min(numbers) and max(numbers) < bound:
            return pa.array(values, lane)
        return slow(values)

    return decode


def _times(kind: DataType, wire: Wire) -> Decoder | None:
    lane = pa.time64("us")
    if wire.form is Form.TIME_ISO:
        return _each(temporal.time_from_iso, lane)
    if wire.form is Form.TIME_MS:
        return _each(lambda v: v * 1000, lane, _INTEGERS)
    if wire.form is Form.TIME_NS:
        return _each(temporal.time_from_ns, lane, _INTEGERS)
    return _stamped(lane, temporal.micros_from_us, 1) if wire.form is Form.TIME_US else None


def _timestamps(kind: DataType, wire: Wire) -> Decoder | None:
    lane = kind.arrow
    if wire.form is Form.STAMP_US:
        return _stamped(lane, temporal.micros_from_us, 1)
    if wire.form is Form.STAMP_MS:
        return _each(temporal.micros_from_ms, lane, _INTEGERS)
    if wire.form is Form.STAMP_NS:
        return _each(temporal.micros_from_ns, lane, _INTEGERS)
    if wire.form is Form.STAMP_ISO or (wire.form is Form.ZONED_STAMP and kind.kind is Kind.TIMESTAMPTZ):
        return _iso_timestamps(lane)
    return None


def _iso_timestamps(lane: pa.DataType) -> Decoder:
    slow = _each(temporal.micros_from_iso, lane)

    def decode(values: Values) -> pa.Array:
        if len(values) < 4:
            return slow(values)
        try:
            return pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC")).cast(lane)
        except pa.ArrowInvalid:
            return slow(values)

    return decode


def _images(kind: DataType, wire: Wire) -> Decoder | None:
    """Types without a lane: their text images."""
    if wire.form is Form.TEXT:
        return _texts(kind, wire)
    return _each(image_of(kind, wire), pa.large_string(), _ANYTHING)


_ANYTHING: Final = frozenset((str, int, float, bool, list, dict, _NONE))


def image_of(kind: DataType, wire: Wire) -> Mapped:
    """One value, written as `wire`, of type `kind` → Postgres's text of it. Raises CannotDecode where there is none."""
    form = wire.form
    if form is Form.ARRAY:
        return _array_image(kind, wire)
    if kind.kind is Kind.NUMERIC or (kind.name or "").lower() == "money":
        text = _numeric_image(kind, wire)
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
    if form in _BASE64_ALPHABETS:
        to_bytes = _BASE64_ALPHABETS[form]
        return lambda v: images.bytea_text(to_bytes(v))
    if form is Form.BITS:
        return lambda v: images.bits_text(v, wire.length)
    return _IMAGES[form]


def _array_image(kind: DataType, wire: Wire) -> Mapped:
    element = element_type(kind)
    if element is None or wire.element is None:
        raise CannotDecode(f"{kind} is written as an array")
    one = image_of(element, wire.element)

    def nested(value: Any) -> Any:
        if value is None:
            return None
        return [nested(v) for v in value] if isinstance(value, list) else one(value)

    def image(value: Any) -> str:
        if not isinstance(value, list):
            raise CannotDecode("not an array")
        return images.array_text(nested(value))

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
    return images.hstore_text(value)


def _float8_image(value: Any) -> str:
    return images.float8_text(_FLOAT_WORDS[value] if isinstance(value, str) else value)


def _float4_image(value: Any) -> str:
    return images.float4_text(_FLOAT_WORDS[value] if isinstance(value, str) else value)


def _stamp(to_micros: Mapped, zone: str = "") -> Mapped:
    return lambda value: temporal.timestamp_text(to_micros(value), zone)


_IMAGES: Final[dict[Form, Mapped]] = {
    Form.TEXT: _text,
    Form.INTEGER: _whole,
    Form.BOOLEAN: lambda v: "t" if v else "f",
    Form.DECIMAL_TEXT: images.numeric_text,
    Form.DATE_DAYS: lambda v: temporal.date_text(temporal.date_from_days(v)),
    Form.DATE_ISO: lambda v: temporal.date_text(temporal.date_from_iso(v)),
    Form.TIME_MS: lambda v: temporal.time_text(v * 1000),
    Form.TIME_US: temporal.time_text,
    Form.TIME_NS: lambda v: temporal.time_text(temporal.time_from_ns(v)),
    Form.TIME_ISO: lambda v: temporal.time_text(temporal.time_from_iso(v)),
    Form.STAMP_MS: _stamp(temporal.micros_from_ms),
    Form.STAMP_US: _stamp(temporal.micros_from_us),
    Form.STAMP_NS: _stamp(temporal.micros_from_ns),
    Form.STAMP_ISO: _stamp(temporal.micros_from_iso),
    Form.ZONED_STAMP: _stamp(temporal.micros_from_iso, "+00"),
    Form.ZONED_TIME: temporal.timetz_text,
    Form.INTERVAL_ISO: images.interval_text,
    Form.MAP: _pairs,
    Form.HSTORE_JSON: lambda v: _pairs(orjson.loads(v)),
    Form.POINT: images.point_text,
}

_LANES: Final[dict[Kind, Callable[[DataType, Wire], Decoder | None]]] = {
    Kind.BOOLEAN: _booleans,
    Kind.SMALLINT: _integers,
    Kind.INTEGER: _integers,
    Kind.BIGINT: _integers,
    Kind.REAL: _floats,
    Kind.DOUBLE: _floats,
    Kind.NUMERIC: _numerics,
    Kind.TEXT: _texts,
    Kind.VARCHAR: _texts,
    Kind.BPCHAR: _texts,
    Kind.UUID: _texts,
    Kind.JSON: _texts,
    Kind.JSONB: _texts,
    Kind.BYTEA: _bytes,
    Kind.DATE: _dates,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIMESTAMPTZ: _timestamps,
}
