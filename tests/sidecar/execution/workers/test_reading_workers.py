"""Worker processes that read a broker's topics, here and on Spark: right at every frontier, whichever is killed when."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.engine.errors import HeadraceError
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.rescale import Rescaling
from headrace.sidecar.execution.workers.pool import Maker
from headrace.sidecar.wiring import build as wiring
from headrace.sidecar.wiring import factories, intakes, shard_intakes, topic_reading
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.support import little
from tests.sidecar.support.little import CUSTOMERS, KEYS, ORDERS, VISITS, Little, answers

BEGINNING = {CUSTOMERS: [(1, 1), (2, 2), (3, 1)], ORDERS: [(1, 1), (2, 3)], VISITS: [(1, 1), (2, 1), (1, 1)]}


class BrokerLog:
    """The topics of a broker. `ends`: where each partition ends."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.ends: Counter[tuple[str, int]] = Counter()
        self.topics: set[str] = set()

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic, unless it is there."""
        if topic not in self.topics:
            self.topics.add(topic)
            [made] = self._admin.create_topics([NewTopic(topic, partitions, 1)]).values()
            made.result(30)

    def append(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, partition: int = 0, timestamp: int = 0
    ) -> None:
        """One record more; it is there when this returns."""
        self.create(topic)
        self._producer.produce(topic, value, key, partition)
        self._producer.flush(30)
        self.ends[topic, partition] += 1

    def delete(self) -> None:
        """Take them away."""
        for gone in self._admin.delete_topics(list(self.topics)).values():
            gone.result(30)


class Read(Little):
    """The little sidecar over a broker, whose topics its workers read. `each`: its sink asks for each transaction."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, kafka: str, prefix: str, maker: Maker, *, each: bool
    ) -> None:
        patch.setattr(little, "PREFIX", prefix)
        super().__init__(folder, patch, intake="driver", every_turn=False)
        self.kafka, self.each, self.intake, self.workers = kafka, each, "shards", 2
        for module in (intakes, topic_reading, shard_intakes):
            patch.setattr(module, "make_source", factories.make_source)
        for module in (intakes, shard_intakes):
            patch.setattr(module, "make_format", factories.make_format)
        patch.setattr(wiring, "make_pool", lambda *_: maker)
        self.broker = BrokerLog(kafka)
        for table in KEYS:
            self.broker.create(f"{prefix}.{table}", 2 if table == CUSTOMERS else 1)
        for topic in ("transaction", "notifications"):
            self.broker.create(f"{prefix}.{topic}")
        self.log = self.broker  # type: ignore[assignment]

    def configure(self) -> dict[str, Any]:
        body = super().configure()
        body["kafka"] = {"bootstrap.servers": self.kafka}
        body["sources"][0]["topic_prefix"] = little.PREFIX
        body["checkpoint"] = {"interval_seconds": 0.2}
        if self.each:
            body["sinks"] = [{"name": "s", "type": "kafka", "granularity": "transaction"}]
        return body

    def is_heard(self, intake: Any) -> bool:
        here = intake.source.positions()
        return all(here.get(topic, {}).get(p, 0) >= end for (topic, p), end in self.broker.ends.items())

    def pids(self) -> list[int]:
        assert self.running is not None
        return [worker.pid for worker in self.running.runtime.parts.flow.workers()]


@pytest.fixture(params=[False, True], ids=["step", "transaction"])
def shop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kafka: str,
    unique: str,
    maker: Maker,
    request: pytest.FixtureRequest,
) -> Iterator[Read]:
    made = Read(tmp_path, monkeypatch, kafka, unique, maker, each=request.param)
    made.snapshot(BEGINNING)
    made.show_all()
    made.start()
    try:
        yield made
    finally:
        made.close()
        made.broker.delete()


def check(shop: Read, *, whole: bool = True) -> None:
    frontier = shop.store.frontier
    assert frontier is not None
    assert not whole or frontier.sources["shop"].place.order == shop.lsn
    for at, rows in [*shop.store.history, (frontier, shop.store.rows)]:
        assert at is None or rows == answers(shop.states[at.sources["shop"].place.order])
    assert not shop.store.errors


@pytest.mark.long
@pytest.mark.parametrize("maker", ["local", pytest.param("spark", marks=pytest.mark.long)], indirect=True)
def test_whatever_is_killed_when(shop: Read) -> None:
    """Workers, or all of it; what was published is right at every frontier, and in the end all is there once."""
    draw = random.Random(7)
    shop.turn(2)
    killed = 0
    for _ in range(8):
        for _ in range(draw.randrange(1, 6)):
            shop.random(draw)
        shop.show_all()
        if draw.random() < 0.5:
            shop.turn()
            check(shop)
        if draw.random() < 0.6:
            victim, killed = draw.choice(shop.pids()), killed + 1
            os.kill(victim, signal.SIGKILL)
            with pytest.raises(HeadraceError, match=f"a worker died .*pid={victim}"):
                go_on(shop)
        elif draw.random() < 0.5:
            continue
        shop.end()
        check(shop, whole=False)
        shop.start()
    assert killed > 1
    shop.turn(2)
    check(shop)
    shop.end(drained=True)
    shop.intake, shop.workers = "driver", 1
    shop.random(draw)
    shop.show_all()
    shop.start()
    until = time.monotonic() + 60
    while frontier_of(shop) < shop.lsn:
        assert time.monotonic() < until, "the driver's own intake does not go on"
        assert shop.running is not None
        shop.running.runtime.turn(0.05)
    check(shop)


def test_another_count_of_workers_takes_over_what_was_read(shop: Read) -> None:
    """Transactions of which some is read already; beside the old ones where there is room, else after them."""
    draw = random.Random(11)
    shop.turn(2)
    assert shop.running is not None
    running = shop.running
    for workers in (3, 2):
        for _ in range(6):
            shop.random(draw)
        for table in KEYS:
            topic = f"{little.PREFIX}.{table}"
            shop.show(topic, len(shop.queues.get(topic, ())) // 2)
        shop.turn()
        assert running.runtime.parts.flow.rows.kept.numbers, "something is kept"  # type: ignore[attr-defined]
        before = shop.pids()
        done = meanwhile(shop, lambda: Rescaling(running, ViewChanger(running)).rescale(workers), busy=workers == 2)  # noqa: B023
        assert (done["workers"], len(shop.pids())) == (workers, workers)
        assert not {*before} & {*shop.pids()}
        shop.show_all()
        shop.turn(2)
        check(shop)


def frontier_of(shop: Read) -> int:
    """The LSN that the sink stands at."""
    assert shop.store.frontier is not None
    return shop.store.frontier.sources["shop"].place.order


def go_on(shop: Read) -> None:
    """Until something is raised."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        shop.turn()


def test_a_worker_that_dies_while_nothing_comes_is_named(shop: Read) -> None:
    shop.turn(2)
    victim = shop.pids()[1]
    os.kill(victim, signal.SIGKILL)
    assert shop.running is not None
    with pytest.raises(HeadraceError, match=f"a worker died .*shard=1, pid={victim}"):
        shop.running.runtime.run(lambda: False)
