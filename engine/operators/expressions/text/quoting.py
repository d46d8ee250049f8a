"""Texts made for SQL and for people: format(), the quote_ functions, Unicode's normal forms and escapes.

Always: an identifier is quoted where Postgres 18 quotes it: where it is not plain lower case, or a keyword that is not
free for names. Evaluated once per distinct value. Registered in the catalogue at import.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Literal, cast

import numpy as np
import pyarrow as pa

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback, text_io, text_output
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.text.strings import STRING, per_value
from headrace.engine.schema import INTEGER, DataType, Kind

Params = tuple[DataType, ...]
_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
T, B = Kind.TEXT, Kind.BOOLEAN
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_KEYWORDS = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case
    cast char character check coalesce collate collation column concurrently constraint create cross current_catalog
    current_date current_role current_schema current_time current_timestamp current_user dec decimal default
    deferrable desc distinct do else end except exists extract false fetch float for foreign freeze from full grant
    greatest group grouping having ilike in initially inner inout int integer intersect interval into is isnull join
    json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize
    json_table json_value lateral leading least left like limit localtime localtimestamp merge_action national
    natural nchar none normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay
    placing position precision primary real references returning right row select session_user setof similar
    smallint some substring symmetric system_user table tablesample then time timestamp to trailing treat trim true
    union unique user using values varchar variadic verbose when where window with xmlattributes xmlconcat
    xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
    """.split()  # noqa: SIM905
)


def quote_identifier(text: str) -> str:
    """quote_ident(text).

    >>> quote_identifier("plain"), quote_identifier("Order"), quote_identifier("select")
    ('plain', '"Order"', '"select"')
    """
    if _PLAIN.fullmatch(text) and text not in _KEYWORDS:
        return text
    return '"' + text.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """quote_literal(text)."""
    quoted = "'" + text.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def _nullable(text: str | None) -> str:
    return "NULL" if text is None else quote_literal(text)


_WIDTH = cast(Callable[[str], int], text_io.reader(INTEGER))
_SPECIFIER = re.compile(r"(?:(\d+)\$)?(-*)(?:\*(?:(\d+)\$)?|(\d+))?(.)?", re.ASCII | re.DOTALL)


def _format(template: str | None, *args: str | None) -> str | None:
    """format(template, …) of the arguments' images."""
    if template is None:
        return None
    out: list[str] = []
    at, used = 0, 0
    while (mark := template.find("%", at)) >= 0:
        out.append(template[at:mark])
        at = mark + 1
        if at == len(template):
            raise RowError("unterminated format() type specifier")
        if template[at] == "%":
            out.append("%")
            at += 1
            continue
        match = _SPECIFIER.match(template, at)
        assert match is not None
        if match[5] is None:
            raise RowError("unterminated format() type specifier")
        at = match.end()
        width, left = int(match[4] or 0), bool(match[2])
        if "*" in match[0]:
            used = _place(match[3], used, len(args))
            width = _WIDTH(args[used - 1] or "0")
            width, left = abs(width), left or width < 0
        if match[5] not in "sIL":
            raise RowError(f'unrecognized format() type specifier "{match[5]}"')
        used = _place(match[1], used, len(args))
        shown = _shown(match[5], args[used - 1])
        out.append(shown.ljust(width) if left else shown.rjust(width))
    return "".join((*out, template[at:]))


def _place(given: str | None, used: int, count: int) -> int:
    place = used + 1 if given is None else int(given)
    if place == 0:
        raise RowError("format specifies argument 0, but arguments are numbered from 1")
    if place > count:
        raise RowError("too few arguments for format()")
    return place


def _shown(kind: str, value: str | None) -> str:
    if kind == "L":
        return _nullable(value)
    if kind == "s":
        return value or ""
    if value is None:
        raise RowError("null values cannot be formatted as an SQL identifier")
    return quote_identifier(value)


def _formatted(params: Params, _result: DataType) -> Kernel:
    def kernel(*values: Values) -> Outcome:
        found = [text_output.image_of(v, p) for v, p in zip(values, params, strict=True)]
        return fallback.map_values(_format, STRING, found, strict=False)

    return kernel


def _quoted_value(nullable: bool) -> Maker:
    function = _nullable if nullable else quote_literal

    def make(params: Params, _result: DataType) -> Kernel:
        def kernel(value: Values) -> Outcome:
            text = text_output.image_of(value, params[0])
            if params[0].kind is Kind.BOOLEAN:
                text = fallback.map_values({"t": "true", "f": "false"}.get, STRING, [text])[0]
            return fallback.map_values(function, STRING, [text], strict=not nullable)

        return kernel

    return make


def _form(name: str) -> _Form:
    if name.upper() not in ("NFC", "NFD", "NFKC", "NFKD"):
        raise RowError(f"invalid normalization form: {name}")
    return cast(_Form, name.upper())


def _normal(text: str, form: str = "NFC") -> str:
    return unicodedata.normalize(_form(form), text)


def _is_normal(text: str, form: str = "NFC") -> bool:
    return unicodedata.is_normalized(_form(form), text)


_HEX = "[0-9a-fA-F]"


def unescaped(text: str, escape: str = "\\") -> str:
    """The text that Unicode escapes spell (`unistr`, and U&'…' with its escape character). Raises RowError."""
    mark = re.escape(escape)
    pattern = re.compile(rf"{mark}(?:({mark})|({_HEX}{{4}})|u({_HEX}{{4}})|\+({_HEX}{{6}})|U({_HEX}{{8}})|)")

    def character(match: re.Match[str]) -> str:
        digits = match[2] or match[3] or match[4] or match[5]
        if match[1]:
            return escape
        if not digits:
            raise RowError("invalid Unicode escape")
        if not 0 < int(digits, 16) <= 0x10FFFF:
            raise RowError("invalid Unicode code point: " + digits)
        return chr(int(digits, 16))

    return paired(pattern.sub(character, text))


def paired(text: str) -> str:
    """The text, two surrogates that follow each other being one character. Raises RowError for a lone one."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise RowError("invalid Unicode surrogate pair") from None


def _counted(present: bool) -> Maker:
    def make(_params: Params, _result: DataType) -> Kernel:
        def kernel(*values: Values) -> Outcome:
            rows = col.length(*values)
            found = np.zeros(rows, np.int32)
            for value in values:
                found += np.broadcast_to(col.valid(value), (rows,)) == present
            return pa.array(found), None

        return kernel

    return make


def _register() -> None:
    entry("format", (T,), T, _formatted, strict=False, fallback=True)
    entry("format", (T, None), T, _formatted, strict=False, variadic=True, fallback=True)
    entry("quote_ident", (T,), T, per_value(quote_identifier, STRING), fallback=True)
    for kind in (T, None):
        entry("quote_literal", (kind,), T, _quoted_value(False), fallback=True)
        entry("quote_nullable", (kind,), T, _quoted_value(True), strict=False, fallback=True)
    for params in ((T,), (T, T)):
        entry("normalize", params, T, per_value(_normal, STRING), fallback=True)
        entry("is_normalized", params, B, per_value(_is_normal, pa.bool_()), fallback=True)
    entry("unistr", (T,), T, per_value(unescaped, STRING), fallback=True)
    entry("num_nulls", (None,), Kind.INTEGER, _counted(False), strict=False, variadic=True)
    entry("num_nonnulls", (None,), Kind.INTEGER, _counted(True), strict=False, variadic=True)


_register()
