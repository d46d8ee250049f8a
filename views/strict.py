"""Strict YAML into pydantic models: every mistake names file, line, field and value, and the nearest right name.

Always: nothing is guessed. Unknown keys, duplicate keys and wrong types are errors; what `${env:…}` and `${file:…}`
brought in is never shown, the text as written is. Called by `views.spec` for view files and by the sidecar for
`headrace.yaml`.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from engine.errors import HeadraceError

M = TypeVar("M", bound=BaseModel)
Key = str | int
Trail = tuple[Key, ...]

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<scheme>[a-zA-Z_]*):(?P<name>[^}]*)\}")
_SECRET_FIELD = re.compile(r"password|passwd|secret|token|credential", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(\w+://[^:/@\s]*):[^@\s]+@")
_KEYWORD_PASSWORD = re.compile(
    r"\b(\w*(?:password|passwd|secret|token)\w*\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s'&;,]+)", re.IGNORECASE
)
_SCALAR_TYPES = {"int_type", "float_type", "bool_type", "int_from_float"}


class ConfigError(HeadraceError):
    """A configuration file that cannot be understood. `others`: the further mistakes found in the same file."""

    code = "config"

    def __init__(self, what: str, *, hint: str = "", others: tuple[ConfigError, ...] = (), **where: object) -> None:
        super().__init__(what, hint=hint, **where)
        self.others = others


class StrictModel(BaseModel):
    """The base of every model read from YAML: unknown keys are errors, no value is converted, instances are frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


@dataclass(frozen=True)
class Place:
    """Where a node of the file stands: `line`, `column` from 1; `start`, `end` character offsets; `style` is YAML's."""

    line: int
    column: int
    start: int
    end: int
    style: str | None = None


@dataclass
class Document:
    """One YAML file, read: `value` with references filled in, `raw` as written, and the place of every node."""

    path: Path
    text: str
    value: Any = None
    raw: dict[Trail, Any] = field(default_factory=dict)
    places: dict[Trail, Place] = field(default_factory=dict)
    keys: dict[Trail, Place] = field(default_factory=dict)
    filled: dict[Trail, str] = field(default_factory=dict)

    def place(self, trail: Trail) -> Place:
        """The place of the node at `trail`, or of the nearest node around it."""
        while trail and trail not in self.places:
            trail = trail[:-1]
        return self.keys.get(trail) or self.places[trail]

    def locate(self, trail: Trail, offset: int) -> tuple[int, int]:
        """Line and column in the file of character `offset` of the string at `trail`, whatever its YAML style."""
        place = self.places[trail]
        value = str(self.raw[trail])
        at = place.start
        if place.style in ("|", ">"):
            at = self.text.index("\n", at) + 1
        hit = at
        for char in value[: offset + 1].rstrip() or value[:1]:
            if char.isspace():
                continue
            found = self.text.find(char, at, place.end)
            if found < 0:
                break
            hit, at = found, found + 1
        line = self.text.count("\n", 0, hit) + 1
        return line, hit - (self.text.rfind("\n", 0, hit) + 1) + 1

    def shown(self, trail: Trail) -> str | None:
        """The value at `trail` as written, secrets masked, at most 80 characters; None for a mapping or list."""
        raw = self.raw.get(trail)
        if trail not in self.raw or isinstance(raw, (dict, list)):
            return None
        if any(isinstance(k, str) and _SECRET_FIELD.search(k) for k in trail):
            return "***"
        bare = isinstance(raw, str) and not any(p.match(raw) for p in _READ_AS_OTHER)
        text = _URL_PASSWORD.sub(r"\1:***@", str(raw) if bare else json.dumps(raw))
        text = _KEYWORD_PASSWORD.sub(r"\1***", text)
        return text if len(text) <= 80 else text[:77] + "..."


def load_yaml(path: Path, model: type[M], *, interpolate: bool, env: Mapping[str, str]) -> M:
    """The file at `path` as a `model`. Raises ConfigError for the first mistake in the file, the rest in `others`."""
    return validate(read_yaml(path, interpolate=interpolate, env=env), model)


def read_yaml(path: Path, *, interpolate: bool, env: Mapping[str, str]) -> Document:
    """Read one YAML file (YAML 1.2's plain scalars: no dates, no yes/no). An empty file is an empty mapping.

    With `interpolate`, `${env:NAME}` and `${file:path}` (relative to the file's folder, one trailing line break
    dropped) are filled in inside any string; `$${` is a plain `${`. Raises ConfigError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"cannot read the file: {reason}", file=path, hint="check the path and its rights") from None
    document = Document(path, text)
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise ConfigError(f"not YAML: {error.problem or error}", file=path, line=line, column=column) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {str(error).splitlines()[0]}", file=path) from None
    if root is None:
        document.value, document.raw[()], document.places[()] = {}, {}, Place(1, 1, 0, 0)
        return document
    reader = _Reader(document, dict(env) if interpolate else None)
    document.value = reader.build(root, ())
    return document


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
            _put(retry, trail, yaml.load(document.filled[trail], Loader=_Loader))  # noqa: S506 (a SafeLoader's child)
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


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with YAML 1.2's idea of a plain scalar: true/false, null, numbers; the rest is text."""


_Loader.yaml_implicit_resolvers = {}
_SCALARS = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    ("float", r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
)
_READ_AS_OTHER = [re.compile(pattern) for _, pattern, _ in _SCALARS]
for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


class _Reader:
    """Turns composed nodes into values and writes places, raw texts and filled references into the document."""

    def __init__(self, document: Document, env: dict[str, str] | None) -> None:
        self.document = document
        self.env = env
        self.scalars = _Loader("")
        self.open: set[int] = set()

    def build(self, node: yaml.Node, trail: Trail) -> Any:
        place = _place(node)
        self.document.places[trail] = place
        if id(node) in self.open:
            raise self.error("an alias that holds itself", place, trail)
        self.open.add(id(node))
        try:
            value = self.convert(node, trail, place)
        finally:
            self.open.discard(id(node))
        self.document.raw.setdefault(trail, value)
        return value

    def convert(self, node: yaml.Node, trail: Trail, place: Place) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*trail, i)) for i, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, trail)
        if node.tag.rsplit(":", 1)[-1] not in ("str", "int", "float", "bool", "null"):
            raise self.error(f"tag {node.tag} is not supported", place, trail)
        value = self.scalars.construct_object(node, deep=True)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            raise self.error("a number that does not fit", place, trail)
        if isinstance(value, str) and self.env is not None and "${" in value:
            self.document.raw[trail] = value
            value = self.fill(value, self.env, place, trail)
            self.document.filled[trail] = value
        return value

    def mapping(self, node: yaml.MappingNode, trail: Trail) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error("a key must be a plain word", place, trail)
            key = str(key_node.value)
            if key in found:
                first = self.document.keys[(*trail, key)].line
                raise self.error(f"duplicate key {key!r}, first on line {first}", place, (*trail, key))
            self.document.keys[(*trail, key)] = place
            found[key] = self.build(value_node, (*trail, key))
        return found

    def fill(self, text: str, env: dict[str, str], place: Place, trail: Trail) -> str:
        parts: list[str] = []
        last = 0
        for match in _REFERENCE.finditer(text):
            parts.append(text[last : match.start()])
            last = match.end()
            scheme, name = match["scheme"], match["name"]
            parts.append("${" if scheme is None else self.reference(scheme, name, env, place, trail))
        return "".join([*parts, text[last:]])

    def reference(self, scheme: str, name: str, env: dict[str, str], place: Place, trail: Trail) -> str:
        if scheme == "env":
            if name not in env:
                raise self.error(f"environment variable {name} is not set", place, trail, hint=f"export {name}=…")
            return env[name]
        if scheme == "file":
            file = self.document.path.parent / name
            try:
                return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
                raise self.error(f"cannot read {file}: {reason}", place, trail) from None
        raise self.error(f"unknown reference scheme {scheme!r}", place, trail, hint="use ${env:NAME} or ${file:path}")

    def error(self, what: str, place: Place, trail: Trail, hint: str = "") -> ConfigError:
        file, name = self.document.path, spell(trail) or None
        return ConfigError(what, hint=hint, file=file, line=place.line, column=place.column, field=name)


def spell(trail: Trail) -> str:
    """A trail as people write it.

    >>> spell(("sources", 0, "tables", 1, "key"))
    'sources[0].tables[1].key'
    """
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in trail).removeprefix(".")


def _place(node: yaml.Node) -> Place:
    start, end = node.start_mark, node.end_mark
    style = node.style if isinstance(node, yaml.ScalarNode) else None
    return Place(start.line + 1, start.column + 1, start.index, end.index, style)


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
