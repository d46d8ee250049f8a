"""The doubles of the simulator as the harnesses of the contracts: what they stand for runs the same suites on real servers.

Always: one process's connection, without faults but those that a contract asks for. Used by tests/contracts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from headrace.connectors.kafka import client, features, readback, source, topic_watcher, transactional_producer
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.source import KafkaSource
from headrace.connectors.sink import Sink, SinkView
from headrace.connectors.step_hooks import Reached, unwatched
from tests.contracts.sink import Texts, texts
from tests.contracts.test_kafka_sink import silent
from tests.sim import clients
from tests.sim.broker import Broker
from tests.sim.clients import Clients
from tests.sim.database import Database, DatabaseSink

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


class Quiet:
    """A connection that loses only what it is told to: `losses` by the name of the call, each once."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.draw = broker, random.Random(1)
        self.losses: dict[str, str] = {}
        self.clock = 0.0

    def door(self, name: str) -> None:
        """Nothing else happens, but that time passes while something is fetched."""
        if name == "kafka fetch":
            self.sleep(0.1)

    def lost(self, name: str) -> str:
        return self.losses.pop(name, "")

    def chance(self, rate: float) -> bool:
        return self.draw.random() < rate

    def later(self, what: Callable[[], None]) -> None:
        what()

    def told(self, positions: Mapping[str, Mapping[int, int]]) -> None:
        """Nobody asks."""

    def now(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds
        for producer in self.broker.producers.values():
            self.broker.settle(producer)


def put_in_place(
    patch: pytest.MonkeyPatch, made: Clients, now: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """The doubles in the places of the library that the connectors use, and of their clock."""
    moment = SimpleNamespace(monotonic=now, time=now, sleep=sleep)
    for module in (topic_watcher, readback, transactional_producer):
        patch.setattr(module, "time", moment)
    for module in (source, readback):
        patch.setattr(module, "Consumer", made.consumer)
    patch.setattr(transactional_producer, "Producer", made.producer)
    patch.setattr(client, "AdminClient", made.admin)
    patch.setattr(source, "Message", clients.Message)
    patch.setattr(topic_watcher, "Watcher", clients.Watcher)
    patch.setattr(features, "transaction_version", lambda _: 2)


class Losing:
    """A harness whose sink's next `end` of a write loses its answer, or is lost on its way."""

    line: Quiet
    end = ""

    @contextmanager
    def _losing(self, what: str) -> Iterator[None]:
        self.line.losses[self.end] = what
        yield
        assert not self.line.losses, "the answer was to be lost"

    def lose_answer(self, sink: Sink) -> Any:
        return self._losing("answer")

    def lose_request(self, sink: Sink) -> Any:
        return self._losing("request")

    def lose_claim(self, sink: Sink, happens: bool) -> Any:
        return self._losing("answer" if happens else "request")


class DatabaseHarness(Losing):
    """Of tests.contracts.sink.SinkHarness, on the database in memory."""

    end = "sql commit"

    def __init__(self) -> None:
        self.database, self.line = Database(), Quiet(Broker())

    def make(self) -> DatabaseSink:
        return DatabaseSink("group", self.database, self.line)

    def content(self, view: SinkView) -> Counter[Texts]:
        found: Counter[Texts] = Counter()
        for row, count in self.database.store.rows[view.name].items():
            [image] = texts(view, row)
            found[image] += count
        return found

    def together(self, views: Sequence[SinkView]) -> list[Counter[Texts]]:
        return [self.content(view) for view in views]

    def marks(self) -> dict[str, tuple[str, int | None]]:
        return dict(self.database.store.errors)


class BrokerHarness(Losing):
    """Of tests.contracts.sink.SinkHarness and tests.contracts.source.SourceHarness: our own Kafka sink and source, on the
    broker in memory."""

    prefix = "t."
    end = "kafka end"

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.broker = Broker()
        self.line = Quiet(self.broker)
        put_in_place(patch, Clients(lambda: self.line), self.line.now, self.line.sleep)

    def sink(self, reached: Reached = unwatched) -> KafkaSink:
        return KafkaSink(
            "group",
            SERVERS,
            "t.",
            sidecar="t",
            patience=15.0,
            sleep=self.line.sleep,
            now=self.line.now,
            reached=reached,
        )

    def frontier(self) -> dict[str, Any]:
        self.line.sleep(0.0)
        records, _ = self.broker.partition(("t.frontier", 0)).read(0, 1 << 30, committed=True)
        assert records[-1].value is not None, "a frontier is never taken away"
        found: dict[str, Any] = orjson.loads(records[-1].value)
        return found

    def content(self, view: SinkView) -> Counter[Texts]:
        return self.together([view])[0]

    def together(self, views: Sequence[SinkView]) -> list[Counter[Texts]]:
        ends, found = self.frontier()["ends"], []
        for view in views:
            topic, live = f"t.{view.name}", dict[bytes, Any]()
            records, _ = self.broker.partition((topic, 0)).read(0, 1 << 30, committed=True)
            for record in records:
                if record.offset < ends.get(topic, {}).get("0", 0) and record.key is not None:
                    live.pop(record.key, None)
                    if record.value is not None:
                        live[record.key] = orjson.loads(record.value)
            counted: Counter[Texts] = Counter()
            for value in live.values():
                row, count = (value["row"], value["count"]) if view.key is None else (value, 1)
                counted[tuple(None if v is None else str(v) for v in row.values())] += count
            found.append(counted)
        return found

    def marks(self) -> dict[str, tuple[str, int | None]]:
        return {t.removeprefix("t."): (e["error"], e["epoch"]) for t, e in self.frontier()["errors"].items()}

    def lose_claim(self, sink: Sink, happens: bool) -> Any:
        assert isinstance(sink, KafkaSink)
        return silent(sink, "kafka committed" if happens else "kafka flushed")

    # as a source's broker

    def source(self, topics: Sequence[str] | None = None) -> KafkaSource:
        wants = None if topics is not None else (lambda topic: topic.startswith(self.prefix))
        return KafkaSource(SERVERS, wants=wants, topics=topics, name="t", discover=0.0)

    def create(self, topic: str, partitions: int = 1) -> None:
        self.broker.create(topic, partitions)

    def append(self, topic: str, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        for value in values:
            self.broker.append((topic, partition), key, value)

    def gap(self, topic: str, partition: int = 0) -> None:
        self.begin(topic, b"never", partition=partition)
        self._end(commit=False)

    def begin(self, topic: str, *values: bytes, partition: int = 0) -> None:
        epoch = self.broker.init("gap")
        for value in values:
            self.broker.send("gap", epoch, (topic, partition), None, value, None)

    def commit(self, topic: str) -> None:
        del topic
        self._end(commit=True)

    def _end(self, commit: bool) -> None:
        producer = self.broker.producers["gap"]
        self.broker.end("gap", producer.epoch, commit=commit)
        self.broker.settle(producer)

    def forget(self, topic: str, partition: int, low: int) -> None:
        self.broker.truncate((topic, partition), low)

    def unreachable(self) -> KafkaSource:
        self.broker.up = False
        return KafkaSource(SERVERS, wants=lambda _: True, reach=1.5)
