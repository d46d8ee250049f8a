"""The sink contract on a real broker, read back as a `read_committed` consumer that stops at the frontier's ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.transactional_producer import Transactions
from headrace.connectors.sink import Sink, SinkView
from tests.contracts.sink import SinkContract, SinkHarness, Texts


class _Lossy:
    """A producer whose next commit either happens or not, and whose answer is lost either way."""

    def __init__(self, inner: Any, happens: bool) -> None:
        self._inner, self._happens = inner, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit_transaction(self, timeout: float) -> None:
        (self._inner.commit_transaction if self._happens else self._inner.abort_transaction)(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer was lost"))


def read_committed(bootstrap: str, topic: str, end: int | None = None, partition: int = 0) -> list[Any]:
    """Committed messages of a partition from its beginning to `end` (default: what is stable now)."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
         "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True,
         "fetch.wait.max.ms": 10}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    try:
        while True:
            for message in consumer.consume(1, 10.0) + consumer.consume(10_000, 0):
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    if end is not None and message.offset() < end:
                        continue  # a commit is answered before its markers stand everywhere: the end is waited for
                    return [m for m in found if end is None or m.offset() < end]
                found.append(message)
    finally:
        consumer.close()


class KafkaHarness:
    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap, self.prefix = bootstrap, prefix
        self.made: list[KafkaSink] = []

    def make(self, *, each: bool = False) -> KafkaSink:
        config = {"bootstrap.servers": self.bootstrap}
        self.made.append(
            KafkaSink("group", config, self.prefix, sidecar=self.prefix, replication=1, patience=15.0, each=each)
        )
        return self.made[-1]

    def close(self) -> None:
        for sink in self.made:
            sink.close()

    def frontier(self) -> dict[str, Any]:
        written = max(sink._standing.writes for sink in self.made)
        end = time.monotonic() + 10
        while True:
            records = read_committed(self.bootstrap, f"{self.prefix}frontier")
            found: dict[str, Any] = orjson.loads(records[-1].value()) if records else {"writes": 0}
            if found["writes"] >= written:
                return found
            assert time.monotonic() < end, "a committed frontier does not become visible"

    def content(self, view: SinkView) -> Counter[Texts]:
        return self.together([view])[0]

    def together(self, views: Sequence[SinkView]) -> list[Counter[Texts]]:
        ends = self.frontier()["ends"]
        found = []
        for view in views:
            topic = f"{self.prefix}{view.name}"
            live: dict[bytes, Any] = {}
            for message in read_committed(self.bootstrap, topic, ends.get(topic, {}).get("0", 0)):
                live.pop(message.key(), None)
                if message.value() is not None:
                    live[message.key()] = orjson.loads(message.value())
            found.append(self._counted(view, live))
        return found

    def marks(self) -> dict[str, tuple[str, int | None]]:
        errors = self.frontier()["errors"]
        return {topic.removeprefix(self.prefix): (e["error"], e["epoch"]) for topic, e in errors.items()}

    def _counted(self, view: SinkView, live: dict[bytes, Any]) -> Counter[Texts]:
        counted: Counter[Texts] = Counter()
        for value in live.values():
            row, count = (value["row"], value["count"]) if view.key is None else (value, 1)
            assert list(row) == list(view.schema.names)
            counted[tuple(None if v is None else str(v) for v in row.values())] += count
        return counted

    @contextmanager
    def _lossy(self, sink: Sink, happens: bool) -> Iterator[None]:
        assert isinstance(sink, KafkaSink)
        producer = sink._producer
        assert isinstance(producer, Transactions)
        producer._producer = _Lossy(producer._producer, happens)  # type: ignore[assignment]
        yield
        assert sink._producer is not producer, "the answer was to be lost"

    def lose_answer(self, sink: Sink) -> Any:
        return self._lossy(sink, True)

    def lose_request(self, sink: Sink) -> Any:
        return self._lossy(sink, False)

    @contextmanager
    def lose_claim(self, sink: Sink, happens: bool) -> Iterator[None]:
        assert isinstance(sink, KafkaSink)
        with silent(sink, "kafka committed" if happens else "kafka flushed"):
            yield


@contextmanager
def silent(sink: KafkaSink, step: str) -> Iterator[None]:
    """Inside, the broker answers nothing from this step on."""

    def reached(here: str) -> None:
        if here == step:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the answer was lost"))

    before, sink._reached = sink._reached, reached
    try:
        yield
    finally:
        sink._reached = before


class TestKafkaSink(SinkContract):
    @pytest.fixture
    def harness(self, kafka: str, unique: str) -> Iterator[SinkHarness]:
        made = KafkaHarness(kafka, f"{unique}.")
        yield made
        made.close()
