"""Bit strings: how they are read, cast, joined and cut, and their bits counted and changed.

Always: the image is the digits 0 and 1, from the left; a cast to a length pads or cuts on the right. Over the images, once for
each value. Registered with the families, the conversions and the catalogue at import.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import pyarrow as pa

from headrace.engine.operators.expressions.core.conversions import conversion
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import entry
from headrace.engine.operators.expressions.core.text_types import Family, family
from headrace.engine.operators.expressions.text.strings import STRING, overlaid, part, per_value
from headrace.engine.schema import BIT, VARBIT, DataType, Kind

N, L, B = Kind.INTEGER, Kind.BIGINT, Kind.BOOLEAN


def read_bits(text: str) -> str:
    """The digits of a constant: binary, or hexadecimal behind an x. Raises RowError."""
    body = text[1:] if text[:1] in ("b", "B", "x", "X") else text
    if text[:1] in ("x", "X"):
        for char in body:
            if char not in "0123456789abcdefABCDEF":
                raise RowError(f'"{char}" is not a valid hexadecimal digit')
        return "".join(format(int(char, 16), "04b") for char in body)
    for char in body:
        if char not in "01":
            raise RowError(f'"{char}" is not a valid binary digit')
    return body


def _fitted(image: str, target: DataType) -> str:
    """Bits cast to a type that says how many."""
    if target.size is None:
        return image
    return image[: target.size] if target.bare == VARBIT else image[: target.size].ljust(target.size, "0")


def _of_number(width: int) -> Callable[[str, DataType], str]:
    """The last bits of a number in two's complement, its sign before them."""

    def made(image: str, target: DataType) -> str:
        size = 1 if target.size is None else target.size
        return format(int(image) & ((1 << size) - 1), f"0{size}b") if size <= width else _extended(int(image), size)

    return made


def _extended(value: int, size: int) -> str:
    return format(value & ((1 << size) - 1), f"0{size}b")


def _to_number(width: int, name: str) -> Callable[[str, DataType], str]:
    def made(image: str, _target: DataType) -> str:
        if len(image) > width:
            raise RowError(f"{name} out of range")
        value = int(image or "0", 2)
        return str(value - (1 << width) if value >> (width - 1) else value)

    return made


def _both(operation: Callable[[int, int], int], word: str) -> Callable[[str, str], str]:
    def made(one: str, other: str) -> str:
        if len(one) != len(other):
            raise RowError(f"cannot {word} bit strings of different sizes")
        return format(operation(int(one, 2), int(other, 2)), f"0{len(one)}b") if one else ""

    return made


def _shifted(image: str, by: int) -> str:
    """To the left; to the right where `by` is negative."""
    by = max(-len(image), min(by, len(image)))
    return image[by:] + "0" * by if by >= 0 else "0" * -by + image[:by]


def _checked(image: str, place: int) -> int:
    if not 0 <= place < len(image):
        raise RowError(f"bit index {place} out of valid range (0..{len(image) - 1})")
    return place


def _set(image: str, place: int, bit: int) -> str:
    _checked(image, place)
    if bit not in (0, 1):
        raise RowError("new bit must be 0 or 1")
    return f"{image[:place]}{bit}{image[place + 1 :]}"


def _register() -> None:
    for kind in (BIT, VARBIT):
        family(kind.name or "", Family(read_bits, str))
        for other in (BIT, VARBIT):
            conversion(kind, other, "implicit", _fitted)
    for number, width in ((N, 32), (L, 64)):
        conversion(DataType(number), BIT, "explicit", _of_number(width))
        conversion(BIT, DataType(number), "explicit", _to_number(width, number.value))
    bit, varbit = (lambda _: BIT), (lambda _: VARBIT)
    for name in ("||", "bitcat"):
        entry(name, (VARBIT, VARBIT), varbit, per_value(lambda a, b: a + b, STRING), fallback=True)
    for sign, operation, word in (("&", operator.and_, "AND"), ("|", operator.or_, "OR"), ("#", operator.xor, "XOR")):
        entry(sign, (BIT, BIT), bit, per_value(_both(operation, word), STRING), fallback=True)
    flip = str.maketrans("01", "10")
    entry("~", (BIT,), bit, per_value(lambda v: v.translate(flip), STRING), fallback=True)
    entry("<<", (BIT, N), bit, per_value(_shifted, STRING), fallback=True)
    entry(">>", (BIT, N), bit, per_value(lambda v, by: _shifted(v, -by), STRING), fallback=True)
    for name in ("length", "bit_length"):
        entry(name, (BIT,), N, per_value(len, pa.int32()), fallback=True)
    entry("octet_length", (BIT,), N, per_value(lambda v: (len(v) + 7) // 8, pa.int32()), fallback=True)
    entry("bit_count", (BIT,), L, per_value(lambda v: v.count("1"), pa.int64()), fallback=True)
    entry("get_bit", (BIT, N), N, per_value(lambda v, at: int(v[_checked(v, at)]), pa.int32()), fallback=True)
    entry("set_bit", (BIT, N, N), bit, per_value(_set, STRING), fallback=True)
    for params in ((BIT, N), (BIT, N, N)):
        entry("substring", params, bit, per_value(part, STRING), fallback=True)
    for count in (3, 4):
        entry("overlay", (BIT, BIT, N, N)[:count], bit, per_value(overlaid, STRING), fallback=True)
    entry("position", (BIT, BIT), N, per_value(lambda v, some: v.find(some) + 1 if v else 0, pa.int32()), fallback=True)


_register()
