"""Changes that a job has already: folded by key against a dictionary, as versions, and out of a stream's batches."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.publish import Dataset, Target, publish_version
from headrace.connectors.spark.publish_changes import Changes, folded, publish_changes
from tests.connectors.spark.test_publish import expect, prices, split, state_of
from tests.connectors.spark.wires import FolderWire

TABLE = "public.prices"
TARGET = Target("sup", {}, partitions=3)
KIND = "seq int, op string, before struct<id: int, price: string>, id int, price string"


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("keep_before", [True, False])
def test_folded_changes_do_what_all_of_them_do(spark: SparkSession, seed: int, keep_before: bool) -> None:
    draw = random.Random(seed)
    start: dict[int, str | None] = {i: draw.choice("abc") for i in range(8)}
    held, rows = dict(start), []
    for seq in range(40):
        key, value = draw.randrange(12), draw.choice([None, "a", "b", "c"])
        if key not in held:
            rows.append((seq, "c", None, key, value))
            held[key] = value
            continue
        before = (key, held.pop(key))
        to = draw.randrange(12)
        if draw.random() < 0.3:
            rows.append((seq, "d", before if keep_before else None, key, None))
        elif keep_before and draw.random() < 0.5 and to not in held:
            rows.append((seq, "u", before, to, value))
            held[to] = value
        else:
            rows.append((seq, "u", before if keep_before else None, key, value))
            held[key] = value
    draw.shuffle(rows)
    changes = Changes(TABLE, spark.createDataFrame(rows, KIND).repartition(3), ["id"], order=["seq"])
    net = folded(changes).collect()
    assert len({r["key"] for r in net}) == len(net), "one change a key"
    seen = dict(start)
    for r in net:
        key = json.loads(r["key"])["id"]
        assert (key in start) == (r["op"] != "c"), "whether it was there"
        assert (r["after"] is None) == (r["op"] == "d")
        seen.pop(key, None)
        if r["after"] is not None:
            seen[key] = json.loads(r["after"])["price"]
    assert seen == held
    if keep_before:
        unchanged = {k for k, v in start.items() if held.get(k, "?") == v}
        assert not unchanged & {json.loads(r["key"])["id"] for r in net}, "what is as it was is not sent"


def rows_of(
    spark: SparkSession, rows: list[tuple[Any, ...]], kind: str = "op string, id int, price string"
) -> DataFrame:
    return spark.createDataFrame(rows, kind)


def test_versions_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    wire = FolderWire(tmp_path)
    one = Changes(TABLE, rows_of(spark, [("c", 1, "a"), ("r", 2, "b"), ("c", 3, None)]), ["id"])
    two = Changes(TABLE, rows_of(spark, [("u", 1, "A"), ("d", 2, None), ("c", 4, "d")]), ["id"])
    done = [publish_changes(spark, [c], TARGET, version=v, wire=wire) for v, c in ((1, one), (2, two), (2, two))]
    assert [(d.version, d.attempt, d.repeated) for d in done] == [(1, 1, False), (2, 1, False), (2, 0, True)]
    assert state_of(wire) == expect({1: "A", 3: None, 4: "d"})
    counts = done[1].tables[TABLE]
    assert (counts.creates, counts.updates, counts.deletes) == (1, 1, 1)


def test_a_version_of_changes_that_failed_is_another_attempt(spark: SparkSession, tmp_path: Path) -> None:
    changes = Changes(TABLE, rows_of(spark, [("c", 1, "a")]), ["id"])
    with pytest.raises(PublishError, match="told to fail"):
        publish_changes(spark, [changes], TARGET, version=1, wire=FolderWire(tmp_path, fail_ends=1))
    done = publish_changes(spark, [changes], TARGET, version=1, wire=FolderWire(tmp_path))
    assert (done.version, done.attempt) == (1, 2)
    assert state_of(FolderWire(tmp_path)) == expect({1: "a"})


def test_a_snapshot_after_changes_needs_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The state folder's snapshot is of before the changes: nothing may be compared with it."""
    wire, state = FolderWire(tmp_path / "wire"), tmp_path / "state"
    whole = Dataset(TABLE, prices(spark, {1: "a", 2: "b"}), ["id"])
    publish_version(spark, [whole], TARGET, state=state, wire=wire)
    changes = Changes(TABLE, rows_of(spark, [("d", 2, None)]), ["id"])
    assert publish_changes(spark, [changes], TARGET, state=state, wire=wire).version == 2
    with pytest.raises(PublishError, match="published as changes"):
        publish_version(spark, [whole], TARGET, state=state, wire=wire)
    again = Dataset(TABLE, prices(spark, {1: "a", 2: "b"}), ["id"], previous=prices(spark, {1: "a"}))
    assert publish_version(spark, [again], TARGET, state=state, wire=wire).version == 3
    assert state_of(wire) == expect({1: "a", 2: "b"})
    ends = split(wire)[1]
    assert {(e["value"]["version"], tuple(e["value"]["after"].items())) for e in ends} == {
        (1, ()), (2, ((TABLE, 1),)), (3, ((TABLE, 2),)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "kind", "what"),
    [
        ([("c", 1, "a"), ("u", 1, "b")], "op string, id int, price string", "nothing tells the order"),
        ([("x", 1, "a")], "op string, id int, price string", "none of c, u, d, r"),
        ([(None, 1, "a")], "op string, id int, price string", "none of c, u, d, r"),
        ([("c", None, "a")], "op string, id int, price string", "a key is NULL"),
        ([(1, "a")], "id int, price string", "no such column"),
    ],
)
def test_refusals(spark: SparkSession, tmp_path: Path, rows: list[Any], kind: str, what: str) -> None:
    wire = FolderWire(tmp_path)
    with pytest.raises(PublishError, match=what) as caught:
        publish_changes(spark, [Changes(TABLE, rows_of(spark, rows, kind), ["id"])], TARGET, wire=wire)
    assert caught.value.where["table"] == TABLE
    assert not list(tmp_path.rglob("*.jsonl"))


def test_batches_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """publish_version takes a batch for the whole table, and says so; publish_changes keeps what was there before."""
    wire, kind = FolderWire(tmp_path / "wire"), "op string, id int, price string"
    landing = tmp_path / "landing"
    for n, rows in enumerate([[("c", 1, "a"), ("c", 2, "b")], [("u", 2, "B")], [("d", 1, None)]]):
        rows_of(spark, rows).coalesce(1).write.mode("append").parquet(str(landing / f"n={n}"))
    met: list[str] = []

    def whole(batch: DataFrame, number: int) -> None:
        try:
            publish_version(spark, [Dataset(TABLE, batch.select("id", "price"), ["id"])], TARGET, wire=wire)
        except PublishError as error:
            met.append(str(error))

    def each(batch: DataFrame, number: int) -> None:
        for _ in range(2):  # as if Spark gave the batch again
            publish_changes(spark, [Changes(TABLE, batch.drop("n"), ["id"])], TARGET, version=number + 1, wire=wire)

    stream = spark.readStream.schema(kind).option("maxFilesPerTrigger", 1).parquet(str(landing))
    for n, function in enumerate((whole, each)):
        writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / f"check{n}"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert query.exception() is None
    assert met
    assert all("publish_changes" in text for text in met)
    assert state_of(wire) == expect({2: "B"})
    assert sorted({e["value"]["version"] for e in split(wire)[1]}) == [1, 2, 3]


def test_a_stream_itself_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value id", "'c' op")
    with pytest.raises(PublishError, match="batch by batch"):
        publish_changes(spark, [Changes(TABLE, stream, ["id"])], TARGET, wire=FolderWire(tmp_path))
    with pytest.raises(PublishError, match="no snapshot"):
        publish_version(spark, [Dataset(TABLE, stream, ["id"])], TARGET, wire=FolderWire(tmp_path))
