"""Iceberg's changelog as Spark reads it, beside pyiceberg's differences of files of the same table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from pyspark.sql import SparkSession

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import follow
from headrace.connectors.spark.iceberg_feed import IcebergFeed
from headrace.connectors.spark.lake_feed import describe
from headrace.connectors.spark.spark_iceberg_feed import SparkIcebergFeed
from tests.connectors.spark.lakes.twins import TABLE, Twins
from tests.connectors.spark.wires import FolderWire

pytestmark = [pytest.mark.lakes, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

COLUMNS = (
    "id bigint, part string, price decimal(10,2), at timestamp, local timestamp_ntz, day date, raw binary, real float, "
    "wide double, good boolean"
)
VALUES = (
    ("'a'", "'ü\"\\''", "null"), ("0.00", "-99999999.99", "null"),
    ("timestamp'1969-12-31 23:59:59.999999Z'", "timestamp'2024-03-10 07:30:00Z'", "null"),
    ("timestamp_ntz'2024-03-10 02:30:00'", "timestamp_ntz'9999-12-31 23:59:59.999999'", "null"),
    ("date'1900-01-01'", "date'2024-02-29'", "null"), ("x''", "x'00ff'", "null"),
    ("0.1f", "float('NaN')", "-0.0f", "null"), ("0.1d", "double('-Infinity')", "5e-324d", "null"), ("true", "false", "null"),
)  # fmt: skip


class Ice:
    """An Iceberg table that Spark writes."""

    def __init__(self, spark: SparkSession, name: str, warehouse: Path, tmp_path: Path, seed: int = 0) -> None:
        self.spark, self.name = spark, f"lake.shop.{name}"
        path = str(warehouse / "shop" / name)
        self.twins = Twins(tmp_path, lambda: IcebergFeed(path, TABLE, ("id",), {}),
                           lambda: SparkIcebergFeed(spark, self.name, TABLE, ("id",)), seed)  # fmt: skip

    def create(self, columns: str = COLUMNS, partition: str = "", **properties: str) -> None:
        told = ", ".join(f"'{k}'='{v}'" for k, v in {"format-version": "2", **properties}.items())
        self.spark.sql(f"create table {self.name} ({columns}) using iceberg {partition} tblproperties({told})")

    def do(self, text: str) -> None:
        self.spark.sql(text.format(t=self.name))

    def ids(self) -> set[int]:
        return {row[0] for row in self.spark.table(self.name).select("id").collect()}


@pytest.fixture
def ice(spark: SparkSession, unique: str, warehouse: Path, tmp_path: Path) -> Iterator[Ice]:
    made = Ice(spark, unique, warehouse, tmp_path)
    yield made
    spark.sql(f"drop table if exists {made.name}")


def drawn(draw: random.Random, ids: list[int]) -> str:
    return ", ".join(f"({i}, {', '.join(draw.choice(v) for v in VALUES)})" for i in ids)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_ways_write_the_same_bytes(ice: Ice, seed: int) -> None:
    """Random snapshots of inserts, updates, deletes, merges, overwrites and compactions; publishers that die."""
    draw = random.Random(seed)
    ice.twins.draw = random.Random(seed)
    ice.create(partition="partitioned by (part)" if seed % 2 else "")
    ice.do(f"insert into {{t}} values {drawn(draw, list(range(8)))}")
    ice.twins.publish()
    fresh = 8
    for _ in range(8):
        some = sorted(draw.sample(range(fresh), 3))
        new, fresh = [fresh, fresh + 1], fresh + 2
        what = draw.choice(["append", "update", "delete", "merge", "overwrite", "compact"])
        if what == "append":
            ice.do(f"insert into {{t}} values {drawn(draw, new)}")
        elif what == "update":
            ice.do(f"update {{t}} set price = 1.50, good = not good where id < {draw.randint(0, fresh)}")
        elif what == "delete":
            ice.do(f"delete from {{t}} where id in ({','.join(map(str, some))})")
        elif what == "merge":
            ice.do(
                f"merge into {{t}} t using (select * from values {drawn(draw, some + new)} as v({names()})) s on t.id = s.id "
                f"when matched and t.id = {some[0]} then delete when matched then update set * when not matched then insert *"
            )
        elif what == "overwrite":
            ice.do(f"insert overwrite {{t}} values {drawn(draw, new)}")
        else:
            ice.do("call lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))")
        if draw.random() < 0.6:
            ice.twins.publish(killed=draw.random() < 0.5)
    ice.twins.publish()
    assert {row["id"] for row in ice.twins.state().values()} == ice.ids()
    assert ice.twins.publish() == [], "nothing is new"


def names() -> str:
    return ", ".join(column.split()[0] for column in COLUMNS.split(", "))


def test_columns_that_come_and_go(ice: Ice) -> None:
    """Each snapshot has the columns of then, under the names of then; those that were dropped since are named."""
    ice.create("id bigint, v string")
    ice.do("insert into {t} values (1, 'a'), (2, 'b')")
    ice.twins.publish()
    ice.do("insert into {t} values (3, 'c')")
    ice.do("alter table {t} add column n bigint")
    ice.do("alter table {t} rename column v to w")
    ice.do("update {t} set n = 1 where id = 1")
    ice.do("alter table {t} rename column id to key")
    ice.do("alter table {t} rename column key to id")
    assert [(d.counts.creates, d.counts.updates) for d in ice.twins.publish()] == [(1, 0), (0, 1)]
    assert ice.twins.state()['{"id":3}'] == {"id": 3, "v": "c"}
    assert ice.twins.state()['{"id":1}'] == {"id": 1, "w": "a", "n": 1}
    ice.do("delete from {t} where id = 2")
    ice.do("alter table {t} drop column n")
    with pytest.raises(PublishError, match="dropped since") as caught:
        list(follow(ice.twins.feeds["spark"](), "sup", ice.twins.wire("spark"), partitions=2))
    assert "--snapshot" in str(caught.value)
    assert describe(ice.twins.feeds["spark"]()) == describe(ice.twins.feeds["files"]())


def test_expired_snapshots_are_named_and_previous_rows_are_the_way_out(ice: Ice) -> None:
    ice.create("id bigint, v string")
    ice.do("insert into {t} values (1, 'a'), (2, 'b')")
    ice.twins.publish()
    published = ice.spark.table(ice.name).toArrow()
    ice.do("insert into {t} values (3, 'c')")
    ice.do("delete from {t} where id = 1")
    ice.do(
        "call lake.system.expire_snapshots(table => '{t}', older_than => timestamp'2999-01-01 00:00:00', retain_last => 1)"
    )
    for options in ({}, {"snapshot": True}):
        with pytest.raises(PublishError, match="not in the table's history") as caught:
            list(follow(ice.twins.feeds["spark"](), "sup", ice.twins.wire("spark"), partitions=2, **options))
        assert "--previous" in str(caught.value)
    [done] = ice.twins.publish(previous=published)
    assert (done.snapshot, done.counts.creates, done.counts.deletes) == (True, 1, 1)


def test_what_cannot_be_read_is_named(ice: Ice, tmp_path: Path) -> None:
    wire = FolderWire(tmp_path / "wire")
    feed = ice.twins.feeds["spark"]()
    with pytest.raises(PublishError, match="the Iceberg table cannot be read"):
        feed.newest()
    ice.create("id bigint, v string", **{"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"})
    with pytest.raises(PublishError, match="no snapshot yet"):
        feed.newest()
    ice.do("insert into {t} values (1, 'a'), (2, 'b')")
    list(follow(feed, "sup", wire))
    ice.do("update {t} set v = 'B' where id = 2")
    with pytest.raises(PublishError, match="merge-on-read") as caught:
        list(follow(feed, "sup", wire))
    assert "without --through spark" in str(caught.value)
    [done] = follow(ice.twins.feeds["files"](), "sup", wire)
    assert done.counts.updates == 1, "and so it goes on"
    ice.do("drop table {t}")
    ice.create("id bigint, v string")
    ice.do("insert into {t} values (1, 'a')")
    wire = FolderWire(tmp_path / "another")
    list(follow(feed, "sup", wire))
    ice.do("insert overwrite {t} values (1, 'b'), (1, 'c')")
    with pytest.raises(PublishError, match="several rows of one version"):
        list(follow(feed, "sup", wire))
    with pytest.raises(PublishError, match="no such catalog") as caught:
        SparkIcebergFeed(ice.spark, "nowhere.shop.t", TABLE, ("id",)).newest()
    assert "spark.sql.catalog.nowhere" in str(caught.value)
    with pytest.raises(PublishError, match="no such snapshot"):
        feed.named(12)
    with pytest.raises(PublishError, match="not there"):
        describe(SparkIcebergFeed(ice.spark, ice.name, TABLE, ("none",)))
