"""What a broker says while a leader moves is waited out; anything else is told."""

from __future__ import annotations

import gc
import sys
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.connectors.kafka import topic_watcher
from headrace.connectors.kafka.topic_watcher import Watcher, offsets


class Broker:
    """Refuses with each of `codes` once, and then answers with an offset."""

    def __init__(self, *codes: int) -> None:
        self.codes = deque(codes)

    def list_offsets(self, asked: dict[Any, Any], **_: object) -> dict[Any, Any]:
        code = self.codes.popleft() if self.codes else None

        def result() -> Any:
            if code is not None:
                raise KafkaException(KafkaError(code))
            return SimpleNamespace(offset=7)

        return {at: SimpleNamespace(result=result) for at in asked}


def test_a_leader_that_moves_is_waited_for() -> None:
    """Found by freezing sidecars: a start on a busy broker ended with "Leader epoch is older than broker epoch"."""
    broker: Any = Broker(
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,
    )
    assert offsets(broker, [("t", 0)], end=True, timeout=5.0) == {("t", 0): 7}


@pytest.mark.parametrize(
    ("code", "timeout"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, 5.0), (KafkaError.FENCED_LEADER_EPOCH, 0.0)]
)
def test_what_does_not_pass_is_told(code: int, timeout: float) -> None:
    broker: Any = Broker(*[code] * 3)
    with pytest.raises(KafkaException):
        offsets(broker, [("t", 0)], end=True, timeout=timeout)


@pytest.mark.parametrize(("took", "least", "most"), [(1000.0, 1.0, 20.0), (6.0, 600.0, 1000.0)], ids=["frozen", "away"])
def test_time_in_which_nobody_asked_is_no_silence_of_the_brokers(
    monkeypatch: pytest.MonkeyPatch, took: float, least: float, most: float
) -> None:
    """A process that was frozen for longer than its patience does not end when it goes on."""
    looks = [took] + [6.0] * (0 if took > 100 else 99)
    now = 0.0
    monkeypatch.setattr(topic_watcher, "time", SimpleNamespace(monotonic=lambda: now))

    def refuse(*_: object, **__: object) -> Any:
        nonlocal now
        now += looks.pop()
        if not looks:
            watcher._over.set()
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(topic_watcher, "topics_there", refuse)
    broker: Any = None
    watcher = Watcher(broker, lambda _: True, {}, frozenset(), {}, 1e-4)
    watcher.run()
    assert least <= watcher.silent_for <= most


def test_looking_for_topics_again_and_again_keeps_nothing(kafka: str, unique: str) -> None:
    """Found by a soak: the library kept every topic id that it ever gave. A library that does so no more, or another way,
    must not make us let go of what others hold."""
    admin = AdminClient({"bootstrap.servers": kafka})
    names = [f"{unique}.{i}" for i in range(3)]
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(30)
    first = topic_watcher.topic_ids(admin, names, 30.0)
    assert len(set(first.values())) == 3

    def held() -> int:
        gc.collect()
        return sum(type(one) is Uuid for one in gc.get_objects())

    before = held()
    for _ in range(10):
        assert topic_watcher.topic_ids(admin, names, 30.0) == first
    assert held() - before < 10, "each look left one for each topic"
    described = [SimpleNamespace(topic_id=Uuid(1, at)) for at in range(20)]
    texts = [topic_watcher._id_of(one) for one in described]
    assert texts == [str(one.topic_id) for one in described]
    assert all(sys.getrefcount(one.topic_id) == 2 for one in described)
