"""An Iceberg table's snapshots, followed by the files in which they differ, and loaded."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg", reason="pip install 'headrace[iceberg]'")

from pyiceberg.catalog.sql import SqlCatalog

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import Followed, follow
from headrace.connectors.spark.iceberg_feed import IcebergFeed
from headrace.connectors.spark.lake_feed import describe
from headrace.engine.schema import BIGINT, TEXT, Column, Schema
from headrace.sidecar.lake.inputs import iceberg_shares, iceberg_snapshot
from headrace.sidecar.lake.load import Origin
from tests.connectors.spark.test_publish import split, state_of
from tests.connectors.spark.wires import FolderWire

pytestmark = pytest.mark.filterwarnings("ignore")  # what pyiceberg warns of is its own

TABLE, TOPIC = "public.prices", "sup.public.prices"
Rows = dict[int, str | None]


def arrow(rows: Rows) -> pa.Table:
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("price", pa.string())]
    return pa.table([pa.array(rows, pa.int64()), pa.array(rows.values(), pa.string())], schema=pa.schema(fields))


class Ice:
    """An Iceberg table, and what each of its snapshots held."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace("lake")
        self.made = self.catalog.create_table("lake.prices", arrow({}).schema, properties={"format-version": "2"})
        self.path = self.made.location().removeprefix("file://")
        self.held: dict[int, Rows] = {}
        self.now: Rows = {}

    @property
    def feed(self) -> IcebergFeed:
        return IcebergFeed(self.path, TABLE, ("id",), {})

    @property
    def sequence(self) -> int:
        return int(self.made.current_snapshot().sequence_number)

    def _note(self, rows: Rows) -> None:
        self.now = rows
        self.held[self.sequence] = rows

    def append(self, rows: Rows) -> None:
        self.made.append(arrow(rows))
        self._note({**self.now, **rows})

    def overwrite(self, rows: Rows, condition: str) -> None:
        """A snapshot of its own for what goes, and one for what comes."""
        gone = {k for k in self.now if eval(condition, {"id": k})}
        self.made.overwrite(arrow(rows), overwrite_filter=condition.replace("==", "="))
        self._note({**{k: v for k, v in self.now.items() if k not in gone}, **rows})

    def delete(self, key: int) -> None:
        self.made.delete(f"id = {key}")
        self._note({k: v for k, v in self.now.items() if k != key})

    def publish(self, wire: FolderWire, **options: Any) -> list[Followed]:
        return list(follow(self.feed, "sup", wire, partitions=2, **options))


def shown(wire: FolderWire) -> Rows:
    return {row["id"]: row["price"] for row in state_of(wire, TOPIC).values()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_snapshot_is_one_of_ours(tmp_path: Path, seed: int) -> None:
    draw, wire, table = random.Random(seed), FolderWire(tmp_path / "wire"), Ice(tmp_path / "t")
    table.append({i: str(i) for i in range(6)})
    first = table.publish(wire)
    assert [(d.version, d.snapshot) for d in first] == [(table.sequence, True)]
    for _ in range(7):
        keys = sorted(table.now)
        what = draw.choice(["append", "overwrite", "delete"]) if keys else "append"
        if what == "append":
            table.append({max([*keys, 0]) + 1 + k: draw.choice([None, "x"]) for k in range(2)})
        elif what == "overwrite":
            key = draw.choice(keys)
            table.overwrite({key: draw.choice("abc")}, f"id == {key}")
        else:
            table.delete(draw.choice(keys))
        if draw.random() < 0.6:
            done = table.publish(wire)
            assert done[-1].version == table.sequence
            assert done[-1].of == str(table.made.current_snapshot().snapshot_id)
            assert shown(wire) == table.now
    table.publish(wire)
    assert shown(wire) == table.now
    assert table.publish(wire) == [], "nothing is new"
    told = {e["value"]["version"] for e in split(wire, TOPIC)[1]}
    snapshots = {int(s.sequence_number) for s in table.made.snapshots()}
    assert told == {s for s in snapshots if s >= first[0].version}


def test_only_what_changed_is_sent(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Ice(tmp_path / "t")
    table.append({i: str(i) for i in range(100)})
    table.publish(wire)
    table.delete(7)  # the file is written anew without it
    [done] = table.publish(wire)
    assert (done.counts.creates, done.counts.updates, done.counts.deletes) == (0, 0, 1)


def test_a_column_that_is_added(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Ice(tmp_path / "t")
    table.append({1: "a", 2: "b"})
    table.publish(wire)
    with table.made.update_schema() as changing:
        from pyiceberg.types import StringType

        changing.add_column("note", StringType())
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("price", pa.string()), pa.field("note", pa.string())]
    table.made.append(pa.table([[3], ["c"], ["new"]], schema=pa.schema(fields)))
    [done] = table.publish(wire)
    assert done.counts.creates == 1
    assert state_of(wire, TOPIC)['{"id":3}'] == {"id": 3, "price": "c", "note": "new"}
    table.made.delete("id = 1")
    [done] = table.publish(wire)
    assert (done.counts.creates, done.counts.updates, done.counts.deletes) == (0, 0, 1), (
        "rows of before have NULL there"
    )


def test_expired_snapshots_are_named_and_the_rows_that_were_published_are_the_way_out(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Ice(tmp_path / "t")
    table.append({1: "a", 2: "b"})
    table.publish(wire)
    published = arrow(table.now)
    old = table.made.current_snapshot().snapshot_id
    table.append({3: "c"})
    table.delete(1)
    table.made.maintenance.expire_snapshots().by_id(old).commit()
    for options in ({}, {"snapshot": True}):
        with pytest.raises(PublishError, match="not in the table's history") as caught:
            table.publish(wire, **options)
        assert "--previous" in str(caught.value)
    assert shown(wire) == {1: "a", 2: "b"}
    pq.write_table(published, tmp_path / "published.parquet")
    [done] = table.publish(wire, previous=pq.read_table(tmp_path / "published.parquet"))
    assert (done.snapshot, done.counts.creates, done.counts.deletes) == (True, 1, 1)
    assert shown(wire) == table.now


def test_a_table_that_went_back_is_named(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Ice(tmp_path / "t")
    table.append({1: "a"})
    first = table.made.current_snapshot().snapshot_id
    table.append({2: "b"})
    table.publish(wire)
    table.made.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(PublishError, match="not in the table's history"):
        table.publish(wire)


def test_what_was_loaded_is_gone_on_from(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Ice(tmp_path / "t")
    for k in range(5):
        table.append({k: str(k)})
    table.delete(3)
    loaded, there = table.sequence, dict(table.now)
    own = table.made.current_snapshot().snapshot_id
    table.append({9: "later"})
    snapshot, number = iceberg_snapshot(table.path, own)
    assert (snapshot, number) == (own, loaded)
    assert Origin.parse(f"iceberg:{table.path}@{own}").settled() == (Origin("iceberg", table.path, own), loaded)
    schema = Schema.of([Column("id", BIGINT, False), Column("price", TEXT)], ["id"])
    shares = iceberg_shares(table.path, snapshot, 3)
    rows = [r for share in shares for b in share.batches(TABLE, schema) for r in b.to_pylist()]
    assert len(shares) == 3
    assert {r["id"]: r["price"] for r in rows} == there
    assert len(rows) == len(there)
    assert table.feed.named(own).version == loaded
    [done] = table.publish(wire, loaded=loaded)
    assert (done.version, done.counts.creates, done.snapshot) == (table.sequence, 1, False)


def test_keys_and_columns_are_checked(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Ice(tmp_path / "t")
    with pytest.raises(PublishError, match="no snapshot yet"):
        table.publish(wire)
    table.append({1: "a"})
    entry = describe(table.feed)
    assert entry["columns"] == [
        {"name": "id", "data_type": "bigint", "nullable": False}, {"name": "price", "data_type": "text"},
    ]  # fmt: skip
    with pytest.raises(PublishError, match="not there"):
        list(follow(IcebergFeed(table.path, TABLE, ("none",), {}), "sup", wire))
    table.made.append(arrow({1: "twice"}))
    with pytest.raises(PublishError, match="stands in several rows"):
        table.publish(wire)
    with pytest.raises(PublishError, match="cannot be read"):
        IcebergFeed(str(tmp_path / "nothing"), TABLE, ("id",), {}).newest()
