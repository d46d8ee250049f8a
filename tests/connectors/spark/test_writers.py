"""Spark's own writers, on a real Kafka: what readers of the topic have after each of them."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.spark.row_json import json_texts, json_values
from headrace.connectors.spark.types import encoded
from headrace.spark import register
from tests.connectors.spark.test_publish import expect, split, state_of

TABLE = "public.prices"
KIND = "id int, price string"
RAISED = (PySparkException, Py4JError)
"""What Spark raises of a Python error, as it is met while planning, in a task or in a commit."""


@dataclass(frozen=True)
class Topics:
    """What a FolderWire tells of its topics, of a broker's."""

    bootstrap: str

    def records(self, topic: str) -> list[dict[str, object]]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "t", "enable.auto.commit": False})
        found: list[dict[str, object]] = []
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            for p in sorted(partitions):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)
                consumer.assign([TopicPartition(topic, p, low)])
                while low < high:
                    message = consumer.poll(10.0)
                    assert message is not None
                    assert not message.error()
                    low = message.offset() + 1
                    found.append({"partition": p, "key": message.key().decode(), "value": message.value().decode()})
        finally:
            consumer.close()
        return found


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def save(rows: DataFrame, kafka: str, prefix: str, **options: str) -> None:
    writer = rows.write.format("headrace").mode("append")
    for name, value in {
        "table": TABLE, "key": "id", "prefix": prefix, "bootstrap": kafka, "partitions": "2", **options,
    }.items():  # fmt: skip
        writer = writer.option(name, value)
    writer.save()


@pytest.mark.long
def test_rows_written_in_batches(registered: SparkSession, kafka: str, unique: str) -> None:
    def of(rows: list[Any], kind: str = KIND) -> DataFrame:
        return registered.createDataFrame(rows, kind)

    save(of([(1, "a"), (2, "b"), (3, None)]), kafka, unique)
    save(of([(2, "B"), (4, "d")]), kafka, unique)
    save(of([("d", 1, None), ("c", 5, "e")], "op string, id int, price string"), kafka, unique, mode="changes")
    topics, topic = Topics(kafka), f"{unique}.{TABLE}"
    assert state_of(topics, topic) == expect({2: "B", 3: None, 4: "d", 5: "e"})  # type: ignore[arg-type]
    assert sorted({e["value"]["version"] for e in split(topics, topic)[1]}) == [1, 2, 3]  # type: ignore[arg-type]
    for rows, kind, options, what in [
        ([(1, "a"), (1, "b")], KIND, {"mode": "append"}, "a key stands in several rows"),
        ([(None, "a")], KIND, {}, "a key is NULL"),
        ([("x", 1, "a")], "op string, id int, price string", {"mode": "changes"}, "none of c, u, d, r"),
        ([(1, "a")], KIND, {"mode": "all"}, "no such mode"),
        ([(1, "a")], KIND, {"mode": "changes"}, "no such column"),
    ]:
        with pytest.raises(RAISED, match=what):
            save(of(rows, kind).coalesce(1), kafka, unique, **options)
    split_rows = of([(7, "a"), (7, "b")]).repartitionByRange(2, "price")
    assert sorted(split_rows.rdd.glom().map(len).collect()) == [1, 1], "the two rows of the key are in two tasks"
    with pytest.raises(RAISED, match="written by several tasks"):
        save(split_rows, kafka, unique)
    assert state_of(topics, topic) == expect({2: "B", 3: None, 4: "d", 5: "e"})  # type: ignore[arg-type]


def test_overwriting_is_refused(registered: SparkSession, kafka: str, unique: str) -> None:
    writer = registered.createDataFrame([(1, "a")], KIND).write.format("headrace").mode("overwrite")
    with pytest.raises(RAISED, match="publish_version"):
        writer.options(table=TABLE, key="id", prefix=unique, bootstrap=kafka).save()


class Streamed:
    """A stream of files: `land` brings one, `run` takes all that are new, each a batch."""

    def __init__(self, spark: SparkSession, folder: Path, kafka: str, prefix: str) -> None:
        self.spark, self.folder, self.kafka, self.prefix = spark, folder, kafka, prefix
        self.n = 0

    def land(self, rows: list[Any]) -> None:
        self.n += 1
        frame = self.spark.createDataFrame(rows, "seq int, id int, price string").coalesce(1)
        frame.write.parquet(str(self.folder / "in" / f"n={self.n}"))

    def run(self, checkpoint: str = "check", **options: str) -> None:
        stream = self.spark.readStream.schema("seq int, id int, price string").option("maxFilesPerTrigger", 1)
        rows = stream.parquet(str(self.folder / "in")).drop("n")
        writer = rows.writeStream.format("headrace").option("checkpointLocation", str(self.folder / checkpoint))
        for name, value in {
            "table": TABLE, "key": "id", "prefix": self.prefix, "bootstrap": self.kafka, "partitions": "2",
            "mode": "upsert", "order": "seq", **options,
        }.items():  # fmt: skip
            writer = writer.option(name, value)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(120)
        finally:
            query.stop()


def held(streamed: Streamed) -> dict[int, str | None]:
    found = state_of(Topics(streamed.kafka), f"{streamed.prefix}.{TABLE}")  # type: ignore[arg-type]
    return {row["id"]: row["price"] for row in found.values()}


def test_batches_of_a_stream_are_versions(registered: SparkSession, kafka: str, unique: str, tmp_path: Path) -> None:
    streamed = Streamed(registered, tmp_path, kafka, unique)
    streamed.land([(1, 1, "a"), (2, 2, "b"), (4, 1, "A"), (3, 1, "old")])
    streamed.land([(5, 3, "c")])
    streamed.run()
    assert held(streamed) == {1: "A", 2: "b", 3: "c"}
    streamed.land([(6, 2, "B")])
    streamed.run()
    assert held(streamed) == {1: "A", 2: "B", 3: "c"}
    topics, topic = Topics(kafka), f"{unique}.{TABLE}"
    ends = split(topics, topic)[1]  # type: ignore[arg-type]
    assert sorted((e["value"]["version"], e["value"]["partition"]) for e in ends) == [
        (v, p) for v in (1, 2, 3) for p in (0, 1)
    ]

    # Spark was killed after the batch was ended and before it noted so: it gives the batch again
    last = max((tmp_path / "check" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    streamed.run()
    assert held(streamed) == {1: "A", 2: "B", 3: "c"}
    assert len(split(topics, topic)[1]) == 6, "no END was written again"  # type: ignore[arg-type]

    # the checkpoint folder is lost: batch 0 is not what the topic's version 1 was
    with pytest.raises(RAISED, match="checkpoint folder was lost"):
        streamed.run("other")
    assert held(streamed) == {1: "A", 2: "B", 3: "c"}
    streamed.land([(9, 1, "new")])
    streamed.run("another", after="3")
    assert held(streamed) == {1: "new", 2: "B", 3: "c"}


def test_rows_have_the_json_that_spark_writes(spark: SparkSession) -> None:
    kind = (
        "id int, d decimal(38,18), ts timestamp, n timestamp_ntz, day date, f float, g double, b binary, s string, "
        "t tinyint, o boolean"
    )
    moment = dt.datetime(2024, 11, 3, 5, 30, 0, 123456)
    rows = [
        (1, Decimal("0.0000001"), moment.replace(tzinfo=dt.UTC), moment, dt.date(1, 1, 1), 0.1, float("nan"),
         bytes(range(50)), 'é"\\\n', 7, True),
        (2, Decimal(0), dt.datetime(1969, 1, 1, tzinfo=dt.UTC), moment, dt.date(9999, 12, 31), -0.0, 1e300, b"", "", -1,
         False),
        (3, *[None] * 10),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, kind).coalesce(1)
    wanted = [json.loads(r.after) for r in encoded(frame, ["id"]).collect()]
    table: pa.Table = frame.toArrow().combine_chunks()
    columns = {n: json_values(table.column(n).chunk(0)) for n in table.column_names}
    found = [json.loads(text) for text in json_texts(columns, table.num_rows)]
    for row in (*wanted, *found):  # Spark writes no fraction where there is none
        row["ts"] = row["ts"] and row["ts"].replace("00.000000Z", "00Z")
    assert found == wanted
    keys = json_texts({"s": columns["s"], "d": columns["d"]}, 3)
    assert [k.decode() for k in keys] == [r.key for r in encoded(frame, ["s", "d"]).collect()]
