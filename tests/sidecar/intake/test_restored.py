"""A source that goes back to an older copy of itself: nothing tells so, Postgres least of all, but its heartbeats do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import HEARTBEAT_TABLE
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.conftest import FAST
from tests.sidecar.support.process import wait
from tests.sidecar.support.real import Real, Source, real

VIEWS = {"kept": "select id, v from item", "sums": "select count(*) as n, sum(v) as v from item"}
DDL = (
    "create table item (id int primary key, v int not null)",
    "insert into item select i, i from generate_series(1, 20) i",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path / "source", settings=FAST) as made:
        yield made


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str, server: EmbeddedPostgres) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def copy_of(server: EmbeddedPostgres, place: Path) -> None:
    """A copy of its disk, as a backup takes it, slots and all."""
    server.stop()
    subprocess.run(["cp", "-a", server.data, place], check=True)
    server.start()


def restore(server: EmbeddedPostgres, place: Path) -> None:
    """It dies, and its disk is that of the copy again."""
    assert server.child is not None
    server.child.kill()
    server.stop()
    shutil.rmtree(server.data)
    subprocess.run(["cp", "-a", place, server.data], check=True)
    server.start()


def beat_of(source: Source) -> int:
    """The number of its last heartbeat."""
    with psycopg.connect(source.url, autocommit=True) as db:
        found = db.execute(f"select beat from {HEARTBEAT_TABLE}").fetchone()
    assert found is not None
    return int(found[0])


def begin_anew(shop: Real, source: Source) -> None:
    """What the error says: the connector, its offsets, its topics and its slot go, and it makes a new snapshot."""
    connect = shop.stack.connect
    shop.pause(source)
    wait(lambda: connect.request("DELETE", f"/connectors/{source.name}/offsets")[0] == 200, "its offsets are gone")
    connect.delete(source.name)
    admin = AdminClient({"bootstrap.servers": shop.stack.kafka.bootstrap})

    def topics() -> list[str]:
        there = admin.list_topics(timeout=30).topics
        ours = (f"{source.name}.public.", f"{source.name}.headrace.")
        marks = {f"{source.name}.{what}" for what in ("transaction", "notifications")} | {
            f"__debezium-heartbeat.{source.name}"
        }
        return [t for t in there if t in marks or t.startswith(ours)]

    for gone in admin.delete_topics(topics()).values():
        gone.result(30)
    wait(lambda: not topics(), "the topics are gone")
    source.run(f"select pg_drop_replication_slot('{source.slot}')")
    register(connect.url, source.name, source.config)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_source_restored_from_a_copy_is_named(shop: Real, server: EmbeddedPostgres, tmp_path: Path, up: bool) -> None:
    quick = {"errors.max.retries": "-1", "retriable.restart.connector.wait.ms": "300"}
    source = shop.source(shop.name, DDL, server=server, address=("127.0.0.1", server.port), overrides=quick)
    shop.configure(VIEWS)
    shop.start()
    shop.equal(source, VIEWS)
    copy_of(server, tmp_path / "copy")
    copied = beat_of(source)
    source.run(
        "update item set v = v + 1 where id < 5", "delete from item where id = 20", "insert into item values (50, 50)"
    )
    wait(lambda: beat_of(source) > copied, "a heartbeat that the copy does not have")
    shop.equal(source, VIEWS)
    before = {name: shop.answer(shop.sink_url, f"select * from headrace.{name}")[0] for name in VIEWS}
    if not up:
        shop.kill()

    restore(server, tmp_path / "copy")
    source.run(
        "create table filler (x text)", "insert into filler select repeat('x', 500) from generate_series(1, 2000)"
    )
    shop.stack.connect.wait_running(source.name, seconds=240)
    process = shop.process if up else shop.start(wait=False)
    assert process is not None
    assert process.wait(240) == 8, shop.log()
    assert "the source's heartbeats do not follow on each other" in shop.log()
    assert f"topic={source.name}.headrace.heartbeat" in shop.log()
    assert {name: shop.answer(shop.sink_url, f"select * from headrace.{name}")[0] for name in VIEWS} == before
    assert shop.start(wait=False).wait(240) == 8, "whoever starts it again is told so again"

    begin_anew(shop, source)
    shutil.rmtree(shop.folder / "state")
    shop.start()
    shop.equal(source, VIEWS)
    source.run("update item set v = v + 3 where id = 3")
    shop.equal(source, VIEWS)
    assert shop.stop() == 0
