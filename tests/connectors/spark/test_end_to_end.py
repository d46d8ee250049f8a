"""A lake's table from its first load to what Spark reads of a view: a true sidecar, a true broker, a true session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.spark.publish import Dataset, Target, publish_version
from headrace.sidecar.config.config import load
from headrace.sidecar.control.client import Client
from headrace.sidecar.lake.load import Origin, load_tables
from headrace.spark import register
from tests.sidecar.support.process import Sidecar

TABLE, KIND = "public.prices", "id int, city string, price decimal(10,2)"
Rows = dict[int, tuple[str | None, Decimal | None]]


class Lake(Sidecar):
    """One table, `rows` by key as it should be now, and one view of it."""

    def __init__(self, folder: Path, spark: SparkSession, kafka: str, name: str) -> None:
        super().__init__(folder)
        self.spark, self.kafka, self.name = spark, kafka, name
        self.rows: Rows = {}
        (folder / "views").mkdir()
        view = "select city, count(*) as n, sum(price) as total from public.prices group by city"
        (folder / "views" / "v.yaml").write_text(
            json.dumps({"version": 1, "views": [{"name": "by_city", "sinks": ["bus"], "sql": view}]})
        )
        columns = [("id", "integer"), ("city", "text"), ("price", "numeric(10,2)")]
        table = {"name": TABLE, "key": ["id"], "columns": [{"name": n, "data_type": t} for n, t in columns]}
        self.config.write_text(json.dumps({
            "version": 1, "name": name, "kafka": {"bootstrap.servers": kafka},
            "sources": [{"name": "lake", "type": "spark", "topic_prefix": name, "tables": [table]}],
            "sinks": [{"name": "bus", "type": "kafka", "topic_prefix": f"{name}.views."}],
            "http": self.http, "checkpoint": {"interval_seconds": 0.5},
        }))  # fmt: skip

    def frame(self, rows: Rows) -> DataFrame:
        return self.spark.createDataFrame([(k, *v) for k, v in sorted(rows.items())], KIND)

    def answer(self) -> dict[Any, tuple[int, Decimal | None]]:
        """The view, naively."""
        by_city: dict[Any, list[Decimal | None]] = {}
        for city, price in self.rows.values():
            by_city.setdefault(city, []).append(price)
        there = {c: [x for x in p if x is not None] for c, p in by_city.items()}
        return {c: (len(p), sum(there[c], Decimal(0)) if there[c] else None) for c, p in by_city.items()}

    def read(self, **options: str) -> list[Any]:
        reader = self.spark.read.format("headrace").option("config", str(self.config))
        return reader.options(**options).load().collect()

    def seen(self, **options: str) -> dict[Any, tuple[int, Decimal | None]]:
        return {r["city"]: (r["n"], r["total"]) for r in self.read(view="by_city", **options)}

    def one_city(self, city: str) -> dict[Any, tuple[int, Decimal | None]]:
        reader = self.spark.read.format("headrace").option("config", str(self.config))
        rows = reader.option("view", "by_city").load().where(f"city = '{city}'").collect()
        return {r["city"]: (r["n"], r["total"]) for r in rows}

    def shows(self) -> bool:
        """Whether the sidecar holds the view so: asked directly, as a read by Spark takes seconds."""
        asked = {"sql": "select city, n, total::text from by_city", "json": True}
        _, *parts = Client(load(self.config)).stream("POST", "/query", asked)
        rows = [r for part in parts for r in part["part"]]
        told = {r["city"]: (r["n"], None if r["total"] is None else Decimal(r["total"])) for r in rows}
        return told == self.answer()


@pytest.fixture
def lake(spark: SparkSession, kafka: str, unique: str, tmp_path: Path) -> Iterator[Lake]:
    register(spark)
    made = Lake(tmp_path, spark, kafka, unique)
    yield made
    made.end()


def loaded(lake: Lake) -> None:
    """Version 1 is a Parquet file."""
    cities = ["Bern", "Chur", None, "Genève"]
    lake.rows = {i: (cities[i % 4], Decimal(i) / 4 if i % 5 else None) for i in range(200)}
    path = lake.folder / "prices.parquet"
    table = pa.table(
        {
            "id": list(lake.rows),
            "city": [c for c, _ in lake.rows.values()],
            "price": pa.array([p for _, p in lake.rows.values()], pa.decimal128(10, 2)),
        }
    )
    pq.write_table(table, path, row_group_size=50)
    done = load_tables(load(lake.config), [TABLE], Origin("parquet", str(path)), session=lambda _: lake.spark, tasks=3)
    assert done.rows == {TABLE: 200}


class Followed:
    """The view as a stream's reader holds it; `batches`: the epochs of each."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.held = lake, dict[Any, Any]()
        self.batches: list[list[tuple[Any, ...]]] = []

    def run(self) -> None:
        stream = self.lake.spark.readStream.format("headrace").option("config", str(self.lake.config))
        rows = stream.option("view", "by_city").option("changes", "true").load()
        writer = rows.writeStream.foreachBatch(self._take)
        query = writer.option("checkpointLocation", str(self.lake.folder / "followed")).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def _take(self, batch: DataFrame, _: int) -> None:
        rows = [tuple(r) for r in batch.orderBy("headrace_epoch").collect()]
        self.batches.append(rows)
        for city, n, total, op, _epoch in rows:
            if op == "delete":
                self.held.pop(city, None)
            else:
                self.held[city] = (n, total)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_lake_is_loaded_published_and_read(lake: Lake) -> None:
    loaded(lake)
    lake.start()
    lake.until(lake.shows, "the view holds what was loaded")
    assert lake.seen() == lake.answer()
    followed = Followed(lake)
    followed.run()
    assert followed.held == lake.answer()

    # the next version goes on from what was loaded
    before = lake.frame(lake.rows)
    lake.rows = {**{k: v for k, v in lake.rows.items() if k % 7}, 500: ("Sion", Decimal("9.99"))}
    target = Target(lake.name, {"bootstrap.servers": lake.kafka}, partitions=2)
    rows = [Dataset(TABLE, lake.frame(lake.rows), ["id"], previous=before)]
    assert publish_version(lake.spark, rows, target, version=2).version == 2
    lake.until(lake.shows, "the view holds version 2")
    more: Rows = {500: ("Sion", Decimal("1.00")), 501: (None, None)}
    lake.rows |= more
    writer = lake.frame(more).write.format("headrace").mode("append")
    writer.options(table=TABLE, key="id", prefix=lake.name, bootstrap=lake.kafka).save()
    lake.until(lake.shows, "the view holds what was saved")

    told = lake.command_json("query", "select * from by_city")
    totals = {r["city"]: None if r["total"] is None else Decimal(r["total"]) for r in told["rows"]}
    assert totals == {city: total for city, (_, total) in lake.answer().items()}
    assert lake.seen(epoch=str(told["epoch"]), columns="city,n,total") == lake.answer()
    assert lake.one_city("Bern") == {"Bern": lake.answer()["Bern"]}
    with pytest.raises((PySparkException, Py4JError), match="this epoch is not at hand"):
        lake.seen(epoch="1")

    batches = len(followed.batches)
    followed.run()
    assert followed.held == lake.answer()
    epochs = {e for b in followed.batches[batches:] for *_, e in b}
    assert epochs
    assert min(epochs) > max(e for b in followed.batches[:batches] for *_, e in b), "a batch begins where one ended"
    last = max((lake.folder / "followed" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    followed.run()
    assert sorted(map(repr, followed.batches[-1])) == sorted(map(repr, followed.batches[-2])), "the same batch again"

    lake.stop()
    assert lake.seen() == lake.answer(), "from the checkpoint"
    assert lake.one_city("Bern") == {"Bern": lake.answer()["Bern"]}
    held = {r["id"]: (r["city"], r["price"]) for r in lake.read(table=TABLE, columns="id,city,price")}
    assert held == lake.rows
    assert next(r.asDict() for r in lake.read(table=TABLE, columns="id")).keys() == {"id"}
