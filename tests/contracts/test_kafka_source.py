"""The source contract on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from headrace.connectors.kafka.source import KafkaSource
from tests.contracts.source import SourceContract, SourceHarness


class KafkaSourceHarness:
    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.prefix = prefix
        self.config = {"bootstrap.servers": bootstrap}
        self.admin = AdminClient(self.config)
        self.producer = Producer({**self.config, "linger.ms": 0})
        self.made: list[KafkaSource] = []

    def make(self, topics: Sequence[str] | None = None) -> KafkaSource:
        wants = None if topics is not None else (lambda topic: topic.startswith(self.prefix))
        self.made.append(KafkaSource(self.config, wants=wants, topics=topics, name=self.prefix, discover=0.2))
        return self.made[-1]

    def close(self) -> None:
        for source in self.made:
            source.close()

    def create(self, topic: str, partitions: int = 1) -> None:
        if topic in self.admin.list_topics(timeout=10).topics:
            self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        else:
            self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
        end = time.monotonic() + 10
        while (t := self.admin.list_topics(timeout=10).topics.get(topic)) is None or len(t.partitions) < partitions:
            assert time.monotonic() < end
            time.sleep(0.02)

    def append(self, topic: str, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        for value in values:
            self.producer.produce(topic, value, key, partition=partition)
        assert self.producer.flush(10) == 0

    @cached_property
    def transactional(self) -> Producer:
        made = Producer({**self.config, "transactional.id": f"gap-{self.prefix}"})
        made.init_transactions(30)
        return made

    def gap(self, topic: str, partition: int = 0) -> None:
        self.begin(topic, b"never", partition=partition)
        self.transactional.abort_transaction(30)

    def begin(self, topic: str, *values: bytes, partition: int = 0) -> None:
        self.transactional.begin_transaction()
        for value in values:
            self.transactional.produce(topic, value, partition=partition)
        assert self.transactional.flush(30) == 0

    def commit(self, topic: str) -> None:
        del topic
        self.transactional.commit_transaction(30)

    def forget(self, topic: str, partition: int, low: int) -> None:
        end = time.monotonic() + 10
        while True:
            [answer] = self.admin.delete_records([TopicPartition(topic, partition, low)]).values()
            try:
                answer.result()
                return
            except KafkaException as error:
                # the mark of an aborted transaction is written a little after that is answered
                if error.args[0].code() != KafkaError.OFFSET_OUT_OF_RANGE or time.monotonic() > end:
                    raise
            time.sleep(0.02)

    def unreachable(self) -> KafkaSource:
        return KafkaSource({"bootstrap.servers": "127.0.0.1:1"}, wants=lambda _: True, reach=1.5)


class TestKafkaSource(SourceContract):
    @pytest.fixture
    def harness(self, kafka: str, unique: str) -> Iterator[SourceHarness]:
        made = KafkaSourceHarness(kafka, f"{unique}.")
        yield made
        made.close()
