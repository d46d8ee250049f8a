"""Reading back: a view's live keys and the last committed frontier, from a sink's own topics.

Invariant: it reads committed records only, up to the stable end of the moment it began, within a bounded time. The sink calls
it at `open`, before it replaces a view, and after a lost answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.connectors.kafka import topic_watcher
from headrace.connectors.kafka.client import Raise, client

_MARKERS = 5.0
_FIRST_PAUSE, _PAUSE = 0.0005, 0.02
_STEP = 200
"""How many offsets back the search for a frontier begins; it doubles until one is found."""


class Readback:
    """Reads topics of the sink's own cluster. `patience`: seconds without any progress after which it gives up."""

    def __init__(self, settings: Mapping[str, Any], admin: AdminClient, error: Raise, patience: float) -> None:
        self._settings = {
            "group.id": "headrace-readback",  # never joined, nothing is committed to it
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 10,  # the end is known when a fetch comes back with nothing
            **settings,
        }
        self._admin, self._error, self._patience = admin, error, patience

    def _bounds(self, topic: str, partition: int, committed: bool = True) -> tuple[int, int]:
        tp = (topic, partition)
        low = topic_watcher.offsets(self._admin, [tp], end=False, timeout=self._patience)
        high = topic_watcher.offsets(self._admin, [tp], end=True, timeout=self._patience, committed=committed)
        return low[tp], high[tp]

    def _messages(self, topic: str, partition: int, start: int, end: int, committed: bool = True) -> Iterator[Any]:
        """Messages of [start, end)."""
        if start >= end:
            return
        level = "read_committed" if committed else "read_uncommitted"
        consumer = client(Consumer, {**self._settings, "isolation.level": level}, self._error)
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            progress = time.monotonic()
            while True:
                for message in consumer.consume(1, 0.05) + consumer.consume(10_000, 0):
                    progress = time.monotonic()
                    if message.error() is None and message.offset() < end:
                        yield message
                [at] = consumer.position([TopicPartition(topic, partition)])
                if at.offset >= end:
                    return
                if time.monotonic() - progress > self._patience:
                    raise self._error(
                        "a topic cannot be read back", hint="is Kafka in order?", topic=topic, offset=start
                    )
        finally:
            consumer.close()

    def live(
        self, topic: str, partitions: int, ends: Mapping[int, int], keep: Callable[[bytes], Any]
    ) -> dict[bytes, Any]:
        """What `keep` makes of the newest value of every key that is not deleted.

        `ends`: up to where the topic is known to be committed. A commit is answered before its markers stand in every
        partition, so a reader that asked for the stable end too early would miss it: it is waited for.
        """
        found: dict[bytes, Any] = {}
        for partition in range(partitions):
            low, high = self._bounds(topic, partition)
            deadline = time.monotonic() + self._patience
            while high < ends.get(partition, 0):
                if time.monotonic() > deadline:
                    raise self._error("a commit does not become visible", hint="is Kafka in order?", topic=topic)
                time.sleep(0.005)
                low, high = self._bounds(topic, partition)
            for message in self._messages(topic, partition, low, high):
                key, value = message.key(), message.value()
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = keep(value)
        return found

    def went_back(self, topic: str, partitions: int, ends: Mapping[int, int]) -> bool:
        """Whether the topic ends before what was committed to it: it was made anew, or its log was cut."""
        return any(self._bounds(topic, p, committed=False)[1] < ends.get(p, 0) for p in range(partitions))

    def left_open(self, sizes: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """Where a transaction that is there now stays open, by topic and partition, though none of ours is: `sizes` by topic.
        Seconds may go by until the markers of one that has ended stand in every replica, no more.
        """
        places = [(topic, partition) for topic, size in sizes.items() for partition in range(size)]
        deadline = time.monotonic() + _MARKERS
        ends = topic_watcher.offsets(self._admin, places, end=True, timeout=self._patience)
        while True:
            stable = topic_watcher.offsets(self._admin, places, end=True, timeout=self._patience, committed=True)
            found = {place: at for place, at in stable.items() if at < ends[place]}
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(_PAUSE)

    def is_shown(self, topic: str, end: int) -> bool:
        """Whether readers come to see the record before `end` of a topic's one partition, whose transaction was committed, within
        the time of `left_open`: before one marker it is seen, before more it may have been aborted by who took over.
        """
        place, deadline, pause = (topic, 0), time.monotonic() + _MARKERS, _FIRST_PAUSE
        while True:
            [high] = topic_watcher.offsets(
                self._admin, [place], end=True, timeout=self._patience, committed=True
            ).values()
            if high > end:
                return high == end + 1 or any(True for _ in self._messages(*place, end - 1, end))
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE)

    def any_record(self, topic: str, partitions: int) -> bool:
        """Whether the topic holds a committed record."""
        for partition in range(partitions):
            low, high = self._bounds(topic, partition)
            for _ in self._messages(topic, partition, low, high):
                return True
        return False

    def records(self, topic: str, start: int = 0, *, committed: bool = True) -> Iterator[Any]:
        """Every message of a topic of one partition, from `start` on."""
        low, high = self._bounds(topic, 0, committed)
        yield from self._messages(topic, 0, max(low, start), high, committed)

    def last(self, topic: str, key: bytes, committed: bool = True) -> dict[str, Any] | None:
        """The newest record of `key`, decoded; the topic is searched from its end backwards."""
        low, high = self._bounds(topic, 0, committed)
        end, step = high, _STEP
        while end > low:
            start = max(low, end - step)
            found = None
            for message in self._messages(topic, 0, start, end, committed):
                if message.key() == key and message.value() is not None:
                    found = message.value()
            if found is not None:
                decoded: dict[str, Any] = orjson.loads(found)
                return decoded
            end, step = start, step * 4
        return None


def is_fenced(error: KafkaError) -> bool:
    """Whether the broker told us that another producer of our transactional.id has taken over."""
    return error.code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
    )


def unreachable(failure: KafkaException) -> bool:
    """Whether nothing was said but that the broker did not answer in time."""
    return failure.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
