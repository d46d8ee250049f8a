"""JSON as text: cut into its members, read, and spelled as Postgres spells json and jsonb.

Always: what is cut out of a text is its own characters, so that a member of a json keeps its spelling, and one of a jsonb
is a jsonb; numbers are numerics, never floats. Called by the JSON functions, the casts and the aggregates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.schema import DataType, Kind

INVALID = "invalid input syntax for type json"
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}


class Number(str):
    """A number by its text."""

    __slots__ = ()


def _constant(_word: str) -> Any:
    raise ValueError(INVALID)


_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_constant)


def loads(text: str) -> Any:
    """The value: dicts (the last of equal keys stays), lists, texts, booleans, None and `Number`. Raises RowError."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise RowError(INVALID) from None


def checked(text: str) -> str:
    """The text if it is JSON. Raises RowError."""
    loads(text)
    return text


def unescaped(text: str) -> str:
    r"""The text of a json, each of whose strings can be a text: to read a part of one, Postgres reads them all. Raises RowError.

    >>> unescaped(r'{"a": "\u0061"}')
    '{"a": "\\u0061"}'
    """
    if "\\u" in text:
        for found in _STRINGS.findall(text):
            value = json.loads(found)
            if "\0" in value:
                raise RowError("unsupported Unicode escape sequence")
            if any("\ud800" <= c <= "\udfff" for c in value):
                raise RowError(INVALID)
    return text


def dumps(value: Any) -> str:
    """A value as jsonb spells it: keys by length, then bytes; numbers as numerics.

    >>> dumps(loads('{"bb": 1e2, "a": [null, "x"]}'))
    '{"a": [null, "x"], "bb": 100}'
    """
    if isinstance(value, Number):
        return decimal_math.parse(value)
    if isinstance(value, str):
        if "\0" in value:
            raise RowError("unsupported Unicode escape sequence")
        return quoted(value)
    if isinstance(value, dict):
        keys = sorted(value, key=lambda k: (len(k.encode()), k.encode()))
        return "{" + ", ".join(f"{dumps(str(k))}: {dumps(value[k])}" for k in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumps, value)) + "]"
    return "null" if value is None else "true" if value else "false"


def canonical(text: str) -> str:
    """A json's text as jsonb spells it. Raises RowError."""
    value = loads(text)
    unescaped(text)
    return dumps(value)


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def kind_of(text: str) -> str:
    """object, array, string, number, boolean or null."""
    return _KINDS.get(text.lstrip(" \t\n\r")[:1], "number")


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def members(text: str) -> Iterator[tuple[str, str]]:
    """(key, the value's own text) of an object, in its order."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = _DECODER.raw_decode(text, start)
        yield key, text[start:at]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def items(text: str) -> Iterator[str]:
    """The elements' own texts of an array."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "]":
        start = at
        _, at = _DECODER.raw_decode(text, start)
        yield text[start:at]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def member(text: str, key: str) -> str | None:
    """The value's text for a key of an object; None for what has none."""
    return dict(members(text)).get(key) if kind_of(text) == "object" else None


def item(text: str, place: int) -> str | None:
    """The text of an array's element, counted from 0, or from the end; None where there is none."""
    if kind_of(text) != "array":
        return None
    found = list(items(text))
    return found[place] if -len(found) <= place < len(found) else None


def item_of_binary(text: str, place: int) -> str | None:
    """As `item`, of jsonb: a scalar is an array of one there."""
    return item(text if kind_of(text) in ("array", "object") else f"[{text}]", place)


def at_path(text: str, path: list[str | None]) -> str | None:
    """The text of what a path of keys and places leads to."""
    found: str | None = text
    for step in path:
        if found is None or step is None:
            return None
        if kind_of(found) == "array":
            found = item(found, int(step)) if re.fullmatch(r"\s*[+-]?\d+", step) else None
        else:
            found = member(found, step)
    return found


def as_text(raw: str | None) -> str | None:
    """What ->> gives of a value's text: a string's characters, None for null."""
    if raw is None:
        return None
    kind = kind_of(raw)
    return None if kind == "null" else str(_DECODER.raw_decode(raw.strip(" \t\n\r"))[0]) if kind == "string" else raw


def encoded(image: str | None, kind: DataType) -> str:
    """A value's text image as json spells it: to_json."""
    if image is None:
        return "null"
    if kind.kind in (Kind.JSON, Kind.JSONB):
        return image
    if kind.kind is Kind.BOOLEAN:
        return "true" if image in ("t", "true") else "false"
    if kind.kind in _NUMERIC:
        return image if _NUMBER.fullmatch(image) else quoted(image)
    if kind.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ) and "infinity" not in image:
        image = image.replace(" ", "T", 1)
        return quoted(image.replace("+00", "+00:00") if kind.kind is Kind.TIMESTAMPTZ else image)
    element = kind.element
    if element is not None:
        shape, found = array_text.read(image)
        return _nested([encoded(e, element) for e in found], shape)
    return quoted(image)


_NUMERIC = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.NUMERIC, Kind.REAL, Kind.DOUBLE)


def _nested(found: list[str], shape: tuple[int, ...]) -> str:
    if len(shape) < 2:
        return "[" + ",".join(found) + "]"
    size = len(found) // shape[0]
    return "[" + ",".join(_nested(found[i : i + size], shape[1:]) for i in range(0, len(found), size)) + "]"


_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(INVALID)
    return found


_UNIQUE = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_constant, object_pairs_hook=_distinct)


def _strings(value: Any) -> Iterator[str]:
    """All keys and strings of a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        if isinstance(value, dict):
            yield from value
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def is_json(text: str, kind: str, unique: bool, *, is_valid: bool = False) -> bool:
    """text IS JSON kind [WITH UNIQUE KEYS]; `is_valid`: it is known to be JSON.

    >>> is_json("[1]", "array", False), is_json('{"a": 1, "a": 2}', "value", True), is_json("[", "value", False)
    (True, False, False)
    """
    plain = kind_of(text) if kind_of(text) in ("object", "array") else "scalar"
    if kind not in ("value", plain):
        return False
    try:
        if unique:
            # Postgres reads what strings say only to compare keys, and stops there at what is no character.
            return not any(_NO_CHARACTER.search(s) for s in _strings(_UNIQUE.decode(text)))
        return is_valid or bool([_DECODER.decode(text)])
    except (ValueError, RecursionError):
        return False
