"""Versions of a table to which rows are only added: what was published is not looked at again."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.publish import Dataset, Published, Target, publish_version
from tests.connectors.spark.test_publish import split, state_of
from tests.connectors.spark.wires import FolderWire

TABLE = "public.prices"
TARGET = Target("sup", {}, partitions=3)
START = dt.datetime(2024, 11, 3, 5, 0, tzinfo=dt.UTC)  # the session's clocks go back in the hour after


class Growing:
    """A table of events; `published` so many rows were, as each version told."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.state, self.wire = spark, folder / "state", FolderWire(folder / "wire")
        self.rows: list[tuple[int, dt.datetime | None]] = []

    def add(self, *ids: int) -> None:
        self.rows += [(i, START + dt.timedelta(minutes=30 * i)) for i in ids]

    def publish(self, since: str | None = "at", **options: Any) -> Published:
        frame = self.spark.createDataFrame(self.rows, "id int, at timestamp")
        wire = options.pop("wire", self.wire)
        dataset = Dataset(TABLE, frame, ["id"], since=since)
        return publish_version(self.spark, [dataset], TARGET, state=self.state, wire=wire, **options)

    def shown(self) -> list[int]:
        return sorted(r["id"] for r in state_of(self.wire).values())


@pytest.mark.long
def test_only_later_rows_are_published(spark: SparkSession, tmp_path: Path) -> None:
    table = Growing(spark, tmp_path)
    table.add(1, 2, 3)
    assert table.publish().tables[TABLE].creates == 3
    table.add(4, 5)
    with pytest.raises(PublishError, match="told to fail"):
        table.publish(wire=FolderWire(table.wire.folder, fail_ends=1))
    done = table.publish()
    assert (done.version, done.attempt, done.tables[TABLE].creates) == (2, 2, 2), "the mark moves with the version"
    assert table.publish().tables[TABLE].creates == 0
    assert table.publish(version=3).repeated
    table.add(6)
    assert table.publish().tables[TABLE].creates == 1
    assert table.shown() == [1, 2, 3, 4, 5, 6]
    assert len(split(table.wire)[0]) == 3 + 2 + 2 + 1
    with pytest.raises(PublishError, match="published as changes"):
        table.publish(since=None)
    with pytest.raises(PublishError, match="another column"):
        table.publish(since="id")


@pytest.mark.long
def test_it_goes_on_after_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    table = Growing(spark, tmp_path)
    table.add(1, 2)
    table.publish(since=None)
    table.add(3)
    assert table.publish().tables[TABLE].creates == 1
    assert table.shown() == [1, 2, 3]


def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    table = Growing(spark, tmp_path)
    table.add(1)
    for since, what in (("none", "not there"), ("at", "needs a state folder")):
        frame = spark.createDataFrame(table.rows, "id int, at timestamp")
        with pytest.raises(PublishError, match=what):
            publish_version(spark, [Dataset(TABLE, frame, ["id"], since=since)], TARGET, wire=table.wire)
    table.rows.append((2, None))
    with pytest.raises(PublishError, match="is NULL"):
        table.publish()
    assert split(table.wire) == ([], [])
