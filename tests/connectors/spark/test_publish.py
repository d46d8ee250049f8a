"""Versions of datasets, on a real local Spark, through a wire that writes to a folder; once through a real Kafka."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.changes import MessageBatch, VersionEnd
from headrace.connectors.formats.spark import SparkFormat
from headrace.connectors.formats.table_specs import TableSpec
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import KafkaWire
from headrace.connectors.spark.publish import Dataset, Target, publish, publish_version
from headrace.connectors.spark.types import describe, encoded
from headrace.engine.schema import Column, DataType, Schema
from tests.connectors.spark.wires import FolderWire
from tests.reference.snapshots import changes

UTC = dt.UTC
TABLE = "public.prices"
TOPIC = f"sup.{TABLE}"
TARGET = Target("sup", {}, partitions=3)


def prices(spark: SparkSession, rows: dict[int, str | None]) -> DataFrame:
    return spark.createDataFrame(sorted(rows.items()), "id int, price string")


def split(wire: FolderWire, topic: str = TOPIC) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(data records, END records) of a topic, values parsed."""
    data, ends = [], []
    for r in wire.records(topic):
        record = {"partition": r["partition"], "key": r["key"], "value": json.loads(str(r["value"]))}
        (ends if record["value"].get("headrace") == "end" else data).append(record)
    return data, ends


def state_of(wire: FolderWire, topic: str = TOPIC) -> dict[str, Any]:
    """The table as a reader has it who applies, version by version, the attempt that all partitions' ENDs name."""
    data, ends = split(wire, topic)
    held: dict[str, Any] = {}
    for version in sorted({e["value"]["version"] for e in ends}):
        attempts = Counter(e["value"]["attempt"] for e in ends if e["value"]["version"] == version)
        whole = [a for a, n in attempts.items() if n == ends[0]["value"]["partitions"]]
        if not whole:
            continue
        seen: dict[str, Any] = {}
        for r in data:
            source = r["value"]["source"]
            if (source["txId"], source["attempt"]) == (version, whole[0]):
                seen[r["key"]] = r["value"]["after"]
        for end in ends:
            v = end["value"]
            if (v["version"], v["attempt"]) == (version, whole[0]):
                there = {r["key"] for r in data if r["partition"] == v["partition"]} & seen.keys()
                assert v["count"] == len(there), "END's count is the distinct keys of its partition"
        held = {k: a for k, a in {**held, **seen}.items() if a is not None}
    return held


def expect(rows: dict[int, str | None]) -> dict[str, Any]:
    return {json.dumps({"id": i}, separators=(",", ":")): {"id": i, "price": p} for i, p in rows.items()}


def test_values_arrive_exact(spark: SparkSession) -> None:
    kind = "id int, d decimal(38,18), ts timestamp, n timestamp_ntz, day date, f float, g double, b binary, s string"
    rows = [
        # The session's zone has a gap at 02:30 on 10 March and an hour twice on 3 November: neither may show.
        (1, Decimal(0), dt.datetime(2024, 11, 3, 5, 30, 0, 123456, UTC), dt.datetime(2024, 3, 10, 2, 30, 0, 1),
         dt.date(1, 1, 1), 0.1, float("nan"), bytes(range(100)), 'é"\\\n'),
        (2, Decimal("0.0000001"), dt.datetime(2024, 11, 3, 6, 30, tzinfo=UTC), dt.datetime(1, 1, 1),
         dt.date(9999, 12, 31), -0.0, float("-inf"), b"", ""),
        (3, *[None] * 8),
    ]  # fmt: skip
    first, second, third = (
        json.loads(r.after) for r in encoded(spark.createDataFrame(rows, kind), ["id"]).orderBy("key").collect()
    )
    assert first["d"] == "0.000000000000000000"
    assert (first["ts"], first["n"], first["day"]) == ("2024-11-03T05:30:00.123456Z", 1710037800000001, -719162)
    assert (first["f"], first["g"], first["s"]) == (0.1, "NaN", 'é"\\\n')
    assert first["b"].count("\n") == 0
    assert base64.b64decode(first["b"]) == bytes(range(100))
    assert second["d"] == "0.000000100000000000"
    assert (second["ts"], second["n"], second["day"]) == ("2024-11-03T06:30:00Z", -62135596800000000, 2932896)
    assert (str(second["f"]), second["g"], second["b"], second["s"]) == ("-0.0", "-Infinity", "", "")
    assert third == {"id": 3, **dict.fromkeys(["d", "ts", "n", "day", "f", "g", "b", "s"])}


def test_first_then_second_version_through_the_decoder(spark: SparkSession, tmp_path: Path) -> None:
    """What the publisher writes is what SparkFormat reads, values and counts."""
    wire = FolderWire(tmp_path / "wire")
    kind = "id int, price decimal(10,2), at timestamp_ntz, seen timestamp, raw binary"
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 678901)
    one = [(1, Decimal("1.50"), moment, moment.replace(tzinfo=UTC), b"\x00\xff"), (2, None, None, None, None)]
    two = [(2, Decimal("7.00"), None, None, None), (3, Decimal("-0.01"), moment, None, b"")]
    done = []
    for rows in (one, two):
        dataset = Dataset(TABLE, spark.createDataFrame(rows, kind), ["id"])
        done.append(publish_version(spark, [dataset], TARGET, state=tmp_path / "state", wire=wire))
    assert [(d.version, d.attempt) for d in done] == [(1, 1), (2, 1)]
    counts = done[1].tables[TABLE]
    assert (counts.creates, counts.updates, counts.deletes, sum(counts.partitions)) == (1, 1, 1, 3)
    described = describe(spark.createDataFrame(one, kind).schema, TABLE, ["id"])
    columns = [Column(c["name"], DataType.parse(c["data_type"])) for c in described["columns"]]  # type: ignore[attr-defined]
    reader = SparkFormat("sup", "sup", {TABLE: TableSpec(TABLE, Schema.of(columns, ["id"]))})
    rows_seen, marks = [], []
    for partition in range(3):
        mine = [r for r in wire.records(TOPIC) if r["partition"] == partition]
        n = len(mine)
        keys = [str(r["key"]).encode() for r in mine]
        values = [str(r["value"]).encode() for r in mine]
        decoded = reader.decode(MessageBatch(TOPIC, partition, np.arange(n), keys, values, np.zeros(n, np.int64)))
        assert decoded.undecodable == []
        for c in decoded.changes:
            rows_seen += [
                (int(t), int(a), int(k), *r.values())
                for t, a, k, r in zip(c.transactions, c.attempts, c.kinds, c.rows.to_pylist(), strict=True)
            ]
        marks += [m for m in decoded.marks if isinstance(m, VersionEnd)]
    assert sorted(rows_seen, key=lambda r: r[:4]) == [
        (1, 1, 0, *one[0]), (1, 1, 0, *one[1]),
        (2, 1, 0, *two[0]), (2, 1, 0, *two[1]), (2, 1, 1, 1, None, None, None, None),
    ]  # fmt: skip
    assert sum(m.count for m in marks if m.version == 2) == 3
    assert len(marks) == 6


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_comparison_agrees_with_its_twin(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    values = [None, "", "a", "b", "NaN"]
    floats = [None, 0.0, -0.0, float("nan"), 1.5]

    def snapshot() -> dict[tuple[int, str], tuple[Any, ...]]:
        keys = {(draw.randrange(12), draw.choice("xy")) for _ in range(14)}
        return {k: (*k, draw.choice(values), draw.choice(floats)) for k in keys}

    before, after = snapshot(), snapshot()
    kind = "a int, b string, v string, f double"
    wire = FolderWire(tmp_path)
    dataset = Dataset(
        "public.t", spark.createDataFrame(list(after.values()), kind), ["a", "b"],
        previous=spark.createDataFrame(list(before.values()), kind),
    )  # fmt: skip
    publish_version(spark, [dataset], TARGET, version=7, wire=wire)
    data, _ = split(wire, "sup.public.t")
    got = {}
    for r in data:
        key = tuple(json.loads(r["key"]).values())
        row = r["value"]["after"]
        if row is not None:
            row = (row["a"], row["b"], row["v"], float("nan") if row["f"] == "NaN" else row["f"])
        got[key] = (r["value"]["op"], row)
    assert {k: (o, repr(r)) for k, (o, r) in got.items()} == {
        k: (o, repr(r)) for k, (o, r) in changes(after, before).items()
    }
    assert len(data) == len(got), "one change a key"


def test_duplicate_keys_stop_it_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(i // 2, str(i)) for i in range(40)]
    twice = spark.createDataFrame(rows, "id int, price string")
    good = Dataset("public.good", prices(spark, {1: "a"}), ["id"])
    wire = FolderWire(tmp_path / "wire")
    with pytest.raises(PublishError) as caught:
        publish_version(spark, [good, Dataset(TABLE, twice, ["id"])], TARGET, state=tmp_path / "state", wire=wire)
    text = str(caught.value)
    assert [f"id={i} (2 times)" in text for i in range(11)] == [True] * 10 + [False]
    assert wire.records(TOPIC) == wire.records("sup.public.good") == []


@pytest.mark.parametrize(
    ("kind", "rows", "key", "what"),
    [
        ("id int, v int", [(None, 1)], ["id"], "a key is NULL"),
        ("id double, v int", [(1.0, 1)], ["id"], "floating-point"),
        ("id int, v array<int>", [(1, [1])], ["id"], "cannot be carried exactly"),
        ("id int, v int", [(1, 1)], ["nope"], "not there"),
        ("id int, v int", [(1, 1)], [], "a key needs columns"),
    ],
)
def test_refusals_name_table_and_column(
    spark: SparkSession, tmp_path: Path, kind: str, rows: list[Any], key: list[str], what: str
) -> None:
    wire = FolderWire(tmp_path)
    with pytest.raises(PublishError, match=what) as caught:
        publish_version(spark, [Dataset(TABLE, spark.createDataFrame(rows, kind), key)], TARGET, version=1, wire=wire)
    assert caught.value.where["table"] == TABLE
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_repeated_task_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A task that wrote everything and then failed is run again: duplicates, equal byte for byte, and true counts."""
    rows: dict[int, str | None] = {i: str(i) for i in range(30)}
    wire = FolderWire(tmp_path / "wire", flaky=True)
    dataset = Dataset(TABLE, prices(spark, rows).repartition(2), ["id"])
    done = publish_version(spark, [dataset], TARGET, state=tmp_path / "state", wire=wire)
    data, ends = split(wire)
    assert len(data) > 30
    assert len({json.dumps(r) for r in data}) == 30
    assert sum(e["value"]["count"] for e in ends) == 30 == done.tables[TABLE].creates
    assert state_of(wire) == expect(rows)


def test_an_unfinished_version_is_published_again_as_another_attempt(spark: SparkSession, tmp_path: Path) -> None:
    one: dict[int, str | None] = {1: "a", 2: "b", 3: "c"}
    two: dict[int, str | None] = {2: "B", 4: None}
    three: dict[int, str | None] = {4: "d"}
    folder, state = tmp_path / "wire", tmp_path / "state"

    def go(rows: dict[int, str | None], wire: FolderWire, version: int | None = None) -> tuple[int, int, bool]:
        dataset = Dataset(TABLE, prices(spark, rows), ["id"])
        done = publish_version(spark, [dataset], TARGET, state=state, wire=wire, version=version)
        return done.version, done.attempt, done.repeated

    good = FolderWire(folder)
    assert go(one, good) == (1, 1, False)
    with pytest.raises(PublishError, match="told to fail"):
        go(two, FolderWire(folder, fail_ends=1))  # its END stands in one partition of three
    assert state_of(good) == expect(one)
    assert go(two, good) == (2, 2, False)
    assert state_of(good) == expect(two)
    assert go(two, good, version=2) == (2, 2, True)
    with pytest.raises(PublishError, match="has been published"):
        go(one, good, version=1)
    assert go(three, good) == (3, 1, False)
    assert state_of(good) == expect(three)


def test_a_crash_between_the_last_end_and_the_note_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """Version 2 is whole in the topic and not in the manifest: version 3 must still be compared with version 2."""
    wire, state = FolderWire(tmp_path / "wire"), tmp_path / "state"
    steps: list[dict[int, str | None]] = [{1: "a"}, {1: "a", 2: "b"}, {1: "a"}]
    for i, rows in enumerate(steps):
        dataset = Dataset(TABLE, prices(spark, rows), ["id"])
        if i == 1:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("headrace.connectors.spark.publisher_state.State.complete", _crash)
                with pytest.raises(KeyboardInterrupt):
                    publish_version(spark, [dataset], TARGET, state=state, wire=wire)
        else:
            publish_version(spark, [dataset], TARGET, state=state, wire=wire)
    assert state_of(wire) == expect(steps[2])


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_nothing_to_compare_with_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    wire = FolderWire(tmp_path / "wire")
    dataset = Dataset(TABLE, prices(spark, {1: "a"}), ["id"])
    publish_version(spark, [dataset], TARGET, state=tmp_path / "state", wire=wire)
    before = wire.records(TOPIC)
    with pytest.raises(PublishError, match="not at hand"):
        publish_version(spark, [dataset], TARGET, state=tmp_path / "lost", wire=wire)
    assert wire.records(TOPIC) == before


def test_several_tables_are_one_version(spark: SparkSession, tmp_path: Path) -> None:
    wire = FolderWire(tmp_path / "wire")
    tables = [Dataset(f"public.{t}", prices(spark, {1: t}), ["id"]) for t in ("b", "a")]
    publish_version(spark, tables, TARGET, wire=wire)
    ends = split(wire, "sup.public.a")[1] + split(wire, "sup.public.b")[1]
    assert len(ends) == 6
    assert {tuple(e["value"]["tables"]) for e in ends} == {("public.a", "public.b")}
    assert len({e["value"]["ts_us"] for e in ends}) == 1


def test_an_end_names_what_was_completed_before(spark: SparkSession, tmp_path: Path) -> None:
    """Versions of other tables, in topics that a reader may meet later, are before it."""
    wire, state = FolderWire(tmp_path / "wire"), tmp_path / "state"
    a, b = (Dataset(f"public.{t}", prices(spark, {1: t}), ["id"]) for t in "ab")
    for datasets in ([b], [a], [a, b]):
        publish_version(spark, datasets, TARGET, state=state, wire=wire)
    ends = split(wire, "sup.public.a")[1]
    found = {(e["value"]["version"], tuple(e["value"]["after"].items())) for e in ends}
    assert found == {(2, (("public.b", 1),)), (3, (("public.b", 1), ("public.a", 2)))}


def test_a_failed_write_leaves_no_end(spark: SparkSession, tmp_path: Path) -> None:
    wire = FolderWire(tmp_path / "wire", fail_data=True)
    with pytest.raises(Exception, match="told to fail"):
        publish_version(spark, [Dataset(TABLE, prices(spark, {1: "a"}), ["id"])], TARGET, version=1, wire=wire)
    assert split(wire)[1] == []


def test_through_a_real_kafka(spark: SparkSession, kafka: str, unique: str, tmp_path: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": kafka}
    for rows in ({1: "a", 2: "b"}, {2: "b", 3: "c"}):
        done = publish(
            spark, prices(spark, rows), table=TABLE, key=["id"], topic_prefix=unique, kafka=settings,
            state=tmp_path, partitions=2,
        )  # fmt: skip
    assert (done.version, sum(done.tables[TABLE].partitions)) == (2, 2)
    topic = f"{unique}.{TABLE}"
    consumer = Consumer({**settings, "group.id": unique, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(2)])
    held: dict[str, str] = {}
    ends = []
    for m in consumer.consume(8, 30.0):
        value = json.loads(m.value())
        if value.get("headrace") == "end":
            ends.append((value["version"], value["partition"], m.partition()))
        elif value["after"] is None:
            del held[m.key().decode()]
        else:
            held[m.key().decode()] = value["after"]["price"]
    consumer.close()
    assert held == {'{"id":2}': "b", '{"id":3}': "c"}
    assert sorted(ends) == [(v, p, p) for v in (1, 2) for p in (0, 1)]
    assert KafkaWire(settings).ensure(topic, 9) == 2, "an existing topic keeps its partitions"
