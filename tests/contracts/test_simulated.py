"""The contracts on the simulator's doubles: the database in memory, and our Kafka sink and source on the broker in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from connectors.kafka.sink import KafkaSink
from connectors.kafka.source import KafkaSource
from tests.contracts.broker import BrokerContract, Held
from tests.contracts.sink import SinkContract, SinkHarness
from tests.contracts.source import SourceContract, SourceHarness
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


class TestBroker(BrokerContract):
    @pytest.fixture
    def held(self, monkeypatch: pytest.MonkeyPatch) -> Held:
        made = BrokerHarness(monkeypatch)
        made.create("t.one", 2)
        return Held({}, "t.one", Clients(lambda: made.line))
