"""On real servers: a table and a column are declared later, while the sidecar runs and by a start, and after a lost folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.sidecar.setup.introspection import reflect
from tests.sidecar.support.real import Real, Source, real

FIRST = {"wide_rows": "select id, v from wide", "wide_sums": "select count(*) as n, sum(v) as v from wide"}
ADDED = {"late_rows": "select id, t from late", "joined": "select w.id, l.t from wide w join late l on l.id = w.id"}
COLUMN = {"wide_c": "select id, c, d from wide"}
DDL = (
    "create table wide (id int primary key, v int not null)",
    "insert into wide select i, i from generate_series(1, 60) i",
)


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def declared(source: Source, **renamed: str) -> None:
    """The configuration has the tables as they are in the source now; `renamed`: by their new names."""
    source.tables = [
        {"name": t.name, **({"key": list(t.key)} if t.key else {}),
         "columns": [{"name": c.name, "data_type": c.data_type, "nullable": c.nullable}
                     | ({"renamed_from": renamed[c.name]} if c.name in renamed else {}) for c in t.columns]}
        for t in reflect(source.url).tables if not t.name.startswith("headrace.")
    ]  # fmt: skip


def fresh(shop: Real) -> None:
    shop.until(lambda: {v["state"] for v in shop.status()["views"]} == {"fresh"}, "all is proven")


def versions(shop: Real) -> list[Any]:
    """Each row of a view's table, with the transaction that wrote it."""
    with psycopg.connect(shop.sink_url, autocommit=True) as db:
        return sorted(db.execute("select id, xmin::text from headrace.wide_rows").fetchall())


@pytest.mark.timeout(600)
def test_tables_and_columns_that_are_declared_later(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    of = {"database": source.url, "connect": shop.stack.connect.url}
    shop.configure(FIRST, of_source=of)
    shop.start()
    shop.equal(source, FIRST)
    before = versions(shop)

    source.run(
        "create table late (id int primary key, t text)",
        "insert into late select i, 'x' || i from generate_series(1, 40) i",
    )
    declared(source)
    shop.configure({**FIRST, **ADDED}, of_source=of)
    plan = shop.command_json("plan")
    assert (plan["code"], plan["tables_added"]) == (0, ["public.late"]), plan
    done = shop.command("apply")
    assert done.returncode == 0, done.stderr
    assert "public.late is being read from its source" in done.stdout
    source.run(
        "insert into late values (50, 'y')", "update late set t = 'z' where id = 3", "delete from late where id = 4"
    )
    fresh(shop)
    shop.equal(source, {**FIRST, **ADDED})
    assert versions(shop) == before, "a view that does not name it was not written again"
    source.together("update late set t = t || '!'", "update wide set v = v + 1 where id > 30")
    shop.equal(source, {**FIRST, **ADDED})

    source.run(
        "alter table wide add column c int, add column d int not null default 7", "update wide set c = 1 where id = 5"
    )
    declared(source)
    views = {**FIRST, **ADDED, **COLUMN}
    shop.configure(views, of_source=of)
    source.run("insert into wide (id, v) values (70, 70)")
    shop.passed(source)
    before = versions(shop)
    [change] = shop.command_json("plan")["tables_changed"]
    assert (change["table"], change["added"]) == ("public.wide", ["c", "d"])
    done = shop.command("apply")
    assert done.returncode == 0, done.stderr
    assert "views that name its new columns wait until it is" in done.stdout
    source.run("update wide set d = 8 where id = 6", "insert into wide values (71, 1, 2, 3)")
    fresh(shop)
    shop.equal(source, views)
    assert set(before) <= set(versions(shop)), "rows that are the same were not written again"

    source.run(
        "update wide set c = 3 where id = 7", "alter table wide rename column v to w",
        "alter table wide alter column c type bigint", "update wide set c = 5000000000 where id = 8",
        "alter table late drop column t, add column u text not null default 'u'",
    )  # fmt: skip
    declared(source, w="v")
    views = {name: sql.replace("id, v from", "id, w from").replace("sum(v)", "sum(w)") for name, sql in views.items()}
    views |= {
        "late_rows": "select id, u from late",
        "joined": "select w.id, l.u from wide w join late l on l.id = w.id",
    }
    shop.configure(views, of_source=of)
    done = shop.command("apply")
    assert done.returncode == 0, done.stderr
    source.together("update wide set w = w + 1 where id < 10", "update late set u = 'x' where id = 9")
    fresh(shop)
    shop.equal(source, views)

    source.run("alter table wide alter column d type text", "insert into wide values (72, 1, 2, 'abc')")
    declared(source, w="v")
    shop.configure(views, of_source=of)
    refused = shop.command("plan")
    assert refused.returncode != 0
    assert "start again: the state folder stays" in refused.stderr
    assert shop.stop() == 0
    shop.start()
    fresh(shop)
    shop.equal(source, views)
    source.run("update wide set d = '8' where id = 6", "update late set u = 'w' where id = 9")
    shop.equal(source, views)

    assert shop.stop() == 0
    shutil.rmtree(shop.folder / "state")
    source.run("update wide set c = 4 where id = 8")
    shop.start()
    fresh(shop)
    shop.equal(source, views)
    source.run("insert into wide (id, w) values (80, 80)", "delete from late where id < 10")
    shop.equal(source, views)
    assert {v["name"]: v["errors"] for v in shop.status()["views"]} == dict.fromkeys(views, 0), json.dumps(
        shop.status()
    )
    assert shop.stop() == 0


@pytest.mark.timeout(600)
def test_a_table_that_the_source_renames_goes_on_under_its_new_name(shop: Real) -> None:
    late = "create table late (id int primary key, t text)"
    source = shop.source(shop.name, (*DDL, late, "insert into late values (1, 'a'), (2, 'b')"))
    of = {"database": source.url, "connect": shop.stack.connect.url}
    views = {**FIRST, **ADDED}
    shop.configure(views, of_source=of)
    shop.start()
    shop.equal(source, views)
    before = versions(shop)

    source.run(
        "alter table late rename to later", "insert into later values (3, 'c')", "delete from later where id = 1"
    )
    declared(source)
    views = {name: sql.replace(" late", " later") for name, sql in views.items()}
    shop.configure(views, of_source=of)
    plan = shop.command_json("plan")
    assert (plan["tables_added"], plan["tables_dropped"]) == (["public.later"], ["public.late"]), plan
    done = shop.command("apply")
    assert done.returncode == 0, done.stderr
    shown = shop.answer(shop.sink_url, "select id, t from headrace.late_rows")[0]
    assert sorted(shown) in ([(1, "a"), (2, "b")], [(2, "b"), (3, "c")]), "it shows what it had until the table is read"
    source.together("update later set t = t || '!'", "insert into later values (4, 'd')")
    fresh(shop)
    shop.equal(source, views)
    assert versions(shop) == before, "a view that does not name it was not written again"
    assert shop.stop() == 0
    shop.start()
    source.run("delete from later where id = 4")
    shop.equal(source, views)
