"""A Debezium and a Spark source in one view: each keeps its own order, what a reader sees is whole of both, and however often
the sidecar is killed, an epoch stays what it was: the reclock log has decided how the two interleave."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.errors import HeadraceError
from tests.seeds import seeds
from tests.sidecar.support.little import CUSTOMERS, KEYS, ORDERS, Little

PRICES, TOPIC, PARTITIONS = "lake.prices", "lake.lake.prices", 2
VIEWS = """\
version: 1
views:
  - {name: orders, key: [id], sinks: [s], sql: "select id, v from public.orders"}
  - {name: prices, key: [id], sinks: [s], sql: "select id, v from lake.prices"}
  - {name: priced, sinks: [s], sql: "select o.id, p.v from public.orders o join lake.prices p on p.id = o.v"}
"""

Prices = dict[int, int]


class Both(Little):
    """A Little beside a publisher: `versions` is what the published table holds after each."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch, every_turn=False)
        (folder / "views" / "v.yaml").write_text(VIEWS)
        self.log.create(TOPIC, PARTITIONS)
        self.version = 0
        self.versions: dict[int, Prices] = {}

    def configure(self) -> dict[str, Any]:
        body = super().configure()
        columns = [{"name": "id", "data_type": "bigint"}, {"name": "v", "data_type": "bigint"}]
        tables = [{"name": PRICES, "key": ["id"], "columns": columns}]
        body["sources"].append({"name": "lake", "type": "spark", "topic_prefix": "lake", "tables": tables})
        body["checkpoint"] = {"interval_seconds": 0.05}
        return body

    def publish(self, draw: random.Random) -> None:
        """A version, as Spark writes one: a task may have failed, and left records of an attempt that does not count."""
        self.version += 1
        before = self.versions.get(self.version - 1, {})
        after = {i: draw.randrange(1, 9) for i in range(1, 6) if draw.random() < 0.7}
        attempts = [1, 2] if draw.random() < 0.3 else [2]
        for attempt in attempts:
            counts = Counter[int]()
            for id_ in sorted(before.keys() | after.keys()):
                if before.get(id_) != after.get(id_):
                    counts[id_ % PARTITIONS] += 1
                    self._price(id_, after.get(id_), attempt)
            if attempt != attempts[-1]:
                continue
            for partition in range(PARTITIONS):
                end = {"headrace": "end", "version": self.version, "attempt": attempt, "count": counts[partition],
                       "partition": partition, "partitions": PARTITIONS, "table": PRICES, "tables": [PRICES],
                       "ts_us": self.version}  # fmt: skip
                self.queue(TOPIC, end, partition, json.dumps({"headrace.end": self.version}).encode())
        self.versions[self.version] = after

    def _price(self, id_: int, v: int | None, attempt: int) -> None:
        source = {"version": "0.1.0", "connector": "headrace-spark", "name": "lake", "schema": "lake", "table": "prices",
                  "txId": self.version, "attempt": attempt, "ts_us": self.version, "snapshot": "false"}  # fmt: skip
        value = {"before": {"id": id_} if v is None else None, "after": None if v is None else {"id": id_, "v": v},
                 "source": source, "op": "d" if v is None else "u", "ts_ms": 1, "transaction": None}  # fmt: skip
        self.queue(TOPIC, value, id_ % PARTITIONS, json.dumps({"id": id_}).encode())

    def wanted(self, lsn: int | None, version: int | None) -> dict[str, Counter[Any]]:
        """What SQL answers where the one source stands at a commit, and the other at a version."""
        prices = self.versions.get(version or 0, {})
        orders = Counter() if lsn is None else +self.states[lsn][ORDERS]
        priced = Counter[Any]()
        for (id_, v), n in orders.items():
            if v in prices:
                priced[id_, prices[v]] += n
        return {"orders": orders, "prices": Counter(list(prices.items())), "priced": priced}


@pytest.mark.parametrize("seed", seeds(6))
def test_an_epoch_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    shop = Both(tmp_path, monkeypatch)
    shop.snapshot({t: [(i, draw.randrange(1, 6)) for i in range(1, 5)] for t in KEYS})
    shop.batch = draw.choice([3, 1 << 16])
    for life in range(5):
        shop.start()
        for _ in range(draw.randrange(6, 14)):
            if draw.random() < 0.5:
                shop.publish(draw)
            else:
                shop.random(draw)
            for topic, queue in shop.queues.items():
                shop.show(topic, draw.randrange(len(queue) + 1))
            shop.turn(draw.randrange(0, 3))
        if life == 4:
            shop.show_all()
            shop.turn(40)
        shop.end(drained=draw.random() < 0.2)
    known: dict[int, tuple[Any, Any]] = {}
    mixed = 0
    for frontier, rows in shop.store.history:
        at = {name: source.place.order for name, source in frontier.sources.items()}
        mixed += len(at) == 2
        if frontier.epoch:
            assert known.setdefault(frontier.epoch, (at, rows)) == (at, rows), f"epoch {frontier.epoch}"
        wanted = shop.wanted(at.get("shop"), at.get("lake"))
        assert {v: rows.get(v, Counter()) for v in wanted} == wanted, f"{at}"
    assert mixed > 10
    assert at == {"shop": max(shop.states), "lake": shop.version}, "and at last all of both is there"
    assert shop.state[CUSTOMERS]


class Changing(Both):
    """A publisher whose table loses its column v: it is gone, or of another type; `policy`: as configured."""

    policy, altered = "pause", None

    def configure(self) -> dict[str, Any]:
        body = super().configure()
        body["sources"][1]["schema_changes"] = self.policy
        return body

    def queue(self, topic: str, value: dict[str, Any], partition: int = 0, key: bytes | None = None) -> Any:
        image = value.get("after")
        if topic == TOPIC and self.altered is not None and image is not None:
            image.pop("v")
            image |= self.altered
        return super().queue(topic, value, partition, key)


def published(folder: Path, patch: pytest.MonkeyPatch, draw: random.Random, policy: str) -> Changing:
    """A shop under this policy, which has taken the publisher's first version in."""
    shop = Changing(folder, patch)
    shop.policy = policy
    (folder / "views" / "v.yaml").write_text(VIEWS + NAMED)
    shop.snapshot({t: [(i, i) for i in range(1, 5)] for t in KEYS})
    shop.start()
    shop.publish(draw)
    shop.show_all()
    shop.turn(3)
    return shop


NAMED = "  - {name: ids, key: [id], sinks: [s], sql: 'select id from lake.prices'}\n"


@pytest.mark.parametrize("altered", [{}, {"w": 3}, {"v": "three"}], ids=["dropped", "renamed", "another type"])
def test_views_that_name_a_column_that_a_publisher_lost_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, altered: dict[str, Any]
) -> None:
    draw = random.Random(1)
    shop = published(tmp_path, monkeypatch, draw, "pause")
    assert not shop.in_error()
    before = shop.rows("prices")
    shop.altered = altered
    for _ in range(3):
        shop.publish(draw)
        shop.transact((ORDERS, "c", (90 + shop.version, 2)))
    shop.show_all()
    shop.turn(3)
    for drained in (True, False):
        assert shop.in_error() == {"prices", "priced"}
        assert "column v" in shop.store.errors["prices"][0]
        if altered != {} and "v" in altered:
            assert "headrace load" in shop.store.errors["prices"][0]
        assert shop.rows("prices") == before
        assert shop.rows("ids") == Counter((i,) for i in shop.versions[shop.version])
        assert shop.rows("orders") == +shop.state[ORDERS]
        shop.end(drained=drained)
        shop.start()
        shop.publish(draw)
        shop.show_all()
        shop.turn(3)


def test_a_column_that_a_publisher_dropped_may_be_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(2)
    shop = published(tmp_path, monkeypatch, draw, "evolve")
    shop.altered = {}
    shop.publish(draw)
    shop.show_all()
    shop.turn(3)
    assert not shop.in_error()
    was, now = shop.versions[shop.version - 1], shop.versions[shop.version]
    assert shop.rows("prices") == Counter((i, v if was.get(i) == v else None) for i, v in now.items())


def test_a_column_that_a_publisher_dropped_may_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    shop = published(tmp_path, monkeypatch, draw, "fail")
    shop.altered = {}
    shop.publish(draw)
    shop.show_all()
    with pytest.raises(HeadraceError, match="schema_changes"):
        shop.turn(3)
    shop.close()
