"""What waits beyond its share of memory lies on disk, comes back as it was, and is bound whole."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Batch, Description, Updates
from headrace.engine.batch.codec import encode
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.engine.trace import spine
from headrace.sidecar.process.status_board import status
from headrace.sidecar.state import batch_store
from headrace.sidecar.state.batch_store import BatchStore, load_batches
from headrace.sidecar.state.spill import Spill, SpillError
from headrace.sidecar.wiring import intakes
from tests.sidecar.support.little import CUSTOMERS, KEYS, ORDERS, VISITS, Little, answers, plays
from tests.sidecar.support.streams import changes


def test_what_comes_back_is_what_was_given(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 0)
    plain = changes("s.a", [(1, None), (2, 5)], txid=4, orders=[1, 2], offset=7, lsn=9)
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), pa.array(["ü\t", None], pa.large_string()), pa.array([True, None])], names=["a", "b", "a"]
    )
    masks = {1: np.array([True, False])}
    for given in (
        plain,
        replace(plain, rows=rows, unchanged=masks, moved=np.array([False, True])),
        plain.take(np.array([1])),
        replace(plain, read_ms=np.array([3, 4])),
    ):
        found = spill.take(given)
        assert found.rows.equals(given.rows)
        assert found.rows.schema.equals(given.rows.schema)
        for lane in (
            "kinds",
            "offsets",
            "transactions",
            "orders",
            "lsns",
            "timestamps",
            "snapshot",
            "metadata",
            "attempts",
        ):
            assert getattr(found, lane).tolist() == getattr(given, lane).tolist(), lane
            assert getattr(found, lane).dtype == getattr(given, lane).dtype, lane
        assert {at: m.tolist() for at, m in found.unchanged.items()} == {
            at: m.tolist() for at, m in given.unchanged.items()
        }
        assert (found.moved is None) == (given.moved is None)
        assert (found.read_ms is None) == (given.read_ms is None)
        assert found.read_ms is None or found.read_ms.tolist() == given.read_ms.tolist()
        assert found.moved is None or found.moved.tolist() == given.moved.tolist()
    assert spill.spilled > 0
    assert list(tmp_path.iterdir()) == [], "the files have no names"


def test_only_what_is_too_much_goes_to_disk(tmp_path: Path) -> None:
    one = changes("s.a", [(i, i) for i in range(100)], txid=4, orders=list(range(100)))
    spill = Spill(tmp_path, 20_000)
    assert spill.take(one) is one
    assert spill.take(one) is one
    assert spill.take(one) is not one
    assert spill.full
    spill.nothing_waits()
    assert spill.take(one) is one


def test_no_room_is_named(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "gone", 0)
    with pytest.raises(SpillError, match=r"cannot be put on disk.*budget_mib"):
        spill.take(changes("s.a", [(1, 1)], txid=4, orders=[1]))


def test_a_large_batch_lies_in_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, layout = BatchStore(tmp_path), layout_of(Schema.of([Column("a", BIGINT)]), (0,))
    rows = pa.RecordBatch.from_arrays([pa.array(range(5000))], schema=layout.arrow)
    ones = np.ones(5000, np.int64)
    batch = Batch.seal(layout, Updates(rows, ones, ones), Description.epochs(0, 2))
    assert store.placed(batch) is batch, "it is small"
    monkeypatch.setattr(batch_store, "LARGE_BYTES", batch.nbytes)
    before = pa.total_allocated_bytes()
    placed = store.placed(batch)
    assert placed is not batch
    assert b"".join(encode(placed)) == b"".join(encode(batch))
    assert (placed.ids[0] == batch.ids[0]).all()
    assert placed.payload.equals(batch.payload)
    assert pa.total_allocated_bytes() - before < 1000, "nothing of it is in memory"
    assert list(tmp_path.iterdir()) == []
    assert BatchStore(tmp_path / "gone").placed(batch) is batch, "the disk refuses"
    files = store.write({"a": [placed]})
    found = load_batches(files, tmp_path, {"a": layout})
    recovered = BatchStore(tmp_path)
    recovered.adopt(found, files)
    assert recovered.placed(found["a"][0]) is found["a"][0], "it lies in a file already"


@plays(6)
def test_a_shop_whose_rows_all_lie_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, intake: str
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(batch_store, "LARGE_BYTES", draw.choice([0, 1 << 30]))
    monkeypatch.setattr(spine, "SMALL", draw.choice([1, 8]))
    monkeypatch.setattr(intakes, "make_spill", lambda _, folder: Spill(folder, draw.choice([0, 500])))
    shop = Little(tmp_path, monkeypatch, every_turn=draw.random() < 0.5, intake=intake)
    shop.batch = draw.choice([1, 3, 1 << 16])
    shop.snapshot({t: [(i, draw.randrange(1, 6)) for i in range(1, 5)] for t in KEYS})
    for _ in range(12):
        shop.random(draw)
    shop.transact(
        *((VISITS, "c", (i, 1)) for i in range(50)),
        *((ORDERS, "c", (i, 1)) for i in range(50, 80)),
        (CUSTOMERS, "c", (90, 1)),
    )
    shop.start()
    for _ in range(15):
        for topic in list(shop.queues):
            shop.show(topic, min(len(shop.queues[topic]), draw.randrange(0, 9)))
        shop.turn()
        if shop.store.frontier is not None:
            wanted = answers(shop.states[shop.store.frontier.sources["shop"].place.order])
            assert {v: shop.rows(v) for v in wanted} == wanted
    shop.show_all()
    shop.turn(100)
    wanted = answers(shop.state)
    assert {v: shop.rows(v) for v in wanted} == wanted
    assert status(shop.running)["sources"][0]["spilled_bytes"] > 0
    shop.end()
