"""The contracts on the simulator's doubles: the database in memory, and our Kafka sink and source on the broker in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from connectors.kafka.sink import KafkaSink
from connectors.kafka.source import KafkaSource
from tests.contracts.broker import BrokerContract, Held
from tests.contracts.sink import SinkContract, SinkHarness
from tests.contracts.source import SourceContract, SourceHarness, gather
from tests.sim.clients import Clients
from tests.sim.contracts import BrokerHarness, DatabaseHarness


class TestDatabase(SinkContract):
    @pytest.fixture
    def harness(self) -> SinkHarness:
        return DatabaseHarness()


class _Sinks(BrokerHarness):
    def make(self) -> KafkaSink:
        return self.sink()


class _Sources(BrokerHarness):
    def make(self, topics: Sequence[str] | None = None) -> KafkaSource:
        return self.source(topics)


class TestSinkOnBroker(SinkContract):
    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> SinkHarness:
        return _Sinks(monkeypatch)


class TestSourceOnBroker(SourceContract):
    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> SourceHarness:
        return _Sources(monkeypatch)

    def test_what_the_client_fetches_again_is_not_given_again(self, harness: _Sources) -> None:
        """librdkafka's issue 4686: a snapshot's rows were counted twice, and it was taken for whole before all were there."""
        topic = f"{harness.prefix}orders"
        harness.create(topic)
        harness.append(topic, *[b"%d" % i for i in range(6)])
        source = harness.make()
        source.open({topic: {0: 1}})
        assert gather(source, 5) == {(topic, 0): [b"1", b"2", b"3", b"4", b"5"]}
        harness.append(topic, b"6", b"7")
        source._consumer._at[topic, 0] = 3  # type: ignore[union-attr]
        assert gather(source, 2) == {(topic, 0): [b"6", b"7"]}
        source._consumer._at[topic, 0] = 3  # type: ignore[union-attr]
        assert all(not source.poll(0.0) for _ in range(20))
        assert source.positions() == {topic: {0: 8}}
        source.close()

    def test_who_asks_for_positions_while_it_polls_takes_nothing_away(self, harness: _Sources) -> None:
        topic = f"{harness.prefix}orders"
        harness.create(topic)
        harness.append(topic, *[b"%d" % i for i in range(6)])
        source = harness.make()
        source.open({})
        consume = source._consumer.consume  # type: ignore[union-attr]

        def asked(*of: Any) -> Any:
            found = consume(*of)
            source.positions()  # as another thread does, for `status`
            return found

        source._consumer.consume = asked  # type: ignore[union-attr, method-assign, assignment]
        assert gather(source, 6) == {(topic, 0): [b"%d" % i for i in range(6)]}
        source.close()


class TestBroker(BrokerContract):
    @pytest.fixture
    def held(self, monkeypatch: pytest.MonkeyPatch) -> Held:
        made = BrokerHarness(monkeypatch)
        made.create("t.one", 2)
        return Held({}, "t.one", Clients(lambda: made.line))
