"""On real servers: a state folder is lost after a partition's TRUNCATE was skipped and its table compared with the source.

What Debezium's topics tell has rows then that Postgres has not. Until the comparison is done again the table is unproven, in
status, probes and metrics, and its views keep what they had.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sidecar.support.real import Real, real

VIEWS = {
    "leaf_rows": "select id, v from split",
    "leaf_sums": "select count(*) as n, sum(v) as v from split",
    "wide_rows": "select id, v from wide",
}
OVER_SPLIT = {"leaf_rows", "leaf_sums"}
DDL = (
    "create table wide (id int primary key, v int not null)",
    "create table split (id int primary key, v int not null) partition by range (id)",
    "create table split_low partition of split for values from (0) to (100)",
    "create table split_high partition of split for values from (100) to (1000)",
    "insert into wide select i, i from generate_series(1, 50) i",
    "insert into split select i, i from generate_series(1, 200) i",
)


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def states(shop: Real) -> dict[str, str]:
    return {v["name"]: v["state"] for v in shop.status()["views"]}


def held(shop: Real) -> list[Any]:
    """What the sink has of the sums."""
    with psycopg.connect(shop.sink_url, autocommit=True) as db:
        return db.execute("select n, v from headrace.leaf_sums").fetchall()


def lose(shop: Real) -> None:
    assert shop.stop() == 0
    shutil.rmtree(shop.folder / "state")


@pytest.mark.timeout(600)
def test_a_skip_and_a_resync_outlive_the_state(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    shop.configure(VIEWS)
    shop.start()
    shop.equal(source, VIEWS)
    source.run("truncate split_low")  # one leaf: which rows were its own is not known
    shop.until(lambda: shop.in_error() == OVER_SPLIT, "the views of the table stand")
    (stands,) = shop.status()["sources"][0]["stopped"]
    assert shop.stop() == 0
    shop.configure(VIEWS, of_source={"skip": [{k: stands[k] for k in ("topic", "partition", "offset")}]})
    shop.start()
    shop.until(lambda: not shop.in_error(), "the views have come back")
    assert {n for n, s in states(shop).items() if s == "unproven"} == OVER_SPLIT, "a TRUNCATE was passed over"
    told = shop.command_json("resync", "public.split", "--from", source.url)
    assert (told["code"], told["removed"]) == (0, 99), told
    shop.equal(source, VIEWS)
    shop.until(lambda: "unproven" not in states(shop).values(), "the table is proven")
    right = held(shop)

    lose(shop)
    shop.configure(VIEWS)  # without `skip:`, and without a database to ask
    shop.start()
    shop.until(lambda: states(shop)["wide_rows"] == "fresh", "the others go on")
    source.run("insert into wide values (1000, 1)", "update split set v = v + 1 where id = 150")
    shop.equal(source, {"wide_rows": VIEWS["wide_rows"]})
    assert held(shop) == right, "its views keep what they had"
    assert {n for n, s in states(shop).items() if s == "unproven"} == OVER_SPLIT
    assert shop.get("/readyz?view=leaf_sums") is None, "not ready"
    assert shop.get("/readyz?view=wide_rows") is not None
    metrics = (shop.get("/metrics") or b"").decode()
    assert 'headrace_table_unproven{table="public.split"} 1.0' in metrics
    assert 'headrace_view_up{view="leaf_sums"} 0.0' in metrics
    assert "table_unproven" in shop.log()
    told = shop.command_json("resync", "public.split", "--from", source.url)
    assert (told["code"], told["removed"]) == (0, 99), told
    shop.equal(source, VIEWS)
    shop.until(lambda: "unproven" not in states(shop).values(), "the table is proven")
    shop.until(lambda: shop.get("/readyz?view=leaf_sums") is not None, "it is ready")
    right = held(shop)

    lose(shop)
    shop.configure(VIEWS, of_source={"database": source.url})
    shop.start()
    shop.until(lambda: "event=mended" in shop.log() or '"mended"' in shop.log(), "it is compared by itself")
    assert held(shop) == right
    source.run("update split set v = v + 1 where id = 160")
    shop.equal(source, VIEWS)
    assert set(states(shop).values()) == {"fresh"}, json.dumps(shop.status()["views"], default=str)
    assert shop.stop() == 0
