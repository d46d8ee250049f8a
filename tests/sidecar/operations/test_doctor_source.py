"""The doctor on a real source: each finding is provoked, its command is typed, and the finding is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.connectors.debezium.settings import HEARTBEAT_DDL
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.operations.doctor.findings import Finding, Severity, exit_code
from headrace.sidecar.operations.doctor.source import Limits, check_source
from headrace.sidecar.setup.introspection import reflect
from tests.sidecar.operations.doctor_commands import checks, one, typed

DDL = (
    "create table orders (id bigint primary key, total numeric(12,2), at timestamptz)",
    "create table loose (a int)",
    "create table part (id int, region text, primary key (id, region)) partition by list (region)",
    "create table part_eu partition of part for values in ('eu')",
    "alter table loose replica identity full",
    *HEARTBEAT_DDL,
)


class Shop:
    """A database, and a source that declares what it had at first. `clean`: what is found before anything is wrong."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self.url, self.folder, self.name = url, folder, name
        self.do(*DDL, f"create role r_{name} login replication password 'pw'",
                f"grant usage on schema public, headrace to r_{name}",
                f"grant select on all tables in schema public to r_{name}",
                f"grant select, insert, update on headrace.heartbeat to r_{name}",
                f"create publication {name} for table orders, loose, part_eu, headrace.heartbeat")  # fmt: skip
        tables = [
            {"name": t.name, "key": list(t.key) if t.key else None, "partitions": list(t.partitions),
             "columns": [{"name": c.name, "data_type": c.data_type, "nullable": c.nullable} for c in t.columns]}
            for t in reflect(url).tables
        ]  # fmt: skip
        body = {"name": "shop", "type": "debezium", "topic_prefix": name, "tables": tables}
        self.source = SourceConfig.model_validate(body | {"time_precision_mode": "microseconds"})
        self.connector = {"database.user": f"r_{name}", "publication.name": name, "slot.name": name}
        self.limits = Limits()

    def do(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            for statement in statements:
                db.execute(statement)

    def look(self, **changes: Any) -> list[Finding]:
        found = check_source(self.source, self.url, self.connector | changes, self.limits)
        return [f for f in found if f.check != "slot"]

    def mended(self, check: str) -> Finding:
        """The finding is there, its command is typed, and it is gone."""
        before = one(self.look(), check)
        typed(before.command, self.folder, SOURCE_URL=self.url)
        assert check not in checks(self.look())
        return before


@pytest.fixture
def shop(database: str, tmp_path: Path, unique: str) -> Any:
    made = Shop(database, tmp_path, unique)
    assert made.look() == []
    assert exit_code(made.look()) == 0
    yield made
    made.do(f"drop owned by r_{unique}", f"drop role r_{unique}")


BREAKS: dict[str, tuple[str, ...]] = {
    "published": ("alter publication {n} drop table orders",),
    "publication_kinds": ("alter publication {n} set (publish = 'insert, update')",),
    "replica_identity": ("alter table loose replica identity default",),
    "logged": ("alter publication {n} drop table loose", "alter table loose set unlogged"),
    "nullable": ("alter table orders drop constraint orders_pkey", "alter table orders alter id drop not null",
                 "alter table orders replica identity full"),
    "replication": ("alter role r_{n} noreplication",),
    "rights": ("revoke select on orders from r_{n}",),
    "heartbeat_rights": ("revoke insert on headrace.heartbeat from r_{n}",),
    "heartbeat_published": ("alter publication {n} drop table headrace.heartbeat",),
    "heartbeat": ("drop table headrace.heartbeat",),
}  # fmt: skip


@pytest.mark.parametrize("check", BREAKS)
def test_each_finding_goes_with_its_command(shop: Shop, check: str) -> None:
    shop.do(*(statement.format(n=shop.name) for statement in BREAKS[check]))
    found = shop.mended(check)
    advised = {"heartbeat", "heartbeat_rights", "heartbeat_published"}
    assert found.severity is (Severity.ADVICE if check in advised else Severity.REFUSED)


def test_a_publication_that_is_gone_is_made_where_the_connector_may_not(shop: Shop) -> None:
    shop.do(f"drop publication {shop.name}")
    assert "publication" not in checks(shop.look()), "before the first start the connector makes its own"
    shop.connector["publication.autocreate.mode"] = "disabled"
    shop.mended("publication")


def test_a_generated_column_and_one_that_debezium_bends(shop: Shop) -> None:
    shop.do(
        "create type pair as (a int, b int)",
        "alter table orders add p pair, add twice numeric generated always as (total * 2) stored",
    )
    body = shop.source.model_dump()
    body["tables"][1]["columns"] += [{"name": "p", "data_type": "text"}, {"name": "twice", "data_type": "numeric"}]
    assert body["tables"][1]["name"] == "public.orders"
    shop.source = SourceConfig.model_validate(body)
    shop.mended("type_bent")
    shop.mended("generated")
    assert shop.look() == []


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        ("table", "drop table orders"),
        ("column", "alter table orders drop column total"),
        ("type", "alter table orders alter total type bigint"),
        ("partition", "create table part_us partition of part for values in ('us')"),
        ("key", "alter table orders drop constraint orders_pkey, add primary key (id, at)"),
    ],
)  # fmt: skip
def test_a_catalog_that_is_not_what_is_declared(shop: Shop, check: str, broken: str) -> None:
    shop.do(broken)
    found = one(shop.look(), check)
    assert found.severity is Severity.REFUSED
    assert "headrace init" in found.command
    assert exit_code([found]) == 2
    json.dumps(found.as_json())


def test_a_long_transaction_is_ended(shop: Shop) -> None:
    shop.limits = Limits(transaction_seconds=0.2)
    with suppress(psycopg.errors.AdminShutdown), psycopg.connect(shop.url) as db:
        db.execute("select pg_sleep(0.3)")
        shop.mended("long_transaction")
    assert db.broken


def test_a_slot_that_nobody_reads_and_one_that_lags(shop: Shop) -> None:
    shop.do(f"select pg_create_logical_replication_slot('{shop.name}', 'pgoutput')")
    try:
        assert checks(shop.look()) == {"slot_active"}
        shop.limits = Limits(slot_lag=10_000)
        shop.do("insert into loose select i from generate_series(1, 2000) i")
        assert checks(shop.look()) == {"slot_active", "slot_lag"}
    finally:
        shop.do(f"select pg_drop_replication_slot('{shop.name}')")


def test_a_server_without_logical_decoding_and_with_unlimited_wal(tmp_path: Path, canary: Any) -> None:
    settings = {"fsync": "off", "wal_level": "replica", "max_slot_wal_keep_size": "-1"}
    server = EmbeddedPostgres(tmp_path / "pg", settings=settings)
    # settings on the command line would win over ALTER SYSTEM
    look: Callable[[], list[Finding]] = lambda: check_source(source, server.url(), None)  # noqa: E731
    source = SourceConfig(name="shop", type="debezium", topic_prefix="shop", tables=[])
    with server:
        canary.watch(server.url())
        found = look()
        assert {"wal_level", "slot_wal_limit"} <= checks(found)
        for name in settings.keys() - {"fsync"}:
            del server._settings[name]
        server.stop()
        with (server.data / "postgresql.conf").open("a") as file:
            file.write("wal_level = replica\nmax_slot_wal_keep_size = -1\n")
        server.start()
        assert {"wal_level", "slot_wal_limit"} <= checks(look())
        for check in ("slot_wal_limit", "wal_level"):
            typed(one(look(), check).command, tmp_path, SOURCE_URL=server.url())
        assert "slot_wal_limit" not in checks(look())
        server.stop()
        server.start()
        assert "wal_level" not in checks(look())


def test_a_source_that_cannot_be_asked_hides_its_password(tmp_path: Path) -> None:
    source = SourceConfig(name="shop", type="debezium", topic_prefix="shop", tables=[])
    found = one(check_source(source, "postgresql://u:hush@127.0.0.1:1/d", None), "reachable")
    assert "hush" not in json.dumps(found.as_json())
    assert checks(check_source(source, None, None)) == {"database"}
