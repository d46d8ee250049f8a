"""`headrace-publish follow --through spark` as a user starts it, on a true broker; killed at random, either way goes on."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import deltalake
from confluent_kafka import Consumer, TopicPartition

from headrace.connectors.spark.delta_feed import DeltaFeed
from headrace.connectors.spark.follow import follow
from tests.connectors.spark.lakes.environment import jars
from tests.connectors.spark.test_publish import split
from tests.connectors.spark.wires import FolderWire

pytestmark = [pytest.mark.lakes, pytest.mark.timeout(900)]

TABLE = "public.prices"
PROGRAM = [sys.executable, "-c", "from headrace.connectors.spark.cli import main; main()", "follow"]
VERSIONS = 20


def made(path: Path) -> str:
    """A Delta table, of one version."""
    rows = pa.table({"id": pa.array(range(40), pa.int64()), "v": pa.array([0] * 40, pa.int64())})
    deltalake.write_deltalake(str(path), rows, configuration={"delta.enableChangeDataFeed": "true"})
    return str(path)


def more(path: str, versions: int) -> None:
    """Further versions; each changes every row, so that every partition has records of every version."""
    for _ in range(versions):
        deltalake.DeltaTable(path).update(updates={"v": "v + 1"})


def command(path: str, kafka: str, prefix: str, folder: Path, *beside: str) -> list[str]:
    words = [
        f"{TABLE}(id)=delta:{path}",
        "--prefix",
        prefix,
        "--bootstrap",
        kafka,
        "--partitions",
        "2",
        "--available-now",
    ]
    return [*PROGRAM, *words, "--json", "--spark-log", str(folder / "spark.log"), *beside]


def through_spark() -> list[str]:
    return ["--through", "spark", "--spark", f"spark.jars={jars()}", "--spark", "spark.sql.shuffle.partitions=1"]


def records(kafka: str, topic: str) -> list[dict[str, Any]]:
    """Everything in a topic of two partitions, each partition in its order."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "test", "auto.offset.reset": "earliest"})
    found = []
    try:
        for partition in range(2):
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            consumer.assign([TopicPartition(topic, partition, 0)])
            while not found or found[-1]["partition"] != partition or found[-1]["offset"] < high - 1:
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                value = json.loads(message.value())
                found.append(
                    {"partition": partition, "offset": message.offset(), "key": message.key().decode(), "value": value}
                )
    finally:
        consumer.close()
    return found


def whole(data: list[dict[str, Any]], ends: list[dict[str, Any]]) -> dict[int, list[tuple[Any, ...]]]:
    """Version → its records, of the attempt that the ENDs of both partitions name."""
    found = {}
    for version in {e["value"]["version"] for e in ends}:
        named = [e["value"]["attempt"] for e in ends if e["value"]["version"] == version]
        [attempt] = [a for a in set(named) if named.count(a) == 2]
        mine = [
            r for r in data if (r["value"]["source"]["txId"], r["value"]["source"]["attempt"]) == (version, attempt)
        ]
        found[version] = sorted(
            (r["partition"], r["key"], r["value"]["op"], json.dumps(r["value"]["after"])) for r in mine
        )
    return found


def test_killed_at_random_it_goes_on_where_it_was(kafka: str, unique: str, tmp_path: Path) -> None:
    draw, path = random.Random(3), made(tmp_path / "t")
    running = command(path, kafka, unique, tmp_path)
    subprocess.run(running, check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)
    more(path, VERSIONS - 1)
    printed: list[dict[str, Any]] = []
    for turn in range(4):
        if turn == 3:
            more(path, 3)
        words = running + (through_spark() if turn != 2 else [])
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(draw.randint(1, 3)) if turn < 3]
        if turn < 3:
            process.send_signal(signal.SIGKILL)
        rest, said = process.communicate(timeout=300)
        # without a JVM it may be through before the signal comes
        assert process.returncode in {2: (-signal.SIGKILL, 0), 3: (0,)}.get(turn, (-signal.SIGKILL,)), said
        printed += [json.loads(line) for line in [*lines, *rest.splitlines()] if line.strip()]
    assert [p["version"] for p in printed] == sorted({p["version"] for p in printed}), "a version is told once"
    assert printed[-1]["version"] == VERSIONS + 3
    found = records(kafka, f"{unique}.{TABLE}")
    ours = whole(*[[r for r in found if ("headrace" in r["value"]) is is_end] for is_end in (False, True)])
    beside = FolderWire(tmp_path / "wire")
    list(follow(DeltaFeed(path, TABLE, ("id",), {}), unique, beside, partitions=2, loaded=1))
    expected = whole(*split(beside, f"{unique}.{TABLE}"))
    assert {v: ours[v] for v in ours if v > 1} == expected, "as the way without a JVM publishes it"
    assert len(ours[1]) == 40, "the whole table came first"


def test_what_is_missing_is_one_line(kafka: str, unique: str, tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    without_jars = command(path, kafka, unique, tmp_path, "--through", "spark")
    done = subprocess.run(without_jars, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert "spark.jars.packages=io.delta:delta-spark" in error["hint"]
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) < 3, "what Spark says is in its log"
    described = []
    for way in ([], through_spark()):
        words = [*PROGRAM, f"{TABLE}(id)=delta:{path}", "--describe", *way]
        described.append(subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=True).stdout)
    assert described[0] == described[1]
    assert "bigint" in described[0]
