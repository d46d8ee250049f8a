"""Delta's change feed as Spark reads it, beside deltalake's reading of the same table."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import deltalake
from pyspark.sql import SparkSession

from headrace.connectors.spark.delta_feed import DeltaFeed
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import follow
from headrace.connectors.spark.lake_feed import describe
from headrace.connectors.spark.spark_delta_feed import SparkDeltaFeed
from tests.connectors.spark.lakes.twins import TABLE, Twins
from tests.connectors.spark.wires import FolderWire

pytestmark = [pytest.mark.lakes, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

FED = {"delta.enableChangeDataFeed": "true"}
SCHEMA = pa.schema([
    ("part", pa.string()), ("id", pa.int64()), ("text", pa.string()), ("price", pa.decimal128(10, 2)),
    ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("day", pa.date32()), ("raw", pa.binary()),
    ("small", pa.int16()), ("real", pa.float32()), ("wide", pa.float64()), ("good", pa.bool_()),
])  # fmt: skip


def drawn(draw: random.Random, ids: list[int]) -> pa.Table:
    """Rows with values at which ways of reading differ: years far away, NaN, minus zero, NULLs, small decimals."""
    zone = dt.UTC
    picks = {
        "part": ["a", "b", None], "text": ["ü\n\"'\u2028", "", None], "price": [Decimal("0.00"), Decimal("-99999999.99"), None],
        "at": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, zone), dt.datetime(2024, 3, 10, 7, 30, tzinfo=zone), None],
        "local": [dt.datetime(2024, 3, 10, 2, 30), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None],
        "day": [dt.date(1900, 1, 1), dt.date(2024, 2, 29), None], "raw": [b"", b"\x00\xff", None],
        "small": [-32768, 7, None], "real": [0.1, float("nan"), -0.0, 3.4e38, None],
        "wide": [0.1, float("-inf"), 5e-324, 1e16, None], "good": [True, False, None],
    }  # fmt: skip
    columns = {n: ids if n == "id" else [draw.choice(picks[n]) for _ in ids] for n in SCHEMA.names}
    return pa.table(columns, schema=SCHEMA)


def twins(spark: SparkSession, tmp_path: Path, seed: int = 0) -> Twins:
    path = str(tmp_path / "t")
    return Twins(
        tmp_path, lambda: DeltaFeed(path, TABLE, ("id",), {}), lambda: SparkDeltaFeed(spark, path, TABLE, ("id",)), seed
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_ways_write_the_same_bytes(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Random versions of inserts, updates, deletes, merges and overwrites, by deltalake and by Spark; publishers that die."""
    draw, path = random.Random(seed), str(tmp_path / "t")
    both = twins(spark, tmp_path, seed)
    first = drawn(draw, list(range(8)))
    partitioned = ["part"] if seed % 2 else None
    deltalake.write_deltalake(path, first, configuration=FED, partition_by=partitioned)
    both.publish()
    there, fresh = set(range(8)), 8
    for _ in range(8):
        table, what = (
            deltalake.DeltaTable(path),
            draw.choice(["append", "update", "delete", "merge", "spark", "overwrite"]),
        )
        some = sorted(draw.sample(sorted(there), min(3, len(there))))
        new, fresh = list(range(fresh, fresh + 2)), fresh + 2
        if what == "append":
            deltalake.write_deltalake(path, drawn(draw, new), mode="append")
        elif what == "update":
            table.update(predicate=f"id < {draw.randint(0, fresh)}", updates={"price": "1.50", "good": "not good"})
        elif what == "delete":
            table.delete(f"id in ({','.join(map(str, [-1, *some]))})")
        elif what == "merge":
            merging = table.merge(drawn(draw, some + new), "t.id = s.id", source_alias="s", target_alias="t")
            merging.when_matched_update_all().when_not_matched_insert_all().execute()
        elif what == "spark":
            merged(spark, path, drawn(draw, some + new), some[0] if some else -1)
        else:
            deltalake.write_deltalake(path, drawn(draw, some + new), mode="overwrite")
        there = set(deltalake.DeltaTable(path).to_pyarrow_table().column("id").to_pylist())
        if draw.random() < 0.6:
            both.publish(killed=draw.random() < 0.5)
    both.publish()
    assert {row["id"] for row in both.state().values()} == there
    assert both.publish() == [], "nothing is new"


def merged(spark: SparkSession, path: str, rows: pa.Table, gone: int) -> None:
    """A MERGE of Spark's that updates, deletes and inserts in one version."""
    pq.write_table(rows, f"{path}.arriving.parquet")
    spark.read.parquet(f"{path}.arriving.parquet").createOrReplaceTempView("arriving")
    spark.sql(
        f"merge into delta.`{path}` t using arriving s on t.id = s.id when matched and t.id = {gone} then delete "
        "when matched then update set * when not matched then insert *"
    )


def test_columns_that_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    """Each version has the columns of then; those that were dropped since are named, and read without Spark."""
    path, both = str(tmp_path / "t"), twins(spark, tmp_path)
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "v": ["a", "b"]}), configuration=FED)
    both.publish()
    deltalake.write_deltalake(path, pa.table({"id": [3], "v": ["c"]}), mode="append")
    deltalake.write_deltalake(path, pa.table({"id": [4], "v": ["d"], "n": [9]}), mode="append", schema_mode="merge")
    assert [d.version for d in both.publish()] == [2, 3]
    assert both.state()['{"id":3}'] == {"id": 3, "v": "c"}, "the column that came later is not there yet"
    deltalake.DeltaTable(path).delete("id = 1")
    without = pa.table({"id": [2, 3], "n": [1, 1]})
    deltalake.write_deltalake(path, without, mode="overwrite", schema_mode="overwrite")
    wire = FolderWire(tmp_path / "spark")
    with pytest.raises(PublishError, match="dropped or retyped since") as caught:
        list(follow(both.feeds["spark"](), "sup", wire, partitions=2))
    assert "--snapshot" in str(caught.value)
    both.feeds["spark"], spared = both.feeds["files"], both.feeds["spark"]
    assert [d.version for d in both.publish()] == [4, 5]
    both.feeds["spark"] = spared
    deltalake.write_deltalake(path, pa.table({"id": [5], "n": [5]}), mode="append")
    assert [d.version for d in both.publish()] == [6]
    assert describe(both.feeds["spark"]()) == describe(both.feeds["files"]())


def test_history_that_is_gone_is_named_and_the_whole_table_is_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    path, both = str(tmp_path / "t"), twins(spark, tmp_path)
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "v": ["a", "b"]}), configuration=FED)
    both.publish()
    deltalake.DeltaTable(path).update(predicate="id = 1", updates={"v": "'A'"})
    deltalake.DeltaTable(path).delete("id = 2")
    for file in (tmp_path / "t" / "_change_data").glob("*.parquet"):
        file.unlink()  # as a vacuum does
    with pytest.raises(PublishError, match="change feed of a version cannot be read") as caught:
        list(follow(both.feeds["spark"](), "sup", FolderWire(tmp_path / "spark"), partitions=2))
    assert "--snapshot" in str(caught.value)
    [done] = both.publish(snapshot=True)
    assert (done.version, done.snapshot, done.counts.updates, done.counts.deletes) == (3, True, 1, 1)


def test_what_cannot_be_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    feed, wire = SparkDeltaFeed(spark, path, TABLE, ("id",)), FolderWire(tmp_path / "wire")
    with pytest.raises(PublishError, match="the Delta table cannot be read"):
        feed.newest()
    deltalake.write_deltalake(path, pa.table({"id": [1], "v": ["a"]}))
    list(follow(feed, "sup", wire))
    deltalake.write_deltalake(path, pa.table({"id": [2], "v": ["b"]}), mode="append")
    with pytest.raises(PublishError, match="enableChangeDataFeed"):
        list(follow(feed, "sup", wire))
    with pytest.raises(PublishError, match="cannot be read") as caught:
        feed.named(99)
    assert "--previous" in str(caught.value)
    with pytest.raises(PublishError, match="not there"):
        describe(SparkDeltaFeed(spark, path, TABLE, ("none",)))
    assert feed.named(1).version == 2
