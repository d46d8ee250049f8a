"""The text image of every lane as Postgres prints it, and back: `to_text`, `from_text`, `parse_literal`.

Always: ISO dates in UTC, shortest float digits in Postgres's layout, numerics with their display scale, bytea as hex,
booleans as t and f. Infinite dates and timestamps are the extreme integers of their lane. Called by sinks, replay, casts.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.errors import HeadraceError
from engine.operators.expressions import calendar_text as calendar
from engine.operators.expressions import columns as col
from engine.operators.expressions import decimals, fallback, numerals
from engine.operators.expressions.fallback import RowError
from engine.operators.expressions.ir import Value
from engine.operators.expressions.numerals import BLANKS, invalid
from engine.operators.expressions.registry import Outcome, Values
from engine.schema import MAX_DIGITS, DataType, Kind

STRING = pa.large_string()


class InvalidLiteral(HeadraceError):
    """A literal that is no value of its type; `what` is Postgres's message."""

    code = "literal"


def _float_image(bits: int) -> Callable[[float], str]:
    highest = 15 if bits == 64 else 6
    single = bits == 32

    def image(value: float) -> str:
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        number = np.float32(value) if single else np.float64(value)
        if number == 0:
            return "-0" if np.signbit(number) else "0"
        mantissa, _, exponent = np.format_float_scientific(number, unique=True, trim="-").partition("e")
        power = int(exponent)
        if power < -4 or power >= highest:
            return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
        return np.format_float_positional(number, unique=True, trim="-")

    return image


_DOUBLE, _SINGLE = _float_image(64), _float_image(32)


def float_image(value: float) -> str:
    """A double as Postgres prints it."""
    return _DOUBLE(value)


def image_of(value: Values, datatype: DataType) -> Values:
    """The text image of a column or constant of `datatype`."""
    kind, lane = datatype.kind, datatype.arrow
    if kind is Kind.BOOLEAN:
        return pc.if_else(value, "t", "f").cast(STRING)
    if kind in (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT):
        return pc.cast(value, STRING)
    if kind is Kind.DOUBLE:
        return fallback.map_values(_DOUBLE, STRING, [value])[0]
    if kind is Kind.REAL:
        return fallback.map_values(_SINGLE, STRING, [value])[0]
    if kind is Kind.NUMERIC:
        return decimals.text_image(value, datatype)
    if kind is Kind.BYTEA:
        return fallback.map_values(lambda v: "\\x" + v.hex(), STRING, [value])[0]
    if kind is Kind.TIME:
        return _trim_fraction(pc.cast(value, STRING))
    if kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return _calendar_image(value, kind)
    assert lane == STRING
    return value


def _trim_fraction(text: Values) -> Values:
    return pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")


def _calendar_image(value: Values, kind: Kind) -> Values:
    physical = pa.int32() if kind is Kind.DATE else pa.int64()
    raw = col.retyped(value, physical)
    low, high = calendar.PLAIN_DAYS if kind is Kind.DATE else calendar.PLAIN_MICROS
    plain = pc.and_(pc.greater_equal(raw, low), pc.less(raw, high))
    zone = "+00" if kind is Kind.TIMESTAMPTZ else ""
    usual = pc.if_else(plain, raw, pa.scalar(0, physical))
    lane = pa.date32() if kind is Kind.DATE else pa.timestamp("us")
    text = pc.cast(col.retyped(usual, lane), STRING)
    if kind is not Kind.DATE:
        text = _trim_fraction(text)
        text = pc.binary_join_element_wise(text, pa.scalar(zone, STRING), pa.scalar("", STRING)) if zone else text
    everything = plain.as_py() is not False if isinstance(plain, pa.Scalar) else pc.all(plain).as_py() is not False
    if everything:
        return text
    write = calendar.date_image if kind is Kind.DATE else lambda v: calendar.stamp_image(v, zone)
    rare = fallback.map_values(write, STRING, [pc.if_else(plain, pa.scalar(None, physical), raw)])[0]
    return pc.coalesce(rare, text)


def to_text(array: pa.Array, datatype: DataType) -> pa.LargeStringArray:
    """The Postgres text image of each value of a column of `datatype`; NULL stays NULL."""
    return image_of(array, datatype)


_BOOLEANS = {
    **{word[:n]: True for word in ("true", "yes") for n in range(1, len(word) + 1)},
    **{word[:n]: False for word in ("false", "no") for n in range(1, len(word) + 1)},
    **{"on": True, "1": True, "off": False, "of": False, "0": False},
}
_INTEGER = re.compile(r"([+-]?)(\d+(?:_\d+)*|0[xX](?:_?[0-9a-fA-F]+)+|0[oO](?:_?[0-7]+)+|0[bB](?:_?[01]+)+)", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)|[+-]?nan", re.ASCII | re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{4}-?([0-9a-f]{4}-?){6}[0-9a-f]{4}", re.IGNORECASE)
_BOUNDS = {Kind.SMALLINT: 1 << 15, Kind.INTEGER: 1 << 31, Kind.BIGINT: 1 << 63}


def _read_boolean(text: str) -> bool:
    found = _BOOLEANS.get(text.strip(BLANKS).lower())
    if found is None:
        raise invalid("boolean", text)
    return found


def _read_integer(kind: Kind) -> Callable[[str], int]:
    bound = _BOUNDS[kind]

    def read(text: str) -> int:
        match = _INTEGER.fullmatch(text.strip(BLANKS))
        if not match:
            raise invalid(kind.value, text)
        digits = match[2].replace("_", "")
        value = int(digits) if digits.isdigit() else int(digits, 0)
        value = -value if match[1] == "-" else value
        if not -bound <= value < bound:
            raise RowError(f'value "{text}" is out of range for type {kind.value}')
        return value

    return read


def _read_float(kind: Kind) -> Callable[[str], float]:
    def read(text: str) -> float:
        body = text.strip(BLANKS)
        if not _FLOAT.fullmatch(body):
            raise invalid(kind.value, text)
        value = float(body)
        if kind is Kind.REAL:
            with np.errstate(all="ignore"):
                value = float(np.float32(value))
        named = body.lstrip("+-")[:1].lower() in ("i", "n")
        lost = value in (float("inf"), float("-inf")) or (value == 0 and re.search("[1-9]", body.lower().split("e")[0]))
        if lost and not named:
            raise RowError(f'"{text}" is out of range for type {kind.value}')
        return value

    return read


def _read_bytes(text: str) -> bytes:
    if text.startswith("\\x"):
        try:
            return binascii.unhexlify(re.sub(r"[ \t\n\r]", "", text[2:]))
        except binascii.Error:
            raise RowError("invalid hexadecimal data: odd number of digits" if len(text) % 2 else text) from None
    out, at, raw = bytearray(), 0, text.encode()
    while at < len(raw):
        if raw[at] != 0x5C:
            out.append(raw[at])
            at += 1
        elif raw[at + 1 : at + 2] == b"\\":
            out.append(0x5C)
            at += 2
        elif re.fullmatch(rb"[0-3][0-7][0-7]", raw[at + 1 : at + 4]):
            out.append(int(raw[at + 1 : at + 4], 8))
            at += 4
        else:
            raise RowError("invalid input syntax for type bytea")
    return bytes(out)


def _read_uuid(text: str) -> str:
    body = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if not _UUID.fullmatch(body):
        raise invalid("uuid", text)
    plain = body.replace("-", "").lower()
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def _length_reader(datatype: DataType) -> Callable[[str], str]:
    limit, padded = datatype.length, datatype.kind is Kind.BPCHAR

    def read(text: str) -> str:
        if limit is None:
            return text
        if len(text) > limit:
            if text[limit:].strip(" "):
                raise RowError(f"value too long for type {datatype.kind.value}({limit})")
            return text[:limit]
        return text.ljust(limit) if padded else text

    return read


def reader(datatype: DataType) -> Callable[[str], object]:
    """The function from one text to one value of the type's lane, as Postgres's input function reads it.

    NUMERIC gives its image (rounded where the type has a scale); dates and timestamps the lane's integer.
    """
    kind = datatype.kind
    if kind is Kind.BOOLEAN:
        return _read_boolean
    if kind in _BOUNDS:
        return _read_integer(kind)
    if kind in (Kind.REAL, Kind.DOUBLE):
        return _read_float(kind)
    if kind is Kind.NUMERIC:
        return _numeric_reader(datatype)
    if kind is Kind.BYTEA:
        return _read_bytes
    if kind is Kind.UUID:
        return _read_uuid
    if kind in (Kind.VARCHAR, Kind.BPCHAR):
        return _length_reader(datatype)
    if kind in calendar.READERS:
        return calendar.READERS[kind]
    return str


def _numeric_reader(datatype: DataType) -> Callable[[str], str]:
    precision, scale = datatype.precision, datatype.scale
    if precision is not None:
        digits = precision, scale or 0

        def read(text: str) -> str:
            return lane_image(numerals.constrain(numerals.parse(text), *digits), datatype)

        return read
    if scale is None:
        return numerals.parse

    def exact(text: str) -> str:
        image = numerals.parse(text)
        if image in numerals.SPECIAL or numerals.split(image)[1] != scale:
            raise RowError(f'numeric "{text}" has not the scale {scale} of its column')
        return lane_image(image, datatype)

    return exact


def lane_image(image: str, datatype: DataType) -> str:
    """`image` if the type's lane can hold it. Raises RowError naming the limit."""
    if datatype.fixed_scale and (image in numerals.SPECIAL or len(image.lstrip("-0.").replace(".", "")) > MAX_DIGITS):
        raise RowError(decimals.TOO_WIDE if image not in numerals.SPECIAL else f"numeric {image} in a fixed-scale column")
    return image


def read_text(value: Values, datatype: DataType) -> Outcome:
    """Text to `datatype`, as Postgres's input function does, over a column."""
    kind, lane = datatype.kind, datatype.arrow
    if kind in _BOUNDS and not isinstance(value, pa.Scalar) and not pc.any(pc.match_substring_regex(value, "[xX]")).as_py():
        try:
            return pc.cast(value, lane), None
        except pa.ArrowInvalid:
            pass
    if kind in (Kind.TEXT, Kind.JSON, Kind.JSONB, Kind.OTHER) or (kind is Kind.VARCHAR and datatype.length is None):
        return value, None
    if kind in calendar.READERS:
        physical = pa.int32() if kind is Kind.DATE else pa.int64()
        out, errors = fallback.map_values(reader(datatype), physical, [value])
        return col.retyped(out, lane), errors
    if kind is Kind.NUMERIC and datatype.fixed_scale:
        out, errors = fallback.map_values(reader(datatype), STRING, [value])
        return pc.cast(out, lane), errors
    return fallback.map_values(reader(datatype), lane, [value])


def from_text(array: pa.Array, datatype: DataType) -> tuple[pa.Array, pa.Array | None]:
    """(values in the lane of `datatype`, messages or None) of a column of Postgres text images."""
    values, errors = read_text(pc.cast(array, STRING), datatype)
    return values, errors


def parse_literal(text: str, datatype: DataType) -> Value:
    """The value that an unknown literal has as a `datatype`, as `ir.Literal` holds it. Raises InvalidLiteral."""
    try:
        value = reader(datatype)(text)
    except RowError as error:
        raise InvalidLiteral(str(error)) from None
    if datatype.kind in calendar.READERS:
        lane = pa.int32() if datatype.kind is Kind.DATE else pa.int64()
        return str(image_of(col.retyped(pa.array([value], lane), datatype.arrow), datatype)[0].as_py())
    assert isinstance(value, (bool, int, float, str, bytes))
    return value
