"""Strict YAML: every mistake names its place, and nothing secret is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, SecretStr

from headrace.views.yaml_models import StrictModel, json_schema, load_yaml
from headrace.views.yaml_reader import ConfigError, read_yaml


class Table(StrictModel):
    name: str
    key: tuple[str, ...] = ()


class Debezium(StrictModel):
    name: str
    type: Literal["debezium"]
    topic_prefix: str
    tables: tuple[Table, ...] = ()


class Spark(StrictModel):
    name: str
    type: Literal["spark"]
    port: int = 0


class Config(StrictModel):
    version: Literal[1]
    state: Path = Path("state")
    sources: tuple[Annotated[Debezium | Spark, Field(discriminator="type")], ...] = ()
    kafka: dict[str, str] = Field(default={})
    flag: bool = False
    url: SecretStr = SecretStr("")


def load(folder: Path, text: str, **env: str) -> Config:
    path = folder / "headrace.yaml"
    path.write_text(text)
    return load_yaml(path, Config, interpolate=True, env=env)


def fail(folder: Path, text: str, **env: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **env)
    return caught.value


def test_values_keep_their_types(tmp_path: Path) -> None:
    text = "version: 1\nstate: ./s\nsources:\n- {type: spark, name: a, port: 7}\nkafka: {a.b: 'x'}\nflag: true\n"
    config = load(tmp_path, text)
    assert config.sources == (Spark(type="spark", name="a", port=7),)
    assert (config.state, config.kafka, config.flag) == (Path("s"), {"a.b": "x"}, True)


@pytest.mark.parametrize(
    ("text", "what", "line", "column", "field", "value", "hint"),
    [
        ("version: 1\nstat: x\n", "unknown key 'stat'", 2, 1, "stat", "x", "did you mean state?"),
        (
            "version: 1\nsources:\n  - name: a\n    type: debezium\n    topic_prefix: p\n    tables:\n"
            "      - name: t\n        keys: [id]\n",
            "unknown key 'keys'", 8, 9, "sources[0].tables[0].keys", None, "did you mean key?",
        ),
        ("version: 1\nversion: 1\n", "duplicate key 'version', first on line 1", 2, 1, "version", None, ""),
        ("version: 1\nflag: yes\n", "input should be a valid boolean", 2, 1, "flag", "yes", ""),
        ("version: 1\nkafka: {a: 1}\n", "input should be a valid string", 2, 9, "kafka.a", "1", ""),
        ("version: '1'\n", "must be one of 1", 1, 1, "version", '"1"', ""),
        ("version: 1\nsources: [{type: sparc, name: a}]\n", "must be one of 'debezium', 'spark'", 2, 12,
         "sources[0].type", "sparc", "did you mean spark?"),
        ("version: 1\nsources: [{type: spark}]\n", "missing key 'name'", 2, 11, "sources[0].name", None, ""),
        ("version: 1\nstate: ${env:NOPE}\n", "environment variable NOPE is not set", 2, 8, "state", None,
         "export NOPE=…"),
        ("version: 1\nstate: ${vault:x}\n", "unknown reference scheme 'vault'", 2, 8, "state", None, "use ${env:NAME}"),
        ("version: [1\n", "not YAML", 2, 1, None, None, ""),
        ("", "missing key 'version'", 1, 1, "version", None, ""),
        ("- a\n", "the file must hold a mapping", 1, None, None, None, ""),
        ("version: &a [*a]\n", "an alias that holds itself", 1, 10, "version[0]", None, ""),
        ("version: !!python/name:os.system x\n", "tag ", 1, 10, "version", None, ""),
    ],
)  # fmt: skip
def test_mistakes_name_their_place(
    tmp_path: Path, text: str, what: str, line: int, column: int | None, field: str | None, value: str | None, hint: str
) -> None:
    error = fail(tmp_path, text)
    assert error.what.startswith(what)
    where = error.where
    assert (where.get("line"), where.get("column"), where.get("field")) == (line, column, field)
    assert where.get("value") == value
    assert hint in error.hint
    assert where["file"] == tmp_path / "headrace.yaml"


def test_all_mistakes_of_a_file_come_by_line(tmp_path: Path) -> None:
    error = fail(tmp_path, "version: 2\nflag: 3\nnope: 1\n")
    assert [e.where["line"] for e in (error, *error.others)] == [1, 2, 3]


def test_references_are_filled_and_typed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cr3t\n")
    text = (
        "version: 1\nurl: 'pg://u:${file:secret}@${env:HOST}'\nstate: $${x}\n"
        "sources: [{type: spark, name: '${env:PORT}', port: '${env:PORT}'}]\n"
    )
    config = load(tmp_path, text, HOST="h", PORT="5432")
    assert config.url.get_secret_value() == "pg://u:s3cr3t@h"
    assert config.state == Path("${x}")
    assert config.sources == (Spark(type="spark", name="5432", port=5432),)


@pytest.mark.parametrize(
    "text",
    [
        "version: ${env:SECRET}\n",
        "version: 1\nflag: 'a${env:SECRET}'\n",
        "version: 1\n${env:SECRET}: 1\nother: ${env:SECRET}\n",
        "version: 1\nsources: [{type: '${env:SECRET}', name: a}]\n",
        "version: 1\nkafka: {sasl.password: 86753091}\n",
        "version: 1\nnope: pg://user:hunter22@host/db\n",
    ],
)
def test_secrets_are_not_shown(tmp_path: Path, text: str) -> None:
    error = fail(tmp_path, text, SECRET="hunter22")
    for shown in (error, *error.others):
        assert "hunter22" not in f"{shown} {shown.as_json()}"
        assert "86753091" not in str(shown)


def test_without_interpolation_text_stays(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("version: 1\nstate: ${env:X}\n")
    assert load_yaml(path, Config, interpolate=False, env={}).state == Path("${env:X}")


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the file: No such file"):
        load_yaml(tmp_path / "nope.yaml", Config, interpolate=True, env={})


@pytest.mark.parametrize(
    ("text", "find", "line", "column"),
    [
        ("sql: |\n  select a\n    from b\n", "from", 3, 5),
        ("sql: |2\n    select a\n  from b\n", "from", 3, 3),
        ("sql: >-\n  select a\n  from b\n", "from", 3, 3),
        ("sql: select a from b\n", "from", 1, 15),
        ("sql: select a\n  from b\n", "from", 2, 3),
        ("sql: 'select ''x'' from b'\n", "from", 1, 20),
        ('sql: "select \\"x\\" from b"\n', "from", 1, 20),
        ("a: 1\nsql: |\n\n\n  select a from b\n", "from", 5, 12),
        ("sql: |\r\n  select a\r\n  from b\r\n", "from", 3, 3),
    ],
)
def test_places_inside_strings(tmp_path: Path, text: str, find: str, line: int, column: int) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(text.encode())
    document = read_yaml(path, interpolate=False, env={})
    assert document.locate(("sql",), document.value["sql"].index(find)) == (line, column)


def test_json_schema_is_strict_and_admits_references() -> None:
    schema = json_schema(Config, interpolate=True)
    assert schema["additionalProperties"] is False
    assert schema["$schema"].startswith("https://json-schema.org/")
    port = schema["$defs"]["Spark"]["properties"]["port"]
    assert {"type": "integer"} in port["anyOf"]
    assert any("pattern" in option for option in port["anyOf"])
