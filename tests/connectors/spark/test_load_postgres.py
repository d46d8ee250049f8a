"""The seam between a load from Postgres and the topics: nothing is missed, and nothing is taken twice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from headrace.sidecar.config.config import load
from headrace.sidecar.lake.load import Origin, load_tables
from headrace.sidecar.state.checkpoint import Manifest, read_manifest
from headrace.sidecar.state.generation import last_generation
from headrace.sidecar.transactions.pg_snapshot import LOADED, Loaded
from tests.sidecar.support.process import wait
from tests.sidecar.support.real import Real, Source, real

DDL = (
    "create table accounts (id bigint primary key, owner text, page text, cents numeric(12,2))",
    "create table visits (who bigint, at timestamptz)",
    "alter table visits replica identity full",
    "insert into accounts select i, 'o' || i % 7, repeat(md5(i::text), 100), i from generate_series(1, 400) i",
    "insert into visits select i % 5, '2024-01-01'::timestamptz + i * interval '1 hour' from generate_series(1, 300) i",
)
VIEWS = {
    "owners": "select owner, count(*) as n, sum(cents) as cents from public.accounts group by owner",
    "visitors": "select who, count(*) as n, max(at) as last from public.visits group by who",
    "pages": "select id, length(page) as size, md5(page) as page from public.accounts",
}


class Writer(threading.Thread):
    """Transactions over both tables, one after the other, until it is told to stop: a table without a key counts what comes
    twice, and the two together what comes in part."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source, self.ends, self.done = source, threading.Event(), 0

    def run(self) -> None:
        with psycopg.connect(self.source.url) as db:
            while not self.ends.is_set():
                n = self.done
                db.execute("insert into visits values (%s, now()), (%s, now())", (n % 5, n % 3))
                db.execute(
                    "update accounts set cents = cents + 1 where id = %s", (n % 400 + 1,)
                )  # its page stays as it is
                if n % 5 == 0:
                    db.execute("update accounts set id = id + 1000 where id = %s", (n + 1,))
                if n % 7 == 0:
                    db.execute("delete from accounts where id = %s", (n + 2,))
                db.commit()
                self.done += 1


def one(url: str, text: str) -> Any:
    with psycopg.connect(url, autocommit=True) as db:
        row = db.execute(text).fetchone()
        assert row is not None
        return row[0]


def kept(shop: Real) -> Manifest:
    """The last checkpoint."""
    generation = last_generation(load(shop.config).state)
    assert generation is not None
    manifest = read_manifest(generation.manifest)
    assert manifest is not None
    return manifest


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Any:
    with real(stack, tmp_path, unique) as made:
        yield made


@pytest.mark.long
def test_writers_go_on_while_tables_are_loaded(spark: SparkSession, shop: Real) -> None:
    source = shop.source(f"{shop.name}_src", DDL, overrides={"snapshot.mode": "no_data"})
    shop.configure(VIEWS, of_source={"database": source.url}, engine={"workers": 2})
    wait(lambda: shop.slot_active(source), "the connector reads the log")
    writer = Writer(source)
    with psycopg.connect(source.url) as early:
        # open while the snapshot is taken, and begun before what the snapshot shows
        early.execute("insert into visits values (77, now())")
        early.execute("insert into accounts values (5000, 'early', 'x', 1)")
        writer.start()
        try:
            wait(lambda: writer.done > 20, "transactions before the load")
            tables = [t["name"] for t in source.tables]
            done = load_tables(load(shop.config), tables, Origin("postgres"), tasks=3, session=lambda _: spark)
            before = writer.done
            wait(lambda: writer.done > before + 20, "transactions after the load")
            early.commit()
        finally:
            writer.ends.set()
            writer.join()
    assert done.rows["public.visits"] > 340, "what was committed before it is in the load"
    manifest = kept(shop)
    loaded = Loaded.of(manifest.remembered[source.name][LOADED])
    assert loaded is not None
    assert loaded.seen.open, "the early transaction was open"
    assert len({f.shard for files in manifest.arrangements.values() for f in files}) == 2

    shop.start()
    shop.equal(source, VIEWS)
    assert one(shop.sink_url, "select n from headrace.visitors where who = 77") == 1
    source.together("delete from visits where who = 77", "update accounts set owner = 'late' where id = 5000")
    shop.equal(source, VIEWS)
    shop.until(lambda: kept(shop).epoch > 1, "a checkpoint follows")
    assert LOADED not in kept(shop).remembered[source.name]
    shop.kill()
    source.run("insert into visits values (78, now())")
    shop.start()
    shop.equal(source, VIEWS)
