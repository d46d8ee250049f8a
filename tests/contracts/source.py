"""The contract of `headrace.connectors.source.Source`, run by every implementation through a `SourceHarness`.

A harness stands for the broker: it makes topics and appends to them, leaves gaps, forgets, and is switched off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pytest

from headrace.connectors.changes import MessageBatch
from headrace.connectors.source import Positions, Source, SourceError

Place = tuple[str, int]


class SourceHarness(Protocol):
    prefix: str

    def make(self, topics: Sequence[str] | None = None) -> Source:
        """A source of `topics`, or of every topic that begins with `prefix`; not yet open."""

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic, or widen it."""

    def append(self, topic: str, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        """Append committed messages."""

    def gap(self, topic: str, partition: int = 0) -> None:
        """Leave offsets that hold no message: an aborted transaction and its marker."""

    def begin(self, topic: str, *values: bytes) -> None:
        """Append messages to partition 0 in a transaction that stays open."""

    def commit(self, topic: str) -> None:
        """Commit what `begin` opened."""

    def forget(self, topic: str, partition: int, low: int) -> None:
        """Lose what stands below offset `low`."""

    def unreachable(self) -> Source:
        """A source of a broker that is not there."""


def gather(source: Source, count: int, timeout: float = 15.0) -> dict[Place, list[bytes | None]]:
    """Values by topic and partition, until `count` came and nothing more."""
    found: dict[Place, list[bytes | None]] = {}
    last: dict[Place, int] = {}
    end = time.monotonic() + timeout
    while time.monotonic() < end and sum(map(len, found.values())) < count:
        for messages in source.poll(0.1):
            check_messages(messages, last)
            found.setdefault((messages.topic, messages.partition), []).extend(messages.values)
    for messages in source.poll(0.2):
        found.setdefault((messages.topic, messages.partition), []).extend(messages.values)
    return found


def check_messages(messages: MessageBatch, last: dict[Place, int]) -> None:
    assert len(messages) == len(messages.keys) == len(messages.values) == len(messages.timestamps) > 0
    assert messages.offsets.dtype == messages.timestamps.dtype == np.int64
    assert (np.diff(messages.offsets) > 0).all()
    place = (messages.topic, messages.partition)
    assert messages.offsets[0] > last.get(place, -1)
    last[place] = int(messages.offsets[-1])


def settle(source: Source, expected: Positions, timeout: float = 10.0) -> Positions:
    """Poll until the positions are the expected ones, or the time is over."""
    end = time.monotonic() + timeout
    while source.positions() != expected and time.monotonic() < end:
        assert not source.poll(0.1)
    return source.positions()


def settle_at_end(source: Source, timeout: float = 30.0) -> bool:
    """Poll, and get nothing, until the source is at its end or the time is over; whether it is."""
    end = time.monotonic() + timeout
    while not source.at_end() and time.monotonic() < end:
        assert not source.poll(0.1)
    return source.at_end()


def comes_true(source: Source, passed: Callable[[], bool], timeout: float = 30.0) -> bool:
    """Poll, and get nothing, until a look is passed or the time is over; whether it is."""
    end = time.monotonic() + timeout
    while not passed() and time.monotonic() < end:
        assert not source.poll(0.1)
    return passed()


class SourceContract:
    """Subclasses provide the fixture `harness`."""

    def test_what_was_read_ahead_is_given_once_and_counts_in_positions(self, harness: SourceHarness) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic)
        harness.append(topic, *[b"a%d" % i for i in range(5)])
        source = harness.make()
        source.open({})
        found: list[bytes | None] = []
        end = time.monotonic() + 15
        while len(found) < 5 and time.monotonic() < end:
            for messages in (*source.poll(0.1), *source.rest()):
                found += messages.values
            assert source.positions()[topic][0] >= len(found)
        assert found == [b"a0", b"a1", b"a2", b"a3", b"a4"]
        assert list(source.rest()) == []
        source.close()

    def test_reads_every_partition_from_its_beginning_in_order(self, harness: SourceHarness) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic, 2)
        harness.append(topic, *[b"a%d" % i for i in range(5)])
        harness.append(topic, b"b0", None, partition=1, key=b"k")
        source = harness.make()
        source.open({})
        assert gather(source, 7) == {
            (topic, 0): [b"a0", b"a1", b"a2", b"a3", b"a4"],
            (topic, 1): [b"b0", None],
        }
        source.close()
        source.close()

    def test_resumes_at_positions(self, harness: SourceHarness) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic, 2)
        harness.append(topic, b"0", b"1", b"2")
        harness.append(topic, b"x", partition=1)
        source = harness.make()
        source.open({})
        gather(source, 4)
        kept = source.positions()
        source.commit(kept)
        source.close()
        harness.append(topic, b"3")
        again = harness.make()
        again.open(kept)
        assert gather(again, 1) == {(topic, 0): [b"3"]}
        again.close()
        third = harness.make()
        third.open({topic: {0: 1}})
        found = gather(third, 4)
        assert found[topic, 0] == [b"1", b"2", b"3"]
        assert found[topic, 1] == [b"x"], "a partition without a position is read from its beginning"
        third.close()

    def test_positions_pass_gaps_that_hold_no_message(self, harness: SourceHarness) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic)
        harness.append(topic, b"0")
        harness.gap(topic)
        harness.append(topic, b"1")
        harness.gap(topic)
        source = harness.make()
        source.open({})
        assert gather(source, 2) == {(topic, 0): [b"0", b"1"]}
        end = source.high_watermarks()
        assert end[topic][0] > 3
        assert settle(source, end) == end
        kept = source.positions()
        source.close()
        again = harness.make()
        again.open(kept)
        assert not gather(again, 1, timeout=1.0)
        assert again.positions() == kept
        harness.append(topic, b"2")
        assert gather(again, 1) == {(topic, 0): [b"2"]}
        again.close()

    def test_the_end_is_where_the_first_open_transaction_begins(self, harness: SourceHarness) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic)
        harness.append(topic, b"0")
        harness.begin(topic, b"1", b"2")
        source = harness.make()
        source.open({})
        assert not source.at_end(), "a message is there that may be read"
        assert gather(source, 1) == {(topic, 0): [b"0"]}
        assert settle_at_end(source)
        assert source.positions() == {topic: {0: 1}}
        assert source.high_watermarks()[topic][0] > 1, "what is in the open transaction is there, for lag"
        kept = source.positions()
        source.close()
        again = harness.make()
        again.open(kept)
        assert settle_at_end(again), "a source that finds nothing but an open transaction is at the end"
        harness.commit(topic)
        assert gather(again, 2) == {(topic, 0): [b"1", b"2"]}
        assert settle_at_end(again)
        assert settle(again, {topic: {0: 4}}) == {topic: {0: 4}}, "the marker is passed"
        harness.gap(topic)
        end = {topic: {0: 6}}
        assert settle(again, end) == end
        assert settle_at_end(again), "there is nothing but an aborted transaction behind the last message"
        again.close()

    def test_a_look_is_passed_once_all_that_was_there_is_handed_out(self, harness: SourceHarness) -> None:
        topic, other = f"{harness.prefix}orders", f"{harness.prefix}others"
        harness.create(topic, 2)
        harness.create(other)
        harness.append(topic, b"0", b"1")
        harness.append(topic, b"x", partition=1)
        source = harness.make()
        source.open({})
        passed = source.look(topic)
        assert not passed(), "nothing was handed out yet"
        gather(source, 3)
        assert comes_true(source, passed)
        assert comes_true(source, source.look(topic)), "nothing is there that was not handed out"
        harness.append(other, b"of another topic")
        harness.begin(topic, b"2")
        passed = source.look(topic)
        assert gather(source, 1) == {(other, 0): [b"of another topic"]}
        assert not passed(), "what is in an open transaction is there too"
        harness.commit(topic)
        assert gather(source, 1) == {(topic, 0): [b"2"]}
        assert comes_true(source, passed)
        harness.gap(topic)
        assert comes_true(source, source.look(topic)), "there is nothing but an aborted transaction and its marker"
        assert comes_true(source, source.look(f"{harness.prefix}nobody_made_it")), (
            "of a topic that is not read nothing is"
        )
        source.close()

    def test_the_end_of_a_topic_that_retention_emptied_is_its_beginning(self, harness: SourceHarness) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic)
        harness.append(topic, b"0", b"1")
        harness.gap(topic)
        harness.forget(topic, 0, 4)
        source = harness.make()
        source.open({})
        assert settle_at_end(source)
        assert source.positions() == source.high_watermarks() == {topic: {0: 4}}
        source.close()

    def test_positions_are_known_before_the_first_message(self, harness: SourceHarness) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic, 2)
        source = harness.make()
        source.open({})
        assert source.positions() == {topic: {0: 0, 1: 0}}
        source.close()

    def test_topics_and_partitions_that_appear_later_are_read_from_their_beginning(
        self, harness: SourceHarness
    ) -> None:
        topic, later = f"{harness.prefix}orders", f"{harness.prefix}lines"
        harness.create(topic)
        source = harness.make()
        source.open({})
        source.poll(0.1)
        harness.create(later)
        harness.append(later, b"first", b"second")
        harness.create(topic, 2)
        harness.append(topic, b"new", partition=1)
        assert gather(source, 3) == {(later, 0): [b"first", b"second"], (topic, 1): [b"new"]}
        assert set(source.positions()) == {topic, later}
        source.close()

    def test_topics_that_are_not_wanted_are_left_alone(self, harness: SourceHarness) -> None:
        topic, other = f"{harness.prefix}orders", f"{harness.prefix}other"
        harness.create(topic)
        harness.create(other)
        harness.append(other, b"no")
        harness.append(topic, b"yes")
        source = harness.make([topic])
        source.open({})
        assert gather(source, 1) == {(topic, 0): [b"yes"]}
        assert set(source.positions()) == {topic}
        source.close()

    def test_a_topic_that_is_not_there_is_named(self, harness: SourceHarness) -> None:
        with pytest.raises(SourceError, match=f"topic={harness.prefix}nowhere"):
            harness.make([f"{harness.prefix}nowhere"]).open({})

    def test_a_topic_that_was_read_and_is_gone_is_named(self, harness: SourceHarness) -> None:
        with pytest.raises(SourceError, match=f"topic={harness.prefix}gone"):
            harness.make().open({f"{harness.prefix}gone": {0: 5}})

    def test_a_position_out_of_range_is_named_with_its_remedy(self, harness: SourceHarness) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic)
        harness.append(topic, *[b"%d" % i for i in range(10)])
        with pytest.raises(SourceError) as beyond:
            harness.make().open({topic: {0: 99}})
        assert beyond.value.where["offset"] == 99
        harness.forget(topic, 0, 6)
        with pytest.raises(SourceError, match=r"resync|new snapshot") as below:
            harness.make().open({topic: {0: 2}})
        where = below.value.where
        assert (where["topic"], where["partition"], where["offset"]) == (topic, 0, 2)
        source = harness.make()
        source.open({topic: {0: 6}})
        assert gather(source, 4) == {(topic, 0): [b"6", b"7", b"8", b"9"]}
        source.close()

    def test_a_broker_that_is_not_there_is_told_in_bounded_time(self, harness: SourceHarness) -> None:
        start = time.monotonic()
        with pytest.raises(SourceError):
            harness.unreachable().open({})
        assert time.monotonic() - start < 8
