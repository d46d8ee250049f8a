"""When a step starts: at once where a sink is idle; while all write, what arrives waits, becomes one range, and not for long."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.runtime.pacing import MOST_EVENTS, MOST_SECONDS, Pacing
from tests.doubles.memory import MemorySink
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VISITS, Little, answers


@dataclass
class Sink:
    busy: bool


class Gate:
    """Writes of every sink in memory wait while it is shut."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.open, self.within = threading.Event(), threading.Event()
        self.open.set()
        write = MemorySink.write

        def late(sink: MemorySink, *args: Any, **more: Any) -> None:
            self.within.set()
            assert self.open.wait(20)
            write(sink, *args, **more)

        patch.setattr(MemorySink, "write", late)

    def shut(self) -> None:
        self.within.clear()
        self.open.clear()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> Iterator[Little]:
    little = Little(tmp_path, monkeypatch)
    with little.begun({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1)], VISITS: [(1, 1)]}):
        yield little
        gate.open.set()


def transact(shop: Little, draw: random.Random, count: int = 1) -> None:
    for _ in range(count):
        shop.random(draw)
    shop.show_all()


def runtime_of(shop: Little) -> Runtime:
    assert shop.running is not None
    return shop.running.runtime


def test_with_an_idle_sink_a_step_starts_at_once(shop: Little) -> None:
    draw, runtime = random.Random(1), runtime_of(shop)
    for _ in range(4):
        before = runtime.epoch
        transact(shop, draw)
        assert runtime.turn(0.0)
        assert runtime.epoch == before + 1
        assert runtime.parts.writers[0].drain(10)


def test_while_the_sink_writes_what_arrives_waits_and_becomes_one_range(
    shop: Little, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, runtime = random.Random(2), runtime_of(shop)
    monkeypatch.setattr("headrace.sidecar.runtime.pacing.MOST_SECONDS", 600.0)
    gate.shut()
    transact(shop, draw)
    assert runtime.turn(0.0)
    assert gate.within.wait(10)
    begun = runtime.epoch
    for _ in range(5):
        transact(shop, draw, 2)
        assert not runtime.turn(0.0)
    assert runtime.epoch == begun
    gate.open.set()
    assert runtime.parts.writers[0].drain(10)
    assert runtime.turn(0.0)
    assert runtime.epoch == begun + 10
    assert runtime.ranges.coarse_after(begun) == range(begun + 1, begun + 11)
    assert runtime.parts.writers[0].drain(10)
    assert {view: shop.rows(view) for view in answers(shop.state)} == answers(shop.state)


def test_the_end_of_a_write_wakes_the_loop(shop: Little, gate: Gate) -> None:
    draw, runtime = random.Random(3), runtime_of(shop)
    gate.shut()
    transact(shop, draw)
    assert runtime.turn(0.0)
    assert gate.within.wait(10)
    transact(shop, draw)
    threading.Timer(0.05, gate.open.set).start()
    began = time.monotonic()
    assert runtime.turn(20.0), "it waits for the sink, not for the time"
    assert time.monotonic() - began < 10


def test_a_sink_that_hangs_holds_nothing_for_long(shop: Little, gate: Gate) -> None:
    draw, runtime = random.Random(4), runtime_of(shop)
    gate.shut()
    transact(shop, draw)
    assert runtime.turn(0.0)
    assert gate.within.wait(10)
    before, now = runtime.epoch, runtime.pacing._clock()
    runtime.pacing._clock = lambda: now
    transact(shop, draw)
    assert not runtime.turn(0.0)
    now += MOST_SECONDS
    assert runtime.turn(0.0)
    assert runtime.epoch == before + 1


def test_nothing_waits_without_sinks_or_with_one_idle_or_for_too_much() -> None:
    pacing = Pacing(lambda: 0.0)
    busy, idle = cast(Any, Sink(busy=True)), cast(Any, Sink(busy=False))
    assert not pacing.holds([busy], 0.0), "nothing has arrived"
    pacing.arrived(1)
    assert pacing.holds([busy, busy], 0.0)
    assert not pacing.holds([busy, idle], 0.0)
    assert not pacing.holds([], 0.0)
    pacing.arrived(MOST_EVENTS)
    assert not pacing.holds([busy], 0.0)
    pacing.stepped()
    assert not pacing.holds([busy], 0.0)
