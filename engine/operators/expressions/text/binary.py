"""Functions of bytes: their texts (hex, base64, escape), parts, bits and digests.

Always: positions are counted from 1 as in texts, bytes and bits from 0 as in Postgres. Evaluated once per distinct value.
Registered in the catalogue at import.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable

import pyarrow as pa

from headrace.engine.operators.expressions.core.conversions import conversion
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import entry
from headrace.engine.operators.expressions.core.text_io import read_escaped, read_hex
from headrace.engine.operators.expressions.text.strings import STRING, overlaid, part, per_value
from headrace.engine.schema import DataType, Kind

BYTES = pa.large_binary()
Y, T, N, L = Kind.BYTEA, Kind.TEXT, Kind.INTEGER, Kind.BIGINT


def _encode(data: bytes, form: str) -> str:
    kind = form.lower()
    if kind == "hex":
        return data.hex()
    if kind == "base64":
        # In lines of 76 characters, as MIME has them.
        return base64.encodebytes(data).decode().removesuffix("\n")
    if kind == "escape":
        return "".join("\\\\" if b == 0x5C else chr(b) if 0 < b < 128 else f"\\{b:03o}" for b in data)
    raise RowError(f'unrecognized encoding: "{form}"')


_SYMBOLS = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


def _from_base64(text: str) -> bytes:
    out, buffer, place, ends = bytearray(), 0, 0, 0
    for char in text:
        if char in " \t\n\r":
            continue
        if char == "=":
            if not ends:
                if place not in (2, 3):
                    raise RowError('unexpected "=" while decoding base64 sequence')
                ends = place - 1
        elif char not in _SYMBOLS:
            raise RowError(f'invalid symbol "{char}" found while decoding base64 sequence')
        buffer = (buffer << 6) + _SYMBOLS.get(char, 0)
        place += 1
        if place == 4:
            out += (buffer & 0xFFFFFF).to_bytes(3, "big")[: ends or 3]
            buffer = place = 0
    if place:
        raise RowError("invalid base64 end sequence")
    return bytes(out)


def _decode(text: str, form: str) -> bytes:
    kind = form.lower()
    if kind == "hex":
        return read_hex(text)
    if kind == "base64":
        return _from_base64(text)
    if kind == "escape":
        return read_escaped(text)
    raise RowError(f'unrecognized encoding: "{form}"')


def _check(place: int, count: int) -> int:
    if not 0 <= place < count:
        raise RowError(f"index {place} out of valid range, 0..{count - 1}")
    return place


def _get_byte(data: bytes, place: int) -> int:
    return data[_check(place, len(data))]


def _set_byte(data: bytes, place: int, value: int) -> bytes:
    _check(place, len(data))
    return data[:place] + bytes([value & 255]) + data[place + 1 :]


def _get_bit(data: bytes, place: int) -> int:
    _check(place, len(data) * 8)
    return data[place // 8] >> place % 8 & 1


def _set_bit(data: bytes, place: int, value: int) -> bytes:
    _check(place, len(data) * 8)
    if value not in (0, 1):
        raise RowError("new bit must be 0 or 1")
    changed = data[place // 8] & ~(1 << place % 8) | value << place % 8
    return data[: place // 8] + bytes([changed]) + data[place // 8 + 1 :]


def _trim(left: bool, right: bool) -> Callable[[bytes, bytes], bytes]:
    def trim(data: bytes, characters: bytes) -> bytes:
        if not characters:
            return data
        data = data.lstrip(characters) if left else data
        return data.rstrip(characters) if right else data

    return trim


def _in_base(base: str, bits: int) -> Callable[[int], str]:
    return lambda value: format(value & ((1 << bits) - 1), base)


def _bytes_of(width: int) -> Callable[[str, DataType], str]:
    return lambda image, _target: "\\x" + int(image).to_bytes(width, "big", signed=True).hex()


def _number_of(width: int, name: str) -> Callable[[str, DataType], str]:
    def number(image: str, _target: DataType) -> str:
        data = bytes.fromhex(image[2:])
        if len(data) > width:
            raise RowError(f"{name} out of range")
        # Of fewer bytes than the number has there is no sign.
        return str(int.from_bytes(data, "big", signed=len(data) == width))

    return number


def _castagnoli(data: bytes) -> int:
    """CRC-32C, of which the standard library has none (RFC 3720, appendix B.4)."""
    found = 0xFFFFFFFF
    for byte in data:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F63B78 if found & 1 else 0)
    return found ^ 0xFFFFFFFF


def _register() -> None:
    for number, width in ((Kind.SMALLINT, 2), (N, 4), (L, 8)):
        conversion(DataType(number), DataType(Y), "explicit", _bytes_of(width))
        conversion(DataType(Y), DataType(number), "explicit", _number_of(width, number.value))
    entry("encode", (Y, T), T, per_value(_encode, STRING), fallback=True)
    entry("decode", (T, T), Y, per_value(_decode, BYTES), fallback=True)
    for bits in (224, 256, 384, 512):
        digest = getattr(hashlib, f"sha{bits}")
        entry(f"sha{bits}", (Y,), Y, per_value(lambda data, d=digest: d(data).digest(), BYTES), fallback=True)
    entry("crc32", (Y,), L, per_value(zlib.crc32, pa.int64()), fallback=True)
    entry("crc32c", (Y,), L, per_value(_castagnoli, pa.int64()), fallback=True)
    entry("get_byte", (Y, N), N, per_value(_get_byte, pa.int32()), fallback=True)
    entry("set_byte", (Y, N, N), Y, per_value(_set_byte, BYTES), fallback=True)
    entry("get_bit", (Y, L), N, per_value(_get_bit, pa.int32()), fallback=True)
    entry("set_bit", (Y, L, N), Y, per_value(_set_bit, BYTES), fallback=True)
    entry("bit_count", (Y,), L, per_value(lambda v: int.from_bytes(v, "big").bit_count(), pa.int64()), fallback=True)
    for kind, encoded in ((T, str.encode), (Y, bytes)):
        octets = per_value(lambda v, e=encoded: len(e(v)) * 8, pa.int32())
        entry("bit_length", (kind,), N, octets, fallback=True)
    entry("reverse", (Y,), Y, per_value(lambda data: data[::-1], BYTES), fallback=True)
    for name, sides in (("btrim", (True, True)), ("ltrim", (True, False)), ("rtrim", (False, True))):
        entry(name, (Y, Y), Y, per_value(_trim(*sides), BYTES), fallback=True)
    for name in ("substring", "substr"):
        for params in ((Y, N), (Y, N, N)):
            entry(name, params, Y, per_value(part, BYTES), fallback=True)
    entry("position", (Y, Y), N, per_value(lambda data, some: data.find(some) + 1, pa.int32()), fallback=True)
    for kind, lane in ((T, STRING), (Y, BYTES)):
        for count in (3, 4):
            entry("overlay", (kind, kind, N, N)[:count], kind, per_value(overlaid, lane), fallback=True)
    for name, base in (("to_hex", "x"), ("to_oct", "o"), ("to_bin", "b")):
        for kind, bits in ((N, 32), (L, 64)):
            entry(name, (kind,), T, per_value(_in_base(base, bits), STRING), fallback=True)


_register()
