"""A Delta and an Iceberg table by a common clock, without a JVM, through Spark, and by both in turns: equal to the byte."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

import deltalake
from pyspark.sql import SparkSession

from headrace.connectors.spark.common_clock import CommonClock
from headrace.connectors.spark.delta_feed import DeltaFeed
from headrace.connectors.spark.iceberg_feed import IcebergFeed
from headrace.connectors.spark.lake_feed import Feed
from headrace.connectors.spark.spark_delta_feed import SparkDeltaFeed
from headrace.connectors.spark.spark_iceberg_feed import SparkIcebergFeed
from tests.connectors.spark.wires import FolderWire

pytestmark = [pytest.mark.lakes, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

ORDERS, LINES = "public.orders", "public.lines"


def test_both_ways_write_the_same_bytes(spark: SparkSession, warehouse: Path, unique: str, tmp_path: Path) -> None:
    draw, delta, name = random.Random(1), str(tmp_path / "orders"), f"lake.shop.{unique}"

    def feeds(through: str) -> tuple[Feed, Feed]:
        if through == "spark":
            return SparkDeltaFeed(spark, delta, ORDERS, ("id",)), SparkIcebergFeed(spark, name, LINES, ("id",))
        iceberg = IcebergFeed(str(warehouse / "shop" / unique), LINES, ("id",), {})
        return DeltaFeed(delta, ORDERS, ("id",), {}), iceberg

    def job(value: int) -> None:
        rows = pa.table({"id": pa.array([0, value], pa.int64()), "v": pa.array([value] * 2, pa.int64())})
        deltalake.write_deltalake(delta, rows, mode="overwrite", configuration={"delta.enableChangeDataFeed": "true"})
        spark.sql(f"insert overwrite {name} values (0, {value}), ({value}, {value})")

    def published(wire: str, through: str) -> list[object]:
        clock = CommonClock(
            feeds(through), "shop", FolderWire(tmp_path / wire), pause=draw_pause, partitions=2, clock=lambda: 1
        )
        return list(clock.follow())

    spark.sql(f"create table {name} (id bigint, v bigint) using iceberg")
    for round_ in range(3):
        for value in range(1, 1 + draw.randint(1, 3)):
            job(10 * round_ + value)
        draw_pause = draw.choice([0.05, 5.0])
        turn = draw.choice(["files", "spark"])
        done = [published("files", "files"), published("spark", "spark"), published("turns", turn)]
        assert done[0] == done[1] == done[2]
        assert done[0]
        for table in (ORDERS, LINES):
            topics = [FolderWire(tmp_path / wire).records(f"shop.{table}") for wire in ("files", "spark", "turns")]
            assert topics[0] == topics[1] == topics[2]
    spark.sql(f"drop table {name}")
