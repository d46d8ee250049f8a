"""The publisher's way to Kafka: topics, the last record of each partition, and a producer that knows what arrived.

Always: `KafkaWire` can be pickled (it goes to Spark's workers) and holds no connection itself; `flush` returns only
when every record produced so far is acknowledged by all replicas, and raises otherwise. A test hands in a wire of its
own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.connectors.spark.errors import PublishError

Record = tuple[bytes | None, bytes | None]

_QUIET = {"log_level": 2}
"""What librdkafka prints by itself, a line each try: what matters of it is raised."""
_TIMEOUT = 30.0
_FLUSH = 120.0


class Producer(Protocol):
    """Writes records to partitions named by the caller."""

    def produce(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Queue one record. Raises PublishError."""

    def produce_batch(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Queue records, (key, value) each; they may be written in any order. Raises PublishError."""

    def flush(self) -> None:
        """Return when all that was queued is acknowledged. Raises PublishError if one was not."""


class Wire(Protocol):
    """Where a version is published; must be picklable."""

    def ensure(self, topic: str, partitions: int) -> int:
        """Create a missing topic; tell how many partitions it has. Raises PublishError: unreachable, compacted."""

    def tails(self, topic: str, partitions: int) -> Sequence[Record | None]:
        """The last record of each partition, None where there is none."""

    def producer(self) -> Producer:
        """A new producer."""


@dataclass(frozen=True)
class KafkaWire:
    """Kafka through confluent-kafka. `settings`: any librdkafka keys; `replication`: of topics that we create."""

    settings: Mapping[str, str]
    replication: int = 1

    def ensure(self, topic: str, partitions: int) -> int:
        """See Wire."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({**_QUIET, **self.settings})
        new = NewTopic(topic, partitions, self.replication, config={"cleanup.policy": "delete"})
        try:
            admin.create_topics([new], request_timeout=_TIMEOUT)[topic].result(_TIMEOUT)
            return partitions
        except (KafkaException, TimeoutError) as error:
            code = error.args[0].code() if isinstance(error, KafkaException) else None
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failed("the topic cannot be created", topic, error) from error
        self._check_policy(admin, topic)
        try:
            return len(admin.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions)
        except KafkaException as error:
            raise self._failed("the topic cannot be described", topic, error) from error

    def _check_policy(self, admin: Any, topic: str) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            policy = admin.describe_configs([resource])[resource].result(_TIMEOUT)["cleanup.policy"].value
        except KafkaException:  # no right to describe configurations: nothing is known against the topic
            return
        if "compact" in policy:
            raise PublishError(
                "the topic is compacted, which takes records out of versions", topic=topic, policy=policy,
                hint="set cleanup.policy=delete",
            )  # fmt: skip

    def tails(self, topic: str, partitions: int) -> Sequence[Record | None]:
        """See Wire."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer(
            {
                **_QUIET,
                **self.settings,
                "group.id": "headrace-publish",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 10,  # the next partition is asked for only when the last answer is there
            }
        )
        found: list[Record | None] = []
        try:
            for partition in range(partitions):
                low, high = _watermarks(consumer, TopicPartition(topic, partition))
                if high <= low:
                    found.append(None)
                    continue
                consumer.assign([TopicPartition(topic, partition, high - 1)])
                message = consumer.poll(_TIMEOUT)
                if message is None or message.error():
                    why = message.error() if message else "nothing came"
                    raise self._failed("the topic's last record cannot be read", topic, why)
                found.append((message.key(), message.value()))
        except KafkaException as error:
            raise self._failed("the topic cannot be read", topic, error) from error
        finally:
            consumer.close()
        return found

    def producer(self) -> Producer:
        """See Wire."""
        return _KafkaProducer(self.settings)

    def _failed(self, what: str, topic: str, error: object) -> PublishError:
        return PublishError(
            f"{what}: {str(error) or f'nobody answered within {_TIMEOUT:g} s'}",
            topic=topic,
            bootstrap=self.settings.get("bootstrap.servers"),
            hint="is Kafka reachable?",
        )


def _watermarks(consumer: Any, at: Any) -> tuple[int, int]:
    """First and next offset of a partition, waiting for its leader: a topic just created may have none yet."""
    from confluent_kafka import KafkaError, KafkaException

    passing = {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
    until = time.monotonic() + _TIMEOUT
    while True:
        try:
            low, high = consumer.get_watermark_offsets(at, timeout=_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() not in passing or time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return low, high


class _KafkaProducer:
    """An idempotent producer; one thread uses it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        from confluent_kafka import Producer as Librdkafka

        own = {
            "enable.idempotence": True, "acks": "all", "linger.ms": 5, "compression.type": "lz4",
            # of millions of records nothing is to be told but what went wrong
            "delivery.report.only.error": True,
        }  # fmt: skip
        self._producer = Librdkafka({**_QUIET, **own, **settings})
        self._failure: str | None = None

    def _note(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = f"{message.topic()} [{message.partition()}]: {error}"

    def produce(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """See Producer."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition=partition, on_delivery=self._note)
            except BufferError:  # the queue is full: deliveries make room
                self._producer.poll(0.1)
                self._check()
            else:
                self._producer.poll(0)
                return

    def produce_batch(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        """See Producer."""
        left: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in records]
        while left:
            taken = self._producer.produce_batch(topic, left, partition=partition, on_delivery=self._note)
            if taken == len(left):
                self._producer.poll(0)
                return
            refused = [r for r in left if "_error" in r]
            for record in refused:
                self._check_full(topic, partition, record.pop("_error"))
            left = refused
            self._producer.poll(0.1)
            self._check()

    def _check_full(self, topic: str, partition: int, error: Any) -> None:
        """Raise PublishError unless a record was refused for want of room, which deliveries make."""
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._QUEUE_FULL:
            self._failure = self._failure or f"{topic} [{partition}]: {error}"
            self._check()

    def flush(self) -> None:
        """See Producer."""
        left = self._producer.flush(_FLUSH)
        self._check()
        if left:
            raise PublishError(f"{left} records were not acknowledged within {_FLUSH:g} s", hint="is Kafka reachable?")

    def _check(self) -> None:
        if self._failure is not None:
            raise PublishError(
                f"Kafka did not take a record: {self._failure}", hint="publish again: it counts as a new attempt"
            )
