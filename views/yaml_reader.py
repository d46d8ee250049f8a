"""A YAML file read with the place of every node, `${env:…}` and `${file:…}` filled in, and secrets never shown.

Always: nothing is guessed: a key given twice, an alias that holds itself, a tag and a reference that leads nowhere are
errors with file, line and column. Called by `yaml_models`, and by `headrace.views.view_files` for places inside of a view's SQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headrace.engine.errors import HeadraceError

Key = str | int
Trail = tuple[Key, ...]

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<scheme>[a-zA-Z_]*):(?P<name>[^}]*)\}")
_SECRET_FIELD = re.compile(r"password|passwd|secret|token|credential", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(\w+://[^:/@\s]*):[^@\s]+@")
_KEYWORD_PASSWORD = re.compile(
    r"\b(\w*(?:password|passwd|secret|token)\w*\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s'&;,]+)", re.IGNORECASE
)


class ConfigError(HeadraceError):
    """A configuration file that cannot be understood. `others`: the further mistakes found in the same file or folder."""

    code = "config"
    others: tuple[ConfigError, ...]

    def __init__(self, what: str, *, hint: str = "", others: tuple[ConfigError, ...] = (), **where: object) -> None:
        super().__init__(what, hint=hint, **where)
        self.others = others


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
    unfilled: list[str] = field(default_factory=list)

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


def read_yaml(path: Path, *, interpolate: bool, env: Mapping[str, str], partly: bool = False) -> Document:
    """Read one YAML file (YAML 1.2's plain scalars: no dates, no yes/no). An empty file is an empty mapping.

    With `interpolate`, `${env:NAME}` and `${file:path}` (relative to the file's folder, one trailing line break
    dropped) are filled in inside any string; `$${` is a plain `${`. With `partly`, what cannot be filled in stays as it
    is written, and `unfilled` says why. Raises ConfigError.
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
    reader = _Reader(document, dict(env) if interpolate else None, partly)
    document.value = reader.build(root, ())
    return document


def masked(line: str) -> str | None:
    """A line of a configuration as it may be shown; None where a secret may stand in it.

    >>> masked("url: postgresql://me:hush@db/shop"), masked("sasl.password: hush")
    ('url: postgresql://me:***@db/shop', None)
    """
    return None if _SECRET_FIELD.search(line) else _URL_PASSWORD.sub(r"\1:***@", line)


def spell(trail: Trail) -> str:
    """A trail as people write it.

    >>> spell(("sources", 0, "tables", 1, "key"))
    'sources[0].tables[1].key'
    """
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in trail).removeprefix(".")


def plain(text: str) -> Any:
    """What a plain scalar of that text is: a number, a switch, null, or the text.

    >>> plain("9092"), plain("yes")
    (9092, 'yes')
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader's child)


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

    def __init__(self, document: Document, env: dict[str, str] | None, partly: bool) -> None:
        self.document = document
        self.env = env
        self.partly = partly
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
            parts.append("${" if match["scheme"] is None else self.filled(match, env, place, trail))
        return "".join([*parts, text[last:]])

    def filled(self, match: re.Match[str], env: dict[str, str], place: Place, trail: Trail) -> str:
        try:
            return self.reference(match["scheme"], match["name"], env, place, trail)
        except ConfigError as error:
            if not self.partly:
                raise
            self.document.unfilled.append(str(error))
            return match[0]

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


def _place(node: yaml.Node) -> Place:
    start, end = node.start_mark, node.end_mark
    style = node.style if isinstance(node, yaml.ScalarNode) else None
    return Place(start.line + 1, start.column + 1, start.index, end.index, style)
