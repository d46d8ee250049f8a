"""Kafka as a source: every partition of the wanted topics, assigned by us, from positions that we keep.

Always: only committed messages are handed out, in offset order per partition, each once between two `open`s. A break of
continuity (a position out of range, a topic deleted or created anew) is raised after everything before it was handed
out. Single user: the sidecar's intake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, pairwise
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.connectors.changes import MessageBatch
from headrace.connectors.kafka import topic_watcher
from headrace.connectors.kafka.client import Reasons, admin, client, merged
from headrace.connectors.kafka.end_offsets import Ends
from headrace.connectors.source import Positions, SourceError

_OWNED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
}
_DEFAULTS = {
    "fetch.wait.max.ms": 100,  # also how long a partition found later may wait for a fetch under way
    "fetch.min.bytes": 1,
    "fetch.queue.backoff.ms": 5,
    "fetch.error.backoff.ms": 50,
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "allow.auto.create.topics": False,
    "check.crcs": True,
}
_GONE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_FORBIDDEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
_CORRUPT = {KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG}
_RESYNC = "resync the tables of this topic: messages that were not read are lost to us"
_ANEW = "start with an empty state folder once the connector has made a new snapshot: messages that were not read are lost to us"


class KafkaSource:
    """Reads topics of one cluster. Give `topics` by name, or `wants` to choose among all there are and will be.

    `config`: librdkafka's settings, untouched. `group`: where `commit` shows positions to lag tools (default
    `headrace-<name>`). `mine`: which partitions are read, by topic and number (default: all). `wait_for_topics`: a topic of
    `topics` that is not there yet is awaited instead of refused. `reach`: seconds within which a broker must answer at `open`;
    `patience`: the same while running. `discover`: seconds between two looks for new topics. `batch`: most messages of one poll.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        wants: Callable[[str], bool] | None = None,
        topics: Sequence[str] | None = None,
        name: str = "kafka",
        group: str | None = None,
        mine: Callable[[str, int], bool] | None = None,
        wait_for_topics: bool = False,
        reach: float = 10.0,
        patience: float = 60.0,
        discover: float = 1.0,
        batch: int = 10_000,
    ) -> None:
        if (wants is None) == (topics is None):
            raise ValueError("give either wants or topics")
        self.name = name
        self._topics = tuple(topics or ())
        named = frozenset(self._topics)
        self._wants: Callable[[str], bool] = wants if wants is not None else named.__contains__
        self._mine: Callable[[str, int], bool] = mine or (lambda _topic, _partition: True)
        self._wait_for_topics = wait_for_topics
        self._reach, self._patience, self._discover, self._batch = reach, patience, discover, batch
        defaults = {**_DEFAULTS, "client.id": f"headrace-{name}", "group.id": group or f"headrace-{name}"}
        self._settings = merged(config, _OWNED, defaults, self._error)
        self._reasons = Reasons()
        self._consumer: Consumer | None = None
        self._admin: AdminClient | None = None
        self._watcher: topic_watcher.Watcher | None = None
        self._next: dict[tuple[str, int], int] = {}
        self._given: dict[tuple[str, int], int] = {}
        """Before where all was given by `poll`: a position may be ahead of it, as others ask for that while it polls."""
        self._asked: list[TopicPartition] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._readable: dict[tuple[str, int], int] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._cut: set[tuple[str, int]] = set()
        self._ids: dict[str, str] = {}
        self._failures: deque[SourceError] = deque()

    def _error(self, what: str, *, hint: str = "", **where: object) -> SourceError:
        return SourceError(what, hint=hint, source=self.name, **where)

    def open(self, positions: Positions) -> None:
        """See `Source.open`. A broker that is not there is known within `reach` seconds."""
        self.close()
        consumer = client(Consumer, {**self._settings, "error_cb": self._reasons}, self._error)
        self._consumer = consumer
        self._admin = admin(self._settings, self._error, self._reasons)
        try:
            there, others = topic_watcher.topics_there(self._admin, self._wants, self._reach)
            self._check_topics(there, positions)
            every = [(topic, p) for topic, count in there.items() for p in range(count) if self._mine(topic, p)]
            low = topic_watcher.offsets(self._admin, every, end=False, timeout=self._reach)
            high = topic_watcher.offsets(self._admin, every, end=True, timeout=self._reach)
            ids = topic_watcher.topic_ids(self._admin, there, self._reach)
        except KafkaException as failure:
            self.close()
            raise self._unreachable(failure.args[0].str()) from failure
        except SourceError:
            self.close()
            raise
        self._next = self._starts(positions, low, high)
        self._given = dict(self._next)
        self._ends = dict(high)
        self._ids = dict(ids)
        consumer.assign([TopicPartition(t, p, o) for (t, p), o in self._next.items()])
        self._watcher = topic_watcher.Watcher(self._admin, self._wants, there, others, ids, self._discover)
        self._watcher.start()

    def _check_topics(self, there: Mapping[str, int], positions: Positions) -> None:
        for topic, by_partition in positions.items():
            if self._wants(topic) and (topic not in there or max(by_partition, default=0) >= there[topic]):
                raise self._error(
                    "the topic, or a partition of it, that was read before is gone", hint=_ANEW, topic=topic
                )
        missing = [t for t in self._topics if t not in there]
        if missing and not self._wait_for_topics:
            raise self._error(
                "the topic is not there",
                hint="create it, correct its name, or look whether the connector that fills it is running",
                topic=", ".join(missing),
            )

    def _starts(
        self, positions: Positions, low: Mapping[tuple[str, int], int], high: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        starts = {}
        for (topic, partition), first in low.items():
            start = positions.get(topic, {}).get(partition, first)
            if not first <= start <= high[topic, partition]:
                error = self._out_of_range(topic, partition, start, first, high[topic, partition])
                self.close()
                raise error
            starts[topic, partition] = start
        return starts

    def _out_of_range(self, topic: str, partition: int, offset: int, low: int | None, high: int | None) -> SourceError:
        recreated = high is not None and offset > high
        return self._error(
            "the topic ends before the position: it was made anew or its log was cut"
            if recreated
            else "the next message is no longer there: retention removed it before it was read",
            hint=_RESYNC if high is None else _ANEW, topic=topic, partition=partition, offset=offset, low=low, high=high,
        )  # fmt: skip

    def _unreachable(self, reason: str = "") -> SourceError:
        return self._error(
            f"no broker answers{self._reasons.describe() or (f': {reason}' if reason else '')}",
            hint="start Kafka, or correct bootstrap.servers and the security settings",
            brokers=self._settings["bootstrap.servers"],
        )

    def poll(self, timeout: float) -> Sequence[MessageBatch]:
        """See `Source.poll`. After a SourceError that names a topic, polling may go on for the other topics."""
        consumer, watcher = self._consumer, self._watcher
        if consumer is None or watcher is None:
            raise self._error("the source is not open")
        if self._failures:
            raise self._failures.popleft()
        found = watcher.take()
        if found is not None:
            self._adopt(found)
        # consume(n, timeout) waits out its time unless n messages came: wait for one, then take what is there
        messages = consumer.consume(1, timeout)
        if messages:
            messages += consumer.consume(self._batch - 1, 0)
        elif watcher.silent_for > self._patience:
            raise self._unreachable()
        errors = list(map(Message.error, messages))
        told: list[Message] = []
        if any(errors):
            told = [message for message, error in zip(messages, errors, strict=True) if error is not None]
            messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
        runs = _runs(messages)
        given = [self._messages(*place, run) for place, run in runs.items() if not self._is_cut_back(place, run)]
        for message in told:  # after what came with it, some of which is before an end
            if not self._is_end(message):
                self._fail(message)
        if not messages and self._failures:
            raise self._failures.popleft()
        return [some for some in given if len(some)]

    def _is_end(self, message: Message) -> bool:
        """Whether this says that a partition is read up to where it may be: gaps before that hold nothing any more."""
        error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
        if error is None or error.code() != KafkaError._PARTITION_EOF:
            return False
        assert topic is not None and partition is not None and offset is not None, "an end is of a place"  # noqa: PT018
        self._readable[topic, partition] = self._next[topic, partition] = max(self._next[topic, partition], offset)
        return True

    def _is_cut_back(self, place: tuple[str, int], run: Sequence[Message]) -> bool:
        """Whether messages come from a leader older than that of the last ones, which it lacked: told once, and none given."""
        epoch, known = run[-1].leader_epoch(), self._leaders.get(place, -1)
        if epoch is None or epoch >= known:
            self._leaders[place] = known if epoch is None else epoch
            return False
        if place not in self._cut:
            self._cut.add(place)
            self._failures.append(self._error(
                "the log was cut back: a leader took over that lacked what was read", hint=_RESYNC, topic=place[0],
                partition=place[1], offset=self._next.get(place), leader_epoch=epoch, before=known,
            ))  # fmt: skip
        return True

    def _messages(self, topic: str, partition: int, run: Sequence[Message]) -> MessageBatch:
        """What a run has that was not given before: once partitions were assigned to it that are new, librdkafka may fetch others
        again from an earlier offset (its issue 4686), and rows of a snapshot are counted."""
        # `map` over the type's own methods: several calls a message, none of them through Python
        offsets = np.array(list(map(Message.offset, run)), np.int64)
        place = topic, partition
        given = np.maximum.accumulate(np.concatenate(([self._given[place] - 1], offsets[:-1])))
        self._given[place] = max(int(given[-1]), int(offsets[-1])) + 1
        self._next[place] = max(self._next[place], self._given[place])
        if not (fresh := offsets > given).all():
            run, offsets = list(compress(run, fresh)), offsets[fresh]
        return MessageBatch(
            topic,
            partition,
            offsets,
            list(map(Message.key, run)),
            list(map(Message.value, run)),
            np.array([stamp for _, stamp in map(Message.timestamp, run)], np.int64),
        )

    def _adopt(self, found: topic_watcher.Findings) -> None:
        """Read what is new from its beginning; complain of what is gone."""
        fresh = {tp: offset for tp, offset in found.begin.items() if tp not in self._next and self._mine(*tp)}
        if fresh and self._consumer is not None:
            self._consumer.incremental_assign([TopicPartition(t, p, o) for (t, p), o in fresh.items()])
            self._given.update(fresh)
            self._next.update(fresh)
        for topic, id_ in found.ids.items():
            self._ids.setdefault(topic, id_)
        read = {topic for topic, _ in self._next}
        for topic in (t for t in found.gone if t in read):
            self._failures.append(self._error("the topic was deleted while it was read", hint=_RESYNC, topic=topic))
        for topic in (t for t in found.recreated if t in read):
            self._failures.append(self._error("the topic was deleted and made anew", hint=_RESYNC, topic=topic))

    def _fail(self, message: Any) -> None:
        """Keep what an error of one partition means; what mends itself (a leader moves) is left to librdkafka."""
        error, topic, partition = message.error(), message.topic(), message.partition()
        offset = self._next.get((topic, partition)) if topic is not None else None
        where = {"topic": topic, "partition": partition, "offset": offset}
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._failures.append(self._out_of_range(topic, partition, offset or 0, None, None))
        elif error.code() == KafkaError._LOG_TRUNCATION:
            self._failures.append(
                self._error("the log was cut back: a leader took over that lacked what was read", hint=_RESYNC, **where)
            )
        elif error.code() in _GONE:
            self._failures.append(self._error("the topic is gone", hint=_RESYNC, **where))
        elif error.code() in _FORBIDDEN:
            self._failures.append(
                self._error("Kafka forbids reading", hint="grant READ and DESCRIBE on topic and group", **where)
            )
        elif error.code() in _CORRUPT:
            self._failures.append(self._error(f"a record is damaged: {error.str()}", hint=_RESYNC, **where))
        elif error.fatal():
            self._failures.append(self._error(f"Kafka's client gave up: {error.str()}", hint="restart", **where))
        else:
            self._reasons(error)

    def rest(self) -> Sequence[MessageBatch]:
        """See `Source.rest`: nothing is decoded before it is polled."""
        return ()

    def positions(self) -> Positions:
        """See `Source.positions`."""
        if self._consumer is not None and self._next:
            if len(self._asked) != len(self._next):
                self._asked = [TopicPartition(t, p) for t, p in self._next]
            for asked, at in zip(self._asked, self._consumer.position(self._asked), strict=True):
                # before its first message a partition has no position of its own: it stands where it was put
                place, offset = (asked.topic, asked.partition), at.offset
                if offset > self._next[place]:
                    self._next[place] = offset
        return _nested(self._next)

    def high_watermarks(self) -> Positions:
        """See `Source.high_watermarks`; of a partition not fetched from yet, its end when the source was opened."""
        ends = dict(self._ends)
        if self._consumer is not None:
            for topic, partition in self._next:
                found = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
                if found is not None and found[1] >= 0:
                    ends[topic, partition] = found[1]
        return _nested(ends)

    def at_end(self) -> bool:
        """See `Source.at_end`; a partition that was just found, and not fetched from yet, has an end that nobody knows."""
        here, ends = self.positions(), self.high_watermarks()
        return all(
            offset >= ends.get(topic, {}).get(partition, offset + 1) or offset == self._readable.get((topic, partition))
            for topic, partitions in here.items()
            for partition, offset in partitions.items()
        )

    def look(self, topic: str) -> Callable[[], bool]:
        """See `Source.look`."""
        if self._admin is None:
            raise self._error("the source is not open")
        ends = Ends(self._admin, [place for place in self._next if place[0] == topic])

        def passed() -> bool:
            there = ends.told()
            here = {} if there is None else self.positions().get(topic, {})
            return there is not None and all(here.get(p, 0) >= end for (_, p), end in there.items())

        return passed

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source.topic_ids`; none from a broker that gives none."""
        return dict(self._ids)

    def others(self) -> frozenset[str]:
        """See `Source.others`."""
        return self._watcher.others if self._watcher is not None else frozenset()

    def silent_for(self) -> float:
        """See `Source.silent_for`."""
        return self._watcher.silent_for if self._watcher is not None else 0.0

    def commit(self, positions: Positions) -> None:
        """See `Source.commit`."""
        told = [TopicPartition(t, p, o) for t, by_partition in positions.items() for p, o in by_partition.items()]
        if self._consumer is not None and told:
            try:
                self._consumer.commit(offsets=told, asynchronous=True)
            except KafkaException as failure:
                self._reasons(failure.args[0])  # only lag tools read it: nothing depends on it

    def close(self) -> None:
        """See `Source.close`."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        self._admin = None
        self._next.clear()
        self._given.clear()
        self._readable.clear()
        self._leaders.clear()
        self._cut.clear()
        self._asked.clear()
        self._failures.clear()


def _runs(messages: list[Message]) -> dict[tuple[Any, Any], list[Message]]:
    """The messages by topic and partition, in the order in which they came; neighbours are mostly of one partition."""
    topics, partitions = list(map(Message.topic, messages)), list(map(Message.partition, messages))
    pairs = enumerate(zip(topics, topics[1:], partitions, partitions[1:], strict=False), 1)
    edges = [i for i, (topic, following, partition, other) in pairs if partition != other or topic != following]
    runs: dict[tuple[Any, Any], list[Message]] = {}
    for start, stop in pairwise([0, *edges, len(messages)] if messages else ()):
        place = (topics[start], partitions[start])
        found = runs.get(place)
        if found is None:
            runs[place] = messages[start:stop]
        else:
            found += messages[start:stop]
    return runs


def _nested(flat: Mapping[tuple[str, int], int]) -> Positions:
    nested: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in flat.items():
        nested.setdefault(topic, {})[partition] = offset
    return nested
