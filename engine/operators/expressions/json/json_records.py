"""JSON objects as rows of columns with types: json_to_record, json_populate_recordset and similar functions.

Always: the functions give the objects themselves, one a row; `$json field` reads a member of one as a column's type, as
Postgres fills a record, where a member that is missing or null is NULL; `$json has` tells whether it is there. Registered in
the catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core import text_io
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Outcome, Values, entry
from headrace.engine.operators.expressions.core.sets import each
from headrace.engine.operators.expressions.json.json_text import as_text, items, kind_of, members, quoted
from headrace.engine.operators.expressions.text.strings import per_value
from headrace.engine.schema import DataType, Kind

NO_ARRAY = "expected JSON array"
RAGGED = "malformed JSON array"
RECORDS = frozenset(
    f"{kind}_{word}{several}"
    for kind in ("json", "jsonb")
    for word in ("to_record", "populate_record")
    for several in ("", "set")
)
"""The functions whose columns a list, or a table's type, names."""


def _object(name: str) -> Callable[[str | None], list[str]]:
    def found(text: str | None) -> list[str]:
        if text is None:
            return ["{}"]
        kind = kind_of(text)
        if kind != "object":
            said = "populate_composite" if name.startswith("jsonb") else name
            raise RowError(f"cannot call {said} on {'an array' if kind == 'array' else 'a scalar'}")
        return [text]

    return found


def _objects(name: str) -> Callable[[str | None], list[str]]:
    def found(text: str | None) -> list[str]:
        if text is None:
            return []
        kind = kind_of(text)
        if kind != "array":
            many = "a non-array" if name.startswith("jsonb") else "an object"
            raise RowError(f"cannot call {name} on {many if kind == 'object' else 'a scalar'}")
        rows = list(items(text))
        if any(kind_of(row) != "object" for row in rows):
            raise RowError(f"argument of {name} must be an array of objects")
        return rows

    return found


def _read(datatype: DataType) -> Callable[[str], str | None]:
    """From a value's own text to the text that a type's input reads; None for null."""
    if datatype.kind in (Kind.JSON, Kind.JSONB):
        return lambda raw: None if kind_of(raw) == "null" else _json(raw)
    element = datatype.element
    if element is None:
        return as_text
    inner = _read(element)

    def array(raw: str) -> str | None:
        kind = kind_of(raw)
        if kind in ("null", "string"):
            return as_text(raw)
        if kind != "array":
            raise RowError(NO_ARRAY)
        shape, found = _nested(raw)
        return array_text.spell([inner(e) for e in found], shape)

    return array


def _json(raw: str) -> str:
    """A value's own text; a string's characters as they are, where that has escapes for them."""
    return quoted(str(as_text(raw))) if kind_of(raw) == "string" else raw


def _nested(raw: str) -> tuple[tuple[int, ...], list[str]]:
    """(size of each dimension, elements) of a JSON array."""
    parts = list(items(raw))
    arrays = [kind_of(p) == "array" for p in parts]
    if not any(arrays):
        return (len(parts),) if parts else (), parts
    if not all(arrays):
        raise RowError(NO_ARRAY if arrays[0] else RAGGED)
    inner = [_nested(p) for p in parts]
    if len({shape for shape, _ in inner}) > 1:
        raise RowError(RAGGED)
    shape = inner[0][0]
    return (len(parts), *shape) if shape else (), [e for _, found in inner for e in found]


def _field(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    text_of, value_of = _read(result), text_io.reader(result)

    def one(text: str, key: str) -> object:
        raw = dict(members(text)).get(key)
        found = None if raw is None else text_of(raw)
        return None if found is None else value_of(found)

    def kernel(*values: Values) -> Outcome:
        return text_io.read_each(one, result, values)

    return kernel


def _has(text: str, key: str) -> bool:
    return key in dict(members(text))


def _register() -> None:
    for kind in (Kind.JSON, Kind.JSONB):
        entry("$json field", (kind, Kind.TEXT), Kind.OTHER, _field, fallback=True)
        entry("$json has", (kind, Kind.TEXT), Kind.BOOLEAN, per_value(_has, pa.bool_()), fallback=True)
    for name in sorted(RECORDS):
        binary = Kind.JSONB if name.startswith("jsonb") else Kind.JSON
        rows = each((_objects if name.endswith("set") else _object)(name))
        entry(name, (binary,), binary, rows, fallback=True, columns=((name, None),))


_register()
