"""Strict YAML into pydantic models: every mistake names file, line, field and value, and the nearest right name.

Always: nothing is guessed. Unknown keys, duplicate keys and wrong types are errors; what `${env:…}` and `${file:…}`
brought in is never shown, the text as written is. Called by `headrace.views.view_files` for view files and by the sidecar for
`headrace.yaml`.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace.views.yaml_reader import ConfigError, Document, Key, Trail, plain, read_yaml, spell

M = TypeVar("M", bound=BaseModel)
_SCALAR_TYPES = {"int_type", "float_type", "bool_type", "int_from_float"}


class StrictModel(BaseModel):
    """The base of every model read from YAML: unknown keys are errors, no value is converted, instances are frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


def load_yaml(path: Path, model: type[M], *, interpolate: bool, env: Mapping[str, str]) -> M:
    """The file at `path` as a `model`. Raises ConfigError for the first mistake in the file, the rest in `others`."""
    return validate(read_yaml(path, interpolate=interpolate, env=env), model)


def validate(document: Document, model: type[M]) -> M:
    """The document as a `model`. Raises ConfigError for the first mistake by line, the rest in `others`."""
    if not isinstance(document.value, dict):
        raise ConfigError("the file must hold a mapping", file=document.path, line=1, hint="write `name: value` lines")
    try:
        return model.model_validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        first = error
    # A reference is text; where a number or a switch is wanted, read that text as YAML reads a plain scalar.
    retry = json.loads(json.dumps(document.value))
    for problem in first.errors(include_url=False):
        trail = _trail(document.value, problem["loc"])
        if problem["type"] in _SCALAR_TYPES and trail in document.filled:
            _put(retry, trail, plain(document.filled[trail]))
    try:
        return model.model_validate_json(json.dumps(retry), strict=True)
    except ValidationError as error:
        found = [_problem(document, model, e) for e in error.errors(include_url=False)]
    found.sort(key=lambda e: typing.cast(int, e.where.get("line", 0)))
    found[0].others = tuple(found[1:])
    raise found[0]


def json_schema(model: type[BaseModel], *, interpolate: bool = False) -> dict[str, Any]:
    """The JSON Schema (2020-12) that editors use for files of this model; `interpolate` admits `${…}` for scalars."""
    schema = model.model_json_schema(mode="validation", by_alias=True)
    if interpolate:
        schema = _with_references(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def nearest(name: str, names: typing.Iterable[str]) -> str:
    """A hint that names the candidate nearest to `name`, or lists them when none is near and they are few.

    >>> nearest("ordres", ["orders", "products"])
    'did you mean orders?'
    """
    known = sorted(set(names))
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or [k for k in known if k.lower() == name.lower()]
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(known)}" if 0 < len(known) <= 12 else ""


def _trail(value: Any, loc: tuple[Key, ...]) -> Trail:
    """The part of pydantic's `loc` that exists in the file: names of union members are left out."""
    trail: list[Key] = []
    for key in loc:
        inside = isinstance(value, list) if isinstance(key, int) else isinstance(value, dict) and key in value
        if inside:
            value = value[key]
            trail.append(key)
    return tuple(trail)


def _put(value: Any, trail: Trail, new: object) -> None:
    for key in trail[:-1]:
        value = value[key]
    value[trail[-1]] = new


def _problem(document: Document, model: type[BaseModel], problem: Any) -> ConfigError:
    loc, kind, message = problem["loc"], problem["type"], str(problem["msg"])
    trail = _trail(document.value, loc)
    context = problem.get("ctx") or {}
    hint, what, field_name = "", "", spell(trail)
    if kind == "extra_forbidden":
        what, hint = f"unknown key {loc[-1]!r}", nearest(str(loc[-1]), _names(model, loc[:-1]))
    elif kind == "missing":
        what, field_name = f"missing key {loc[-1]!r}", spell((*trail, loc[-1]))
    elif kind in ("literal_error", "enum", "union_tag_invalid"):
        allowed = str(context.get("expected") or context.get("expected_tags") or "")
        if kind == "union_tag_invalid":
            key = str(context.get("discriminator", "")).strip("'")
            trail, field_name = (*trail, key), spell((*trail, key))
        what = f"must be one of {allowed}"
        hint = nearest(str(document.raw.get(trail)), re.findall(r"'([^']*)'", allowed))
    else:
        what = message.removeprefix("Value error, ")
        what = what[:1].lower() + what[1:]
    for at, secret in document.filled.items():
        if secret and secret in what:
            what = what.replace(secret, str(document.raw[at])) if len(secret) > 3 else "value not accepted"
    place = document.place(trail)
    value = None if kind == "missing" else document.shown(trail)
    file, name = document.path, field_name or None
    return ConfigError(what, hint=hint, file=file, line=place.line, column=place.column, field=name, value=value)


def _names(model: type[BaseModel], loc: tuple[Key, ...]) -> set[str]:
    """The field names that the model, or any member of a union, has at `loc`."""
    here = list(_alternatives(model))
    for key in loc:
        there = [a for option in here for a in _step(option, key)]
        # A key that leads nowhere is the name or tag of a union's member: it chooses among the options.
        chosen = [o for o in here if _is_member(o, str(key))]
        here = there or chosen or here
    return {f.alias or n for o in here if _is_model(o) for n, f in o.model_fields.items()}


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _alternatives(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for option in typing.get_args(annotation):
            yield from _alternatives(option)
    elif isinstance(annotation, typing.TypeAliasType) if hasattr(typing, "TypeAliasType") else False:
        yield from _alternatives(annotation.__value__)
    else:
        yield annotation


def _step(option: Any, key: Key) -> Iterator[Any]:
    if _is_model(option):
        for name, info in option.model_fields.items():
            if key in (name, info.alias):
                yield from _alternatives(info.annotation)
    elif isinstance(key, int) and typing.get_origin(option) is not dict:
        for argument in typing.get_args(option):
            yield from _alternatives(argument)
    elif typing.get_origin(option) is not None and issubclass(typing.get_origin(option), Mapping):
        yield from _alternatives(typing.get_args(option)[1])


def _is_model(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, BaseModel)


def _is_member(option: Any, tag: str) -> bool:
    if not _is_model(option):
        return False
    literals = [typing.get_args(f.annotation) for f in option.model_fields.values()]
    return bool(option.__name__ == tag) or any(tag in values for values in literals)


def _with_references(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_references(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    walked = {k: _with_references(v) for k, v in schema.items()}
    if walked.get("type") in ("integer", "number", "boolean") and "const" not in walked:
        outer = {k: walked.pop(k) for k in ("title", "description", "default") if k in walked}
        return {**outer, "anyOf": [walked, {"type": "string", "pattern": r"\$\{(env|file):[^}]+\}"}]}
    return walked
