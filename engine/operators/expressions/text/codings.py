"""Bytes read and written in an encoding, identifiers taken apart, and what a UUID says of itself.

Always: the database's own encoding is UTF8; encodings whose tables are Postgres's and Python's alike are known, others fail
their row by name. Evaluated once per distinct value. Registered in the catalogue at import.
"""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Outcome, Values, entry
from headrace.engine.operators.expressions.text.strings import STRING, per_value
from headrace.engine.schema import DataType, Kind

_CODECS = {
    "utf8": ("UTF8", "utf-8"), "unicode": ("UTF8", "utf-8"),
    **{name: (f"LATIN{n}", f"iso8859-{part}") for n, part in ((1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (6, 10), (7, 13), (8, 14),
       (9, 15), (10, 16)) for name in (f"latin{n}", f"iso8859{part}")},
    **{f"iso8859{n}": (f"ISO_8859_{n}", f"iso8859-{n}") for n in (5, 7, 8)},
    **{f"{word}{n}": (f"WIN{n}", f"cp{n}") for word in ("win", "windows") for n in (866, 1250, 1251, 1252, 1253, 1254, 1255,
       1256, 1257, 1258)},
    "koi8": ("KOI8R", "koi8-r"), "koi8r": ("KOI8R", "koi8-r"), "koi8u": ("KOI8U", "koi8-u"),
}  # fmt: skip
_WIDTHS = ((0x80, 1), (0xC0, 1), (0xE0, 2), (0xF0, 3), (0xF8, 4))
_SPACE = " \t\n\r\v\f"
_NAME = re.compile("[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*")
_LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}
_GREGORIAN = 12_219_292_800_000_000
"""Microseconds from the first day of the Gregorian calendar to 1970."""


def _coding(name: str, which: str) -> tuple[str, str]:
    """(Postgres's name of an encoding, the codec)."""
    found = _CODECS.get(re.sub("[^a-z0-9]", "", name.lower()))
    if found is None:
        reason = f'invalid {which} encoding name "{name}"'
        raise RowError(reason if not _known(name) else f"encoding {name} is not supported")
    return found


def _known(name: str) -> bool:
    """Whether Postgres has an encoding that is not known here."""
    plain = re.sub("[^a-z0-9]", "", name.lower())
    return (
        re.match(
            "sqlascii|euc|muleinternal|sjis|shiftjis|mskanji|big5|gb|uhc|johab|iso88596|win874|alt|vscii|tcvn", plain
        )
        is not None
    )


def _bytes(found: bytes) -> str:
    return " ".join(f"0x{b:02x}" for b in found)


def _read(value: bytes, coding: tuple[str, str]) -> str:
    name, codec = coding
    if name != "UTF8":
        if b"\0" in value:
            raise RowError(f'invalid byte sequence for encoding "{name}": 0x00')
        try:
            return value.decode(codec)
        except UnicodeDecodeError as error:
            bad = value[error.start : error.start + 1]
            reason = (
                f'character with byte sequence {_bytes(bad)} in encoding "{name}" has no equivalent in encoding "UTF8"'
            )
            raise RowError(reason) from None
    end = value.find(b"\0")
    try:
        found = (value if end < 0 else value[:end]).decode(codec)
    except UnicodeDecodeError as error:
        end = error.start
        found = ""
    if end < 0:
        return found
    width = next((w for top, w in _WIDTHS if value[end] < top), 1)
    raise RowError(f'invalid byte sequence for encoding "UTF8": {_bytes(value[end : end + width])}')


def _written(text: str, coding: tuple[str, str]) -> bytes:
    name, codec = coding
    try:
        return text.encode(codec)
    except UnicodeEncodeError as error:
        bad = _bytes(text[error.start].encode())
        reason = f'character with byte sequence {bad} in encoding "UTF8" has no equivalent in encoding "{name}"'
        raise RowError(reason) from None


def _convert_from(value: bytes, source: str) -> str:
    return _read(value, _coding(source, "source"))


def _convert_to(text: str, target: str) -> bytes:
    return _written(text, _coding(target, "destination"))


def _convert(value: bytes, source: str, target: str) -> bytes:
    one, other = _coding(source, "source"), _coding(target, "destination")
    if "UTF8" not in (one[0], other[0]) and one != other:
        raise RowError(f"conversion from {one[0]} to {other[0]} is not supported")
    text = _read(value, one)
    return value if one == other else _written(text, other)


def _parse_ident(text: str, strict: bool = True) -> str:
    """The parts of a qualified name, as SQL would read them.

    >>> _parse_ident(' Schema . "My Table"'), _parse_ident("f(x)", False)
    ('{schema,"My Table"}', '{f}')
    """
    wrong = f'string is not a valid identifier: "{text}"'
    found: list[str | None] = []
    rest = text.lstrip(_SPACE)
    while True:
        if rest.startswith('"'):
            quoted = re.match('"((?:[^"]|"")*)"', rest)
            if quoted is None or not quoted[1]:
                raise RowError(wrong)
            found.append(quoted[1].replace('""', '"'))
            rest = rest[quoted.end() :]
        else:
            name = _NAME.match(rest)
            if name is None:
                raise RowError(wrong)
            found.append(name[0].translate(_LOWER))
            rest = rest[name.end() :]
        rest = rest.lstrip(_SPACE)
        if not rest.startswith("."):
            break
        rest = rest[1:].lstrip(_SPACE)
    if rest and strict:
        raise RowError(wrong)
    return array_text.spell(found)


def _digits(image: str) -> int | None:
    """A UUID's number, where its variant is that of RFC 9562."""
    number = int(image.replace("-", ""), 16)
    return number if number >> 62 & 3 == 2 else None


def _version(image: str) -> int | None:
    number = _digits(image)
    return None if number is None else number >> 76 & 15


def _timestamp(image: str) -> int | None:
    """Microseconds since 1970."""
    number, version = _digits(image), _version(image)
    if number is None or version not in (1, 7):
        return None
    if version == 7:
        return (number >> 80) * 1000
    ticks = (number >> 96) | (number >> 80 & 0xFFFF) << 32 | (number >> 64 & 0xFFF) << 48
    return ticks // 10 - _GREGORIAN


def _moment(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    def kernel(*values: Values) -> Outcome:
        out, errors = fallback.map_values(_timestamp, pa.int64(), values)
        return col.retyped(out, result.arrow), errors

    return kernel


def _register() -> None:
    text, raw, flag = Kind.TEXT, Kind.BYTEA, Kind.BOOLEAN
    texts = DataType(Kind.OTHER, name="text[]")
    lane = DataType(raw).arrow
    entry("convert_from", (raw, text), text, per_value(_convert_from, STRING), fallback=True)
    entry("convert_to", (text, text), raw, per_value(_convert_to, lane), fallback=True)
    entry("convert", (raw, text, text), raw, per_value(_convert, lane), fallback=True)
    for more in ((), (flag,)):
        entry("parse_ident", (text, *more), lambda _: texts, per_value(_parse_ident, STRING), fallback=True)
    version = per_value(_version, pa.int16())
    entry("uuid_extract_version", (Kind.UUID,), Kind.SMALLINT, version, fallback=True)
    entry("uuid_extract_timestamp", (Kind.UUID,), Kind.TIMESTAMPTZ, _moment, fallback=True)


_register()
