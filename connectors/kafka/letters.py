"""Dead letters in a compacted topic of one partition: a record's place is its key, a null value lets go of it.

Always: what `keep` returned from is acknowledged by every replica in sync; reading stops at the end that was there when
it began. Called by the intake (keep) and by `headrace deadletters`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from connectors.kafka import discovery, topics
from connectors.kafka.client import Reasons, admin, client, merged
from connectors.letters import Letter, LettersError

_OWNED = {"enable.idempotence": True, "acks": "all", "enable.auto.commit": False}
_PLACE = 0


class KafkaLetters:
    """`topic`: made when the first letter is kept. `patience`: seconds within which the broker must answer."""

    def __init__(self, config: Mapping[str, Any], topic: str, *, patience: float = 30.0) -> None:
        self._topic, self._patience = topic, patience
        self._reasons = Reasons()
        defaults = {"client.id": "headrace-letters", "group.id": "headrace-letters", "linger.ms": 0}
        self._settings = merged(config, _OWNED, defaults, self._error)
        self._admin = admin(self._settings, self._error, self._reasons)
        self._producer: Any = None

    def _error(self, what: str, *, hint: str = "", **where: object) -> LettersError:
        return LettersError(what, hint=hint, topic=where.pop("topic", self._topic), **where)

    def keep(self, letters: Sequence[Letter]) -> None:
        """See `Letters.keep`."""
        self._produce([(letter.id, orjson.dumps(letter.json())) for letter in letters])

    def discard(self, ids: Collection[str]) -> None:
        """See `Letters.discard`."""
        if self._is_there():
            self._produce([(id_, None) for id_ in sorted(ids)])

    def _is_there(self) -> bool:
        try:
            return self._topic in discovery.topics_there(self._admin, self._topic.__eq__, self._patience)[0]
        except KafkaException as failure:
            raise self._refused(failure) from failure

    def _refused(self, failure: KafkaException) -> LettersError:
        return self._error(f"Kafka refuses: {failure.args[0].str()}",
                           hint="grant CREATE, DESCRIBE, READ and WRITE on the topic of dead letters")  # fmt: skip

    def _produce(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        if not records:
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
            for key, value in records:
                self._producer.produce(self._topic, value, key.encode(), partition=_PLACE, on_delivery=told)
            left = self._producer.flush(self._patience)
        except KafkaException as failure:
            raise self._refused(failure) from failure
        if left or failed:
            why = failed[0] if failed else f"no broker answers{self._reasons.describe()}"
            raise self._error(f"dead letters cannot be kept: {why}", hint="nothing behind them was bound: start again")

    def read(self) -> Sequence[Letter]:
        """See `Letters.read`."""
        if not self._is_there():
            return []
        found: dict[str, Letter] = {}
        for key, value in self._records():
            if value is None:
                found.pop(key, None)
                continue
            try:
                letter = Letter.parse(orjson.loads(value))
            except (ValueError, KeyError, TypeError):
                continue  # somebody else's record
            found.setdefault(key, letter)
        return list(found.values())

    def _records(self) -> list[tuple[str, bytes | None]]:
        settings = {**self._settings, "auto.offset.reset": "earliest", "enable.partition.eof": True}
        consumer = client(Consumer, settings, self._error)
        found: list[tuple[str, bytes | None]] = []
        try:
            consumer.assign([TopicPartition(self._topic, _PLACE, OFFSET_BEGINNING)])
            until, whole = time.monotonic() + self._patience, False
            while not whole:
                for message in consumer.consume(1000, 0.2):
                    until = time.monotonic() + self._patience
                    if message.error() is not None:
                        whole |= message.error().code() == KafkaError._PARTITION_EOF
                    elif message.key() is not None:
                        found.append((message.key().decode(errors="replace"), message.value()))
                if time.monotonic() > until:
                    raise self._error("the dead letters cannot be read in time", hint="start Kafka")
        except KafkaException as failure:
            raise self._refused(failure) from failure
        finally:
            consumer.close()
        return found
