"""The configuration that we write, the findings on others', and the page generated from both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.connectors.debezium.config_rules import Finding, check, refused
from headrace.connectors.debezium.docs_page import document
from headrace.connectors.debezium.settings import (
    SETTINGS,
    Connection,
    Tuning,
    connector_config,
    include_list,
    slot_name,
)

CONNECTION = Connection("db", 5432, "cdc", "shop", "secret")
TABLES = ["public.orders", "public.lines"]


def ours(**overrides: str) -> dict[str, str]:
    return connector_config("shop", CONNECTION, TABLES, overrides=overrides)


def found(config: dict[str, str], setting: str) -> list[Finding]:
    return [f for f in check(config) if f.setting == setting]


def test_our_own_configuration_has_no_finding() -> None:
    for tuning in (Tuning(), Tuning(schemas=True), Tuning(partitions=6, retention_ms=-1), Tuning(via_root=True)):
        assert check(connector_config("shop", CONNECTION, TABLES, tuning=tuning)) == []


def test_every_setting_is_written_filled_in() -> None:
    config = connector_config("shop", CONNECTION, TABLES, tuning=Tuning(retention_ms=60_000))
    assert {s.name for s in SETTINGS} <= config.keys()
    assert not [v for v in config.values() if re.search(r"\{\w+\}", v)]
    assert all(s.why for s in SETTINGS)
    assert "secret" not in repr(CONNECTION)


def test_signals_without_watermarks_in_the_stream_are_refused() -> None:
    assert found(ours(**{"read.only": "true"}), "read.only") == []
    for asked in ({"signal.data.collection": "headrace.signal"}, {"signal.enabled.channels": "kafka"}):
        assert check(ours(**asked)) == []
        [finding] = found(ours(**asked, **{"read.only": "true"}), "read.only")
        assert finding.refused
        assert finding.wanted == "false"


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("connector.class", "io.debezium.connector.mysql.MySqlConnector", "PostgresConnector"),
        ("provide.transaction.metadata", "false", "true"),
        ("skipped.operations", "t", "none"),
        ("skip.messages.without.change", "true", "false"),
        ("topic.transaction", "tx", "transaction"),
        ("topic.delimiter", "_", "."),
        ("event.processing.failure.handling.mode", "warn", "fail"),
        ("event.converting.failure.handling.mode", "warn", "fail"),
        ("errors.tolerance", "all", "none"),
        ("slot.drop.on.stop", "true", "false"),
        ("snapshot.mode", "no_data", "initial"),
        ("notification.enabled.channels", "log", "sink"),
        ("notification.sink.topic.name", "elsewhere", "shop.notifications"),
        ("decimal.handling.mode", "precise", "string"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter", "JsonConverter"),
        ("value.converter.replace.null.with.default", "true", "false"),
        ("topic.creation.default.cleanup.policy", "compact,delete", "delete"),
        ("topic.creation.marks.partitions", "3", "1"),
        ("snapshot.select.statement.overrides", "public.orders", "not set"),
        ("message.key.columns", "public.orders:total", "not set"),
        ("field.name.adjustment.mode", "avro", "none"),
    ],
)
def test_each_wrong_setting_is_refused_by_name(setting: str, value: str, wanted: str) -> None:
    findings = found(ours(**{setting: value}), setting)
    assert [(f.value, f.refused) for f in findings] == [(value, True)]
    assert wanted in findings[0].wanted
    assert findings[0].why


def test_debeziums_defaults_are_refused_where_they_lose_something() -> None:
    bare = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "shop"}
    names = {f.setting for f in refused(check(bare))}
    assert names == {
        "provide.transaction.metadata", "skipped.operations", "notification.enabled.channels",
        "event.converting.failure.handling.mode", "value.converter.replace.null.with.default",
    }  # fmt: skip


def test_transforms_are_refused_by_their_class() -> None:
    unwrap = {"transforms": "a,b", "transforms.a.type": "io.debezium.transforms.ExtractNewRecordState"}
    harmless = {"transforms.b.type": "org.apache.kafka.connect.transforms.InsertHeader"}
    findings = refused(check(ours(**unwrap, **harmless)))
    assert [(f.setting, f.value) for f in findings] == [
        ("transforms.a.type", "io.debezium.transforms.ExtractNewRecordState")
    ]


def test_the_group_that_matches_decides_the_transaction_topics_partitions() -> None:
    config = connector_config("shop", CONNECTION, TABLES, tuning=Tuning(partitions=4))
    assert check(config) == []
    config["topic.creation.marks.include"] = "other.*"
    assert [f.setting for f in check(config)] == ["topic.creation.default.partitions"]


def test_advice_is_not_refused() -> None:
    config = ours(**{"decimal.handling.mode": "double", "heartbeat.interval.ms": "0", "tombstones.on.delete": "false"})
    findings = check(config)
    assert {f.setting for f in findings} == {"decimal.handling.mode", "heartbeat.interval.ms", "tombstones.on.delete"}
    assert refused(findings) == []


def test_captured_tables() -> None:
    leaves = {"public.orders": (), "public.part": ("public.part_eu", "public.part_us")}

    def missing(tables: list[str], via_root: bool = False) -> list[str]:
        config = connector_config("shop", CONNECTION, tables, tuning=Tuning(via_root=via_root))
        return [f.wanted for f in check(config, leaves)]

    both = ["public.part_eu", "public.part_us"]
    assert missing(["public.orders", *both]) == []
    assert missing(["public.orders", "public.part"], via_root=True) == []
    assert missing(["public.orders", "public.part"]) == [
        "public.part_eu, public.part_us in it", "public.part not in it",
    ]  # fmt: skip
    assert missing([*both]) == ["public.orders in it"]
    assert missing(["public.orders", "public.part", *both], via_root=True) == [", ".join(both) + " not in it"]


def test_modes_must_be_those_of_headrace_yaml() -> None:
    declared = {"time.precision.mode": "adaptive", "decimal.handling.mode": "string"}
    assert [(f.setting, f.value, f.wanted) for f in check(ours(), None, declared)] == [
        ("time.precision.mode", "microseconds", "adaptive")
    ]
    assert check(connector_config("shop", CONNECTION, TABLES, tuning=Tuning(schemas=True)), None, declared) == []


@pytest.mark.parametrize("name", ["public.orders", 'we ird."a,b"', "a.b+c", "s.x$1", "s.é"])
def test_include_list_matches_one_name_exactly(name: str) -> None:
    listed = include_list([name])
    assert "," not in listed
    assert re.fullmatch(listed, name)
    assert not re.fullmatch(listed, name + "x")
    assert not re.fullmatch(listed, name.replace(".", "_"))


def test_slot_names_are_postgress() -> None:
    assert slot_name("My.Shop-1") == "headrace_my_shop_1"
    assert len(slot_name("x" * 100)) == 63


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "debezium.md"
    assert page.read_text() == document(), "run python -m headrace.connectors.debezium.docs_page docs/debezium.md"
