"""What only the Kafka source promises: settings that pass through, records, losses at run time, committed offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from headrace.connectors.kafka.source import KafkaSource, _runs
from headrace.connectors.kafka.topic_watcher import Findings
from headrace.connectors.source import SourceError, check_topic_ids
from tests.contracts.source import gather
from tests.contracts.test_kafka_source import KafkaSourceHarness


@pytest.fixture
def harness(kafka: str, unique: str) -> Iterator[KafkaSourceHarness]:
    made = KafkaSourceHarness(kafka, f"{unique}.")
    yield made
    made.close()


def poll_until_error(source: KafkaSource, timeout: float = 10.0) -> SourceError:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            source.poll(0.1)
        except SourceError as error:
            return error
    raise AssertionError("no error came")


def test_a_key_of_ours_is_refused_when_it_says_otherwise() -> None:
    with pytest.raises(SourceError, match=r"setting=isolation\.level"):
        KafkaSource({"bootstrap.servers": "x:1", "isolation.level": "read_uncommitted"}, wants=lambda _: True)
    KafkaSource({"bootstrap.servers": "x:1", "enable.auto.commit": "false"}, wants=lambda _: True)


def test_an_unknown_key_is_named_and_a_bad_value_is_not_shown() -> None:
    source = KafkaSource({"bootstrap.servers": "x:1", "no.such": "1"}, wants=lambda _: True)
    with pytest.raises(SourceError, match=r"no\.such"):
        source.open({})
    secret = KafkaSource({"bootstrap.servers": "x:1", "fetch.min.bytes": "hunter2"}, wants=lambda _: True)
    with pytest.raises(SourceError, match=r"setting=fetch\.min\.bytes") as told:
        secret.open({})
    assert "hunter2" not in str(told.value)


def test_messages_of_any_interleaving_are_told_apart_by_topic_and_partition() -> None:
    places = [("a", 0), ("a", 0), ("a", 1), ("b", 0), ("a", 0), ("b", 0), ("b", 1), ("b", 1)]
    made = [Message(topic=topic, partition=partition, offset=i) for i, (topic, partition) in enumerate(places)]
    naive: dict[tuple[str, int], list[int]] = {}
    for i, place in enumerate(places):
        naive.setdefault(place, []).append(i)
    assert {place: [m.offset() for m in run] for place, run in _runs(made).items()} == naive
    assert _runs([]) == {}


def test_the_end_of_a_topic_that_was_just_found_is_not_known(harness: KafkaSourceHarness) -> None:
    """Found by tests that start at once: a heartbeat table's topic, made while the sidecar started, ended it."""
    first, found = f"{harness.prefix}first", f"{harness.prefix}found"
    harness.create(first)
    source = harness.make()
    source.open({})
    until_at_end(source)
    harness.create(found)
    harness.append(found, b"1")
    source._adopt(Findings({(found, 0): 0}, {found: "id"}))
    assert not source.at_end()
    end = time.monotonic() + 15
    values: list[bytes | None] = []
    while not values and time.monotonic() < end:
        values += [value for messages in source.poll(0.1) for value in messages.values]
    assert values == [b"1"]
    until_at_end(source)


def until_at_end(source: KafkaSource) -> None:
    end = time.monotonic() + 15
    while not source.at_end():
        assert time.monotonic() < end, "it does not come to an end"
        source.poll(0.1)


def test_keys_values_and_times_come_whatever_headers_there_are(harness: KafkaSourceHarness) -> None:
    bare, headed = f"{harness.prefix}bare", f"{harness.prefix}headed"
    for topic in (bare, headed):
        harness.create(topic)
    harness.append(bare, b"1", key=b"k")
    producer = Producer(harness.config)
    producer.produce(headed, b"1", headers=[("a", b"1"), ("a", None)], timestamp=1234)
    producer.produce(headed, b"2")
    producer.flush(10)
    source = harness.make()
    source.open({})
    found: dict[str, list[tuple[bytes | None, bytes | None, int]]] = {bare: [], headed: []}
    end = time.monotonic() + 15
    while sum(map(len, found.values())) < 3 and time.monotonic() < end:
        for m in source.poll(0.1):  # the two of one topic may come in two polls
            found[m.topic] += zip(m.keys, m.values, m.timestamps.tolist(), strict=True)
    assert [record[:2] for record in found[bare]] == [(b"k", b"1")]
    assert [record[:2] for record in found[headed]] == [(None, b"1"), (None, b"2")]
    assert found[headed][0][2] == 1234


def test_a_message_lost_while_running_is_named_and_other_topics_go_on(harness: KafkaSourceHarness) -> None:
    topic, other = f"{harness.prefix}a", f"{harness.prefix}b"
    harness.create(topic)
    harness.create(other)
    source = harness.make()
    source.open({})
    source.poll(0.2)
    harness.admin.delete_topics([topic])[topic].result()
    error = poll_until_error(source)
    assert error.where["topic"] == topic
    assert "resync" in error.hint
    harness.append(other, b"still")
    end = time.monotonic() + 10
    found = []
    while not found and time.monotonic() < end:
        try:
            found = [m.values for m in source.poll(0.1)]
        except SourceError:
            continue
    assert found == [[b"still"]]


def test_a_topic_made_anew_between_two_runs_is_named_though_its_offsets_fit(harness: KafkaSourceHarness) -> None:
    topic, kept = f"{harness.prefix}a", f"{harness.prefix}b"
    for name in (topic, kept):
        harness.create(name)
        harness.append(name, b"1")
    source = harness.make()
    source.open({})
    gather(source, 2)
    late = f"{harness.prefix}late"
    harness.create(late)
    harness.append(late, b"1")
    gather(source, 1)
    positions, before = source.positions(), source.topic_ids()
    assert before.keys() == {topic, kept, late}
    source.close()
    harness.admin.delete_topics([topic])[topic].result()
    end = time.monotonic() + 10
    while topic in harness.admin.list_topics(timeout=10).topics and time.monotonic() < end:
        time.sleep(0.05)
    harness.create(topic)
    harness.append(topic, b"1", b"2")
    source.open(positions)
    with pytest.raises(SourceError, match="made anew") as told:
        check_topic_ids(source.name, before, source.topic_ids())
    assert told.value.where["topic"] == topic
    assert "empty state folder" in told.value.hint
    check_topic_ids(source.name, {t: i for t, i in before.items() if t != topic}, source.topic_ids())
    for gone in ({topic: {0: 9}}, {topic: {7: 0}}):
        with pytest.raises(SourceError, match=r"ends before the position|is gone") as told:
            source.open(gone)
        assert "empty state folder" in told.value.hint, "a sidecar that does not start can resync nothing"


def test_a_topic_made_anew_while_it_is_read_keeps_the_id_that_its_positions_are_of(harness: KafkaSourceHarness) -> None:
    topic = f"{harness.prefix}a"
    harness.create(topic)
    source = harness.make()
    source.open({})
    before = source.topic_ids()
    harness.admin.delete_topics([topic])[topic].result()
    end = time.monotonic() + 10
    while topic in harness.admin.list_topics(timeout=10).topics and time.monotonic() < end:
        time.sleep(0.02)
    harness.create(topic)
    poll_until_error(source)
    assert source.topic_ids() == before


def test_topics_that_are_not_wanted_are_known(harness: KafkaSourceHarness) -> None:
    wanted = f"{harness.prefix}a"
    harness.create(wanted)
    harness.create(f"other.{harness.prefix}b")
    source = harness.make()
    source.open({})
    assert f"other.{harness.prefix}b" in source.others()
    assert wanted not in source.others()
    harness.create(f"other.{harness.prefix}c")
    end = time.monotonic() + 10
    while f"other.{harness.prefix}c" not in source.others():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_committed_offsets_are_there_for_lag_tools(harness: KafkaSourceHarness) -> None:
    topic = f"{harness.prefix}a"
    harness.create(topic)
    harness.append(topic, b"1", b"2")
    source = harness.make()
    source.open({})
    gather(source, 2)
    source.commit(source.positions())
    reader = Consumer({**harness.config, "group.id": f"headrace-{harness.prefix}"})
    end = time.monotonic() + 10
    offset = -1
    while offset != 2 and time.monotonic() < end:
        source.poll(0.05)
        [at] = reader.committed([TopicPartition(topic, 0)], timeout=5)
        offset = at.offset
    reader.close()
    assert offset == 2


def test_an_open_transaction_holds_its_messages_back(harness: KafkaSourceHarness) -> None:
    topic = f"{harness.prefix}a"
    harness.create(topic)
    producer = Producer({**harness.config, "transactional.id": harness.prefix})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"1")
    producer.flush(10)
    source = harness.make()
    source.open({})
    assert not gather(source, 1, timeout=0.5)
    assert source.positions() == {topic: {0: 0}}
    producer.commit_transaction(10)
    assert gather(source, 1) == {(topic, 0): [b"1"]}


def test_give_topics_or_wants() -> None:
    with pytest.raises(ValueError, match="either"):
        KafkaSource({}, wants=None, topics=None)


class _Of:
    """A message of a leader's epoch."""

    def __init__(self, epoch: int | None) -> None:
        self._epoch = epoch

    def leader_epoch(self) -> int | None:
        return self._epoch


def test_messages_of_an_older_leader_are_not_given_and_told_once() -> None:
    source = KafkaSource({"bootstrap.servers": "127.0.0.1:1"}, wants=lambda _: True)
    given = [
        source._is_cut_back(("t", p), [_Of(e)]) for p, e in [(0, 4), (0, 5), (1, 0), (0, None), (0, 4), (0, 4), (1, 3)]
    ]  # type: ignore[list-item]
    assert given == [False, False, False, False, True, True, False]
    with pytest.raises(SourceError, match=r"cut back.*topic=t, partition=0, leader_epoch=4, before=5"):
        raise source._failures.popleft()
    assert not source._failures
