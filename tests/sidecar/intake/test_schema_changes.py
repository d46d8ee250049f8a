"""Columns that come, go, or become of another type on real Debezium: the views that name them stand, and go on when changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.support.real import Real, real

DDL = (
    "create table item (id int primary key, v int not null, kind text, note text)",
    "create table gauge (id int primary key, level int)",
    "create table keyed (id int primary key, w int)",
    "insert into item select i, i, 'kind ' || i % 3, 'note ' || i from generate_series(1, 30) i",
    "insert into gauge select i, i from generate_series(1, 10) i",
    "insert into keyed select i, i from generate_series(1, 10) i",
)
VIEWS = {
    "values_": "select id, v from item",
    "by_kind": "select kind, count(*) as n from item group by kind",
    "notes": "select id, note from item",
    "levels": "select sum(level) as level from gauge",
    "keys": "select count(*) as n, sum(w) as w from keyed",
}


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def but(*names: str) -> dict[str, str]:
    return {name: text for name, text in VIEWS.items() if name not in names}


@pytest.mark.timeout(900)
def test_columns_that_come_and_go(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    shop.configure(VIEWS, of_source={"database": source.url})
    shop.start()
    source.run("alter table item add column more text default 'x'", "update item set v = v + 1 where id < 5")
    source.run("insert into item values (100, 100, 'kind 1', 'new', 'more')")
    shop.equal(source, VIEWS)
    assert shop.in_error() == set()

    source.run("alter table item drop column note", "update item set v = v + 1 where id < 9")
    shop.until(lambda: shop.in_error() == {"notes"}, "the view that names it stands")
    source.run("alter table item rename column kind to sort", "insert into item values (101, 5, 'kind 2', 'more')")
    shop.until(lambda: shop.in_error() == {"notes", "by_kind"}, "so does the view of the other one")
    source.run("alter table gauge alter column level type text", "update gauge set level = 'high' where id = 3")
    shop.until(lambda: shop.in_error() == {"notes", "by_kind", "levels"}, "and the one over another type")
    shop.equal(source, but("notes", "by_kind", "levels"))
    lost = {(c["table"], c["column"]): c for c in shop.status()["sources"][0]["lost"]}
    assert set(lost) == {("public.item", "note"), ("public.item", "kind"), ("public.gauge", "level")}
    for (table, column), one in lost.items():
        assert one["topic"] == f"{source.name}.{table}"
        error = next(v["error"] for v in shop.status()["views"] if v["error"] and f"column={column}" in v["error"])
        for place in (f"table={table}", f"topic={one['topic']}", "partition=0", f"offset={one['offset']}"):
            assert place in error
    told = shop.command("status").stdout
    assert "in error" in told

    shop.kill()
    shop.start()
    assert shop.in_error() == {"notes", "by_kind", "levels"}, "a restart keeps it so"
    changed = {
        **VIEWS,
        "notes": "select id, v + 1 as note from item",
        "by_kind": "select v % 3 as kind, count(*) as n from item group by v % 3",
    }
    shop.declare(changed)
    applied = shop.command("apply", "--json")
    assert applied.returncode == 0, applied.stdout
    shop.until(lambda: shop.in_error() == {"levels"}, "the changed views go on")
    shop.equal(source, {n: t for n, t in changed.items() if n != "levels"})
    source.run(
        "alter table gauge alter column level type int using id", "update gauge set level = level + 1 where id = 1"
    )
    resynced = shop.command_json("resync", "public.gauge")
    assert resynced["code"] == 0, resynced
    shop.until(lambda: shop.in_error() == set(), "all go on")
    shop.equal(source, changed)
    assert shop.stop() == 0
