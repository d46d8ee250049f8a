"""The topic watcher: a thread that looks for new topics and partitions, so that the reading thread never waits for metadata.

Invariant: `take` hands its findings over in order, and it never touches the consumer. The source starts and stops it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

_SETTLING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._NOENT,
}
"""What a broker says of a topic made a moment ago, or while a leader moves; the client's own: it knows no leader yet."""

Partitions = Mapping[str, int]
"""topic → how many partitions it has."""


@dataclass
class Findings:
    """What changed since the last `take`: partitions with the offset they begin at, topics gone or made anew.

    `ids`: of the topics that are new.
    """

    begin: dict[tuple[str, int], int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    recreated: list[str] = field(default_factory=list)


def topics_there(
    admin: AdminClient, wants: Callable[[str], bool], timeout: float
) -> tuple[dict[str, int], frozenset[str]]:
    """The wanted topics and their partitions, and the names of the others.

    Raises KafkaException when no broker answers in time.
    """
    found, others = {}, set()
    for name, topic in admin.list_topics(timeout=timeout).topics.items():
        if not wants(name):
            others.add(name)
        elif topic.error is None:
            found[name] = len(topic.partitions)
    return found, frozenset(others)


def offsets(
    admin: AdminClient, partitions: Iterable[tuple[str, int]], end: bool, timeout: float, committed: bool = False
) -> dict[tuple[str, int], int]:
    """Beginnings (or ends, of what is committed) of partitions, in one request a broker. Raises KafkaException."""
    spec = OffsetSpec.latest() if end else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not asked:
        return {}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    deadline = time.monotonic() + timeout
    while True:
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=timeout)
        try:
            return {(tp.topic, tp.partition): answer.result().offset for tp, answer in answers.items()}
        except KafkaException as failure:
            if failure.args[0].code() not in _SETTLING or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def topic_ids(admin: AdminClient, topics: Iterable[str], timeout: float) -> dict[str, str]:
    """The id that a topic was given when it was made; a broker without ids gives none. Raises KafkaException."""
    asked = list(topics)
    if not asked:
        return {}
    ids = {}
    for name, answer in admin.describe_topics(TopicCollection(asked), request_timeout=timeout).items():
        try:
            ids[name] = _id_of(answer.result())
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return ids


_HOLDERS = 3
"""Who refers to an id: its description, we, and the call that counts."""


def _id_of(described: Any) -> str:
    """A topic's id as text. The library (2.16.1) never lets go of the ids that it gives: a hundred bytes a topic and look, for
    good. Where there is a reference more than there are holders it is given up here."""
    id_ = described.topic_id
    text = str(id_)
    if isinstance(id_, Uuid) and sys.getrefcount(id_) > _HOLDERS:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(id_))
    return text


_LOOK_SECONDS = 5.0
"""How long a broker has for each of the three questions of a look."""


class Watcher(threading.Thread):
    """Asks every `every` seconds. `others`: the topics seen last that are not wanted. `silent_for`: seconds in which it asked
    and no broker answered; while the process was frozen nobody asked."""

    def __init__(
        self,
        admin: AdminClient,
        wants: Callable[[str], bool],
        known: Partitions,
        others: frozenset[str],
        ids: Mapping[str, str],
        every: float,
    ) -> None:
        super().__init__(name="headrace-kafka-discovery", daemon=True)
        self._admin, self._wants, self._every = admin, wants, every
        self._known, self._ids = dict(known), dict(ids)
        self.others = others
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._found = Findings()
        self.silent_for = 0.0

    def take(self) -> Findings | None:
        """What was found since the last call."""
        if not (self._found.begin or self._found.gone or self._found.recreated):
            return None
        with self._lock:
            found, self._found = self._found, Findings()
        return found

    def run(self) -> None:
        """Look until stopped; a broker that does not answer is asked again."""
        begun = time.monotonic()
        while not self._over.wait(self._every):
            try:
                self._look()
                self.silent_for = 0.0
            except KafkaException:
                self.silent_for += min(time.monotonic() - begun, self._every + 3 * _LOOK_SECONDS)
            begun = time.monotonic()

    def _look(self) -> None:
        there, self.others = topics_there(self._admin, self._wants, timeout=_LOOK_SECONDS)
        ids = topic_ids(self._admin, there, timeout=_LOOK_SECONDS)
        fresh = [(t, p) for t, n in there.items() for p in range(self._known.get(t, 0), n)]
        begin = offsets(self._admin, fresh, end=False, timeout=_LOOK_SECONDS)
        with self._lock:
            self._found.begin.update(begin)
            self._found.ids.update({t: ids[t] for t, _ in fresh if t in ids})
            self._found.gone += [t for t in self._known if t not in there]
            self._found.recreated += [t for t, i in ids.items() if t in self._known and self._ids.get(t, i) != i]
            self._known, self._ids = there, ids

    def stop(self) -> None:
        """End the thread; waits for a question under way."""
        self._over.set()
        if self.is_alive():
            self.join(10.0)
