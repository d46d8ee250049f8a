"""Text images: Postgres's own output of values that the engine carries as text, made from what a message holds.

Equal values give equal images, byte for byte as Postgres prints them in its ISO, UTC settings. Pure functions of one
value each; called by the column decoders for types without a lane of their own.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import numpy as np

from headrace.connectors.formats.table_specs import CannotDecode

SPECIAL_NUMERICS: Final = {
    "NAN": "NaN",
    "POSITIVE_INFINITY": "Infinity",
    "NEGATIVE_INFINITY": "-Infinity",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
}
"""Debezium's spellings in string mode, and Postgres's, → Postgres's."""

_NUMERIC: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_QUOTED: Final = re.compile(r'[{}",\\\s]|^$|^null$', re.IGNORECASE)
_INTERVAL: Final = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+(?:E-?\d+)?)S)?)?", re.ASCII
)


def numeric_text(text: str) -> str:
    """A decimal string as sent → Postgres's image. Raises CannotDecode for what is no number (base64)."""
    if not isinstance(text, str):
        raise CannotDecode(f"a numeric came as {type(text).__name__}", DECIMAL_HINT)
    special = SPECIAL_NUMERICS.get(text)
    if special is not None:
        return special
    if not _NUMERIC.fullmatch(text):
        raise CannotDecode("not a decimal string", DECIMAL_HINT)
    if "e" not in text.lower():
        return text
    number = Decimal(text)
    check_extent(number.adjusted(), -int(number.as_tuple().exponent))
    return format(number, "f")


def check_extent(digits: int, fraction: int) -> None:
    """Refuse what no numeric of Postgres holds, before it is written out: an exponent alone can mean a gigabyte of zeros.

    digits, fraction: how many places before and after the point. Raises CannotDecode.
    """
    if digits >= MOST_DIGITS or fraction > MOST_FRACTION:
        raise CannotDecode("a number that no numeric holds", DECIMAL_HINT)


MOST_DIGITS: Final = 131_072
MOST_FRACTION: Final = 16_383
"""Places before and after the point that Postgres's numeric has."""
DECIMAL_HINT: Final = "set decimal.handling.mode=string on the connector, or let its messages carry their schema"


def unscaled_text(unscaled: int, scale: int) -> str:
    """An integer and its decimal scale → plain decimal text with exactly `scale` fraction digits."""
    check_extent(-scale, scale)
    if scale <= 0:
        return str(unscaled * 10**-scale)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def unscaled(base64: str) -> int:
    """Connect's big-endian two's complement in base64 → the unscaled integer."""
    return int.from_bytes(binascii.a2b_base64(base64, strict_mode=True), "big", signed=True)


def float8_text(value: float) -> str:
    """Postgres's shortest exact output of a double."""
    return _shortest(repr(float(value)), 15)


def float4_text(value: float) -> str:
    """Postgres's shortest exact output of a real."""
    return _shortest(str(np.float32(value)), 6)


def _shortest(text: str, widest: int) -> str:
    if text in ("nan", "inf", "-inf"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text]
    number = Decimal(text)
    figures = "".join(map(str, number.as_tuple().digits)).rstrip("0") or "0"
    point = number.adjusted()
    minus = "-" if number.is_signed() else ""
    if figures == "0":
        return f"{minus}0"
    if point < -4 or point >= widest:
        fraction = f".{figures[1:]}" if len(figures) > 1 else ""
        return f"{minus}{figures[0]}{fraction}e{'-' if point < 0 else '+'}{abs(point):02d}"
    if point < 0:
        return f"{minus}0.{'0' * (-point - 1)}{figures}"
    whole = figures[: point + 1].ljust(point + 1, "0")
    return f"{minus}{whole}.{figures[point + 1 :]}" if len(figures) > point + 1 else minus + whole


def bytea_text(value: bytes) -> str:
    """Postgres's hex output of a bytea."""
    return "\\x" + value.hex()


def bits_text(value: object, length: int | None) -> str:
    """Debezium's little-endian bytes (a boolean for one bit) → a bit string of `length`, most significant bit first."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if not isinstance(value, str) or length is None:
        raise CannotDecode("a bit string without its length")
    number = int.from_bytes(binascii.a2b_base64(value, strict_mode=True), "little")
    if number >> length:
        raise CannotDecode(f"more bits than bit({length}) holds")
    return format(number, f"0{length}b")


def array_text(elements: list[str | list[object] | None]) -> str:
    """Postgres's output of an array from its elements' texts; inner lists are inner dimensions, None is NULL."""
    parts = []
    for element in elements:
        if element is None:
            parts.append("NULL")
        elif isinstance(element, list):
            parts.append(array_text(element))  # type: ignore[arg-type]
        elif _QUOTED.search(element):
            escaped = element.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{escaped}"')
        else:
            parts.append(element)
    return "{" + ",".join(parts) + "}"


def hstore_text(pairs: Mapping[str, str | None]) -> str:
    """Postgres's output of an hstore: pairs by the length, then the bytes, of their keys."""

    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    ordered = sorted(pairs.items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
    return ", ".join(f"{quoted(k)}=>{'NULL' if v is None else quoted(v)}" for k, v in ordered)


def point_text(value: object) -> str:
    """A point's struct → `(x,y)`."""
    if not isinstance(value, dict) or "x" not in value or "y" not in value:
        raise CannotDecode("not a point")
    return f"({float8_text(float(value['x']))},{float8_text(float(value['y']))})"


def interval_text(iso: str) -> str:
    """Debezium's ISO 8601 interval → Postgres's output in its default style (`1 year 2 mons 3 days 04:05:06.78`)."""
    match = _INTERVAL.fullmatch(iso)
    if not match:
        raise CannotDecode("not an ISO interval", "set interval.handling.mode=string on the connector")
    years, months, day, hours, minutes = (int(match[i] or 0) for i in range(1, 6))
    months += 12 * years
    in_seconds = Decimal(match[6] or "0")
    check_extent(in_seconds.adjusted(), 0)
    clock = (hours * 60 + minutes) * 60_000_000 + int(in_seconds.scaleb(6).to_integral_value())
    years, months = int(months / 12), months - 12 * int(months / 12)
    parts: list[str] = []
    negative = False
    for count, unit in ((years, "year"), (months, "mon"), (day, "day")):
        if count:
            plus = "+" if negative and count > 0 else ""
            parts.append(f"{plus}{count} {unit}{'' if count == 1 else 's'}")
            negative = count < 0
    if clock or not parts:
        seconds, fraction = divmod(abs(clock), 1_000_000)
        sign = "-" if clock < 0 else "+" if negative else ""
        text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        parts.append(sign + (f"{text}.{fraction:06d}".rstrip("0") if fraction else text))
    return " ".join(parts)
