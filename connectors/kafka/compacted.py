"""A compacted topic of one partition as a small durable map: a record's key is the entry's name, a null value ends the entry.

Invariant: what `put` returned from is acknowledged by every replica in sync; `read` stops at the end that was there when it
began. The dead letters and the command log are such maps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.connectors.kafka import topic_watcher, topics
from headrace.connectors.kafka.client import Reasons, admin, client, merged
from headrace.engine.errors import HeadraceError

_OWNED = {"enable.idempotence": True, "acks": "all", "enable.auto.commit": False}
_PARTITION = 0


class CompactedTopic:
    """`topic`: made with the first entry. `what`: its content, as errors name it; `error`: makes one (what, hint=, topic=).
    `patience`: seconds within which the broker must answer."""

    def __init__(
        self, config: Mapping[str, Any], topic: str, what: str, error: Callable[..., HeadraceError], *, patience: float
    ) -> None:
        self._topic, self._what, self._patience, self._make_error = topic, what, patience, error
        self._reasons = Reasons()
        name = f"headrace-{what.replace(' ', '-')}"
        defaults = {"client.id": name, "group.id": name, "linger.ms": 0}
        self._settings = merged(config, _OWNED, defaults, self._error)
        self._admin = admin(self._settings, self._error, self._reasons)
        self._producer: Any = None

    def _error(self, what: str, *, hint: str = "", **where: object) -> HeadraceError:
        return self._make_error(what, hint=hint, topic=where.pop("topic", self._topic), **where)

    def is_there(self) -> bool:
        """Whether the topic exists and may be seen."""
        try:
            return self._topic in topic_watcher.topics_there(self._admin, self._topic.__eq__, self._patience)[0]
        except KafkaException as failure:
            raise self._refused(failure) from failure

    def _refused(self, failure: KafkaException) -> HeadraceError:
        return self._error(f"Kafka refuses: {failure.args[0].str()}",
                           hint=f"grant CREATE, DESCRIBE, READ and WRITE on the topic of the {self._what}")  # fmt: skip

    def put(self, entries: Sequence[tuple[str, bytes | None]]) -> None:
        """Set entries, or end them by None, durably."""
        if not entries:
            return
        failed: list[str] = []

        def told(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error.str())

        try:
            if self._producer is None:
                wanted = {self._topic: topics.COMPACT}
                topics.ensure(self._admin, wanted, {self._topic: 1}, -1, self._error, self._patience)
                self._producer = client(Producer, {**self._settings, "error_cb": self._reasons}, self._error)
            for key, value in entries:
                self._producer.produce(self._topic, value, key.encode(), partition=_PARTITION, on_delivery=told)
            left = self._producer.flush(self._patience)
        except KafkaException as failure:
            raise self._refused(failure) from failure
        if left or failed:
            why = failed[0] if failed else f"no broker answers{self._reasons.describe()}"
            raise self._error(f"{self._what} cannot be kept: {why}", hint="nothing behind them was bound: start again")

    def read(self) -> list[tuple[str, bytes | None]]:
        """Every record, in order; none where there is no topic yet."""
        return self._records() if self.is_there() else []

    def _records(self) -> list[tuple[str, bytes | None]]:
        settings = {**self._settings, "auto.offset.reset": "earliest", "enable.partition.eof": True}
        consumer = client(Consumer, settings, self._error)
        found: list[tuple[str, bytes | None]] = []
        try:
            consumer.assign([TopicPartition(self._topic, _PARTITION, OFFSET_BEGINNING)])
            until, whole = time.monotonic() + self._patience, False
            while not whole:
                for message in consumer.consume(1000, 0.2):
                    until = time.monotonic() + self._patience
                    if message.error() is not None:
                        whole |= message.error().code() == KafkaError._PARTITION_EOF
                    elif message.key() is not None:
                        found.append((message.key().decode(errors="replace"), message.value()))
                if time.monotonic() > until:
                    raise self._error(f"the {self._what} cannot be read in time", hint="start Kafka")
        except KafkaException as failure:
            raise self._refused(failure) from failure
        finally:
            consumer.close()
        return found
