"""The contracts on the simulator's doubles: the database in memory, and our Kafka sink and source on the broker in memory."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal as D
from typing import Any

import orjson
import pytest

from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.source import KafkaSource
from headrace.connectors.sink import Fenced, SinkError
from tests.contracts.broker import BrokerContract, Held
from tests.contracts.sink import ORDERS, SinkContract, SinkHarness, changes, frontier, stamps, texts, whole
from tests.contracts.source import SourceContract, SourceHarness, gather
from tests.sim.clients import Clients
from tests.sim.contracts import BrokerHarness, DatabaseHarness


class TestDatabase(SinkContract):
    @pytest.fixture
    def harness(self) -> SinkHarness:
        return DatabaseHarness()


class Dead(Exception):
    """The process is killed here."""


class _Sinks(BrokerHarness):
    """`losing`: of how many ends to come no marker is written; `dying`: whether the writer is killed behind its next commit."""

    losing, dying = 0, False

    def make(self) -> KafkaSink:
        return self.sink(reached=self._reached)

    def _reached(self, step: str) -> None:
        if self.dying and step == "kafka committed":
            self.dying = False
            raise Dead

    def lose(self) -> None:
        """From now on."""
        end = self.broker.end

        def lost(name: str, epoch: int, commit: bool) -> None:
            end(name, epoch, commit)
            if self.losing:
                self.losing -= 1
                self.broker.lose_markers(name)

        self.broker.end = lost  # type: ignore[method-assign]

    def standings(self) -> list[Any]:
        """All that a reader finds."""
        records, _ = self.broker.partition(("t.frontier", 0)).read(0, 1 << 30, committed=True)
        return [orjson.loads(r.value or b"") for r in records]


class _Sources(BrokerHarness):
    def make(self, topics: Sequence[str] | None = None) -> KafkaSource:
        return self.source(topics)


class TestSinkOnBroker(SinkContract):
    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> SinkHarness:
        return _Sinks(monkeypatch)

    def test_a_commit_whose_markers_a_broker_loses_was_never_there(self, harness: _Sinks) -> None:
        """Kafka 4.3.0, killed between the two, takes it for complete: the next commit would show it behind what follows it."""
        sink = harness.make()
        sink.open([ORDERS])
        sink.write({ORDERS.name: whole(ORDERS, 3, (1, D("9.50"), "a"))}, frontier(3), stamps(3))
        harness.dying = True
        with pytest.raises(Dead):
            sink.write({ORDERS.name: changes(ORDERS, ((2, None, None), 4, 1))}, frontier(4), stamps(4))
        [name] = harness.broker.producers
        harness.broker.lose_markers(name)
        again = harness.make()
        assert again.open([ORDERS]).frontier == frontier(3)
        assert harness.content(ORDERS) == texts(ORDERS, (1, D("9.50"), "a"))
        again.write({ORDERS.name: changes(ORDERS, ((3, None, None), 4, 1))}, frontier(4), stamps(4))
        assert harness.content(ORDERS) == texts(ORDERS, (1, D("9.50"), "a"), (3, None, None))
        seen = harness.standings()
        assert [s["epoch"] for s in seen] == [None, 3, 3, 4]
        assert [s["writes"] for s in seen] == [1, 2, 3, 4]

    def test_markers_that_are_lost_in_one_topic_alone_are_named(self, harness: _Sinks) -> None:
        sink = harness.make()
        sink.open([ORDERS])
        harness.dying = True
        with pytest.raises(Dead):
            sink.write({ORDERS.name: whole(ORDERS, 3, (1, D("9.50"), "a"))}, frontier(3), stamps(3))
        [name] = harness.broker.producers
        harness.broker.lose_markers(name, but="t.frontier")
        with pytest.raises(SinkError, match="has lost the end of a transaction in one topic") as told:
            harness.make().open([ORDERS])
        assert f"t.{ORDERS.name}" in str(told.value)

    @pytest.mark.parametrize("times", [1, 2])
    @pytest.mark.parametrize("of", ["claim", "write"])
    def test_a_writer_whose_end_is_lost_writes_again(self, harness: _Sinks, of: str, times: int) -> None:
        """A commit's, and then those of what aborts it."""
        harness.lose()
        harness.losing = times * (of == "claim")
        sink = harness.make()
        sink.open([ORDERS])
        sink.write({ORDERS.name: whole(ORDERS, 3, (1, D("9.50"), "a"))}, frontier(3), stamps(3))
        harness.losing += times * (of == "write")
        sink.write({ORDERS.name: changes(ORDERS, ((2, None, None), 4, 1))}, frontier(4), stamps(4))
        assert harness.losing == 0
        sink.write({ORDERS.name: changes(ORDERS, ((3, None, None), 5, 1))}, frontier(5), stamps(5))
        assert harness.content(ORDERS) == texts(ORDERS, (1, D("9.50"), "a"), (2, None, None), (3, None, None))
        seen = [s["writes"] for s in harness.standings()]
        assert seen == [*range(1, len(seen) + 1)]
        assert harness.make().open([ORDERS]).frontier == frontier(5)

    @pytest.mark.parametrize("written", [True, False])
    def test_a_claim_that_is_lost_gives_way_to_who_has_claimed_since(self, harness: _Sinks, written: bool) -> None:
        """Simulator, seed 510914: it was repeated with the frontier of before, which went back."""
        sink = harness.make()
        sink.open([ORDERS])
        sink.write({ORDERS.name: whole(ORDERS, 3, (1, D("9.50"), "a"))}, frontier(3), stamps(3))
        other, sleep = harness.make(), harness.line.sleep

        def slept(seconds: float) -> None:
            harness.line.sleep = sleep  # type: ignore[method-assign]
            other.open([ORDERS])
            if written:
                other.write({ORDERS.name: changes(ORDERS, ((2, None, None), 4, 1))}, frontier(4), stamps(4))

        harness.line.sleep = slept  # type: ignore[method-assign]
        late = harness.make()
        harness.lose()
        harness.losing = 1
        with pytest.raises(Fenced, match="another generation"):
            late.open([ORDERS])
        if not written:
            other.write({ORDERS.name: changes(ORDERS, ((2, None, None), 4, 1))}, frontier(4), stamps(4))
        assert harness.content(ORDERS) == texts(ORDERS, (1, D("9.50"), "a"), (2, None, None))
        assert [s["epoch"] for s in harness.standings()] == [None, 3, 3, 4]


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
