"""The memory budget, and what an operator is told: over small sidecars in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.connectors.sink import EpochStamp, Frontier, ViewChanges
from headrace.sidecar.process.alerts import AlertMonitor
from headrace.sidecar.process.status_board import status
from headrace.sidecar.runtime import pacing
from headrace.sidecar.telemetry.memory_budget import MANY, SLACK, Memory
from headrace.sidecar.wiring import build
from tests.doubles.memory import MemorySink
from tests.sidecar.delivery.test_detach import AWAY, Two, begun, go_on
from tests.sidecar.support.little import CUSTOMERS, ORDERS, PREFIX, VISITS, Little, answers


class Gated(MemorySink):
    """Writes only while `gate` is open."""

    gate = threading.Event()

    def write(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        assert self.gate.wait(20)
        super().write(changes, frontier, stamps, errors)


def test_over_the_budget_nothing_is_read_while_a_sink_has_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Little(tmp_path, monkeypatch, every_turn=False)
    monkeypatch.setattr(build, "make_sink", lambda _s, c, *_: Gated(c.name, shop.store))
    monkeypatch.setattr(pacing, "MOST_SECONDS", 0.0)  # else what is read waits for the sink, as it may for a moment
    Gated.gate.set()
    shop.snapshot({CUSTOMERS: [(1, 5)], ORDERS: [], VISITS: []})
    shop.show_all()
    shop.start()
    shop.turn(2)
    assert shop.running is not None
    runtime = shop.running.runtime
    used = [100]
    runtime.parts.memory = Memory(budget=50, measure=lambda: used[0])
    shop.transact((ORDERS, "c", (1, 1)))
    shop.show_all()
    Gated.gate.clear()
    runtime.turn(0.0)
    epoch = runtime.epoch
    assert epoch == 2, "nothing waits: what is held for good does not stop the intake"
    shop.transact((ORDERS, "c", (2, 1)))
    shop.show_all()
    for _ in range(3):
        runtime.turn(0.01)
    assert runtime.epoch == epoch, "the sink has work: nothing is read"
    used[0] = 20
    runtime.memory._asked = float("-inf")
    runtime.turn(0.0)
    assert runtime.epoch == epoch + 1
    used[0] = 100
    Gated.gate.set()
    shop.turn(2)
    shop.transact((ORDERS, "c", (3, 1)))
    shop.show_all()
    shop.turn(2)
    assert runtime.epoch == epoch + 2
    assert shop.rows("orders").total() == 3
    runtime.memory._asked = float("-inf")
    runtime.turn(0.0)
    events = AlertMonitor(runtime).look()
    assert [e["over"] for e in events if e["event"] == "memory"] == [True]
    shop.end()


def test_a_detached_sink_is_told_once_and_so_is_its_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Two(tmp_path, monkeypatch)
    begun(shop)
    assert shop.running is not None
    notices = AlertMonitor(shop.running.runtime)
    assert notices.look() == []
    shop.sick.error = AWAY
    go_on(shop)
    [told] = notices.look()
    assert (told["event"], told["sink"], told["error"]) == ("detached", "t", str(AWAY))
    assert notices.look() == []
    found = {s["name"]: s for s in status(shop.running)["sinks"]}
    assert (found["s"]["state"], found["t"]["state"], found["t"]["error"]) == ("attached", "detached", str(AWAY))
    text = shop.running.metrics.render().decode()
    assert 'headrace_sink_detached{sink="t"} 1.0' in text
    assert 'headrace_sink_detachments_total{sink="t"} 1.0' in text
    shop.sick.error = None
    shop.turn(2)
    assert [e["event"] for e in notices.look()] == ["attached"]
    assert 'headrace_sink_detached{sink="t"} 0.0' in shop.running.metrics.render().decode()
    shop.end()


def test_a_stalled_transaction_is_named_with_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Little(tmp_path, monkeypatch)
    shop.snapshot({CUSTOMERS: [(1, 5)], ORDERS: [], VISITS: []})
    shop.show_all()
    shop.start()
    shop.turn(2)
    assert shop.running is not None
    notices = AlertMonitor(shop.running.runtime)
    shop.transact((ORDERS, "c", (1, 1)), (ORDERS, "c", (2, 1)), (VISITS, "c", (1, 1)))
    shop.show(f"shop.{VISITS}")
    shop.show(f"shop.{ORDERS}")
    shop.show("shop.transaction")
    shop.turn(2)
    assert notices.look() == [], "old as it is, its events may still be on their way"
    monkeypatch.setattr("headrace.sidecar.process.alerts.STALL_SECONDS", -1.0)
    [told] = notices.look()
    assert (told["event"], told["waits"], told["lacks"]) == ("stalled", f"transaction {shop.txid}", f"1 of {ORDERS}")
    assert int(str(told["seconds"])) > 30
    assert notices.look() == []
    source = status(shop.running)["sources"][0]
    assert source["waiting_since_us"] == 2000
    assert source["waiting"] == f"transaction {shop.txid} lacks 1 of {ORDERS}"
    shop.show_all()
    shop.turn(2)
    assert [e["event"] for e in notices.look()] == ["resumed"]
    shop.end()


def test_no_budget_is_never_over() -> None:
    memory = Memory(measure=lambda: 1 << 60)
    assert not memory.look(0.0)
    assert memory.used == 1 << 60


def test_what_a_burst_needed_is_given_back_when_it_is_over() -> None:
    """Found by a soak whose machine was loaded: allocators kept what each backlog had needed, 100 MiB at a time; and what was
    given back in the middle of one was little, and nothing more after it."""
    needed, kept, now, given = 200 << 20, 0, 0.0, list[float]()

    def give_back() -> None:
        nonlocal kept
        given.append(now)
        kept = 0

    memory = Memory(measure=lambda: needed + kept, give_back=give_back)

    def turns(seconds: int) -> list[float]:
        nonlocal now
        given.clear()
        for _ in range(seconds):
            now += 1.0
            memory.look(now)
            memory.rest(now)
        return given

    assert turns(3) == []
    kept = SLACK
    assert turns(3) == [], "as much as that is let be"
    kept, needed, begun = 1, needed + SLACK, now
    assert turns(20) == [begun + 1.0, begun + 6.0, begun + 16.0], "a burst begins, and still needs its memory"
    kept, needed = needed - (200 << 20), 200 << 20
    turns(20)
    assert kept == 0, "it is over"
    needed += 2 * SLACK
    assert 5 < len(turns(2000)) < 9, "what is needed for good is not tried for without end"
    kept = SLACK + 1
    assert turns(1) == [now], "nor is it taken for a burst"
    memory.took(MANY)
    assert len(given) == 1
    memory.took(MANY + 1)
    assert len(given) == 2


def test_ready_though_a_producer_has_a_transaction_open_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connector with exactly-once support has nearly always one open: what stands in it was waited for."""
    shop = Little(tmp_path, monkeypatch)
    shop.snapshot({CUSTOMERS: [(1, 5)], ORDERS: [], VISITS: []})
    shop.show_all()
    shop.log.hold(f"{PREFIX}.{ORDERS}")
    shop.transact((ORDERS, "c", (1, 1)))
    shop.show(f"{PREFIX}.{ORDERS}")
    shop.start()
    shop.turn(4)
    assert shop.running is not None
    runtime = shop.running.runtime
    assert runtime.ready == (True, "")
    assert runtime.parts.intakes[0].lag() == 1, "it is there, and not read"
    shop.log.release(f"{PREFIX}.{ORDERS}")
    shop.show_all()
    shop.turn(3)
    assert shop.rows("orders") == answers(shop.state)["orders"]
    shop.close()
