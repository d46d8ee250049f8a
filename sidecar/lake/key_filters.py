"""A query's conditions on a key as SQL for the sidecar: so that a look-up by key does not bring the whole view.

Always: what is made lets through at least the rows that Spark asks for, and Spark looks at every condition again. Only whole
numbers and equal texts are compared, which mean the same to both. Called by `view_read`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import datasource as source

from headrace.engine.schema import Column, Kind

_WHOLE = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_TEXT = (Kind.TEXT, Kind.VARCHAR)
_COMPARED = {
    source.GreaterThan: ">",
    source.GreaterThanOrEqual: ">=",
    source.LessThan: "<",
    source.LessThanOrEqual: "<=",
}
_MOST = 1000
"""So many values a list may have."""


def conditions(filters: Iterable[source.Filter], key: Sequence[Column]) -> list[str]:
    """What of the filters can be said in SQL.

    >>> from headrace.engine.schema import INTEGER
    >>> conditions([source.EqualTo(("id",), 7), source.GreaterThan(("n",), 1)], [Column("id", INTEGER)])
    ['"id" = 7']
    """
    columns = {c.name: c for c in key}
    return [text for f in filters if (text := _condition(f, columns)) is not None]


def _condition(found: source.Filter, columns: dict[str, Column]) -> str | None:
    path: Sequence[str] = getattr(found, "attribute", ())
    column = columns.get(path[0]) if len(path) == 1 else None
    if column is None:
        return None
    name = '"' + column.name.replace('"', '""') + '"'
    match found:
        case source.EqualTo(value=value):
            text = _literal(value, column, (*_WHOLE, *_TEXT))
            return None if text is None else f"{name} = {text}"
        case source.In(value=values) if 0 < len(values) <= _MOST:
            texts = [_literal(v, column, (*_WHOLE, *_TEXT)) for v in values]
            return None if None in texts else f"{name} in ({', '.join(t for t in texts if t is not None)})"
        case source.GreaterThan() | source.GreaterThanOrEqual() | source.LessThan() | source.LessThanOrEqual():
            text = _literal(found.value, column, _WHOLE)
            return None if text is None else f"{name} {_COMPARED[type(found)]} {text}"
        case _:
            return None


def _literal(value: Any, column: Column, kinds: Sequence[Kind]) -> str | None:
    kind = column.type.kind
    if kind not in kinds:
        return None
    if kind in _WHOLE:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, str) or "\x00" in value or "\\" in value:
        return None
    return "'" + value.replace("'", "''") + "'"
