"""JSON functions and operators, over the texts of json and jsonb.

Always: json keeps the spelling it came with, jsonb has one spelling; each function goes through `fallback`. Registered in
the catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core import fallback, text_output
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import (
    Kernel,
    Maker,
    Outcome,
    Param,
    Pseudo,
    Values,
    entry,
)
from headrace.engine.operators.expressions.core.sets import each
from headrace.engine.operators.expressions.json.json_text import (
    Number,
    as_text,
    at_path,
    canonical,
    dumps,
    encoded,
    is_json,
    item,
    item_of_binary,
    items,
    kind_of,
    loads,
    member,
    members,
    quoted,
    unescaped,
)
from headrace.engine.operators.expressions.text.strings import per_value
from headrace.engine.schema import TEXT, DataType, Kind

STRING = pa.large_string()
Params = tuple[DataType, ...]
T, N, B, J, JB = Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.JSON, Kind.JSONB
NO_KEY = "null value not allowed for object key"


def _encoding(binary: bool) -> Maker:
    """to_json and to_jsonb."""

    def make(params: Params, _result: DataType) -> Kernel:
        def one(image: str) -> str:
            found = encoded(image, params[0])
            return canonical(found) if binary else found

        return lambda value: fallback.map_values(one, STRING, [text_output.image_of(value, params[0])])

    return make


def _pretty_encoding(params: Params, _result: DataType) -> Kernel:
    """array_to_json, with each element on a line where the second argument says so."""

    def found(image: str, pretty: bool) -> str:
        made = encoded(image, params[0])
        return _lined(made) if pretty else made

    return lambda value, pretty: fallback.map_values(found, STRING, [text_output.image_of(value, params[0]), pretty])


def _built(form: Callable[[list[str | None], Params], str], *, binary: bool) -> Maker:
    """json_build_object and json_build_array: a function of the arguments' images."""

    def make(params: Params, _result: DataType) -> Kernel:
        def one(*found: str | None) -> str:
            text = form(list(found), params)
            return canonical(text) if binary else text

        def kernel(*values: Values) -> Outcome:
            texts = [text_output.image_of(v, p) for v, p in zip(values, params, strict=True)]
            return fallback.map_values(one, STRING, texts, strict=False)

        return kernel

    return make


def _object(found: list[str | None], params: Params) -> str:
    if len(found) % 2:
        raise RowError("argument list must have even number of elements")
    keys = [_key(f, p) for f, p in zip(found[::2], params[::2], strict=True)]
    values = [encoded(f, p) for f, p in zip(found[1::2], params[1::2], strict=True)]
    return "{" + ", ".join(f"{key} : {value}" for key, value in zip(keys, values, strict=True)) + "}"


def _key(image: str | None, kind: DataType) -> str:
    if image is None:
        raise RowError(NO_KEY)
    if kind.element is not None or kind.kind in (J, JB):
        raise RowError("key value must be scalar, not array, composite, or json")
    if kind.kind is B:
        image = "true" if image == "t" else "false"
    return quoted(image)


def _list(found: list[str | None], params: Params) -> str:
    return "[" + ", ".join(encoded(f, p) for f, p in zip(found, params, strict=True)) + "]"


def _got(
    get: Callable[..., str | None], binary: bool, form: Callable[[Any], Any] = lambda part: part
) -> Callable[..., Any]:
    """What takes a part of a JSON text by `get`, and gives it in a form."""
    return lambda text, *place: form(get(text if binary else unescaped(text), *place))


def _path(text: str, path: str) -> str | None:
    return at_path(text, array_text.elements(path))


def _length(text: str) -> int:
    if kind_of(text) != "array":
        raise RowError(f"cannot get array length of a {'non-array' if kind_of(text) == 'object' else 'scalar'}")
    return len(list(items(text)))


def _elements(name: str, as_texts: bool) -> Callable[[str | None], list[str | None]]:
    def found(text: str | None) -> list[str | None]:
        if text is None:
            return []
        kind = kind_of(text)
        if kind != "array":
            of = "an object" if kind == "object" else "a scalar"
            plain = (
                f"cannot extract elements from {of}"
                if name.startswith("jsonb")
                else f"cannot call {name} on a non-array"
            )
            raise RowError(plain if kind == "object" or name.startswith("jsonb") else f"cannot call {name} on a scalar")
        return [as_text(i) for i in items(unescaped(text))] if as_texts else list(items(text))

    return found


def _pairs(name: str, text: str | None) -> list[tuple[str, str]]:
    if text is None:
        return []
    kind = kind_of(text)
    if kind != "object":
        if name.endswith("keys"):
            raise RowError(f"cannot call {name} on {'an array' if kind == 'array' else 'a scalar'}")
        raise RowError(f"cannot call {name} on a non-object")
    return list(members(text))


def _deleted(text: str, what: str | int | list[str | None]) -> str:
    value = loads(text)
    if not isinstance(value, dict | list):
        raise RowError("cannot delete from scalar")
    if isinstance(what, int):
        if isinstance(value, dict):
            raise RowError("cannot delete from object using integer index")
        if -len(value) <= what < len(value):
            del value[what]
        return dumps(value)
    gone = {what} if isinstance(what, str) else set(what)
    if isinstance(value, dict):
        return dumps({k: v for k, v in value.items() if k not in gone})
    return dumps([v for v in value if isinstance(v, Number) or not isinstance(v, str) or v not in gone])


def _joined(one: str, other: str) -> str:
    left, right = loads(one), loads(other)
    if isinstance(left, dict) and isinstance(right, dict):
        return dumps(left | right)
    return dumps([*(left if isinstance(left, list) else [left]), *(right if isinstance(right, list) else [right])])


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, numbers by their value."""
    if isinstance(one, Number) or isinstance(other, Number):
        both = isinstance(one, Number) and isinstance(other, Number)
        return both and fallback.order(dumps(one)) == fallback.order(dumps(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


def _contains(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(k in one and _held(one[k], v) for k, v in other.items())
    if isinstance(one, list):
        wanted = other if isinstance(other, list) else None
        if wanted is None:
            return not isinstance(other, dict) and any(same(v, other) for v in one)
        return all(any(_held(v, w) for v in one) for w in wanted)
    return same(one, other)


def _held(one: Any, other: Any) -> bool:
    """Containment below the top, where an array does not contain a bare value."""
    if isinstance(one, list) != isinstance(other, list):
        return False
    return _contains(one, other)


def _has(text: str, keys: list[str | None]) -> list[bool]:
    value = loads(text)
    if isinstance(value, dict):
        return [k in value for k in keys if k is not None]
    held = value if isinstance(value, list) else [value]
    texts = {v for v in held if isinstance(v, str) and not isinstance(v, Number)}
    return [k in texts for k in keys if k is not None]


def _stripped(value: Any, arrays: bool = False) -> Any:
    if isinstance(value, dict):
        return {k: _stripped(v, arrays) for k, v in value.items() if v is not None}
    if not isinstance(value, list):
        return value
    return [_stripped(v, arrays) for v in value if v is not None or not arrays]


def _lined(value: str) -> str:
    """A JSON array with each element on a line."""
    return "[" + ",\n ".join(items(value)) + "]"


def _stripped_text(text: str, arrays: bool = False) -> str:
    """A json's text without the members that are null, and without spaces; what is left keeps its spelling.

    `arrays`: elements that are null go too.
    """
    kind = kind_of(text)
    if kind == "object":
        kept = ((k, v) for k, v in members(text) if kind_of(v) != "null")
        return "{" + ",".join(f"{quoted(k)}:{_stripped_text(v, arrays)}" for k, v in kept) + "}"
    if kind == "array":
        return (
            "[" + ",".join(_stripped_text(v, arrays) for v in items(text) if not arrays or kind_of(v) != "null") + "]"
        )
    return quoted(str(as_text(text))) if kind == "string" else text.strip(" \t\n\r")


def _pretty(value: Any, depth: int = 0) -> str:
    inner, outer = "    " * (depth + 1), "    " * depth
    if isinstance(value, dict):
        keys = sorted(value, key=lambda k: (len(k.encode()), k.encode()))
        parts = [f"{inner}{dumps(k)}: {_pretty(value[k], depth + 1)}" for k in keys]
        return "{\n" + ",\n".join(parts) + ("\n" if parts else "") + outer + "}"
    if isinstance(value, list):
        parts = [inner + _pretty(v, depth + 1) for v in value]
        return "[\n" + ",\n".join(parts) + ("\n" if parts else "") + outer + "]"
    return dumps(value)


def _column(params: Params, _result: DataType) -> Kernel:
    """An aggregate's argument as the texts that it collects."""

    def one(image: str | None) -> str:
        return encoded(image, params[0])

    return lambda value: fallback.map_values(one, STRING, [text_output.image_of(value, params[0])], strict=False)


def _column_key(missing: str) -> Maker:
    """A key made of a value; `missing`: what is wrong with NULL."""

    def make(params: Params, _result: DataType) -> Kernel:
        def found(image: str | None) -> str:
            if image is None:
                raise RowError(missing)
            return _key(image, params[0])

        return lambda value: fallback.map_values(found, STRING, [text_output.image_of(value, params[0])], strict=False)

    return make


def _of_arrays(function: Callable[..., Any], lane: pa.DataType) -> Maker:
    """A function whose last argument is a text[]."""
    return per_value(lambda text, keys: function(text, array_text.elements(keys)), lane)


def _register() -> None:
    texts = DataType(Kind.OTHER, name="text[]")
    for kind, name in ((J, "json"), (JB, "jsonb")):
        binary = kind is JB
        place = item_of_binary if binary else item
        many = {"variadic": True, "fallback": True}
        gets = (
            ("->", "->>", (kind, T), member, {"fallback": True}),
            ("->", "->>", (kind, N), place, {"fallback": True}),
            ("#>", "#>>", (kind, texts), _path, {"fallback": True}),
            (f"{name}_extract_path", f"{name}_extract_path_text", (kind, T), lambda v, *p: at_path(v, list(p)), many),
        )
        for part, as_texts, params, get, options in gets:
            entry(part, params, kind, per_value(_got(get, binary), STRING), **options)  # type: ignore[arg-type]
            entry(as_texts, params, T, per_value(_got(get, binary, as_text), STRING), **options)  # type: ignore[arg-type]
        entry(f"{name}_array_length", (kind,), N, per_value(_length, pa.int32()), fallback=True)
        entry(f"{name}_typeof", (kind,), T, per_value(kind_of, STRING), fallback=True)
        entry(f"to_{name}", (None,), kind, _encoding(binary), fallback=True)
        built = {"strict": False, "variadic": True, "fallback": True}
        entry(f"{name}_build_object", (None,), kind, _built(_object, binary=binary), **built)  # type: ignore[arg-type]
        entry(f"{name}_build_array", (None,), kind, _built(_list, binary=binary), **built)  # type: ignore[arg-type]
        for suffix, result in (("", kind), ("_text", T)):
            full = f"{name}_array_elements{suffix}"
            elements = each(_elements(full, bool(suffix)))
            entry(full, (kind,), result, elements, fallback=True, columns=(("value", None),))
            full = f"{name}_each{suffix}"
            pairs = _each_pair(full, bool(suffix))
            entry(full, (kind,), result, pairs, fallback=True, columns=(("key", TEXT), ("value", None)))
        full = f"{name}_object_keys"
        keys = each(lambda v, n=full: [k for k, _ in _pairs(n, unescaped(v) if v else v)])
        entry(full, (kind,), T, keys, fallback=True, columns=((full, None),))
    entry("array_to_json", (Pseudo.ARRAY,), J, _encoding(False), fallback=True)
    entry("array_to_json", (Pseudo.ARRAY, B), J, _pretty_encoding, fallback=True)
    for flag in ((), (B,)):
        entry("json_strip_nulls", (J, *flag), J, per_value(_stripped_text, STRING), fallback=True)
        stripped = per_value(lambda v, arrays=False: dumps(_stripped(loads(v), arrays)), STRING)
        entry("jsonb_strip_nulls", (JB, *flag), JB, stripped, fallback=True)
    entry("jsonb_pretty", (JB,), T, per_value(lambda v: _pretty(loads(v)), STRING), fallback=True)
    entry("-", (JB, T), JB, per_value(_deleted, STRING), fallback=True)
    entry("-", (JB, N), JB, per_value(_deleted, STRING), fallback=True)
    entry("-", (JB, texts), JB, _of_arrays(_deleted, STRING), fallback=True)
    entry("jsonb_delete", (JB, T), JB, per_value(_deleted, STRING), fallback=True)
    entry("jsonb_delete", (JB, N), JB, per_value(_deleted, STRING), fallback=True)
    for name in ("||", "jsonb_concat"):
        entry(name, (JB, JB), JB, per_value(_joined, STRING), fallback=True)
    tests: tuple[tuple[str, str, Param, Maker], ...] = (
        ("@>", "contains", JB, per_value(lambda a, b: _contains(loads(a), loads(b)), pa.bool_())),
        ("<@", "contained", JB, per_value(lambda a, b: _contains(loads(b), loads(a)), pa.bool_())),
        ("?", "exists", T, per_value(lambda v, k: any(_has(v, [k])), pa.bool_())),
        ("?|", "exists_any", texts, _of_arrays(lambda v, k: any(_has(v, k)), pa.bool_())),
        ("?&", "exists_all", texts, _of_arrays(lambda v, k: all(_has(v, k)), pa.bool_())),
    )
    for sign, word, of_other, make in tests:
        for name in (sign, f"jsonb_{word}"):
            entry(name, (JB, of_other), B, make, fallback=True)
    for tested in (T, J, JB):
        told = per_value(partial(is_json, is_valid=tested is not T), pa.bool_())
        entry("$is_json", (tested, T, B), B, told, fallback=True)
    entry("$json", (None,), T, _column, strict=False, fallback=True)
    for name, missing in (("$json key", NO_KEY), ("$jsonb key", "field name must not be null")):
        entry(name, (None,), T, _column_key(missing), strict=False, fallback=True)


def _each_pair(name: str, as_texts: bool) -> Maker:
    def found(text: str | None) -> list[tuple[str, str | None]]:
        read = text if text is None or name.startswith("jsonb") else unescaped(text)
        return [(k, as_text(v) if as_texts else v) for k, v in _pairs(name, read)]

    return each(found, width=2)


_register()
