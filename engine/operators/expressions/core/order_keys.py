"""What a value sorts by, as text: the key of its image, whose bytes sort as Postgres sorts the type's values.

Always: equal values have one key; a key holds no NUL, but for the prefix-free ones of composite families. Called by the
families of ranges, of jsonb and of arrays, and by the functions that the binder puts into orders.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from headrace.engine.operators.expressions.core.text_types import family_of
from headrace.engine.operators.expressions.datetime.input_parse import READERS
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.schema import DataType, Kind

_INTEGERS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_SPECIAL = {decimal_math.MINUS_INFINITY: "0", decimal_math.INFINITY: "4", decimal_math.NAN: "5"}
_MIDDLE = 200_000
_NINES = str.maketrans("0123456789", "9876543210")


def number_key(image: str) -> str:
    """The key of a numeric's image: sign, place of the first digit, digits.

    >>> images = ["-12", "-1.5", "-1", "0", "0.001", "0.01", "1", "1.5", "2", "10", "Infinity", "NaN"]
    >>> [number_key(i) for i in images] == sorted(map(number_key, images)), number_key("1.50") == number_key("1.5")
    (True, True)
    """
    if image in _SPECIAL:
        return _SPECIAL[image]
    body = image.lstrip("-")
    whole, _, part = body.partition(".")
    digits = (whole + part).lstrip("0")
    if not digits:
        return "2"
    place = len(digits) - len(part)
    kept = digits.rstrip("0")
    if image.startswith("-"):
        return f"1{_MIDDLE - place:06}{kept.translate(_NINES)}~"
    return f"3{_MIDDLE + place:06}{kept}"


def _float_key(image: str) -> str:
    value = float(image)
    if value != value:
        return "g"
    bits = int.from_bytes(struct.pack(">d", value + 0.0), "big")
    return f"{bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63):016x}"


def key_of(datatype: DataType) -> Callable[[str], str] | None:
    """The key of an image of the type; None for a type that Postgres, or the engine, does not sort."""
    kind = datatype.kind
    if kind in _INTEGERS or kind is Kind.NUMERIC:
        return number_key
    if kind in (Kind.REAL, Kind.DOUBLE):
        return _float_key
    if kind in READERS:
        read = READERS[kind]
        return lambda image: number_key(str(read(image)))
    if kind is Kind.BPCHAR:
        return lambda image: image.rstrip(" ")
    if kind in (Kind.BOOLEAN, Kind.TEXT, Kind.VARCHAR, Kind.UUID, Kind.BYTEA):
        return lambda image: image
    family = family_of(datatype)
    return None if family is None else family.order
