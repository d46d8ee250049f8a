"""On a real Postgres: a table that is dropped, renamed, repartitioned or not published is unproven, and its views with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from headrace.connectors.commands import Doubted, Identity, MemoryCommands
from headrace.connectors.commit_place import Lsn
from headrace.sidecar.config.config import load
from headrace.sidecar.operations.catalog_watch import CatalogWatch, unproven
from headrace.sidecar.process.status_board import Board
from headrace.sidecar.state.command_log import CommandLog
from headrace.sidecar.state.synthetic_transactions import injected
from tests.sidecar.support.little import CUSTOMERS, ORDERS
from tests.sidecar.support.looked import Looked, looking
from tests.sidecar.support.process import wait


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    with looking(tmp_path, monkeypatch) as made:
        yield made


NO_ROWS = pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
PUBLISH = "alter publication headrace_shop add table"
ORDERS_DDL = "create table orders (id int primary key)"
D2_DDL = "create table d2 partition of days for values from (10) to (20)"
TABLES = {"public.orders": [], "public.days": ["public.d1", "public.d2"]}
DDL = """
create table orders (id int primary key);
create table days (day int primary key) partition by range (day);
create table d1 partition of days for values from (0) to (10);
create table d2 partition of days for values from (10) to (20);
create publication headrace_shop for table orders, d1, d2;
"""


@pytest.mark.parametrize(
    ("done", "table", "why"),
    [
        ("drop table orders", "public.orders", "dropped or renamed"),
        ("alter table orders rename to purchases", "public.orders", "dropped or renamed"),
        ("create table d3 partition of days for values from (20) to (30)", "public.days", "new partition public.d3"),
        ("alter table days detach partition d2", "public.days", "partition public.d2 was detached or dropped"),
        ("alter publication headrace_shop drop table orders", "public.orders", "not in the connector's publication"),
        ("drop publication headrace_shop", "", ""),
        ("alter table orders add column total int", "", ""),
    ],
)
def test_what_changes_do_not_tell(database: str, done: str, table: str, why: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        for statement in filter(str.strip, DDL.split(";")):
            db.execute(statement)  # type: ignore[call-overload]
        assert unproven(database, TABLES, "headrace_shop") == []
        db.execute(done)  # type: ignore[call-overload]
    found = unproven(database, TABLES, "headrace_shop")
    assert [f.table for f in found] == ([table] if table else [])
    for one in found:
        assert why in one.why
        assert one.hint


def test_views_of_an_unproven_table_are_marked_until_it_is_back(
    looked: Looked,
    database: str,
    tmp_path: Path,
) -> None:
    body = looked.shop.configure()
    body["sources"][0]["database"] = database
    (tmp_path / "watched.yaml").write_text(json.dumps(body))
    log = looked.running.runtime.parts.commands
    watch = CatalogWatch(load(tmp_path / "watched.yaml", {}), every=0.05, log=log)
    looked.board.freshness.watch = watch
    with psycopg.connect(database, autocommit=True) as db:
        for name in ("customers", "orders", "visits"):
            db.execute(f"create table {name} (id bigint, v bigint)")  # type: ignore[call-overload]
        watch.start()
        wait(lambda: log.of(Identity), "it has looked", 30)
        looked.look()
        db.execute("drop table customers")
        wait(lambda: watch.found, "it is seen", 30)
        assert looked.look() == [f"table_unproven {CUSTOMERS}"]
        assert looked.look() == []
        assert {v["name"]: v["state"] for v in looked.board.read()["views"]} == {
            "customers": "unproven", "by_city": "unproven", "orders": "fresh", "visits": "unknown",
        }  # fmt: skip
        assert looked.board.ready({"view": "by_city"}).code == 503
        assert looked.board.ready({}).code == 200
        assert f"table {CUSTOMERS}: the source has no such table" in looked.board.ready({}).text
        text = looked.running.metrics.render().decode()
        assert 'headrace_view_up{view="by_city"} 0.0' in text
        assert f'headrace_table_unproven{{table="{CUSTOMERS}"}} 1.0' in text
        assert f'headrace_table_unproven{{table="{ORDERS}"}} 0.0' in text
        db.execute("create table customers (id bigint, v bigint)")
        wait(lambda: not watch.found, "it is seen", 30)
        assert looked.look() == [], "it was never read anew"
        why = looked.board.ready({"view": "by_city"}).text
        assert "made anew under the same name" in why
        assert f"headrace resync {CUSTOMERS}" in why
        log.on_bound("shop", [injected(CUSTOMERS, NO_ROWS, np.zeros(0, np.uint8), Lsn(1 << 60), 1)])
        assert looked.look() == [f"table_proven {CUSTOMERS}"]
    watch.close()
    watch.join(10)


def test_a_database_that_is_away_changes_no_finding_and_shows_no_password(looked: Looked, tmp_path: Path) -> None:
    body = looked.shop.configure()
    body["sources"][0]["database"] = "postgresql://u:canary-5513@127.0.0.1:9/x"
    (tmp_path / "watched.yaml").write_text(json.dumps(body))
    watch = CatalogWatch(load(tmp_path / "watched.yaml", {}), every=0.05)
    watch.start()
    wait(lambda: watch.failed, "it is told", 30)
    watch.close()
    watch.join(10)
    looked.board.freshness.watch = watch
    assert watch.found == {}
    (source,) = looked.board.read()["sources"]
    assert source["catalog_unread"]
    assert "canary-5513" not in json.dumps(looked.board.read(), default=str)
    assert isinstance(looked.board, Board)


@pytest.mark.parametrize(
    ("done", "undone", "why"),
    [
        (f"drop table orders; {ORDERS_DDL}; {PUBLISH} orders", "", "anew under the same name: public.orders"),
        (f"drop table d2; {D2_DDL}; {PUBLISH} d2", "", "anew under the same name: public.d2"),
        (
            "alter table orders rename to o",
            "alter table o rename to orders",
            "for a while the source has no such table",
        ),
    ],
)
def test_what_was_so_while_nobody_looked_is_unproven_until_a_resync(
    database: str, tmp_path: Path, done: str, undone: str, why: str
) -> None:
    """`done` before a look, `undone` after it; each look is of another run."""
    kept = MemoryCommands()
    tables = [{"name": n, "key": ["id"], "columns": [{"name": "id", "data_type": "integer"}]} for n in TABLES]
    tables[1] |= {"partitions": TABLES["public.days"]}
    body = {
        "version": 1, "name": "little", "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "sources": [{"name": "s", "type": "debezium", "topic_prefix": "shop", "database": database, "tables": tables}],
        "sinks": [{"name": "w", "type": "postgres", "url": database}],
    }  # fmt: skip
    (tmp_path / "headrace.yaml").write_text(json.dumps(body))

    def looked_once() -> CommandLog:
        log = CommandLog(kept, {"s": TABLES})
        watch = CatalogWatch(load(tmp_path / "headrace.yaml", {}), log=log)
        watch.look()
        assert not watch.failed
        return log

    with psycopg.connect(database, autocommit=True) as db:
        for statement in filter(str.strip, DDL.split(";")):
            db.execute(statement)  # type: ignore[call-overload]
        assert looked_once().open == {}
        for statement in done.split(";"):
            db.execute(statement)  # type: ignore[call-overload]
        looked_once()
        if undone:
            db.execute(undone)  # type: ignore[call-overload]
            looked_once()
    log = looked_once()
    ((table, one),) = log.open.items()
    assert why in one.why
    assert one.hint == f"headrace resync {table}"
    (doubt,) = log.of(Doubted)
    log.on_bound("s", [injected(table, NO_ROWS, np.zeros(0, np.uint8), Lsn(doubt.place.order - 1), 1)])
    assert table in log.open, "it was read before"
    log.on_bound("s", [injected(table, NO_ROWS, np.zeros(0, np.uint8), doubt.place, 1)])
    assert log.open == {}
    assert CommandLog(kept, {"s": TABLES}, log.json()).open == {}
