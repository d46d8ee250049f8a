"""confluent_kafka's clients as our connectors use them, on the broker in memory: the connectors' own code runs on them unchanged.

Always: each call goes through the calling process's door first, so that it can be cut, lose its answer, or be the last one.
What is asked while the broker is down fails as the library says it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from headrace.connectors.dead_letters import DeadLetter, DeadLetterError, MemoryDeadLetterQueue
from headrace.connectors.kafka import topic_watcher
from tests.sim.broker import Broker, FencedProducer, Headers, NoTransaction, Partition, Record

LATEST = type(OffsetSpec.latest())
FETCHED = (5, 50, 5000)
"""How many records a fetch may bring: a broker gives what it has at hand, of any partition first."""


class Line(Protocol):
    """A process's connection to the broker. `lost` says of one call what is lost: "" nothing, "request", "answer", or
    "late" (the request arrives, but later, and nobody hears of it)."""

    broker: Broker
    draw: random.Random

    def door(self, name: str) -> None: ...

    def lost(self, name: str) -> str: ...

    def later(self, what: Callable[[], None]) -> None: ...

    def told(self, positions: Mapping[str, Mapping[int, int]]) -> None: ...

    def now(self) -> float: ...


def gone(text: str = "the broker does not answer") -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TRANSPORT, text))


@dataclass(frozen=True)
class Message:
    """A record as a consumer gives it, or that there is none."""

    _topic: str
    _partition: int
    _record: Record
    _error: KafkaError | None = None

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._record.offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> Headers:
        return self._record.headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def error(self) -> KafkaError | None:
        return self._error

    def leader_epoch(self) -> int:
        """There is one leader for ever."""
        return 0


class _Answer:
    """A future that is done, once that was asked `after` times; who waits for it has it at once."""

    def __init__(self, value: Any = None, error: KafkaException | None = None, *, after: int = 0) -> None:
        self._value, self._error, self._after = value, error, after

    def done(self) -> bool:
        self._after -= 1
        return self._after < 0

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class Clients:
    """Makes clients for whoever is running: `line()` is the running process's connection."""

    def __init__(self, line: Callable[[], Line]) -> None:
        self.line = line

    def consumer(self, settings: Mapping[str, Any], **_: Any) -> Consumer:
        return Consumer(self.line(), settings)

    def producer(self, settings: Mapping[str, Any], **_: Any) -> Producer:
        return Producer(self.line(), settings)

    def admin(self, _settings: Mapping[str, Any], **_more: Any) -> Admin:
        return Admin(self.line())


class Consumer:
    """Reads partitions that it was assigned."""

    def __init__(self, line: Line, settings: Mapping[str, Any]) -> None:
        self._line = line
        self._committed = settings["isolation.level"] == "read_committed"
        self._at: dict[tuple[str, int], int] = {}
        self._tells_ends = settings.get("enable.partition.eof", False)
        self._started: set[tuple[str, int]] = set()
        self._told: dict[tuple[str, int], int] = {}

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self._at = {(p.topic, p.partition): p.offset for p in places}

    def incremental_assign(self, places: Iterable[TopicPartition]) -> None:
        self._at |= {(p.topic, p.partition): p.offset for p in places}

    def consume(self, count: int, timeout: float = 0.0) -> list[Message]:
        self._line.door("kafka fetch")
        if not self._line.broker.up:
            self._line.door("kafka wait")
            return []
        found: list[Message] = []
        count = min(count, self._line.draw.choice(FETCHED))
        places = sorted(self._at)
        self._line.draw.shuffle(places)
        for place in places:
            if len(found) >= count:
                break
            topic = self._line.broker.topics.get(place[0])
            if topic is None:
                continue
            records, self._at[place] = topic.partitions[place[1]].read(
                self._at[place], count - len(found), self._committed
            )
            self._started.add(place)
            found += [Message(*place, r) for r in records]
            found += self._end(place, topic.partitions[place[1]])
        return found

    def _end(self, place: tuple[str, int], partition: Partition) -> list[Message]:
        """That a partition is read up to where it may be, once."""
        at = self._at[place]
        if not self._tells_ends or at < (partition.stable if self._committed else partition.end):
            return []
        told, self._told[place] = self._told.get(place), at
        return [] if told == at else [Message(*place, Record(at, None, None, 0), KafkaError(KafkaError._PARTITION_EOF))]

    def position(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        at = {place: self._at[place] for place in self._started}
        return [TopicPartition(p.topic, p.partition, at.get((p.topic, p.partition), -1001)) for p in places]

    def get_watermark_offsets(self, place: TopicPartition, cached: bool = False) -> tuple[int, int]:
        partition = self._line.broker.partition((place.topic, place.partition))
        return partition.low, partition.end

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool = True) -> None:
        self._line.door("kafka commit offsets")
        told: dict[str, dict[int, int]] = {}
        for o in offsets:
            told.setdefault(o.topic, {})[o.partition] = o.offset
            self._line.broker.committed[o.topic, o.partition] = o.offset
        self._line.told(told)

    def close(self) -> None:
        self._at = {}


class Producer:
    """A transactional producer; what it sends stands in its own queue until it is flushed."""

    def __init__(self, line: Line, settings: Mapping[str, Any]) -> None:
        self._line, self._name = line, settings["transactional.id"]
        self._epoch, self._failed = -1, False
        self._queue: list[tuple[Any, ...]] = []

    def _ask(self, name: str) -> str:
        self._line.door(name)
        if not self._line.broker.up:
            raise gone()
        return self._line.lost(name)

    def _fenced(self) -> KafkaException:
        return KafkaException(KafkaError(KafkaError._FENCED, "a newer producer is there", True))

    def init_transactions(self, timeout: float) -> None:
        lost = self._ask("kafka init")
        if lost == "request":
            raise gone()
        self._epoch = self._line.broker.init(self._name)
        if lost:
            raise gone()

    def begin_transaction(self) -> None:
        self._line.door("kafka begin")
        self._queue = []

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int = -1, headers: Headers = None,
        on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
    ) -> None:  # fmt: skip
        self._queue.append((topic, max(partition, 0), key, value, headers, on_delivery))

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        queue, self._queue = self._queue, []
        broker = self._line.broker
        for topic, partition, key, value, headers, told in queue:
            try:
                lost = self._ask("kafka send")
                offset = -1
                if lost in ("", "answer"):
                    offset = broker.send(self._name, self._epoch, (topic, partition), key, value, headers)
            except FencedProducer:
                raise self._fenced() from None
            failed = KafkaError(KafkaError._MSG_TIMED_OUT, "the message was not acknowledged") if lost else None
            self._failed |= bool(lost)
            if told is not None:
                told(failed, Message(topic, partition, Record(offset, key, value, 0)))
        return 0

    def _end(self, commit: bool) -> None:
        lost = self._ask("kafka end")
        if lost in ("request", "late"):
            if lost == "late":
                self._line.later(lambda: self._arrives(commit))
            raise gone("the answer is lost")
        try:
            self._line.broker.end(self._name, self._epoch, commit)
        except FencedProducer:
            raise self._fenced() from None
        except NoTransaction:
            if not commit:
                return
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "no transaction", True)) from None
        if lost:
            raise gone("the answer is lost")

    def _arrives(self, commit: bool) -> None:
        try:
            self._line.broker.end(self._name, self._epoch, commit)
        except (FencedProducer, NoTransaction):
            return

    def commit_transaction(self, timeout: float) -> None:
        self._failed = False
        self.flush(timeout)
        if self._failed:
            raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "a message failed", False, False, True))
        self._end(commit=True)

    def abort_transaction(self, timeout: float) -> None:
        self._queue = []
        self._end(commit=False)

    def purge(self) -> None:
        self._queue = []


class Admin:
    """Asks about topics, and makes them."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def _ask(self) -> Broker:
        self._line.door("kafka ask")
        if not self._line.broker.up or self._line.lost("kafka ask"):
            raise gone()
        return self._line.broker

    def poll(self, timeout: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> Any:
        topics = self._ask().topics
        return SimpleNamespace(
            topics={n: SimpleNamespace(error=None, partitions=dict(enumerate(t.partitions))) for n, t in topics.items()}
        )

    def list_offsets(
        self, asked: Mapping[TopicPartition, Any], isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[TopicPartition, _Answer]:
        broker = self._ask()
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        found = {}
        for place, spec in asked.items():
            partition = broker.partition((place.topic, place.partition))
            end = partition.stable if committed else partition.end
            offset = end if isinstance(spec, LATEST) else partition.low
            found[place] = _Answer(SimpleNamespace(offset=offset), after=broker.late())
        return found

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, _Answer]:
        there = self._ask().topics
        return {n: _Answer(SimpleNamespace(topic_id=there[n].id)) for n in topics.topic_names if n in there}

    def create_topics(self, topics: Sequence[Any], **_: Any) -> dict[str, _Answer]:
        broker = self._ask()
        for topic in topics:
            broker.create(topic.topic, topic.num_partitions, topic.config)
        return {topic.topic: _Answer() for topic in topics}

    def describe_configs(self, asked: Sequence[Any], request_timeout: float) -> dict[Any, _Answer]:
        topics = self._ask().topics
        policy = {r: topics[r.name].config.get("cleanup.policy", "delete") for r in asked}
        return {r: _Answer({"cleanup.policy": SimpleNamespace(value=value)}) for r, value in policy.items()}


class DeadLetters(MemoryDeadLetterQueue):
    """A process's way to the dead letters `kept`, which outlive it; the request to keep some, or its answer, may be lost."""

    def __init__(self, line: Line, kept: MemoryDeadLetterQueue) -> None:
        super().__init__()
        self._line, self._outside = line, kept

    def keep(self, letters: Sequence[DeadLetter]) -> None:
        """See `DeadLetterQueue.keep`."""
        self._line.door("letters keep")
        lost = self._line.lost("letters keep") if self._line.broker.up else "request"
        if lost in ("", "answer"):
            self._outside.keep(letters)
        if lost:
            raise DeadLetterError("the dead letters cannot be kept")


class Watcher(topic_watcher.Watcher):
    """The product's own, but that it looks when it is asked, and not on a thread."""

    line: Line
    _next_look = 0.0

    def start(self) -> None:
        self._next_look = topic_watcher.time.monotonic() + self._every

    def take(self) -> topic_watcher.Findings | None:
        if topic_watcher.time.monotonic() >= self._next_look:
            self._next_look = topic_watcher.time.monotonic() + self._every
            try:
                self._look()
                self._answered = topic_watcher.time.monotonic()
            except KafkaException:
                pass
        return super().take()
