"""A Delta table's versions, followed by its own change feed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake", reason="pip install 'headrace[delta]'")

import deltalake

from headrace.connectors.spark.delta_feed import DeltaFeed
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import Followed, follow
from headrace.connectors.spark.lake_feed import describe
from headrace.engine.schema import BIGINT, TEXT, Column, Schema
from headrace.sidecar.lake.inputs import delta_shares
from tests.connectors.spark.test_publish import split, state_of
from tests.connectors.spark.wires import FolderWire

TABLE, TOPIC = "public.prices", "sup.public.prices"
FED = {"delta.enableChangeDataFeed": "true"}


class Table:
    """A Delta table, and what each of its versions held."""

    def __init__(self, folder: Path) -> None:
        self.path, self.held = str(folder), list[dict[int, str | None]]()

    @property
    def feed(self) -> DeltaFeed:
        return DeltaFeed(self.path, TABLE, ("id",), {})

    def write(self, rows: dict[int, str | None], mode: str = "append") -> None:
        made = pa.table({"id": pa.array(rows, pa.int64()), "price": pa.array(rows.values(), pa.string())})
        deltalake.write_deltalake(self.path, made, mode=mode, configuration=None if self.held else FED)
        self.held.append(rows if mode == "overwrite" or not self.held else {**self.held[-1], **rows})

    def update(self, key: int, price: str) -> None:
        deltalake.DeltaTable(self.path).update(predicate=f"id = {key}", updates={"price": f"'{price}'"})
        self.held.append({k: price if k == key else v for k, v in self.held[-1].items()})

    def delete(self, key: int) -> None:
        deltalake.DeltaTable(self.path).delete(f"id = {key}")
        self.held.append({k: v for k, v in self.held[-1].items() if k != key})

    def publish(self, wire: FolderWire, **options: Any) -> list[Followed]:
        return list(follow(self.feed, "sup", wire, partitions=2, **options))


def shown(wire: FolderWire) -> dict[int, str | None]:
    return {row["id"]: row["price"] for row in state_of(wire, TOPIC).values()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_version_is_one_of_ours(tmp_path: Path, seed: int) -> None:
    draw, wire, table = random.Random(seed), FolderWire(tmp_path / "wire"), Table(tmp_path / "t")
    table.write({i: str(i) for i in range(6)})
    expected = [(1, True)]
    table.publish(wire)
    for _ in range(8):
        keys = sorted(table.held[-1])
        what = draw.choice(["append", "update", "delete"]) if keys else "append"
        if what == "append":
            table.write({max([*keys, 0]) + 1 + k: draw.choice([None, "x"]) for k in range(2)})
        elif what == "update":
            table.update(draw.choice(keys), draw.choice("abc"))
        else:
            table.delete(draw.choice(keys))
        expected.append((len(table.held), False))
        if draw.random() < 0.6:
            assert all(d.version == int(d.of) + 1 for d in table.publish(wire))
            assert shown(wire) == table.held[-1]
    table.publish(wire)
    assert shown(wire) == table.held[-1]
    assert table.publish(wire) == [], "nothing is new"
    assert sorted({e["value"]["version"] for e in split(wire, TOPIC)[1]}) == [v for v, _ in expected]


def test_an_overwritten_table_and_a_failure_between(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Table(tmp_path / "t")
    table.write({1: "a", 2: "b"})
    table.publish(wire)
    table.write({2: "b", 3: "c"}, mode="overwrite")
    with pytest.raises(PublishError, match="told to fail"):
        table.publish(FolderWire(tmp_path / "wire", fail_ends=1))
    assert shown(wire) == {1: "a", 2: "b"}
    done = table.publish(wire)
    assert [(d.version, d.attempt) for d in done] == [(2, 2)]
    assert shown(wire) == {2: "b", 3: "c"}
    counts = done[0].counts
    assert (counts.creates, counts.updates, counts.deletes) == (1, 0, 1), "what is as it was is not sent"


def test_what_was_loaded_is_not_published(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Table(tmp_path / "t")
    table.write({1: "a", 2: "b"})
    table.update(1, "A")
    shares = delta_shares(table.path, 0, TABLE, 2)
    schema = Schema.of([Column("id", BIGINT, False), Column("price", TEXT)], ["id"])
    rows = [r for share in shares for b in share.batches(TABLE, schema) for r in b.to_pylist()]
    assert sorted(map(str, rows)) == ["{'id': 1, 'price': 'a'}", "{'id': 2, 'price': 'b'}"]
    assert table.publish(wire, loaded=2) == []
    table.delete(2)
    done = table.publish(wire, loaded=2)
    assert [(d.version, d.of, d.counts.deletes) for d in done] == [(3, "2", 1)]
    assert table.publish(wire, loaded=1) == [], "what the topic tells counts, once it tells something"


def test_a_feed_that_is_not_there_is_named_and_the_whole_table_is_the_way_out(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Table(tmp_path / "t")
    table.write({1: "a", 2: "b"})
    table.publish(wire)
    table.update(1, "A")
    table.delete(2)
    for path in (tmp_path / "t" / "_change_data").glob("*.parquet"):
        path.unlink()  # as a vacuum does
    with pytest.raises(PublishError, match="change feed of a version cannot be read") as caught:
        table.publish(wire)
    assert "--snapshot" in str(caught.value)
    done = table.publish(wire, snapshot=True)
    assert [(d.version, d.snapshot, d.counts.updates, d.counts.deletes) for d in done] == [(3, True, 1, 1)]
    assert shown(wire) == {1: "A"}


def test_keys_and_types_are_checked(tmp_path: Path) -> None:
    wire = FolderWire(tmp_path / "wire")
    deltalake.write_deltalake(str(tmp_path / "twice"), pa.table({"id": [1, 1, 2], "v": ["a", "b", "c"]}))
    for key, what in ((("id",), "stands in several rows"), (("none",), "not there")):
        with pytest.raises(PublishError, match=what):
            list(follow(DeltaFeed(str(tmp_path / "twice"), TABLE, key, {}), "sup", wire))
    deltalake.write_deltalake(str(tmp_path / "list"), pa.table({"id": [1], "v": [[1, 2]]}))
    with pytest.raises(PublishError, match="cannot be carried exactly"):
        describe(DeltaFeed(str(tmp_path / "list"), TABLE, ("id",), {}))
    assert wire.records(TOPIC) == []
    entry = describe(DeltaFeed(str(tmp_path / "twice"), TABLE, ("id", "v"), {}))
    assert json.loads(json.dumps(entry)) == {
        "name": TABLE, "key": ["id", "v"],
        "columns": [{"name": "id", "data_type": "bigint", "nullable": False},
                    {"name": "v", "data_type": "text", "nullable": False}],
    }  # fmt: skip


def test_columns_that_come_and_go(tmp_path: Path) -> None:
    wire, table = FolderWire(tmp_path / "wire"), Table(tmp_path / "t")
    table.write({1: "a", 2: "b"})
    table.publish(wire)
    with_note = pa.table({"id": pa.array([3]), "price": pa.array(["c"]), "note": pa.array(["n"])})
    deltalake.write_deltalake(table.path, with_note, mode="append", schema_mode="merge")
    assert [d.version for d in table.publish(wire)] == [2]
    held = {row["id"]: row for row in state_of(wire, TOPIC).values()}
    assert held == {1: {"id": 1, "price": "a"}, 2: {"id": 2, "price": "b"}, 3: {"id": 3, "price": "c", "note": "n"}}
    without_price = pa.table({"id": pa.array([1, 2]), "note": pa.array(["x", "y"])})
    deltalake.write_deltalake(table.path, without_price, mode="overwrite", schema_mode="overwrite")
    assert [d.version for d in table.publish(wire)] == [3]
    held = {row["id"]: row for row in state_of(wire, TOPIC).values()}
    assert held == {1: {"id": 1, "note": "x"}, 2: {"id": 2, "note": "y"}}
