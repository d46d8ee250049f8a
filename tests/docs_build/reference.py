"""docs/configuration.md, its JSON Schemas, and the options in docs/cli.md: written from the models and the command.

Always: a field, its type, default and meaning stand in one place, the model; the example in the page is one that loads.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import typer
import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headrace.sidecar.cli.app import app
from headrace.sidecar.config import config
from headrace.views.view_models import ViewsFile
from headrace.views.yaml_models import json_schema
from tests.docs_build.markdown import table

CONFIG_SCHEMA = "docs/schema/headrace.schema.json"
VIEWS_SCHEMA = "docs/schema/views.schema.json"

EXAMPLE = """\
# yaml-language-server: $schema=schema/headrace.schema.json
version: 1
name: shop
state: ./state
kafka:
  bootstrap.servers: kafka:9092
  security.protocol: SASL_SSL            # any librdkafka key
  sasl.password: "${file:/run/secrets/kafka}"
sources:
  - name: shop
    type: debezium
    topic_prefix: shop
    connect: http://connect:8083
    tables:
      - name: public.orders
        key: [id]
        columns:
          - {name: id, data_type: bigint}
          - {name: total, data_type: "numeric(12,2)"}
sinks:
  - {name: warehouse, type: postgres, url: "${env:WAREHOUSE_URL}", schema: headrace}
  - {name: bus, type: kafka, topic_prefix: views., format: json}
views: ./views
http: 127.0.0.1:8088
checkpoint: {interval_seconds: 10}
engine: {workers: 1}                     # processes that share the work
"""

VIEWS_EXAMPLE = """\
# yaml-language-server: $schema=schema/views.schema.json
version: 1
views:
  - name: order_count
    description: How many orders there are, and their total
    sinks: [warehouse]
    sql: select count(*) as orders, sum(total) as total from orders
  - name: per_customer
    key: [customer]
    sinks: [warehouse]
    sql: select customer, sum(total) as total from orders group by customer
    columns:
      - {name: customer, data_tests: [not_null, unique]}
    tests:
      - name: adds up
        given: {public.orders: [{id: 1, customer: 7, total: "1.50"}, {id: 2, customer: 7, total: 2}]}
        expect: [{customer: 7, total: 3.50}]
"""

_HEAD = """# Configuration

<!-- Written by `make docs` from sidecar/config/config.py and views/view_models.py: do not edit. -->

One file, `headrace.yaml`, and a folder of view files. Both are read strictly: an unknown key, a key given twice, a wrong type
are errors that name file, line, field and value. `headrace validate` reads them without starting anything.

`${env:NAME}` and `${file:/path}` in any value of `headrace.yaml` are filled in when it is read, and never shown; `$${` is a plain
`${`. Relative paths start from the folder of `headrace.yaml`. Only what opens sources or sinks (`run`, `audit`, `deadletters`)
needs every variable and file; elsewhere they may be missing, and `validate` names those that are.

Editors check and complete both files by their JSON Schemas ([headrace.yaml](schema/headrace.schema.json),
[views](schema/views.schema.json); also printed by `headrace schema config` and `headrace schema views`) when the first line
names them: `# yaml-language-server: $schema=` and the schema's path or address.

```yaml
"""


def configuration() -> str:
    """The page of both files. Raises pydantic's ValidationError when an example is wrong."""
    filled = re.sub(r"\$\{\w+:[^}]*\}", "postgresql://me@db/shop", EXAMPLE)
    config.Config.model_validate(yaml.safe_load(filled))
    ViewsFile.model_validate_json(json.dumps(yaml.safe_load(VIEWS_EXAMPLE)))
    parts = [_HEAD + EXAMPLE + "```\n"]
    parts += [section(model, path) for path, model in models(config.Config, "headrace.yaml")]
    parts.append(f"## View files\n\n```yaml\n{VIEWS_EXAMPLE}```\n")
    parts += [section(model, path) for path, model in models(ViewsFile, "views/*.yaml")]
    return "\n".join(parts)


def schemas() -> Mapping[str, str]:
    """Path in the repository → text of each JSON Schema."""
    made = {CONFIG_SCHEMA: config.schema(), VIEWS_SCHEMA: json_schema(ViewsFile)}
    return {path: json.dumps(schema, indent=2) + "\n" for path, schema in made.items()}


def models(
    model: type[BaseModel], path: str, seen: set[type[BaseModel]] | None = None
) -> Iterator[tuple[str, type[BaseModel]]]:
    """A model and those inside it, each once, with the place where it stands."""
    seen = set() if seen is None else seen
    if model in seen:
        return
    seen.add(model)
    yield path, model
    for name, info in model.model_fields.items():
        inside = list(_models_in(info.annotation))
        for inner in inside:
            tag = _tag(inner) if len(inside) > 1 else None
            place = f"{path} · {info.alias or name}" + (f" ({tag})" if tag else "")
            yield from models(inner, place, seen)


def section(model: type[BaseModel], path: str) -> str:
    """One model: its docstring and a row a field."""
    told = (model.__doc__ or "").strip()
    rows = [
        (f"`{info.alias or name}`", f"`{spell(info.annotation)}`", _default(info), _meaning(info))
        for name, info in model.model_fields.items()
    ]
    return f"## {path}\n\n{told}\n\n{table(('field', 'type', 'default', 'meaning'), rows)}"


def spell(annotation: Any) -> str:
    """A type as a reader of YAML thinks of it.

    >>> spell(list[str] | None), spell(dict[str, int])
    ('list of string or null', 'map of string to integer')
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return spell(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(spell(a) for a in arguments))
    if origin is typing.Literal:
        return " or ".join(json.dumps(a) for a in arguments)
    if origin in (list, tuple):
        return f"list of {spell(arguments[0])}"
    if origin is dict:
        return f"map of {spell(arguments[0])} to {spell(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _tag(annotation) or "map"
    names = {
        str: "string",
        int: "integer",
        float: "number",
        bool: "boolean",
        type(None): "null",
        SecretStr: "string, secret",
    }
    return names.get(annotation, "any")


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def _tag(model: type[BaseModel]) -> str | None:
    """What `type:` says for this member of a union."""
    info = model.model_fields.get("type")
    values = () if info is None else typing.get_args(info.annotation)
    return f"type: {values[0]}" if len(values) == 1 else None


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "as below"
    if value is None or value is PydanticUndefined:
        return "none"
    return f"`{json.dumps(value if not isinstance(value, tuple) else list(value))}`"


def _meaning(info: FieldInfo) -> str:
    told = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
    said = [f"{word} {getattr(m, name):g}" for m in info.metadata for name, word in told.items() if hasattr(m, name)]
    return "; ".join(filter(None, [(info.description or "").replace("<", "&lt;"), *said]))


def options() -> str:
    """Every subcommand with its options, as docs/cli.md lists them."""
    root = typer.main.get_command(app)
    return "\n".join(_command(name, command) for name, command in _commands(root, "headrace"))


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for key, child in inner.items():
        yield from _commands(child, f"{name} {key}")


def _command(name: str, command: Any) -> str:
    rows = []
    for parameter in command.params:
        spelled = "/".join((*parameter.opts, *parameter.secondary_opts)) if parameter.param_type_name == "option" else (
            (parameter.name or "").upper() + ("…" if parameter.nargs == -1 else ""))  # fmt: skip
        default = (
            parameter.default if parameter.default not in (None, False) and not callable(parameter.default) else ""
        )
        needed = "required" if parameter.required else f"`{default}`" if default != "" else ""
        rows.append((f"`{spelled}`", getattr(parameter, "help", None) or "", needed))
    return f"### {name}\n\n{(command.help or '').strip()}\n\n{table(('option', 'meaning', 'default'), rows)}"
