"""A replication slot that is lost on a real source: the connector says so or reads again, and rows not seen again go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.state.checkpoint import read_manifest
from tests.sidecar.support.process import wait
from tests.sidecar.support.real import Real, Source, real

VIEWS = {
    "one": "select id, v from item",
    "sums": "select count(*) as n, sum(v) as v from item",
    "pairs": "select i.id, t.what from item i join thing t on t.v = i.v",
    "none_left": "select count(*) as n from emptied",
}
DDL = (
    "create table item (id int primary key, v int not null)",
    "create table thing (v int primary key, what text)",
    "create table emptied (id int primary key)",
    "insert into item select i, i from generate_series(1, 20) i",
    "insert into thing select i, 'thing ' || i from generate_series(1, 30) i",
    "insert into emptied select i from generate_series(1, 5) i",
)


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def lose_slot(shop: Real, source: Source) -> None:
    """While the connector is stopped, and rows change that nobody will ever tell of."""
    shop.pause(source)
    with psycopg.connect(source.url, autocommit=True) as db:
        db.execute("select pg_drop_replication_slot(%s)", (source.slot,))
    source.together("delete from item where id in (1, 2)", "update item set v = v + 5 where id = 3", "truncate emptied")
    source.together(
        "insert into item select max(id) + 100, 7 from item", "update thing set v = v + 1000 where v in (5, 6)"
    )


def checkpointed(shop: Real) -> int:
    """The epoch of the newest manifest."""
    newest: Path = max((shop.folder / "state" / "generations").iterdir())
    manifest = read_manifest(newest / "manifest.json")
    return -1 if manifest is None else manifest.epoch


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_rows_that_are_not_seen_again_go(shop: Real, mode: str) -> None:
    quick = {"snapshot.mode": mode, "errors.max.retries": "1", "retriable.restart.connector.wait.ms": "300"}
    source = shop.source(shop.name, DDL, overrides=quick)
    connect = shop.stack.connect
    shop.configure(VIEWS, of_source={"connect": connect.url})
    shop.start()
    source.together("update item set v = v + 1 where id < 5", "delete from item where id = 20")
    shop.equal(source, VIEWS)
    for lives in (True, False):
        before = {name: shop.answer(shop.sink_url, f"select * from headrace.{name}")[0] for name in VIEWS}
        if not lives:
            # a snapshot of which the log alone tells may not be replaced by another: that is refused by name
            wait(lambda: checkpointed(shop) >= int(shop.status()["epoch"]), "a checkpoint holds the last snapshot")
            shop.kill()
        lose_slot(shop, source)
        shop.resume(source)
        if mode == "initial":  # nothing is lost in silence: it stands, until it is told to read again
            with pytest.raises(DevstackError, match="no longer available on the server"):
                connect.wait_running(source.name, source.slot, 240)
            assert {name: shop.answer(shop.sink_url, f"select * from headrace.{name}")[0] for name in VIEWS} == before
            shop.pause(source)
            wait(
                lambda: connect.request("DELETE", f"/connectors/{source.name}/offsets")[0] == 200,
                "its offsets are gone",
            )
            shop.resume(source)
        connect.wait_running(source.name, source.slot, 240)
        if not lives:
            shop.start()
        source.together(
            "update item set v = v + 1 where id = 4", "insert into emptied select coalesce(max(id), 0) + 1 from emptied"
        )
        shop.equal(source, VIEWS)
        source.run("insert into item values (1, 1)", "update item set v = v + 1", "delete from item where id = 1")
        shop.equal(source, VIEWS)
    assert shop.stop() == 0
