"""What a start makes of a state folder that was lost, also where the run before it did the same and was killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from headrace.connectors.commit_place import Lsn, Version
from headrace.connectors.sink import Frontier, SinkError, SinkState, SourceFrontier
from headrace.sidecar.delivery.catch_up import CatchUpGate
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.runtime.recovery import reconcile
from tests.doubles.memory import MemoryLog
from tests.sidecar.support.little import CUSTOMERS, KEYS, ORDERS, PREFIX, VISITS, Little, answers


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    made = Little(tmp_path, monkeypatch)
    made.snapshot({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1)], VISITS: [(1, 1), (2, 1)]})
    yield made
    if made.running is not None:
        made.end()


def test_a_run_that_finds_its_state_lost_may_be_killed_before_a_sink_has_anything_of_it(shop: Little) -> None:
    """Found by the simulator (seed 3): the next run took the epochs that the killed one had bound for those of the sink."""
    shop.transact((CUSTOMERS, "u", (1, 3)), (VISITS, "c", (3, 3)))
    shop.transact((ORDERS, "c", (2, 2)))
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.end(drained=True)
    (shop.folder / "state").rename(shop.folder / "lost")
    shop.transact((VISITS, "c", (8, 8)))
    shop.show_all()
    shop.start()
    assert shop.running is not None
    runtime = shop.running.runtime
    assert runtime.hold
    runtime.poll(0.0)
    assert runtime.bind(), "its log has epochs beyond the sink's"
    shop.end()
    shop.start()
    shop.turn(4)
    expected = answers(shop.state)
    assert {v: shop.rows(v) for v in expected} == expected
    assert shop.store.frontier is not None
    assert shop.store.frontier.sources["shop"].place.order == shop.lsn


def test_of_two_sinks_beyond_a_lost_log_the_further_one_is_waited_for() -> None:
    """Found by the simulator (seed 81 then): the last one's positions were waited for, and the other's frontier went back."""
    far = SourceFrontier({"p.t": {0: 9, 1: 2}}, Lsn(50), 1)
    near = SourceFrontier({"p.t": {0: 4, 1: 3}, "p.new": {0: 1}}, Lsn(40), 1)
    states = {
        name: SinkState(1, Frontier(at, {"p": source}, 1), frozenset())
        for name, at, source in (("s", 8, far), ("k", 5, near))
    }
    runtime: Any = Mock(epoch=0, hold=CatchUpGate())
    runtime.parts.writers = [Mock(), Mock()]
    for writer, name in zip(runtime.parts.writers, states, strict=True):
        writer.name = name
    intake = Mock(places=Lsn)
    intake.name, intake.source.high_watermarks.return_value = "p", {"p.t": {0: 20, 1: 20}, "p.new": {0: 1}}
    runtime.parts.intakes = [intake]
    reconcile(runtime, states, {}, [])
    assert runtime.hold.frontiers == {"p": SourceFrontier({"p.t": {0: 9, 1: 3}, "p.new": {0: 1}}, Lsn(50), 1)}
    assert [call.args[0] for call in runtime.parts.reclock.skip_to.call_args_list] == [9, 6]


def test_nothing_is_released_while_the_log_is_followed() -> None:
    """Found by the simulator (seed 3858 then): what had been read, and waited for its turn in the log, was taken for passed."""
    at = SourceFrontier({"p.t": {0: 4}}, Lsn(7), 1)
    runtime: Any = Mock(hold=CatchUpGate(), sources={"p": at})
    runtime.hold.add("p", at, "s")
    intake = Mock(places=Lsn)
    intake.name, intake.positions.return_value, intake.resume_positions = "p", {"p.t": {0: 9}}, lambda here: here
    runtime.parts.intakes, runtime.parts.writers = [intake], []
    assert not Runtime._released(runtime)
    assert runtime.hold
    runtime.parts.reclock.replaying = None
    assert Runtime._released(runtime)
    assert not runtime.hold


@pytest.mark.parametrize("lower", [False, True], ids=["later", "restored"])
def test_topics_made_anew_do_not_come_to_what_a_sink_held_of_the_old_ones(shop: Little, lower: bool) -> None:
    shop.show_all()
    shop.start()
    for v in range(3, 9):
        shop.transact((CUSTOMERS, "u", (1, v)), (VISITS, "c", (v, v)))
    shop.show_all()
    shop.turn(3)
    shop.end(drained=True)
    before = shop.store.frontier
    assert before is not None
    (shop.folder / "state").rename(shop.folder / "lost")
    shop.log, shop.queues, shop.ends = MemoryLog(), {}, {}
    shop.state = {t: Counter() for t in KEYS}
    shop.lsn = 500 if lower else shop.lsn + 50
    shop.snapshot({CUSTOMERS: [(2, 2)], VISITS: [(1, 1)]})
    shop.show_all()
    shop.start()
    shop.turn(3)
    expected = answers(shop.state)
    assert {v: shop.rows(v) for v in expected} == expected
    after = shop.store.frontier
    assert after is not None
    assert (after.sources["shop"].place.order, after.incarnation) == (shop.lsn, before.incarnation + 1)
    assert after.epoch > before.epoch


def test_a_source_whose_topics_were_made_anew_is_waited_for_beside_another() -> None:
    """Found by the simulator (seed 3 of the first lives in which they are, forced on): once the other source had passed what the
    sink held, the views over this one were emptied, and filled again when its snapshot was whole."""
    held = {"p": SourceFrontier({"p.t": {0: 9}}, Lsn(50), 1), "q": SourceFrontier({"q.t": {0: 4}}, Lsn(70), 1)}
    states = {"s": SinkState(1, Frontier(8, held, 1), frozenset())}
    runtime: Any = Mock(epoch=0, hold=CatchUpGate())
    runtime.parts.writers = [Mock()]
    runtime.parts.writers[0].name = "s"
    one, other = intakes = Mock(injected=[], places=Lsn), Mock(injected=[], places=Lsn)
    for intake, name, end in zip(intakes, "pq", (20, 2), strict=True):
        intake.name, intake.source.high_watermarks.return_value = name, {f"{name}.t": {0: end}}
        intake.positions.return_value = {f"{name}.t": {0: end}}
    runtime.parts.intakes = intakes
    reconcile(runtime, states, {}, [])
    assert runtime.parts.writers[0].start.call_args.args == (8, 2)
    sources = {"p": SourceFrontier({"p.t": {0: 20}}, Lsn(60), 1)}
    one.assembler.waiting.return_value = None
    assert not runtime.hold.are_passed(sources, intakes), "its snapshot is waited for"
    other.assembler.waiting.return_value = None
    assert runtime.hold.are_passed(sources, intakes), "it found no row"
    assert (other.injected, runtime.hold.set_back) == ([], frozenset())


@pytest.mark.parametrize("batch", [1, 1 << 16], ids=["slowly", "at once"])
def test_topics_made_anew_of_a_restored_source_may_be_as_long_as_the_old_ones(shop: Little, batch: int) -> None:
    """What they say is of a lower LSN than what the sink holds, at positions that are as far, and further."""
    for v in range(3, 6):
        shop.transact((CUSTOMERS, "u", (1, v)), (VISITS, "c", (v, v)))
    shop.show_all()
    shop.start()
    shop.turn(3)
    shop.end(drained=True)
    before = shop.store.frontier
    assert before is not None
    (shop.folder / "state").rename(shop.folder / "lost")
    shop.log, shop.queues, shop.ends = MemoryLog(), {}, {}
    shop.state = {t: Counter() for t in KEYS}
    shop.lsn, shop.batch = 300, batch
    shop.snapshot({CUSTOMERS: [(i, i) for i in range(1, 12)], ORDERS: [(7, 7)], VISITS: [(i, 1) for i in range(9)]})
    for v in range(8, 14):
        shop.transact((CUSTOMERS, "u", (2, v)), (VISITS, "c", (v, v)))
    shop.show_all()
    shop.start()
    assert shop.running is not None
    assert shop.running.runtime.hold, "they are as long"
    seen = [before]

    def turn() -> None:
        assert shop.running is not None
        shop.turn()
        at = shop.store.frontier
        assert at is not None
        assert (
            at.incarnation > seen[-1].incarnation
            or at.sources["shop"].place.order >= seen[-1].sources["shop"].place.order
        )
        seen.append(at)

    for _ in range(40):
        turn()
    assert not shop.running.runtime.hold
    shop.transact((CUSTOMERS, "d", (2, 0)))
    shop.show_all()
    for _ in range(3):
        turn()
    assert (seen[-1].sources["shop"].place.order, seen[-1].incarnation) == (shop.lsn, before.incarnation + 1)
    assert {v: shop.rows(v) for v in answers(shop.state)} == answers(shop.state)
    shop.end(drained=True)
    shop.start()
    shop.transact((ORDERS, "d", (7, 0)))
    shop.show_all()
    for _ in range(3):
        turn()
    assert seen[-1].incarnation == before.incarnation + 1, "kept"


def test_what_is_read_again_and_gives_nothing_is_passed_too(shop: Little) -> None:
    """The connector had repeated an event, which the sink's offsets are beyond; nothing is committed after that any more. Found
    by the simulator (seed 52669): the sink waited for the next transaction."""
    shop.transact((CUSTOMERS, "u", (1, 3)))
    shop.show_all()
    repeated = shop.log.partitions[f"{PREFIX}.{CUSTOMERS}", 1].records[-1]
    for _ in range(5):
        shop.log.append(f"{PREFIX}.{CUSTOMERS}", repeated.value, key=repeated.key, partition=1)
    shop.transact((ORDERS, "c", (2, 2)))
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.end(drained=True)
    before = shop.store.frontier
    (shop.folder / "state").rename(shop.folder / "lost")
    shop.batch = 1
    shop.start()
    assert shop.running is not None
    assert shop.running.runtime.hold
    shop.turn(12)
    assert not shop.running.runtime.hold
    for view, rows in answers(shop.state).items():
        assert shop.rows(view) == rows, view
    assert before is not None
    assert shop.store.frontier is not None
    assert shop.store.frontier.sources["shop"].positions == before.sources["shop"].positions
    shop.transact((CUSTOMERS, "d", (1, 0)))
    shop.show_all()
    shop.turn(3)
    assert shop.rows("customers") == {(2, 2): 1}


def read_at(shop: Little, ms: int) -> None:
    """What is queued was read, and told, at this time of the connector's clock, as of Kafka's."""
    shop.clock = ms
    for topic, queue in shop.queues.items():
        name = "timestamp" if topic.endswith(".notifications") else "ts_ms"
        queue[:] = [(p, json.dumps(json.loads(value) | {name: ms}).encode(), key) for p, value, key in queue]
    shop.show_all()


def test_a_source_whose_last_snapshot_found_no_row_stands_where_its_sinks_had_it(shop: Little) -> None:
    """All of it is read, and nothing of it is given, as the rows before that snapshot are no part of it. Found by the simulator
    (seed 66833): the sink was written without a frontier of it, or kept what is gone until the next transaction."""
    read_at(shop, 10)
    shop.start()
    shop.turn(2)
    before = shop.store.frontier
    assert before is not None
    shop.state = {table: Counter() for table in KEYS}
    shop.snapshot({})
    read_at(shop, 20)
    shop.end(drained=True)
    (shop.folder / "state").rename(shop.folder / "lost")
    shop.every_turn = False
    for _ in range(2):  # the second one follows the log
        shop.start()
        shop.turn(4)
        assert shop.running is not None
        assert not shop.running.runtime.hold
        assert shop.running.runtime.parts.reclock.replaying is None
        after = shop.store.frontier
        assert after is not None
        assert after.epoch > before.epoch
        assert (after.incarnation, after.sources["shop"].place.order) == (1, before.sources["shop"].place.order)
        assert {view: shop.rows(view) for view in ("customers", "orders", "visits", "by_city")} == answers(shop.state)
        shop.end()
    shop.start()
    shop.transact((ORDERS, "c", (2, 2)))
    read_at(shop, 30)
    shop.turn(3)
    assert shop.rows("orders") == {(2, 2): 1}
    assert shop.store.frontier is not None
    assert shop.store.frontier.sources["shop"].place.order == shop.lsn


def test_a_sink_that_holds_another_kind_of_source_under_the_name_is_refused(shop: Little) -> None:
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.end(drained=True)
    (shop.folder / "state").rename(shop.folder / "lost")
    frontier = shop.store.frontier
    assert frontier is not None
    at = replace(frontier.sources["shop"], place=Version(17))
    shop.store.frontier = replace(frontier, sources={"shop": at})
    with pytest.raises(SinkError, match=r"another kind of source .*held=version, now=lsn"):
        shop.start()
