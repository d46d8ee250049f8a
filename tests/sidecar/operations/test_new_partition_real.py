"""On real servers: a partition is added to a table that is read, and the sidecar takes it in by itself, for good."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.support.real import Real, real

VIEWS = {
    "days_rows": "select day, v from days",
    "days_sums": "select count(*) as n, sum(v) as v from days",
    "wide_rows": "select id, v from wide",
}
DDL = (
    "create table wide (id int primary key, v int not null)",
    "create table days (day int primary key, v int not null) partition by range (day)",
    "create table d1 partition of days for values from (0) to (100)",
    "create table d2 partition of days for values from (100) to (200)",
    "insert into days select i, i from generate_series(50, 150) i",
    "insert into wide select i, i from generate_series(1, 50) i",
)


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def states(shop: Real) -> dict[str, str]:
    return {v["name"]: v["state"] for v in shop.status()["views"]}


@pytest.mark.timeout(600)
def test_a_new_partition_is_taken_in_by_itself(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    watched = {"database": source.url, "connect": shop.stack.connect.url}
    shop.configure(VIEWS, of_source=watched)
    shop.start()
    shop.equal(source, VIEWS)
    source.together(
        "create table d3 partition of days for values from (200) to (300)",
        "insert into days select i, i from generate_series(200, 240) i",
        "update wide set v = v + 1 where id < 10",
    )
    shop.until(lambda: "table_unproven" in shop.log(), "the partition is seen")
    source.run("insert into days values (250, 1)", "update days set v = 2 where day = 200")
    shop.until(lambda: "event=mended" in shop.log(), "the table was compared")
    shop.equal(source, VIEWS)
    shop.until(lambda: set(states(shop).values()) == {"fresh"}, "all is proven")
    source.run(
        "insert into days values (260, 1)",
        "delete from days where day = 201",
        "update days set day = 199 where day = 250",
    )
    shop.equal(source, VIEWS)
    source.run("truncate days")
    source.run("insert into days select i, i * 2 from generate_series(90, 290, 10) i")
    shop.equal(source, VIEWS)
    for lost in (False, True):  # the configuration still names two partitions
        assert shop.stop() == 0
        if lost:
            shutil.rmtree(shop.folder / "state")
        source.run("update days set v = v + 1", f"insert into days values ({298 + lost}, 7)")
        shop.start()
        shop.until(lambda: set(states(shop).values()) == {"fresh"}, "all is proven")
        shop.equal(source, VIEWS)
    assert shop.stop() == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_without_connect_the_table_says_what_to_type(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    shop.configure(VIEWS, of_source={"database": source.url})
    shop.start()
    shop.equal(source, VIEWS)
    source.run("create table d3 partition of days for values from (200) to (300)")
    shop.until(lambda: states(shop)["days_rows"] == "unproven", "the partition is seen")
    (why,) = {v["why"] for v in shop.status()["views"] if v["name"] == "days_sums"}
    assert "nobody reads its new partition public.d3" in why
    assert "`connect:`" in why
    assert "table.include.list" in why
    assert states(shop)["wide_rows"] == "fresh"
    assert shop.stop() == 0
