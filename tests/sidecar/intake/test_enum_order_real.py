"""On real Debezium: enums keep the order of their type, also after ALTER TYPE … ADD VALUE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.sidecar.setup.introspection import reflect
from tests.sidecar.support.real import Real, Source, real

DDL = (
    "create type mood as enum ('sad', 'ok', 'happy')",
    "create table people (id int primary key, m mood, g int not null)",
    "insert into people select i, (array['happy', 'sad', 'ok', null])[1 + i % 4]::mood, i % 3 from generate_series(1, 40) i",
)
VIEWS = {
    "extremes": "select g, max(m)::text as most, min(m)::text as least, count(distinct m) as n from people group by g",
    "better": "select id, m::text as m from people where m > 'sad' and m <> 'ok'",
    "ranked": "select id, dense_rank() over (order by m desc nulls last) as r from people",
    "best": "select id, m::text as m from people where m is not null order by m desc, id limit 5",
}


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def declared(source: Source) -> None:
    """The configuration has the labels as they are in the source now."""
    [table] = [t for t in reflect(source.url).tables if t.name == "public.people"]
    [mine] = source.tables
    for column, now in zip(mine["columns"], table.columns, strict=True):
        if now.labels:
            column["labels"] = list(now.labels)


@pytest.mark.timeout(600)
def test_enums_keep_their_order(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    of = {"database": source.url}
    shop.configure(VIEWS, of_source=of)
    shop.start()
    shop.equal(source, VIEWS)
    source.run(
        "update people set m = 'happy' where id = 5",
        "delete from people where id = 9",
        "update people set m = null where id = 7",
    )
    shop.equal(source, VIEWS)

    source.run("alter type mood add value 'awful' before 'sad'", "alter type mood add value 'fine' before 'happy'")
    source.run("insert into people values (50, 'ok', 1)")
    shop.equal(source, VIEWS)
    source.run("insert into people values (51, 'fine', 1)", "update people set m = 'awful' where id = 6")
    shop.until(lambda: shop.in_error() == set(VIEWS), "a value without a place in the order stops its table")
    [stands] = shop.status()["sources"][0]["stopped"]
    assert "column m: mood has a value that is not declared" in stands["error"]
    assert "`labels:`" in stands["error"]
    assert "fine" not in stands["error"]
    assert shop.stop() == 0
    declared(source)
    shop.configure(VIEWS, of_source=of)
    shop.start()
    shop.until(lambda: {v["state"] for v in shop.status()["views"]} == {"fresh"}, "the table is read")
    shop.equal(source, VIEWS)
    source.run("update people set m = 'fine' where id < 5", "insert into people values (60, 'awful', 2)")
    shop.equal(source, VIEWS)
    assert shop.stop() == 0
