"""Postgres's text of a value read into its type's lane: `from_text`, `read_text`, `parse_literal`.

Invariant: what Postgres's input function takes is taken, and anything else fails its row in Postgres's words. Infinite dates and
timestamps are the extreme integers of their lane. Sources, replay and casts call it; `text_output` prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.coercion import literal_is_image
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Evaluated, Outcome, Values
from headrace.engine.operators.expressions.core.ir import Value
from headrace.engine.operators.expressions.core.text_output import image_of
from headrace.engine.operators.expressions.core.text_types import family_of
from headrace.engine.operators.expressions.datetime.input_parse import READERS
from headrace.engine.operators.expressions.json import json_text
from headrace.engine.operators.expressions.numeric import decimal_math, decimals
from headrace.engine.operators.expressions.numeric.decimal_math import BLANKS, invalid
from headrace.engine.schema import MAX_DIGITS, DataType, Kind

STRING = pa.large_string()


class InvalidLiteral(HeadraceError):
    """A literal that is no value of its type; `what` is Postgres's message."""

    code = "literal"


_BOOLEANS = {
    **{word[:n]: True for word in ("true", "yes") for n in range(1, len(word) + 1)},
    **{word[:n]: False for word in ("false", "no") for n in range(1, len(word) + 1)},
    "on": True,
    "1": True,
    "off": False,
    "of": False,
    "0": False,
}
_INTEGER = re.compile(r"([+-]?)(\d+(?:_\d+)*|0[xX](?:_?[0-9a-fA-F]+)+|0[oO](?:_?[0-7]+)+|0[bB](?:_?[01]+)+)", re.ASCII)
_DIGITS = re.compile(
    r"[+-]?(?:0[xX]((?:_?[0-9a-fA-F])+)|0[oO]((?:_?[0-7])+)|0[bB]((?:_?[01])+)|(\d+(?:_\d+)*))", re.ASCII
)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)|[+-]?nan", re.ASCII | re.IGNORECASE)
_HEX_FLOAT = re.compile(r"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?\d+)?", re.ASCII | re.IGNORECASE)
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
            if _too_many(text.strip(BLANKS), bound):
                raise RowError(f'value "{text}" is out of range for type {kind.value}')
            raise invalid(kind.value, text)
        digits = match[2].replace("_", "")
        value = int(digits) if digits.isdigit() else int(digits, 0)
        value = -value if match[1] == "-" else value
        if not -bound <= value < bound:
            raise RowError(f'value "{text}" is out of range for type {kind.value}')
        return value

    return read


def _too_many(body: str, bound: int) -> bool:
    """Whether the digits before whatever makes the text no integer are out of range: Postgres stops at the first of these."""
    match = _DIGITS.match(body)
    if match is None:
        return False
    base = (16, 8, 2, 10)[(match.lastindex or 4) - 1]
    before = match[match.lastindex or 4].replace("_", "")[:-1]
    return int(before or "0", base) > bound // base


def _read_float(kind: Kind) -> Callable[[str], float]:
    def read(text: str) -> float:
        body = text.strip(BLANKS)
        if _HEX_FLOAT.fullmatch(body):
            value = float.fromhex(body)
        elif _FLOAT.fullmatch(body):
            value = float(body)
        else:
            raise invalid(kind.value, text)
        if kind is Kind.REAL:
            with np.errstate(all="ignore"):
                value = float(np.float32(value))
        named = body.lstrip("+-")[:1].lower() in ("i", "n")
        lost = value in (float("inf"), float("-inf")) or (value == 0 and re.search("[1-9]", body.lower().split("e")[0]))
        if lost and not named:
            raise RowError(f'"{text}" is out of range for type {kind.value}')
        return value

    return read


def read_hex(text: str) -> bytes:
    """The bytes of hexadecimal digits. Raises RowError."""
    digits: list[str] = []
    for char in text:
        if char in " \t\n\r" and len(digits) % 2 == 0:
            continue
        if char not in "0123456789abcdefABCDEF":
            raise RowError(f'invalid hexadecimal digit: "{char}"')
        digits.append(char)
    if len(digits) % 2:
        raise RowError("invalid hexadecimal data: odd number of digits")
    return bytes.fromhex("".join(digits))


def _read_bytes(text: str) -> bytes:
    return read_hex(text[2:]) if text.startswith("\\x") else read_escaped(text)


def read_escaped(text: str) -> bytes:
    """The bytes of a text with octal escapes. Raises RowError."""
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
    if kind in READERS:
        return READERS[kind]
    if datatype.element is not None:
        return _array_reader(datatype.element)
    if kind in (Kind.JSON, Kind.JSONB):
        return json_text.canonical if kind is Kind.JSONB else json_text.checked
    family = family_of(datatype)
    if family is not None:
        return family.read
    if kind is Kind.OTHER and not literal_is_image(datatype):
        raise RowError(f"literals of type {datatype} are not supported: the engine cannot bring them to their image")
    return str


def _array_reader(element: DataType) -> Callable[[str], str]:
    """From an array's text to its image."""

    known = family_of(element)

    def read(text: str) -> str:
        shape, found = array_text.read(text)
        if known is not None:
            spelled = [None if e is None else known.read(e) for e in found]
            return array_text.bounds(text) + array_text.spell(spelled, shape)
        values, errors = read_text(pa.array(found, STRING), element)
        if errors is not None and errors.null_count < len(errors):
            raise RowError(errors.drop_null()[0].as_py())
        return array_text.bounds(text) + array_text.spell(image_of(values, element).to_pylist(), shape)

    return read


def _numeric_reader(datatype: DataType) -> Callable[[str], str]:
    precision, scale = datatype.precision, datatype.scale
    if precision is not None:
        digits = precision, scale or 0

        def read(text: str) -> str:
            return lane_image(decimal_math.constrain(decimal_math.parse(text), *digits), datatype)

        return read
    if scale is None:
        return decimal_math.parse

    def exact(text: str) -> str:
        image = decimal_math.parse(text)
        if image in decimal_math.SPECIAL or decimal_math.split(image)[1] != scale:
            raise RowError(f'numeric "{text}" has not the scale {scale} of its column')
        return lane_image(image, datatype)

    return exact


def lane_image(image: str, datatype: DataType) -> str:
    """`image` if the type's lane can hold it. Raises RowError naming the limit."""
    if datatype.fixed_scale and (
        image in decimal_math.SPECIAL or len(image.lstrip("-0.").replace(".", "")) > MAX_DIGITS
    ):
        raise RowError(
            decimals.TOO_WIDE if image not in decimal_math.SPECIAL else f"numeric {image} in a fixed-scale column"
        )
    return image


def read_text(value: Values, datatype: DataType) -> Outcome:
    """Text to `datatype`, as Postgres's input function does, over a column."""
    kind, lane = datatype.kind, datatype.arrow
    if (
        kind in _BOUNDS
        and not isinstance(value, pa.Scalar)
        and not pc.any(pc.match_substring_regex(value, "[xX]")).as_py()
    ):
        try:
            return pc.cast(value, lane), None
        except pa.ArrowInvalid:
            pass
    if (kind in (Kind.TEXT, Kind.JSON, Kind.JSONB, Kind.OTHER) and datatype.element is None) or (
        kind is Kind.VARCHAR and datatype.length is None
    ):
        return value, None
    return read_each(reader(datatype), datatype, [value])


def read_each(function: Callable[..., object], datatype: DataType, arguments: Sequence[Values]) -> Outcome:
    """What `function` makes of the arguments' values, which is what a `reader` of the type gives, in the type's lane."""
    kind, lane = datatype.kind, datatype.arrow
    if kind in READERS:
        physical = pa.int32() if kind is Kind.DATE else pa.int64()
        out, errors = fallback.map_values(function, physical, arguments)
        return col.retyped(out, lane), errors
    if kind is Kind.NUMERIC and datatype.fixed_scale:
        out, errors = fallback.map_values(function, STRING, arguments)
        return pc.cast(out, lane), errors
    return fallback.map_values(function, lane, arguments)


def from_text(array: pa.Array, datatype: DataType) -> Evaluated:
    """A column of Postgres text images in the lane of `datatype`; what is no value of it fails its row."""
    return Evaluated(*read_text(pc.cast(array, STRING), datatype))


def parse_literal(text: str, datatype: DataType) -> Value:
    """The value that an unknown literal has as a `datatype`, as `ir.Literal` holds it. Raises InvalidLiteral."""
    try:
        value = reader(datatype)(text)
    except RowError as error:
        raise InvalidLiteral(str(error)) from None
    if datatype.kind in READERS:
        lane = pa.int32() if datatype.kind is Kind.DATE else pa.int64()
        return str(image_of(col.retyped(pa.array([value], lane), datatype.arrow), datatype)[0].as_py())
    return cast(Value, value)
