"""Before a run a registered connector is compared with headrace.yaml, the modes of its values included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.debezium import connect
from headrace.connectors.debezium.connect import ConnectError
from headrace.connectors.debezium.settings import Connection, Tuning, connector_config
from headrace.sidecar.config.config import Settings, load
from headrace.sidecar.intake.connector_preflight import check_connectors, declared_modes, unchecked

MODES = ("time.precision.mode", "decimal.handling.mode", "binary.handling.mode", "interval.handling.mode")
COLUMNS = {
    "id": "bigint",
    "at": "timestamp without time zone",
    "total": "numeric(12,2)",
    "raw": "bytea",
    "span": "interval",
}


def registered(**settings: str) -> Mapping[str, str]:
    config = connector_config(
        "shop", Connection("db", 5432, "cdc", "shop", "hunter2"), ["public.orders"], tuning=Tuning()
    )
    return {**config, **settings}


def settings(tmp_path: Path, columns: Mapping[str, str | Mapping[str, Any]], **source: Any) -> Settings:
    table = {"name": "public.orders", "key": ["id"],
             "columns": [{"name": n, **({"data_type": t} if isinstance(t, str) else t)} for n, t in columns.items()]}  # fmt: skip
    modes = {m.replace(".", "_"): v for m, v in registered().items() if m in MODES}
    body = {
        "version": 1, "name": "shop", "kafka": {"bootstrap.servers": "127.0.0.1:9"},
        "sources": [{"name": "shop", "type": "debezium", "topic_prefix": "shop", "tables": [table],
                     "connect": "http://127.0.0.1:9", **modes, **source}],
        "sinks": [{"name": "bus", "type": "kafka"}],
    }  # fmt: skip
    path = tmp_path / "headrace.yaml"
    path.write_text(json.dumps(body))
    return load(path, {})


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What Connect says of the connector."""
    config = dict(registered())
    monkeypatch.setattr(connect, "registered", lambda _: {"shop-connector": ("RUNNING", config)})
    return config


def test_a_connector_that_encodes_as_headrace_decodes_passes(tmp_path: Path, shop: dict[str, str]) -> None:
    check_connectors(settings(tmp_path, COLUMNS))


def test_a_connector_without_a_snapshot_passes_where_a_checkpoint_has_the_tables(
    tmp_path: Path, shop: dict[str, str]
) -> None:
    made = settings(tmp_path, COLUMNS)
    shop["snapshot.mode"] = "no_data"
    for begun in (frozenset[str](), frozenset({"another"})):
        with pytest.raises(ConnectError, match=r"snapshot\.mode is no_data"):
            check_connectors(made, lambda found=begun: found)  # type: ignore[misc]
    check_connectors(made, lambda: {"shop"})
    shop["snapshot.mode"] = "never"
    with pytest.raises(ConnectError, match=r"snapshot\.mode is never"):
        check_connectors(made, lambda: {"shop"})


@pytest.mark.parametrize(
    ("mode", "value"),
    [
        ("time_precision_mode", "nanoseconds"),
        ("decimal_handling_mode", "double"),
        ("binary_handling_mode", "hex"),
        ("interval_handling_mode", "numeric"),
        ("unavailable_value", "?"),
    ],
)
def test_one_that_encodes_otherwise_is_refused_by_name(
    tmp_path: Path, shop: dict[str, str], mode: str, value: str
) -> None:
    setting = "unavailable.value.placeholder" if mode == "unavailable_value" else mode.replace("_", ".")
    with pytest.raises(ConnectError) as raised:
        check_connectors(settings(tmp_path, COLUMNS, **{mode: value}))
    assert raised.value.where["setting"] == setting
    assert raised.value.where["connector"] == "shop-connector"
    assert f"{setting}={value}" in raised.value.hint


@pytest.mark.parametrize(
    ("columns", "modes", "compared"),
    [
        ({"id": "bigint", "name": "text"}, {"time_precision_mode": "connect", "binary_handling_mode": "hex"}, set()),
        ({"at": "timestamp without time zone"}, {"time_precision_mode": "adaptive"}, set()),
        ({"at": "timestamp(3) without time zone"}, {"time_precision_mode": "adaptive"}, {"time.precision.mode"}),
        ({"totals": "numeric(12,2)[]"}, {"decimal_handling_mode": "double"}, {"decimal.handling.mode"}),
    ],
)
def test_a_mode_that_changes_no_declared_column_is_not_compared(
    tmp_path: Path, shop: dict[str, str], columns: dict[str, str], modes: dict[str, str], compared: set[str]
) -> None:
    made = settings(tmp_path, {"id": "bigint", **columns}, **modes)
    named = set(declared_modes(made.config.sources[0], shop)) - {"unavailable.value.placeholder"}
    assert named == compared
    if not compared:
        check_connectors(made)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"at": {"data_type": "timestamp without time zone"}}, False),
        ({"at": {"data_type": "timestamp(3)[]", "nullable": False}}, False),
        ({"at": {"data_type": "timestamp", "nullable": False}}, True),
        (
            {"at": {"data_type": "timestamp with time zone"}, "of": {"data_type": "time"}, "on": {"data_type": "date"}},
            True,
        ),
    ],
)
def test_nanoseconds_are_refused_where_a_null_may_stand_for_a_timestamp(
    tmp_path: Path, shop: dict[str, str], columns: dict[str, dict[str, Any]], told: bool
) -> None:
    shop["time.precision.mode"] = "nanoseconds"
    made = settings(tmp_path, {"id": "bigint", **columns}, time_precision_mode="nanoseconds")
    if told:
        check_connectors(made)
    else:
        with pytest.raises(ConnectError, match=r"arrive as NULL, in at of public\.orders"):
            check_connectors(made)


def test_a_connector_that_drops_truncates_is_refused(tmp_path: Path, shop: dict[str, str]) -> None:
    shop["skipped.operations"] = "t"
    with pytest.raises(ConnectError, match=r"skipped\.operations"):
        check_connectors(settings(tmp_path, COLUMNS))


def test_a_source_that_does_not_name_connect_is_said_to_be_unchecked(tmp_path: Path) -> None:
    made = settings(tmp_path, COLUMNS, connect=None)
    check_connectors(made)
    assert unchecked(made) == ("shop",)
