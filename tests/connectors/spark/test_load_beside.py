"""On real servers: tables are added to a running sidecar and filled by a Spark job, while transactions go on over them."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.sidecar.config.config import load
from headrace.sidecar.lake import load_beside as beside
from headrace.sidecar.lake.load import Origin
from tests.connectors.spark.test_load_postgres import Writer
from tests.sidecar.operations.test_declared_later_real import declared, fresh
from tests.sidecar.support.process import wait
from tests.sidecar.support.real import Real, real

FIRST = {"names": "select id, name from people"}
ADDED = {
    "owners": "select owner, count(*) as n, sum(cents) as cents from public.accounts group by owner",
    "visitors": "select who, count(*) as n, max(at) as last from public.visits group by who",
    "both": "select p.name, a.owner, length(a.page) as size from people p join public.accounts a on a.id = p.id",
}
DDL = (
    "create table people (id bigint primary key, name text)",
    "insert into people select i, 'p' || i from generate_series(1, 500) i",
)
LATER = (
    "create table accounts (id bigint primary key, owner text, page text, cents numeric(12,2))",
    "create table visits (who bigint, at timestamptz)",
    "alter table visits replica identity full",
    "insert into accounts select i, 'o' || i % 7, repeat(md5(i::text), 100), i from generate_series(1, 400) i",
    "insert into visits select i % 5, '2024-01-01'::timestamptz + i * interval '1 hour' from generate_series(1, 300) i",
)
TABLES = ["public.accounts", "public.visits"]


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Any:
    with real(stack, tmp_path, unique) as made:
        yield made


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("intake", ["driver", "shards"])
def test_writers_go_on_while_added_tables_are_filled(spark: SparkSession, shop: Real, intake: str) -> None:
    engine = {"workers": 2, "intake": intake}
    source = shop.source(shop.name, DDL)
    of = {"database": source.url, "connect": shop.stack.connect.url}
    shop.configure(FIRST, of_source=of, engine=engine)
    shop.start()
    shop.equal(source, FIRST)
    source.run(*LATER)
    declared(source)
    shop.configure({**FIRST, **ADDED}, of_source=of, engine=engine)
    writer = Writer(source)
    writer.start()
    try:
        wait(lambda: writer.done > 20, "transactions before the load")
        done = beside.load_beside(load(shop.config), TABLES, Origin("postgres"), tasks=3, session=lambda _: spark)
        before = writer.done
        wait(lambda: writer.done > before + 20, "transactions after the load")
    finally:
        writer.ends.set()
        writer.join()
    assert done.beside
    assert done.rows["public.visits"] > 340
    assert done.rows["public.accounts"] > 100
    assert not list((shop.folder / "state" / "loads").iterdir()), "the files are gone"
    fresh(shop)
    shop.equal(source, {**FIRST, **ADDED})
    source.together("delete from visits where who = 3", "update accounts set owner = 'late' where id = 400")
    shop.equal(source, {**FIRST, **ADDED})
    refused = shop.command("load", *TABLES, "--from", "postgres")
    assert refused.returncode == 5
    assert "reads the table already" in refused.stderr
    shop.kill()
    source.run("insert into visits values (78, now())")
    shop.start()
    shop.equal(source, {**FIRST, **ADDED})
    assert {v["name"]: v["errors"] for v in shop.status()["views"]} == dict.fromkeys({**FIRST, **ADDED}, 0), json.dumps(
        shop.status()
    )


@pytest.mark.timeout(300)
def test_a_load_that_ends_early_leaves_the_table_to_the_sidecar(
    spark: SparkSession, shop: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shop.source(shop.name, DDL)
    of = {"database": source.url, "connect": shop.stack.connect.url}
    shop.configure(FIRST, of_source=of)
    shop.start()
    shop.equal(source, FIRST)
    source.run(*LATER)
    declared(source)
    shop.configure({**FIRST, **ADDED}, of_source=of)
    reached = threading.Event()

    def dies(*_: object) -> None:
        reached.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(beside, "_give", dies)
    with pytest.raises(KeyboardInterrupt):
        beside.load_beside(load(shop.config), TABLES, Origin("postgres"), session=lambda _: spark)
    assert reached.is_set()
    fresh(shop)
    shop.equal(source, {**FIRST, **ADDED})
