"""`validate --against`: views that a Postgres sees as we do, and each way in which it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql
from typer.testing import CliRunner, Result

from headrace.sidecar.cli.app import app
from headrace.sidecar.operations.postgres_check import Compared, compare
from headrace.sidecar.wiring.project import Project
from headrace.views.spec import ViewSpec
from tests.sidecar.support import recordings
from tests.views import shop
from tests.views.corpus import REFUSED, SUPPORTED

TABLES = (
    "create table customers (id bigint primary key, city text)",
    "create table orders (id bigint primary key, customer_id bigint, amount numeric(10,2))",
)
VIEWS = """\
version: 1
views:
  - name: amounts
    sql: |
      select customer_id,
             amount, max(amount) over () as most
      from orders -- all of them
  - name: by_city
    sql: |
      with c as (select * from customers)
      select c.city, sum(a.amount) as amount
      from amounts a join c on c.id = a.customer_id group by c.city; -- the end
    columns: [{name: city, data_tests: [unique, not_null]}]
"""


def against(path: Path, url: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["validate", "-c", str(path), "--against", url, *options])


def told(path: Path, url: str) -> tuple[int, dict[str, Any]]:
    done = against(path, url, "--json")
    return done.exit_code, json.loads(done.stdout)


def differences(path: Path, url: str) -> list[dict[str, Any]]:
    code, body = told(path, url)
    assert (code, body["ok"]) == (4, False)
    found: list[dict[str, Any]] = body["against"]["differences"]
    return found


@pytest.fixture
def db(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as made:
        for table in TABLES:
            made.execute(table.encode())
        yield made


def over_the_shop(url: str, *specs: ViewSpec) -> Compared:
    nothing: Any = None
    return compare(Project(nothing, specs, shop.catalog().tables, ()), url)


def test_every_supported_feature_has_postgres_s_columns_and_what_is_refused_is_told(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as made:
        for table in shop.TABLES:
            made.execute(shop.ddl(table).encode())
        supported = over_the_shop(database, *(ViewSpec(s.name, s.sql) for s in SUPPORTED))
        assert supported.prepared == len(SUPPORTED) > 100
        assert supported.differences == ()
        texts = [
            *(r.sql for r in REFUSED),
            "select 1; commit; drop table orders",
            "select 1) as v; drop table orders --",
        ]
        refused = over_the_shop(database, *(ViewSpec(f"r{i}", text) for i, text in enumerate(texts)))
        assert [d.view for d in refused.differences] == [f"r{i}" for i in range(len(texts))]
        assert {d.what for d in refused.differences} == {"refused by us", "refused by both"}
        [by_us] = [d for d, r in zip(refused.differences, REFUSED, strict=False) if r.sql.startswith("delete")]
        assert (by_us.ours, by_us.postgres) == ("DELETE is not a SELECT", "valid")
        assert made.execute("select count(*) from orders").fetchone() == (0,)


def test_views_on_views_that_are_equal_leave_nothing_behind(
    db: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    path = recordings.shop(tmp_path, views=VIEWS)
    before = db.execute("select count(*), max(oid::bigint) from pg_class").fetchone()
    code, body = told(path, database)
    assert body["against"]["differences"] == []
    assert (code, body["ok"]) == (0, True)
    assert body["against"]["prepared"] == 4
    assert db.execute("select count(*), max(oid::bigint) from pg_class").fetchone() == before
    assert "4 views prepared" in against(path, database).stdout


@pytest.mark.parametrize("spelled", ["numeric(12,4)", "numeric", "double precision"])
def test_a_table_changed_since_is_the_cause_of_another_type(
    db: psycopg.Connection, database: str, tmp_path: Path, spelled: str
) -> None:
    path = recordings.shop(tmp_path, views=VIEWS)
    db.execute(f"alter table orders alter amount type {spelled}".encode())
    first = differences(path, database)[0]
    hint = f"public.orders.amount is {spelled} there, numeric(10,2) in headrace.yaml"
    assert first == {
        "view": "amounts", "what": "column type", "ours": "numeric(10,2)", "postgres": spelled, "hint": hint,
        "file": str(tmp_path / "views" / "shop.yaml"), "line": 6, "character": 14, "column": "amount",
    }  # fmt: skip
    assert f"shop.yaml:6:14: view amounts, column amount: column type: we say 'numeric(10,2)', Postgres says '{spelled}'; " \
        in against(path, database).stdout  # fmt: skip


def test_columns_that_are_more_there_or_named_otherwise(db: psycopg.Connection, database: str, tmp_path: Path) -> None:
    views = 'version: 1\nviews:\n  - {name: all, sql: "select * from orders"}\n'
    path = recordings.shop(tmp_path, views=views)
    assert told(path, database)[0] == 0
    db.execute("alter table orders drop amount, add total numeric(10,2)")
    [renamed] = differences(path, database)
    assert (renamed["what"], renamed["ours"], renamed["postgres"]) == ("column name", "amount", "total")
    db.execute("alter table orders add paid boolean")
    [more] = differences(path, database)
    assert (more["what"], more["postgres"]) == ("columns", "id, customer_id, total, paid")


def test_a_missing_table_is_told_where_the_view_names_it(db: psycopg.Connection, database: str, tmp_path: Path) -> None:
    path = recordings.shop(tmp_path, views=VIEWS)
    db.execute("drop table customers")
    [found] = [d for d in differences(path, database) if d["what"] == "refused by Postgres"]
    assert (found["view"], found["ours"], found["postgres"]) == (
        "by_city", "valid", 'relation "customers" does not exist')  # fmt: skip
    assert (found["line"], found["character"]) == (10, 32)
    assert "right database" in found["hint"]


def test_what_only_postgres_or_only_we_refuse_and_what_rests_on_it(
    db: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    views = """\
version: 1
views:
  - {name: paired, sql: "select c.id, o.id as other from customers c full join orders o on o.id > c.id"}
  - {name: above, sql: "select id from paired where other > 0"}
  - {name: recent, sql: "select id from orders where now() > '2020-01-01'"}
  - {name: on_recent, sql: "select id, missing from recent"}
  - {name: unread, sql: "select id from paired where"}
"""
    found = {d["view"]: d for d in differences(recordings.shop(tmp_path, views=views), database)}
    assert "above" not in found, "it reads a view that Postgres refuses"
    assert (found["paired"]["what"], found["paired"]["line"]) == ("refused by Postgres", 3)
    assert "FULL JOIN is only supported with" in found["paired"]["postgres"]
    assert (found["recent"]["what"], found["recent"]["postgres"]) == ("refused by us", "valid")
    assert found["on_recent"]["postgres"] == 'column "missing" does not exist'
    assert found["on_recent"]["ours"].startswith("not looked at")
    assert found["unread"]["postgres"].startswith("not asked")


def test_select_is_all_the_rights_that_are_needed(
    db: psycopg.Connection, database: str, tmp_path: Path, unique: str
) -> None:
    path, role = recordings.shop(tmp_path, views=VIEWS), sql.Identifier(unique)
    db.execute(sql.SQL("create role {} login password 'hush%@/'").format(role))
    try:
        url = conninfo.make_conninfo(database, user=unique, password="hush%@/")
        db.execute(sql.SQL("grant select on customers to {}").format(role))
        [found] = differences(path, url)
        assert (found["view"], found["postgres"]) == ("amounts", "permission denied for table orders")
        assert found["hint"] == f"grant SELECT on it, and USAGE on its schema, to {unique}"
        db.execute(sql.SQL("grant select on orders to {}").format(role))
        assert told(path, url)[0] == 0
        wrong = against(path, conninfo.make_conninfo(url, password="of-mine"))
        assert wrong.exit_code == 5
        assert "password authentication failed" in wrong.stderr
        assert "of-mine" not in wrong.output
    finally:
        db.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:secret@127.0.0.1:1/shop", "postgresql://me:sec/ret@127.0.0.1:1/shop",
     "postgresql://me:12/secret@127.0.0.1:1/shop", "postgresql://me:se@cret@127.0.0.1:1/shop", "password=secret host",
     "host=127.0.0.1 port=1 password=secret"],
)  # fmt: skip
def test_a_password_is_never_shown(tmp_path: Path, url: str) -> None:
    path = recordings.shop(tmp_path)
    for options in ((), ("--json",)):
        done = against(path, url, *options)
        assert done.exit_code == 5, done.output
        assert "sec" not in done.output
        assert "cret" not in done.output
        assert "ret@" not in done.output


def test_columns_that_only_messages_tell_cannot_be_compared(tmp_path: Path) -> None:
    done = against(recordings.shop(tmp_path, schemas=True), "postgresql://127.0.0.1:1/shop")
    assert done.exit_code == 3
    assert "public.customers, public.orders" in done.stderr
