"""A whole channel for tests: a shop of its own in the shared stack, a connector, and the sidecar as a child process."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from examples.demo import shop
from examples.demo.compare import Mirror, Verdict, read_sink, with_views
from examples.demo.judge import Judge
from examples.demo.oracle import answers, snapshot
from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config
from headrace.sidecar.config.config import load
from headrace.sidecar.wiring.project import read_project
from tests.sidecar.support import databases
from tests.sidecar.support.process import Sidecar

HERE = Path(shop.__file__).parent


class Channel(Sidecar):
    """`name` is prefix of databases, topics, slot. The caller writes through `db`; the sidecar is started and ended."""

    def __init__(self, stack: Any, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.stack, self.name = stack, name
        self.source_url, self.sink_url = stack.postgres.url(f"{name}_src"), stack.postgres.url(f"{name}_dst")
        self.canary.watch(self.sink_url)

    def make(self, *, customers: int = 60, products: int = 20, orders: int = 40) -> None:
        with psycopg.connect(self.stack.postgres.url(), autocommit=True) as admin:
            for suffix in ("src", "dst"):
                admin.execute(f'create database "{self.name}_{suffix}"')
        with psycopg.connect(self.source_url) as db:
            shop.create(db, customers=customers, products=products, orders=orders)
            for statement in HEARTBEAT_DDL:
                db.execute(statement)
        host, port = self.stack.postgres_address
        facts = psycopg.conninfo.conninfo_to_dict(self.source_url)
        connection = Connection(host, port, str(facts["user"]), f"{self.name}_src", str(facts.get("password", "")))
        config = connector_config(self.name, connection, shop.TABLES, tuning=Tuning(poll_ms=5, heartbeat_ms=300))
        register(self.stack.connect.url, self.name, config)
        self.configure()

    def configure(self, **changes: Any) -> None:
        views = self.folder / "views"
        views.mkdir(exist_ok=True)
        (views / "shop.yaml").write_text((HERE / "views" / "shop.yaml").read_text())
        tables = json.loads((HERE / "tables.json").read_text())["shop"]
        body = {
            "version": 1, "name": self.name, "kafka": {"bootstrap.servers": self.stack.kafka.bootstrap},
            "sources": [{"name": "shop", "type": "debezium", "topic_prefix": self.name, "tables": tables}],
            "sinks": [
                {"name": "warehouse", "type": "postgres", "url": self.sink_url, "schema": "headrace"},
                # the judge asks for the state at any commit, which only records of each transaction tell
                {
                    "name": "bus", "type": "kafka", "topic_prefix": f"{self.name}.views.",
                    "granularity": "transaction",
                },
            ],
            "http": self.http, "checkpoint": {"interval_seconds": 0.5}, **changes,
        }  # fmt: skip
        (self.folder / "headrace.yaml").write_text(json.dumps(body))
        self.views = read_project(load(self.folder / "headrace.yaml", {})).compile()
        self.bus = [v for v in self.views if "bus" in v.spec.sinks]

    def judge(self) -> Judge:
        return Judge(self.source_url, self.sink_url, self.views, self.mirror())

    def mirror(self) -> Mirror:
        return Mirror(self.stack.kafka.bootstrap, f"{self.name}.views.", self.bus)

    def compare_final(self) -> Verdict:
        """Both sinks against Postgres, nothing being written any more."""
        verdict, mirror = Verdict(), self.mirror()
        with snapshot(self.source_url, f"{self.name}_final") as (lsn, db):
            found = answers(db, lsn, with_views(self.views), {})
        rows: dict[str, Any] = {}

        def passed() -> bool:
            with psycopg.connect(self.sink_url) as sink:
                _, lsns, got = read_sink(sink, "headrace", "warehouse", self.views)
            rows.update(got)
            mirror.poll(0.05)
            return lsns.get("shop", 0) >= lsn and mirror.places.get("shop", 0) >= lsn

        self.until(passed, f"both sinks have passed LSN {lsn}")
        verdict.compare_all("the Postgres sink", self.views, rows, found)
        verdict.compare_all("the Kafka sink", self.bus, mirror.rows(mirror.epoch), found)
        mirror.close()
        return verdict

    def close(self) -> None:
        self.end()
        self.stack.connect.delete(self.name)
        with psycopg.connect(self.stack.postgres.url(), autocommit=True) as admin:
            for suffix in ("src", "dst"):
                databases.drop(admin, f"{self.name}_{suffix}")
        assert self.canary.told == [], "a server's password was answered"


@contextmanager
def channel(stack: Any, folder: Path, name: str) -> Iterator[Channel]:
    """A channel that is taken down again."""
    made = Channel(stack, folder, name)
    try:
        made.make()
        yield made
    finally:
        made.close()


class Traffic:
    """Random transactions of the shop, seeded, also more drastic ones than the demo's."""

    def __init__(self, url: str, seed: int) -> None:
        self.db = psycopg.connect(url)
        self.draw = random.Random(seed)
        with self.db.transaction():
            found = self.db.execute("select count(*) from customers").fetchone()
            products = self.db.execute("select count(*) from products").fetchone()
            last = self.db.execute("select coalesce(max(id), 0) from orders").fetchone()
            assert found
            assert products
            assert last
            self.book = shop.Book(self.draw, found[0], products[0], last[0] + 1)
            self.book.settled = [
                r[0] for r in self.db.execute("select id from orders where status = 'paid'").fetchall()
            ]

    def transact(self, count: int = 1) -> None:
        """About a hundred a second, as a busy shop would."""
        for _ in range(count):
            time.sleep(0.008)
            with self.db.transaction(), self.db.cursor() as cursor:
                self.book.transact(cursor)
                if self.draw.random() < 0.05:
                    with suppress(psycopg.errors.DivisionByZero), self.db.transaction():
                        cursor.execute("delete from payments")
                        cursor.execute("select 1 / 0")
            if self.draw.random() < 0.05:
                with suppress(psycopg.errors.DivisionByZero), self.db.transaction():
                    self.db.execute("update customers set credit = 0")
                    self.db.execute("select 1 / 0")

    def drastic(self) -> None:
        """A primary-key change with a long text that is not sent again, a truncate, NULLs, all in one transaction."""
        with self.db.transaction():
            self.db.execute(
                "insert into products select 1000, 'long', null, 1, null, string_agg(md5(i::text), ''), now()"
                " from generate_series(1, 300) i"
            )
        with self.db.transaction():
            self.db.execute("update products set id = 1001 where id = 1000")
            self.db.execute("truncate payments")
            self.db.execute("insert into payments select id, id, 1.00, null, now() from orders where id % 2 = 0")
            self.db.execute("update customers set city = null, credit = null where id % 7 = 0")
            self.db.execute("update products set price = 2 where id = 1001")

    def close(self) -> None:
        self.db.close()
