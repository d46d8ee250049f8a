"""headrace.yaml is strict, names every mistake, and never shows a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sidecar.config.config import kafka_settings, load, load_partly, schema
from headrace.views.yaml_reader import ConfigError

GOOD = """\
version: 1
name: shop
kafka: {bootstrap.servers: "127.0.0.1:9092", enable.ssl.certificate.verification: false}
sources:
  - name: shop
    type: debezium
    topic_prefix: shop
    tables:
      - name: public.orders
        key: [id]
        columns: [{name: id, data_type: bigint}, {name: total, data_type: "numeric(12,2)", nullable: true}]
sinks:
  - {name: warehouse, type: postgres, url: "${env:WAREHOUSE_URL}", schema: headrace}
  - {name: bus, type: kafka, topic_prefix: views., format: json}
views: ./views
http: 127.0.0.1:8088
"""
ENV = {"WAREHOUSE_URL": "postgresql://u:hush@h/d"}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headrace.yaml"
    path.write_text(text)
    return path


def test_the_documented_shape_loads(tmp_path: Path) -> None:
    settings = load(write(tmp_path, GOOD), ENV)
    config = settings.config
    assert config.sinks[0].type == "postgres"
    assert config.sinks[0].url.get_secret_value() == ENV["WAREHOUSE_URL"]
    assert settings.state == tmp_path / "state"
    assert kafka_settings(config.kafka)["enable.ssl.certificate.verification"] == "false"
    table = config.sources[0].tables
    assert table is not None
    declared = table[0].schema_of()
    assert declared is not None
    assert declared.key == (0,)
    assert not declared.columns[0].nullable
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("http: 127", "htpp: 127", ("headrace.yaml:16:", "htpp", "http")),
        ("data_type: bigint", "data_type: 'bigint('", ("headrace.yaml:11:", "data_type")),
        ("type: debezium", "type: debezum", ("headrace.yaml:6:", "debezum", "debezium")),
        ("key: [id]", "key: [idd]", ("idd",)),
        ("key: [id]", "key: []", ("has no columns", "leave `key` out")),
        ("http: 127.0.0.1:8088", "http: nowhere", ("headrace.yaml:16:", "host:port")),
        ("version: 1", "version: 1\nversion: 1", ("headrace.yaml:2:", "duplicate")),
        ("name: bus", "name: warehouse", ("two sinks are named warehouse",)),
        ('bootstrap.servers: "127.0.0.1:9092", ', "", ("bootstrap.servers",)),
    ],
)
def test_mistakes_name_line_field_and_remedy(tmp_path: Path, old: str, new: str, expected: tuple[str, ...]) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, GOOD.replace(old, new)), ENV)
    for part in ("headrace.yaml", *expected):
        assert part in str(caught.value)


def test_a_secret_is_not_shown_by_the_error_about_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, GOOD), {"WAREHOUSE_URL": "mysql://u:hush@h/d"})
    assert "hush" not in str(caught.value)
    assert "sinks[0].url" in str(caught.value)


def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="WAREHOUSE_URL is not set"):
        load(write(tmp_path, GOOD), {})


def test_what_connects_to_nothing_needs_no_secret(tmp_path: Path) -> None:
    settings = load_partly(write(tmp_path, GOOD), {})
    assert len(settings.unfilled) == 1
    assert "WAREHOUSE_URL is not set" in settings.unfilled[0]
    assert load_partly(write(tmp_path, GOOD), ENV).unfilled == ()
    path = write(tmp_path, GOOD.replace("${env:WAREHOUSE_URL}", "${file:not/there}"))
    assert "cannot read" in load_partly(path, {}).unfilled[0]


def test_the_schema_for_editors_knows_every_field() -> None:
    assert {"version", "name", "state", "kafka", "sources", "sinks", "views", "http"} <= schema()["properties"].keys()
