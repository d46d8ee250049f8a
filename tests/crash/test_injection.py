"""Identifiers and values hostile to SQL, YAML, topics and shells pass through as what they are, or are refused by name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from headrace.connectors.kafka import topics
from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import SinkError
from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.config import load_for_replay
from headrace.sidecar.offline.recording_replay import Replay
from headrace.sidecar.wiring.project import read_project
from headrace.views.yaml_reader import ConfigError
from tests.contracts.sink import changes, frontier, view_of, whole
from tests.contracts.test_postgres_sink import read_texts
from tests.crash.record import COLUMNS, FILE, KEYS

NAMES = (
    'x"; drop table precious; --', "o'clock", "%s", "%(name)s", "{frontier}", "back\\slash", "new\nline", "$(touch x)", "`id`",
    "select", " ", "a", "\u0430", "\u212bngstr\u00f6m", "\u202eright to left", "tab\there", "ä" * 31, "\U0001f600",
)  # fmt: skip
VALUES = (
    "'; drop table precious; --", "\\", "\\N", "\\.", '"', "%s", "{}", "\t\n\r", "NULL", "", "\u2028", "$1", "a,b", "\U0001f600",
)  # fmt: skip


@pytest.mark.parametrize("key", [("id",), None], ids=["key", "multiset"])
@pytest.mark.parametrize("many", [1, 600], ids=["few", "many"])
def test_the_postgres_sink_keeps_hostile_columns_and_values_as_they_are(
    database: str, key: tuple[str, ...] | None, many: int
) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("create table precious (v int)")
    view = view_of("hostile", key, id="bigint!", **dict.fromkeys(NAMES, "text"))
    rows = [
        (n, *(VALUES[(n + i) % len(VALUES)] for i in range(len(NAMES)))) for n in range(len(VALUES) * many // 10 + 2)
    ]
    sink = PostgresSink("g'; drop --", database, program="p%s'")
    try:
        sink.open([view])
        sink.write({"hostile": whole(view, 1, *rows)}, frontier(1))
        gone, new = rows[0], (10_000, *reversed(rows[1][1:]))
        sink.write({"hostile": changes(view, (gone, 2, -1), (new, 2, 1))}, frontier(2))
        again = [(n + 20_000, *row[1:]) for n, row in enumerate(rows * (1 if many == 1 else 2))]
        sink.write({"hostile": changes(view, *((row, 3, 1) for row in again))}, frontier(3))
    finally:
        sink.close()
    kept = Counter(tuple(str(v) for v in row) for row in [*rows[1:], new, *again])
    with psycopg.connect(database) as admin:
        assert read_texts(admin, "hostile", ["id", *NAMES]) == kept
        assert admin.execute("select count(*) from precious").fetchone() == (0,)


@pytest.mark.parametrize("name", ["x" * 64, "ä" * 32, "a\0b", ""])
def test_a_name_that_postgres_would_cut_or_not_take_is_refused(database: str, name: str) -> None:
    view = view_of("v", None, **{name: "text"})
    sink = PostgresSink("g", database)
    with pytest.raises(SinkError, match="63 bytes of a name"):
        sink.open([view])


def test_topics_that_kafka_does_not_take_or_cannot_tell_apart_are_refused() -> None:
    for name in ("a b", "a/b", "..", "", "ä", "x" * 250, "a\n", "a;b"):
        with pytest.raises(SinkError):
            topics.check_names([name], SinkError)
    with pytest.raises(SinkError, match="apart"):
        topics.check_names(["a.b", "a_b"], SinkError)


def configuration(folder: Path, views: str) -> Path:
    """A source of the recorded tables, hostile names and all."""
    tables = [
        {"name": name, "columns": [{"name": c, "data_type": t} for c, t in columns]}
        | ({"key": KEYS[name]} if name in KEYS else {})
        for name, columns in COLUMNS.items()
    ]
    body = {
        "version": 1, "name": "hostile", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "http": None,
        "sources": [{"name": "plain", "type": "debezium", "topic_prefix": "plain", "time_precision_mode": "microseconds",
                     "tables": tables}],
    }  # fmt: skip
    (folder / "views").mkdir()
    (folder / "views" / "v.yaml").write_text(views)
    (folder / "headrace.yaml").write_text(json.dumps(body))
    return folder / "headrace.yaml"


def test_a_view_over_a_table_of_hostile_names_answers(tmp_path: Path) -> None:
    text = """select "k e'y" as "k'", "x""; drop" as "; --" from public."odd ""name;--" where "k e'y" > 1"""
    body = {"version": 1, "views": [{"name": "odd", "sql": text}]}
    replay = Replay(load_for_replay(configuration(tmp_path, json.dumps(body))), [FILE])
    for _ in replay.steps():
        continue
    (odd,) = replay.final()
    assert odd.rows.rows.to_pylist() == [{"k'": 2, "; --": "tab\there \\ \"quoted\" 'single'"}]


@pytest.mark.parametrize(
    "name",
    [
        'v"; drop',
        "v'",
        "V",
        "v v",
        "v\n",
        "v\\0",
        "../v",
        "v" * 64,
        "",
        "\u0435",
        "%s",
        "$(id)",
        "v;",
        "a: b",
        "- v",
        "&v",
        "!!v",
    ],
)
def test_the_name_of_a_view_that_could_mean_something_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    text = json.dumps({"version": 1, "views": [{"name": name, "sql": "select id from public.plain"}]})
    with pytest.raises(ConfigError) as caught:
        read_project(load_for_replay(configuration(tmp_path, text)))
    assert caught.value.where["field"] == "views[0].name"


@pytest.mark.parametrize("shape", ["url", "keywords", "quoted", "kafka"])
def test_a_secret_stands_in_no_error_of_the_configuration(tmp_path: Path, shape: str) -> None:
    """Found by the crash tests: a libpq string instead of a URL was shown whole."""
    secret = "canary-9e1d"
    url = {
        "url": f"mysql://user:{secret}@127.0.0.1/db", "keywords": f"user=u password={secret} host=h dbname=d",
        "quoted": f"host=h password = '{secret} it\\'s' user=u", "kafka": "postgresql://u@h/d",
    }[shape]  # fmt: skip
    path = configuration(tmp_path, json.dumps({"version": 1, "views": []}))
    body = json.loads(path.read_text())
    body["sinks"] = [{"name": "s", "type": "postgres", "url": url, "interval_ms": secret if shape == "kafka" else 0}]
    if shape == "kafka":
        body["sinks"][0] = {"name": "s", "type": "kafka", "kafka": {"sasl.password": [secret]}}
    path.write_text(json.dumps(body))
    with pytest.raises(HeadraceError) as caught:
        load_for_replay(path)
    for error in (caught.value, *getattr(caught.value, "others", ())):
        assert secret not in f"{error} {error.as_json()}"
