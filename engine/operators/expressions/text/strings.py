"""Text functions: by characters (code points), in collation C; case follows Unicode's simple mappings as libc does.

Always: constant patterns, positions and paddings go to Arrow's kernels; where such an argument is a column the function
goes through `fallback`. Registered in the catalogue at import.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable
from typing import Any, AnyStr

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import fallback, text_output
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.network import network_text
from headrace.engine.operators.expressions.text import patterns
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()
_MAX_BYTES = 0x3FFFFFFF
TOO_LONG = "requested length too large"
Params = tuple[DataType, ...]
T, N = Kind.TEXT, Kind.INTEGER


def per_value(function: Callable[..., Any], lane: pa.DataType) -> Maker:
    """An implementation wholly in Python, once per distinct value."""
    kernel = lambda *values: fallback.map_values(function, lane, values)  # noqa: E731
    return lambda _params, _result: kernel


def with_constants(fast: Callable[..., Values | None], slow: Callable[..., Any], lane: pa.DataType) -> Maker:
    """`fast(column, *python constants)` where all arguments after the first are constants; `slow` once per value else.

    `fast` may decline a combination by giving None.
    """

    def kernel(value: Values, *rest: Values) -> Outcome:
        if not isinstance(value, pa.Scalar) and all(isinstance(r, pa.Scalar) for r in rest):
            out = fast(value, *(r.as_py() for r in rest))
            if out is not None:
                return out, None
        return fallback.map_values(slow, lane, [value, *rest])

    return lambda _params, _result: kernel


def _ascii(value: Values) -> bool:
    return not isinstance(value, pa.Scalar) and pc.all(pc.string_is_ascii(value)).as_py() is not False


def _case(name: str) -> Maker:
    quick = pc.get_function(f"ascii_{name}")
    slow = patterns.lower if name == "lower" else patterns.upper

    def kernel(value: Values) -> Outcome:
        if _ascii(value):
            return quick.call([value]), None
        return fallback.map_values(slow, STRING, [value])

    return lambda _params, _result: kernel


_ENCLOSED = re.compile("[\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189]")
"""The symbols that Unicode counts among the letters: Latin ones in circles and squares. No other symbol is one anywhere."""


def _initcap(text: str) -> str:
    out, inside = [], False
    for char in text:
        out.append(patterns.lower(char) if inside else patterns.upper(char))
        inside = char.isalpha() or char.isdecimal()
        if not inside and char > "\x7f" and (unicodedata.category(char)[0] in "MN" or _ENCLOSED.match(char)):
            raise RowError(f'initcap not supported: "{text}": whether {char!r} is a letter depends on the server')
    return "".join(out)


def _trim(side: str) -> Maker:
    names = {"btrim": "utf8_trim", "ltrim": "utf8_ltrim", "rtrim": "utf8_rtrim"}
    quick = getattr(pc, names[side])
    slow: dict[str, Callable[..., str]] = {"btrim": str.strip, "ltrim": str.lstrip, "rtrim": str.rstrip}

    def python(text: str, characters: str = " ") -> str:
        return slow[side](text, characters) if characters else text

    return with_constants(lambda v, c=" ": quick(v, c) if c else v, python, STRING)


def part(text: AnyStr, start: int, count: int | None = None) -> AnyStr:
    """substring(text, start, count), of a text or of bytes. Raises RowError for a negative count."""
    if count is None:
        return text[max(start - 1, 0) :]
    if count < 0:
        raise RowError("negative substring length not allowed")
    stop = start + count - 1
    return text[max(start - 1, 0) : max(stop, 0)]


def overlaid(value: AnyStr, new: AnyStr, start: int, count: int | None = None) -> AnyStr:
    """`value` with `count` of it from `start` on replaced by `new`. Raises RowError."""
    count = len(new) if count is None else count
    if start <= 0:
        raise RowError("negative substring length not allowed")
    if start + count >= 2**31:
        raise RowError("integer out of range")
    return part(value, 1, start - 1) + new + part(value, start + count)


def _substring_fast(value: Values, start: int, count: int | None = None) -> Values | None:
    if count is not None and count < 0:
        return None
    first = max(start - 1, 0)
    if count is None:
        return pc.utf8_slice_codeunits(value, first)
    return pc.utf8_slice_codeunits(value, first, max(start + count - 1, first))


def _left(text: str, count: int) -> str:
    return text[:count]


def _left_fast(value: Values, count: int) -> Values | None:
    return pc.utf8_slice_codeunits(value, 0, count) if count >= 0 else None


def _right(text: str, count: int) -> str:
    if count == -(2**31):
        # It has no opposite in Postgres, which then cuts nothing off.
        return text
    return text[-count:] if count else ""


def _pad(left: bool) -> Callable[..., str]:
    def pad(text: str, count: int, filler: str = " ") -> str:
        count = max(count, 0)
        if count * 4 > _MAX_BYTES:
            raise RowError(TOO_LONG)
        missing = count - len(text)
        if missing <= 0 or not filler:
            return text[:count]
        padding = (filler * (missing // len(filler) + 1))[:missing]
        return padding + text if left else text + padding

    return pad


def _repeat(text: str, count: int) -> str:
    if len(text.encode()) * max(count, 0) > _MAX_BYTES:
        raise RowError(TOO_LONG)
    return text * count


def _split_part(text: str, separator: str, position: int) -> str:
    if position == 0:
        raise RowError("field position must not be zero")
    if not text:
        return ""
    parts = text.split(separator) if separator else [text]
    index = position - 1 if position > 0 else len(parts) + position
    return parts[index] if 0 <= index < len(parts) else ""


def _chr(code: int) -> str:
    if code < 0:
        raise RowError("character number must be positive")
    if code == 0:
        raise RowError("null character not permitted")
    if code > 0x10FFFF:
        raise RowError(f"requested character too large for encoding: {code}")
    if 0xD800 <= code <= 0xDFFF:
        raise RowError(f"requested character not valid for encoding: {code}")
    return chr(code)


def _replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def _replace_fast(value: Values, old: str, new: str) -> Values | None:
    return pc.replace_substring(value, old, new) if old else value


def _position_fast(value: Values, part: str) -> Values | None:
    if not part or not _ascii(value):
        return None
    return pc.cast(pc.add(pc.find_substring(value, part), 1), pa.int32())


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for i, char in enumerate(old):
        table.setdefault(ord(char), new[i] if i < len(new) else None)
    return text.translate(table)


def _length(params: Params, _result: DataType) -> Kernel:
    def kernel(value: Values) -> Outcome:
        text = pc.ascii_rtrim(value, " ") if params[0].kind is Kind.BPCHAR else value
        return pc.cast(pc.utf8_length(text), pa.int32()), None

    return kernel


def _octets(_params: Params, _result: DataType) -> Kernel:
    return lambda value: (pc.cast(pc.binary_length(value), pa.int32()), None)


def _join(params: Params, _result: DataType) -> Kernel:
    def kernel(left: Values, right: Values) -> Outcome:
        return pc.binary_join_element_wise(_cast_image(left, params[0]), _cast_image(right, params[1]), _EMPTY), None

    return kernel


_EMPTY = pa.scalar("", STRING)


def _cast_image(value: Values, datatype: DataType) -> Values:
    """`value::text`."""
    if datatype.kind is Kind.BOOLEAN:
        return pc.if_else(value, "true", "false").cast(STRING)
    if datatype.name == "inet":
        return fallback.map_values(network_text.full, STRING, [value])[0]
    if datatype.kind is Kind.BPCHAR:
        return pc.ascii_rtrim(value, " ")
    return text_output.image_of(value, datatype)


def _join_bytes(_params: Params, result: DataType) -> Kernel:
    nothing = pa.scalar(b"", result.arrow)
    return lambda left, right: (pc.binary_join_element_wise(left, right, nothing), None)


def _concat(separated: bool) -> Maker:
    def make(params: Params, _result: DataType) -> Kernel:
        def kernel(*values: Values) -> Outcome:
            texts = [text_output.image_of(v, p) for v, p in zip(values, params, strict=True)]
            separator = texts.pop(0) if separated else _EMPTY
            out = texts[0]
            for other in texts[1:]:
                # Joined where both are there, else whichever is.
                out = pc.coalesce(pc.binary_join_element_wise(out, other, separator), out, other)
            out = pc.coalesce(out, _EMPTY)
            return (pc.if_else(pc.is_valid(separator), out, pa.scalar(None, STRING)) if separated else out), None

        return kernel

    return make


def _reverse(_params: Params, _result: DataType) -> Kernel:
    return lambda value: (pc.utf8_reverse(value), None)


def _starts(value: Values, prefix: str) -> Values | None:
    return pc.starts_with(value, prefix)


def _md5(value: str | bytes) -> str:
    return hashlib.md5(value.encode() if isinstance(value, str) else value, usedforsecurity=False).hexdigest()


def _register() -> None:
    entry("||", (T, T), T, _join)
    entry("||", (T, None), T, _join)
    entry("||", (None, T), T, _join)
    entry("||", (Kind.BYTEA, Kind.BYTEA), Kind.BYTEA, _join_bytes)
    entry("concat", (None,), T, _concat(False), strict=False, variadic=True)
    entry("concat_ws", (T, None), T, _concat(True), strict=False, variadic=True)
    entry("lower", (T,), T, _case("lower"))
    entry("upper", (T,), T, _case("upper"))
    entry("initcap", (T,), T, per_value(_initcap, STRING), fallback=True)
    for name in ("length", "char_length"):
        entry(name, (T,), N, _length)
        entry(name, (Kind.BPCHAR,), N, _length)
    entry("length", (Kind.BYTEA,), N, _octets)
    for kind in (T, Kind.BPCHAR, Kind.BYTEA):
        entry("octet_length", (kind,), N, _octets)
    for name in ("btrim", "ltrim", "rtrim"):
        entry(name, (T,), T, _trim(name))
        entry(name, (T, T), T, _trim(name))
    for name in ("substring", "substr"):
        entry(name, (T, N), T, with_constants(_substring_fast, part, STRING))
        entry(name, (T, N, N), T, with_constants(_substring_fast, part, STRING))
    entry("left", (T, N), T, with_constants(_left_fast, _left, STRING))
    entry("right", (T, N), T, per_value(_right, STRING), fallback=True)
    entry("replace", (T, T, T), T, with_constants(_replace_fast, _replace, STRING))
    entry("translate", (T, T, T), T, per_value(_translate, STRING), fallback=True)
    entry("lpad", (T, N), T, per_value(_pad(True), STRING), fallback=True)
    entry("lpad", (T, N, T), T, per_value(_pad(True), STRING), fallback=True)
    entry("rpad", (T, N), T, per_value(_pad(False), STRING), fallback=True)
    entry("rpad", (T, N, T), T, per_value(_pad(False), STRING), fallback=True)
    for name in ("position", "strpos"):
        entry(name, (T, T), N, with_constants(_position_fast, lambda s, part: s.find(part) + 1, pa.int32()))
    entry("^@", (T, T), Kind.BOOLEAN, with_constants(_starts, str.startswith, pa.bool_()))
    entry("starts_with", (T, T), Kind.BOOLEAN, with_constants(_starts, str.startswith, pa.bool_()))
    entry("reverse", (T,), T, _reverse)
    entry("repeat", (T, N), T, per_value(_repeat, STRING), fallback=True)
    entry("split_part", (T, T, N), T, per_value(_split_part, STRING), fallback=True)
    entry("md5", (T,), T, per_value(_md5, STRING), fallback=True)
    entry("md5", (Kind.BYTEA,), T, per_value(_md5, STRING), fallback=True)
    entry("ascii", (T,), N, per_value(lambda s: ord(s[0]) if s else 0, pa.int32()), fallback=True)
    entry("chr", (N,), T, per_value(_chr, STRING), fallback=True)


_register()
