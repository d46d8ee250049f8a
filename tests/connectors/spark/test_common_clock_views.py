"""A job writes two Delta tables, one after the other; a view over both never sees one without the other."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake", reason="pip install 'headrace[delta]'")

import deltalake
from confluent_kafka import Consumer, TopicPartition

from headrace.sidecar.config.config import load
from headrace.sidecar.control.client import Client
from tests.connectors.spark.test_common_clock import FED, LINES, ORDERS
from tests.sidecar.support.process import Sidecar

PROGRAM = [sys.executable, "-c", "from headrace.connectors.spark.cli import main; main()", "follow"]
VIEWS = {
    "torn": f"select o.id, o.v as a, l.v as b from {ORDERS} o join {LINES} l on l.id = o.id where o.v <> l.v",
    "pairs": f"select o.id, o.v as a, l.v as b from {ORDERS} o join {LINES} l on l.id = o.id",
}


class Shop(Sidecar):
    """Two Delta tables, a sidecar with views over both, and the command that follows them."""

    def __init__(self, folder: Path, kafka: str, name: str) -> None:
        super().__init__(folder)
        self.kafka, self.name, self.value = kafka, name, 0
        self.paths = {table: str(folder / table) for table in (ORDERS, LINES)}
        (folder / "views").mkdir()
        views = [{"name": n, "sinks": ["bus"], "sql": text} for n, text in VIEWS.items()]
        (folder / "views" / "v.yaml").write_text(json.dumps({"version": 1, "views": views}))
        columns = [{"name": n, "data_type": "bigint"} for n in ("id", "v")]
        self.config.write_text(json.dumps({
            "version": 1, "name": name, "kafka": {"bootstrap.servers": kafka},
            "sources": [{"name": "lake", "type": "spark", "topic_prefix": name,
                         "tables": [{"name": t, "key": ["id"], "columns": columns} for t in self.paths]}],
            "sinks": [{"name": "bus", "type": "kafka", "topic_prefix": f"{name}.views.", "granularity": "transaction"}],
            "http": self.http, "checkpoint": {"interval_seconds": 0.5},
        }))  # fmt: skip

    def job(self) -> None:
        """One run: every row of both tables gets the next value, in one commit a table."""
        self.value += 1
        for table in self.paths:
            rows = pa.table({"id": pa.array(range(6), pa.int64()), "v": pa.array([self.value] * 6, pa.int64())})
            deltalake.write_deltalake(
                self.paths[table], rows, mode="overwrite", configuration=FED if self.value == 1 else None
            )

    def follow(self, *more: str) -> subprocess.Popen[str]:
        named = [f"{table}(id)=delta:{path}" for table, path in self.paths.items()]
        words = [
            *named,
            "--prefix",
            self.name,
            "--bootstrap",
            self.kafka,
            "--common-clock",
            "1",
            "--pause",
            "0.1",
            "--json",
            *more,
        ]
        return subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def answer(self, view: str) -> list[Any]:
        asked = {"sql": f"select * from {view}", "json": True}
        _, *parts = Client(load(self.config)).stream("POST", "/query", asked)
        return [row for part in parts for row in part["part"]]


@pytest.fixture
def shop(kafka: str, unique: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path, kafka, unique)
    yield made
    made.end()


def keys(kafka: str, topic: str) -> list[Any]:
    """The keys of a view's records, frontiers apart."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "test", "isolation.level": "read_committed",
                         "enable.partition.eof": True})  # fmt: skip
    found = []
    try:
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while not ((message := consumer.poll(30)) is None or message.error()):
                key = json.loads(message.key())
                found += [key] if "id" in key else []
    finally:
        consumer.close()
    return found


def ended(process: subprocess.Popen[str]) -> None:
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0, out + said


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_one_job_wrote_into_two_tables_is_seen_at_one_epoch(shop: Shop) -> None:
    """Runs of a job beside the command, which is killed at random."""
    draw = random.Random(5)
    shop.job()
    ended(shop.follow("--available-now"))
    shop.start()
    following, killed = shop.follow(), 0
    for _ in range(12):
        time.sleep(draw.uniform(1.6, 2.2))  # runs with less than the clock's second between them are one version
        shop.job()
        if draw.random() < 0.5:
            time.sleep(draw.uniform(0, 1.5))
            following.kill()
            following.communicate(timeout=30)
            following, killed = shop.follow(), killed + 1
    following.kill()
    following.communicate(timeout=30)
    ended(shop.follow("--available-now"))
    expected = [{"id": n, "a": shop.value, "b": shop.value} for n in range(6)]
    shop.until(lambda: sorted(shop.answer("pairs"), key=lambda r: r["id"]) == expected, "the views hold the last run")
    assert killed > 2
    assert keys(shop.kafka, f"{shop.name}.views.torn") == [], "no epoch has one table's run without the other's"
    assert len(keys(shop.kafka, f"{shop.name}.views.pairs")) > 6 * 6, "many runs were epochs of their own"
