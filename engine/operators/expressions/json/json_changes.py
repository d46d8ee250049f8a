"""Functions that give a jsonb changed at a path, and objects made of arrays of texts.

Always: over parsed values, once for each distinct argument; what Postgres refuses raises with its message. Registered in
the catalogue at import.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core.fallback import RowError, map_values
from headrace.engine.operators.expressions.core.function_catalog import entry
from headrace.engine.operators.expressions.json.functions import NO_KEY
from headrace.engine.operators.expressions.json.json_text import at_path, canonical, dumps, loads, quoted
from headrace.engine.operators.expressions.text.strings import per_value
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()
TEXTS = DataType(Kind.OTHER, name="text[]")
LAX = 'null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"'
Step = Callable[[Any, str, int], Any]
"""What becomes of a container at the last step of a path."""


def _steps(path: str) -> list[str | None]:
    shape, found = array_text.read(path)
    if len(shape) > 1:
        raise RowError("wrong number of array subscripts")
    return found


def _place(step: str, size: int, at: int) -> int | None:
    """The place in an array of so many that a step names: from 0, or `size` and more for behind it; None: before it."""
    if not re.fullmatch(r"\s*[+-]?\d+\s*", step) or not -(2**31) <= int(step) < 2**31:
        raise RowError(f'path element at position {at} is not an integer: "{step}"')
    place = int(step)
    return place if place >= 0 else None if -place > size else size + place


def _changed(value: Any, steps: list[str | None], last: Step, at: int = 1) -> Any:
    """The value with `last` done where the steps lead; as it is where they lead nowhere. A NULL counts where it is reached."""
    step = steps[at - 1]
    if step is None:
        raise RowError(f"path element at position {at} is null")
    if len(steps) == at:
        return last(value, step, at) if isinstance(value, dict | list) else value
    if isinstance(value, dict):
        return value if step not in value else {**value, step: _changed(value[step], steps, last, at + 1)}
    if isinstance(value, list):
        place = _place(step, len(value), at)
        if place is None or place >= len(value):
            return value
        return [*value[:place], _changed(value[place], steps, last, at + 1), *value[place + 1 :]]
    return value


def _setting(new: Any, *, create: bool) -> Step:
    def last(value: Any, step: str, at: int) -> Any:
        if isinstance(value, dict):
            return {**value, step: new} if create or step in value else value
        place = _place(step, len(value), at)
        if place is not None and place < len(value):
            return [*value[:place], new, *value[place + 1 :]]
        return value if not create else [new, *value] if place is None else [*value, new]

    return last


def _inserting(new: Any, *, after: bool) -> Step:
    def last(value: Any, step: str, at: int) -> Any:
        if isinstance(value, dict):
            if step in value:
                raise RowError("cannot replace existing key")
            return {**value, step: new}
        place = _place(step, len(value), at)
        if place is None:
            return [new, *value]
        return [*value[: place + after], new, *value[place + after :]]

    return last


def _deleting(value: Any, step: str, at: int) -> Any:
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if k != step}
    place = _place(step, len(value), at)
    return value if place is None else [*value[:place], *value[place + 1 :]]


def _at(text: str, path: str, what: str, last: Step) -> str:
    value = loads(text)
    if not isinstance(value, dict | list):
        raise RowError(f"cannot {what} in scalar")
    steps = _steps(path)
    # Nothing can be deleted from what is empty: Postgres does not look at the path.
    idle = not steps or (last is _deleting and not value)
    return text if idle else dumps(_changed(value, steps, last))


def _set(text: str, path: str, new: str, create: bool = True) -> str:
    return _at(text, path, "set path", _setting(loads(new), create=create))


def _insert(text: str, path: str, new: str, after: bool = False) -> str:
    return _at(text, path, "set path", _inserting(loads(new), after=after))


def _set_lax(
    text: str | None, path: str | None, new: str | None, create: bool | None = True, how: str | None = "use_json_null"
) -> str | None:
    """jsonb_set, of which `how` says what a NULL does."""
    if text is None or path is None or create is None:
        return None
    if how is not None and new is not None:
        return _set(text, path, new, create)
    if how == "raise_exception":
        raise RowError("JSON value must not be null")
    if how not in ("use_json_null", "delete_key", "return_target"):
        raise RowError(LAX)
    if how == "return_target":
        return text
    return _delete(text, path) if how == "delete_key" else _set(text, path, "null", create)


def _delete(text: str, path: str) -> str:
    return _at(text, path, "delete path", _deleting)


def _object(found: str, values: str | None = None) -> str:
    """json_object of keys and values in turn, in pairs, or in two arrays."""
    shape, keys = array_text.read(found)
    if values is not None:
        sizes, others = array_text.read(values)
        if len(shape) > 1 or len(sizes) > 1:
            raise RowError("wrong number of array subscripts")
        if len(keys) != len(others):
            raise RowError("mismatched array dimensions")
    else:
        if len(shape) > 2:
            raise RowError("wrong number of array subscripts")
        if len(shape) == 2 and shape[1] != 2:
            raise RowError("array must have two columns")
        if len(keys) % 2:
            raise RowError("array must have even number of elements")
        keys, others = keys[::2], keys[1::2]
    pairs = ((_key(k), "null" if v is None else quoted(v)) for k, v in zip(keys, others, strict=True))
    return "{" + ", ".join(f"{k} : {v}" for k, v in pairs) + "}"


def _key(key: str | None) -> str:
    if key is None:
        raise RowError(NO_KEY)
    return quoted(key)


def _register() -> None:
    jsonb, flag = Kind.JSONB, Kind.BOOLEAN
    for more in ((), (flag,)):
        entry("jsonb_set", (jsonb, TEXTS, jsonb, *more), jsonb, per_value(_set, STRING), fallback=True)
        entry("jsonb_insert", (jsonb, TEXTS, jsonb, *more), jsonb, per_value(_insert, STRING), fallback=True)
    lax = lambda _params, result: lambda *values: map_values(_set_lax, result.arrow, values, strict=False)  # noqa: E731
    for some in ((), (flag,), (flag, Kind.TEXT)):
        entry("jsonb_set_lax", (jsonb, TEXTS, jsonb, *some), jsonb, lax, strict=False, fallback=True)
    for name in ("#-", "jsonb_delete_path"):
        entry(name, (jsonb, TEXTS), jsonb, per_value(_delete, STRING), fallback=True)
    for name, kind in (("json_object", Kind.JSON), ("jsonb_object", jsonb)):
        made = (lambda *a: canonical(_object(*a))) if kind is jsonb else _object
        entry(name, (TEXTS,), kind, per_value(made, STRING), fallback=True)
        entry(name, (TEXTS, TEXTS), kind, per_value(made, STRING), fallback=True)
    step = per_value(lambda v, k: at_path(v, [k]), STRING)
    entry("$json at", (jsonb, Kind.TEXT), jsonb, step, fallback=True)


_register()
