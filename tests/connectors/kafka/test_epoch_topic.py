"""The topic of epochs on a real broker: whole or not at all, one owner at a time, trimmed without a gap."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.connectors.kafka.epoch_topic import PIECE, KafkaEpochTopic
from headrace.connectors.sink import Fenced
from headrace.connectors.source import SourceError
from headrace.sidecar.epochs.reclock import Reclock
from headrace.sidecar.epochs.topic_log import TopicLog
from tests.sidecar.epochs.test_reclock import at, transaction
from tests.sidecar.support.batches import source_batch


def topic_of(kafka: str, unique: str, **more: Any) -> KafkaEpochTopic:
    config = {"bootstrap.servers": kafka}
    return KafkaEpochTopic(config, f"headrace.{unique}.epochs", sidecar=unique, replication=1, patience=15.0, **more)


class Lossy:
    """A producer whose next commit either happens or not, and whose answer is lost either way."""

    def __init__(self, inner: Any, happens: bool) -> None:
        self._inner, self._happens = inner, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit_transaction(self, timeout: float) -> None:
        (self._inner.commit_transaction if self._happens else self._inner.abort_transaction)(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer was lost"))


def test_what_was_appended_is_read_by_the_next_owner(kafka: str, unique: str) -> None:
    first = topic_of(kafka, unique)
    assert first.open() == (b"", 0)
    first.append(b"one\n")
    large = bytes(range(256)) * (3 * PIECE // 256) + b"\n"
    first.append(large)
    first.close()
    second = topic_of(kafka, unique)
    assert second.open() == (b"one\n" + large, 0)
    assert second.size == 4 + len(large)
    second.close()


def test_an_older_owner_is_fenced_and_what_it_wrote_last_is_not_there(kafka: str, unique: str) -> None:
    first = topic_of(kafka, unique)
    first.open()
    first.append(b"one\n")
    second = topic_of(kafka, unique)
    assert second.open() == (b"one\n", 0)
    with pytest.raises(Fenced, match="another run has taken over the log of epochs"):
        first.append(b"stale\n")
    second.append(b"two\n")
    with pytest.raises(Fenced):
        first.append(b"stale again\n")
    third = topic_of(kafka, unique)
    assert third.open() == (b"one\ntwo\n", 0)
    for each in (first, second, third):
        each.close()


@pytest.mark.parametrize("happens", [True, False])
def test_an_answer_that_was_lost_is_settled_by_reading_back(kafka: str, unique: str, happens: bool) -> None:
    topic = topic_of(kafka, unique)
    topic.open()
    topic.append(b"one\n")
    before: Any = topic._producer
    before._producer = Lossy(before._producer, happens)
    topic.append(b"two\n")
    assert topic._producer is not before
    topic.append(b"three\n")
    assert topic.read() == b"one\ntwo\nthree\n"
    topic.close()


def test_what_is_begun_anew_holds_that_alone(kafka: str, unique: str) -> None:
    topic = topic_of(kafka, unique)
    topic.open()
    for line in (b"one\n", b"two\n"):
        topic.append(line)
    topic.replace(b"two\n", 5)
    topic.append(b"three\n")
    topic.close()
    again = topic_of(kafka, unique)
    assert again.open() == (b"two\nthree\n", 5)
    messages = list(again._reader().records(again._topic))
    assert b"one\n" not in [m.value() for m in messages], "what lies before is deleted"
    again.close()


def test_a_topic_that_forgets_is_refused_by_name(kafka: str, unique: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": kafka})
    name = f"headrace.{unique}.epochs"
    [made] = admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "1000"})]).values()
    made.result()
    with pytest.raises(SourceError, match=r"would lose some of them .*retention\.ms=1000"):
        topic_of(kafka, unique).open()


def test_the_log_follows_what_it_bound_and_trims_it(kafka: str, unique: str) -> None:
    with ThreadPoolExecutor(1) as executor:
        log = TopicLog(topic_of(kafka, unique), executor)
        reclock = Reclock(log)
        for k in range(1, 9):
            reclock.bind(source_batch("a", [transaction(k, 10 * k)], at(k)))
        reclock.settle()
        log.forget(6, 1)
        log.close()
        again = TopicLog(topic_of(kafka, unique), executor, before=6)
        assert [b.first for b in again.bindings] == [6, 7, 8]
        assert list(again.past.transactions("a")) == [(5, 50)]
        follows = Reclock(again, 6)
        assert follows.replaying is not None
        [(binding, _)] = follows.bind(source_batch("a", [transaction(6, 60)], at(6)))
        assert binding.first == 6
        again.close()


def test_a_log_that_was_trimmed_beyond_the_checkpoint_is_begun_anew(kafka: str, unique: str) -> None:
    log = TopicLog(topic_of(kafka, unique))
    reclock = Reclock(log)
    for k in range(1, 9):
        reclock.bind(source_batch("a", [transaction(k, 10 * k)], at(k)))
    log.forget(6, 1)
    log.close()
    lost = TopicLog(topic_of(kafka, unique), before=1)
    assert (list(lost.bound), lost.bindings) == ([], [])
    lost.close()
    later = topic_of(kafka, unique)
    assert later.open() == (b"", 0)
    later.close()
