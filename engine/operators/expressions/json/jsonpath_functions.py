"""Functions and operators that ask a jsonb by a path of the SQL/JSON path language.

Always: the path is read once; @? and @@ give NULL where an error comes up. Registered in the catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import entry
from headrace.engine.operators.expressions.core.sets import each
from headrace.engine.operators.expressions.core.text_types import Family, family
from headrace.engine.operators.expressions.json import jsonpath_parser
from headrace.engine.operators.expressions.json.json_text import dumps
from headrace.engine.operators.expressions.json.jsonpath import Unbound, exists, query
from headrace.engine.operators.expressions.text.strings import per_value
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()
PATH = DataType(Kind.OTHER, name="jsonpath")


def _read(text: str) -> str:
    jsonpath_parser.parse(text)
    return text


def _silenced(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(text, path, vars)` with NULL for an error where the fourth argument is true."""

    def asked(text: str, path: str, variables: str = "{}", silent: bool = False) -> Any:
        try:
            return function(text, path, variables)
        except RowError as error:
            if silent and not isinstance(error, Unbound):
                return None
            raise

    return asked


@_silenced
def _exists(text: str, path: str, variables: str) -> bool:
    return exists(text, path, variables)


@_silenced
def _match(text: str, path: str, variables: str) -> bool | None:
    found = query(text, path, variables)
    if len(found) == 1 and (found[0] is None or isinstance(found[0], bool)):
        return found[0]
    raise RowError("single boolean result is expected")


def _items(
    text: str | None, path: str | None, variables: str | None = "{}", silent: str | bool | None = False
) -> list[str]:
    if text is None or path is None or variables is None or silent is None:
        return []
    return [dumps(i) for i in query(text, path, variables, silent in (True, "t"))]


def _first(*args: Any) -> str | None:
    found = _items(*args)
    return found[0] if found else None


def _all(*args: Any) -> str:
    return "[" + ", ".join(_items(*args)) + "]"


def _register() -> None:
    family("jsonpath", Family(_read, None, exact=False))
    jsonb = Kind.JSONB
    for more in ((), (jsonb,), (jsonb, Kind.BOOLEAN)):
        given = (jsonb, PATH, *more)
        entry("jsonb_path_exists", given, Kind.BOOLEAN, per_value(_exists, pa.bool_()), fallback=True)
        entry("jsonb_path_match", given, Kind.BOOLEAN, per_value(_match, pa.bool_()), fallback=True)
        entry("jsonb_path_query_array", given, jsonb, per_value(_all, STRING), fallback=True)
        entry("jsonb_path_query_first", given, jsonb, per_value(_first, STRING), fallback=True)
        name = "jsonb_path_query"
        entry(name, given, jsonb, each(_items), fallback=True, columns=((name, None),))
    silent = per_value(lambda v, p: _exists(v, p, "{}", True), pa.bool_())
    entry("@?", (jsonb, PATH), Kind.BOOLEAN, silent, fallback=True)
    silent = per_value(lambda v, p: _match(v, p, "{}", True), pa.bool_())
    entry("@@", (jsonb, PATH), Kind.BOOLEAN, silent, fallback=True)


_register()
