"""`headrace init` against a real Postgres: what it reflects, writes, warns of, and leaves alone."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import psycopg
import pytest
import yaml

from headrace.connectors.debezium import connect
from headrace.connectors.debezium.config_rules import check, refused
from headrace.connectors.debezium.connect import ConnectError
from headrace.sidecar.config.config import Config
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.setup.introspection import InitError, reflect
from headrace.sidecar.setup.scaffold import InitReport, init

DDL = """
create schema "Odd.Name";
create table customers (id int primary key, name text not null, email varchar(200), tags text[]);
comment on table customers is 'who buys';
comment on column customers.email is E'may be\\nempty';
create table orders (id bigint primary key, customer_id int not null references customers, total numeric(12,2),
  at timestamp(3), tax numeric generated always as (total * 0.1) stored);
create table lines (order_id bigint references orders, line smallint, "select" int, primary key (order_id, line));
create table loose (a int, b text);
create table full_rows (a int); alter table full_rows replica identity full;
create table by_index (a int not null, b int not null);
create unique index by_index_at on by_index (b, a); alter table by_index replica identity using index by_index_at;
create table silent (id int primary key); alter table silent replica identity nothing;
create unlogged table dust (id int primary key);
create table part (id int, region text, primary key (id, region)) partition by list (region);
create table part_eu partition of part for values in ('eu');
create table part_rest partition of part default partition by hash (id);
create table part_rest_0 partition of part_rest for values with (modulus 1, remainder 0);
create domain amount as numeric(9,2); create domain fee as amount check (value >= 0); create type pair as (a int, b int);
create table odd (id int primary key, f fee, p pair, v bit varying(8), m int4multirange, g int[][], b bit(3));
create table "Odd.Name".t (id uuid primary key, "true" char(3), iv interval day to second);
create schema headrace; create table headrace.frontier (x int primary key);
insert into customers select i, 'c' || i from generate_series(1, 50) i;
insert into orders(id, customer_id, total) select i, 1 + i % 50, i from generate_series(1, 500) i;
analyze;
"""


@pytest.fixture(scope="module")
def shop(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database that the tests only read."""
    name = f"t{secrets.token_hex(5)}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"create database {name}")
        with psycopg.connect(postgres.url(name), autocommit=True) as db:
            db.execute(DDL)
        yield postgres.url(name)
        admin.execute(f"drop database {name} with (force)")


@pytest.fixture
def own_shop(database: str) -> str:
    """A database of this test alone."""
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(DDL)
    return database


def run(url: str, folder: Path, **options: Any) -> InitReport:
    return init(url, source_name="shop", topic_prefix="shop", folder=folder, **options)


def table(report_folder: Path, name: str) -> dict[str, Any]:
    written = yaml.safe_load((report_folder / "headrace.yaml").read_text())
    return next(t for t in written["sources"][0]["tables"] if t["name"] == name)


def test_what_is_written_is_what_the_database_says(shop: str, tmp_path: Path) -> None:
    report = run(shop, tmp_path)
    names = [t.name for t in report.tables]
    assert names == sorted([
        "Odd.Name.t", "public.by_index", "public.customers", "public.dust", "public.full_rows", "public.lines",
        "public.loose", "public.odd", "public.orders", "public.part", "public.silent",
    ])  # fmt: skip
    orders = table(tmp_path, "public.orders")
    assert orders["key"] == ["id"]
    assert orders["columns"] == [
        {"name": "id", "data_type": "bigint", "nullable": False},
        {"name": "customer_id", "data_type": "integer", "nullable": False},
        {"name": "total", "data_type": "numeric(12,2)", "nullable": True},
        {"name": "at", "data_type": "timestamp(3) without time zone", "nullable": True},
    ], "types as format_type() prints them; without the generated column"
    assert table(tmp_path, "public.lines")["key"] == ["order_id", "line"]
    assert table(tmp_path, "public.loose")["key"] is None
    assert table(tmp_path, "public.by_index")["key"] == ["b", "a"]
    assert table(tmp_path, "public.part")["partitions"] == ["public.part_eu", "public.part_rest_0"]
    assert [c["name"] for c in table(tmp_path, "Odd.Name.t")["columns"]] == ["id", "true", "iv"]
    text = (tmp_path / "headrace.yaml").read_text()
    assert "# who buys" in text
    assert "# may be empty" in text


def test_the_files_are_valid(shop: str, tmp_path: Path) -> None:
    report = run(shop, tmp_path, tables=["public.*"], connect_url="http://me:hush@connect:8083")
    written = yaml.safe_load((tmp_path / "headrace.yaml").read_text())
    written["sinks"][0]["url"] = "postgresql://somewhere/x"
    config = Config.model_validate(written)
    assert [(s.name, s.type) for s in config.sinks] == [("warehouse", "postgres"), ("bus", "kafka")]
    assert config.sources[0].time_precision_mode == "microseconds"
    assert config.sources[0].connect == "http://connect:8083"
    connector = json.loads((tmp_path / "connectors" / "shop.json").read_text())
    assert report.findings == tuple(check(connector, {t.name: t.partitions for t in report.tables}))
    assert refused(report.findings) == []
    assert "part_eu" in connector["table.include.list"]
    assert not [p for p in tmp_path.rglob("*.*") if p.is_file() and "hush" in p.read_text()]


def test_the_example_views_run_in_postgres(shop: str, tmp_path: Path) -> None:
    run(shop, tmp_path)
    views = yaml.safe_load((tmp_path / "views" / "example.yaml").read_text())["views"]
    assert [v["name"] for v in views] == ["orders_count", "orders_by_customers"]
    with psycopg.connect(shop) as db:
        assert db.execute(views[0]["sql"]).fetchall() == [(500,)]
        rows = db.execute(views[1]["sql"])
        assert rows.description is not None
        assert [c.name for c in rows.description] == ["id", "name", "orders_count", "total_sum"]
        assert sum(r[2] for r in rows) == 500
    assert views[1]["key"] == ["id"]


def test_no_password_is_written_unless_asked(shop: str, tmp_path: Path) -> None:
    password = psycopg.conninfo.conninfo_to_dict(shop)["password"]
    assert isinstance(password, str)
    report = run(shop, tmp_path / "a")
    assert not [p for p in (tmp_path / "a").rglob("*.*") if p.is_file() and password in p.read_text()]
    assert password not in json.dumps(report.as_json()) + repr(report)
    run(shop, tmp_path / "b", write_password=True)
    assert json.loads((tmp_path / "b/connectors/shop.json").read_text())["database.password"] == password


def test_nothing_is_overwritten_unless_forced(shop: str, tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    mine = tmp_path / "views" / "example.yaml"
    mine.write_text("mine")
    with pytest.raises(InitError, match="already there"):
        run(shop, tmp_path)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "headrace.yaml").exists(), "all or none"
    run(shop, tmp_path, force=True)
    assert mine.read_text() != "mine"


def test_warnings_name_the_table_and_its_remedy(shop: str, tmp_path: Path) -> None:
    said = {(w.table, w.remedy) for w in run(shop, tmp_path).warnings if w.table}
    assert said == {
        ("public.loose", "ALTER TABLE public.loose REPLICA IDENTITY FULL"),
        ("public.silent", "ALTER TABLE public.silent REPLICA IDENTITY DEFAULT"),
        ("public.dust", "ALTER TABLE public.dust SET LOGGED"),
        ("public.orders", "compute it in the view"),
        ("public.odd", "cast it to text in the source"),
        ("public.odd", "cast the column to text in the source"),
        ("public.odd", "leave the column out, or cast it to text in the source"),
        ("public.odd", "leave the column out, or keep its values in a column of text"),
    }


def test_a_domain_is_its_base_and_what_no_record_brings_is_a_comment(shop: str, tmp_path: Path) -> None:
    run(shop, tmp_path)
    columns = {c["name"]: c["data_type"] for c in table(tmp_path, "public.odd")["columns"]}
    assert columns == {"id": "integer", "f": "numeric(9,2)", "g": "integer[]", "b": "bit(3)"}
    text = (tmp_path / "headrace.yaml").read_text()
    for name, why in (("p", "pair: Debezium sends no"), ("v", "bit varying loses"), ("m", "int4multirange is not")):
        assert re.search(rf"# - {{name: {name}, .*}}   # {why}", text), name


def test_the_sql_names_each_table_once(shop: str, tmp_path: Path) -> None:
    granted = next(line for line in run(shop, tmp_path).sql.splitlines() if line.startswith("GRANT SELECT ON"))
    names = granted.removeprefix("GRANT SELECT ON ").removesuffix(" TO headrace;").split(", ")
    assert len(names) == len(set(names))
    assert {"public.part", "public.part_eu", "public.part_rest_0"} <= set(names)


def test_the_printed_sql_makes_a_role_that_can_do_it(own_shop: str, tmp_path: Path, unique: str) -> None:
    report = run(own_shop, tmp_path, tables=["public.customers", "public.part"])
    role, sql = f"r_{unique}", report.sql
    sql = sql.replace("ROLE headrace ", f"ROLE {role} ").replace("TO headrace;", f"TO {role};").replace("…", "pw")
    with psycopg.connect(own_shop, autocommit=True) as db:
        db.execute(sql)
        published = db.execute("select tablename from pg_publication_tables order by 1").fetchall()
        assert [p[0] for p in published] == ["customers", "heartbeat", "part_eu", "part_rest_0"]
    try:
        parts = psycopg.conninfo.conninfo_to_dict(own_shop)
        limited = f"postgresql://{role}:pw@{parts['host']}:{parts['port']}/{parts['dbname']}"
        again = run(limited, tmp_path / "again", tables=["customers", "part"])
        whats = [w.what for w in again.warnings]
        assert not [w for w in whats if "replicate" in w or "heartbeat" in w]
        assert again.connector["publication.autocreate.mode"] == "disabled"
        assert "heartbeat" in again.connector["table.include.list"]
        assert again.findings == ()
    finally:
        with psycopg.connect(own_shop, autocommit=True) as db:
            db.execute(f"drop owned by {role}; drop role {role}")


def test_a_role_that_may_not_replicate_is_told(shop: str, tmp_path: Path, unique: str) -> None:
    role = f"r_{unique}"
    with psycopg.connect(shop, autocommit=True) as db:
        db.execute(f"create role {role} login password 'pw'")
    try:
        parts = psycopg.conninfo.conninfo_to_dict(shop)
        limited = f"postgresql://{role}:pw@{parts['host']}:{parts['port']}/{parts['dbname']}"
        whats = [w.what for w in run(limited, tmp_path, tables=["customers"]).warnings]
        assert f"the role {role} may not replicate" in whats
    finally:
        with psycopg.connect(shop, autocommit=True) as db:
            db.execute(f"drop role {role}")


def test_heartbeat_table_is_made_only_when_asked(own_shop: str, tmp_path: Path) -> None:
    report = run(own_shop, tmp_path / "a")
    assert "heartbeat.action.query" not in report.connector
    report = run(own_shop, tmp_path / "b", create_heartbeat=True)
    assert "headrace.heartbeat" in report.connector["heartbeat.action.query"]
    assert not [t for t in report.tables if t.name.startswith("headrace.")]


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("mysql://u:hush@h/d", "not a Postgres URL"),
        ("postgresql://u:hush@127.0.0.1:1/d", "cannot be read"),
        ("nonsense", "not a Postgres URL"),
    ],
)
def test_errors_are_clear_and_hide_the_password(url: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(InitError, match=what) as caught:
        run(url, tmp_path)
    assert "hush" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_pattern_that_matches_nothing_is_refused(shop: str) -> None:
    with pytest.raises(InitError, match="no table has such a name") as caught:
        reflect(shop, ["customers", "custmers"])
    assert caught.value.where["pattern"] == "custmers"


def test_registering_needs_connect(shop: str, tmp_path: Path) -> None:
    with pytest.raises(InitError, match="needs the address"):
        run(shop, tmp_path / "a", register=True)
    assert not (tmp_path / "a").exists()
    with pytest.raises(ConnectError, match="not an address"):
        run(shop, tmp_path / "b", register=True, connect_url="ftp://x", tables=["customers"])
    assert not (tmp_path / "b").exists(), "nothing is written when registering fails"


def test_registering_what_would_break_the_applications_writes_is_refused(own_shop: str, tmp_path: Path) -> None:
    """Nothing is done before: no heartbeat table, no file, and no request to Connect, whose address leads nowhere."""
    asked = {"register": True, "connect_url": "http://127.0.0.1:1", "create_heartbeat": True}
    with pytest.raises(InitError, match="could no longer update or delete") as caught:
        run(own_shop, tmp_path / "a", **asked)
    assert caught.value.where["tables"] == "public.loose, public.silent"
    assert not (tmp_path / "a").exists()
    said = caught.value.hint.split("; or leave them out")[0]
    with psycopg.connect(own_shop, autocommit=True) as db:
        there = "select to_regclass('headrace.heartbeat') is not null"
        assert db.execute(there).fetchone() == (False,)
        db.execute("create publication p for table loose, silent")
        db.execute("insert into loose values (1, 'x')")
        with pytest.raises(psycopg.Error, match="does not have a replica identity"):
            db.execute("update loose set b = 'y'")
        db.execute(said)
        db.execute("update loose set b = 'y'")
    monkey = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect, "register", lambda *given: monkey.append(given))
        run(own_shop, tmp_path / "a", show_password=True, **asked)
    assert len(monkey) == 1


def test_a_keyless_table_is_registered_for_those_who_mean_it(
    own_shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(connect, "register", lambda *given: sent.append(given))
    run(own_shop, tmp_path, register=True, connect_url="http://127.0.0.1:1", allow_keyless=True, show_password=True)
    assert "public\\.loose" in sent[0][2]["table.include.list"]


def test_a_reference_takes_the_place_of_the_password_at_connect(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(connect, "register", lambda *given: sent.append(given))
    asked = {"register": True, "connect_url": "http://127.0.0.1:1", "tables": ["customers"]}
    plain = run(shop, tmp_path / "a", show_password=True, **asked)
    assert any("REST answer" in w.what and "config.providers" in w.remedy for w in plain.warnings)
    reference = "${file:/run/secrets/pg.properties:password}"
    report = run(shop, tmp_path / "b", password=reference, **asked)
    assert sent[1][2]["database.password"] == reference
    assert not any("REST answer" in w.what for w in report.warnings)
    with pytest.raises(InitError, match="not a reference"):
        run(shop, tmp_path / "c", password="hush", **asked)


def test_connect_reads_the_password_from_a_file_and_never_shows_it(
    stack: Any, database: str, tmp_path: Path, unique: str
) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("create table t (id int primary key)")
        db.execute(f"create role r{unique} login superuser password E'p\\\\q =#\u00e4 \U0001f511'")
    parts = psycopg.conninfo.conninfo_to_dict(database)
    secret = quote("p\\q =#\u00e4 \U0001f511", safe="")
    url = f"postgresql://r{unique}:{secret}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    asked = {"register": True, "connect_url": stack.connect.url, "create_heartbeat": True}
    try:
        report = init(url, source_name=unique, topic_prefix=unique, folder=tmp_path / "a", **asked)
        assert report.secret is not None
        assert report.secret.stat().st_mode & 0o777 == 0o600
        assert not any("REST answer" in w.what for w in report.warnings)
        with urlopen(f"{stack.connect.url}/connectors/{unique}") as answer:
            told = json.load(answer)["config"]
        assert told["database.password"] == f"${{file:{report.secret}:password}}"
        written = json.loads((tmp_path / "a" / "connectors" / f"{unique}.json").read_text())
        assert written["database.password"] == told["database.password"]
        connect.wait_running(stack.connect.url, unique)
    finally:
        stack.connect.delete(unique)
    away = tmp_path / "no:where"
    with pytest.raises(InitError, match="cannot refer to a file") as caught:
        init(url, source_name=unique, topic_prefix=unique, folder=away, **asked)
    assert "--connector-password" in caught.value.hint
    assert not list(away.rglob("*.properties"))
