"""What we rely on of a broker and its client library: transactions, the last stable offset, fencing. Run with the library on a
real broker, and with the simulator's doubles of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from headrace.connectors.kafka.readback import is_fenced


@dataclass(frozen=True)
class Held:
    """`settings` of the broker's clients; `topic`: one of two partitions, empty."""

    settings: dict[str, Any]
    topic: str
    clients: Any


class BrokerContract:
    """Subclasses provide the fixture `held`."""

    def producer(self, held: Held, name: str = "one") -> Any:
        made = held.clients.producer({**held.settings, "transactional.id": f"{held.topic}-{name}"})
        made.init_transactions(30.0)
        return made

    def read(
        self, held: Held, level: str, until: Callable[[list[bytes]], bool], partition: int = 0, rounds: int = 60
    ) -> list[bytes]:
        """Values from the beginning, until they are as wanted or some seconds have passed."""
        consumer = held.clients.consumer({
            **held.settings, "group.id": "contract", "isolation.level": level, "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        })  # fmt: skip
        consumer.assign([TopicPartition(held.topic, partition, 0)])
        found: list[bytes] = []
        for _ in range(rounds):
            found += [m.value() for m in consumer.consume(100, 0.1)]
            if until(found):
                break
        consumer.close()
        return found

    def send(self, producer: Any, held: Held, *values: bytes, partition: int = 0) -> None:
        for value in values:
            producer.produce(held.topic, value, b"k", partition=partition, headers=[], on_delivery=lambda *_: None)
        producer.flush(30.0)

    def test_what_is_not_committed_is_not_read_and_an_abort_is_passed_over(self, held: Held) -> None:
        producer = self.producer(held)
        for commit, value in ((True, b"a"), (False, b"b"), (True, b"c")):
            producer.begin_transaction()
            self.send(producer, held, value)
            (producer.commit_transaction if commit else producer.abort_transaction)(30.0)
        assert self.read(held, "read_committed", lambda f: len(f) >= 2) == [b"a", b"c"]
        assert self.read(held, "read_uncommitted", lambda f: len(f) >= 3) == [b"a", b"b", b"c"]

    def test_an_open_transaction_holds_back_what_comes_after_it(self, held: Held) -> None:
        one, two = self.producer(held), self.producer(held, "two")
        one.begin_transaction()
        self.send(one, held, b"first")
        two.begin_transaction()
        self.send(two, held, b"second")
        two.commit_transaction(30.0)
        assert self.read(held, "read_uncommitted", lambda f: len(f) >= 2) == [b"first", b"second"]
        assert self.read(held, "read_committed", lambda f: bool(f), rounds=5) == []
        one.commit_transaction(30.0)
        assert self.read(held, "read_committed", lambda f: len(f) >= 2) == [b"first", b"second"]

    def test_a_newer_producer_ends_what_an_older_one_left_open_and_fences_it(self, held: Held) -> None:
        old = self.producer(held)
        old.begin_transaction()
        self.send(old, held, b"never")
        new = self.producer(held)
        with pytest.raises(KafkaException) as refused:
            old.commit_transaction(30.0)
        assert is_fenced(refused.value.args[0])
        new.begin_transaction()
        self.send(new, held, b"seen")
        new.commit_transaction(30.0)
        assert self.read(held, "read_committed", lambda f: bool(f)) == [b"seen"]

    def test_one_transaction_is_seen_in_all_of_its_partitions(self, held: Held) -> None:
        producer = self.producer(held)
        producer.begin_transaction()
        self.send(producer, held, b"p0")
        self.send(producer, held, b"p1", partition=1)
        producer.commit_transaction(30.0)
        assert self.read(held, "read_committed", lambda f: bool(f)) == [b"p0"]
        producer.begin_transaction()
        self.send(producer, held, b"more", partition=1)
        producer.commit_transaction(30.0)
        assert self.read(held, "read_committed", lambda f: len(f) >= 2, partition=1) == [b"p1", b"more"]
