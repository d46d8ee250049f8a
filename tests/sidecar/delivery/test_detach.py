"""A sink in trouble is detached and comes back, while the others go on (decision 18): whole sidecars over two sinks in
memory, of which one is away, refuses, is slow, went back, or belongs to somebody else by now."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.connectors.sink import EpochStamp, Fenced, Frontier, SinkAway, SinkError, SinkState, SinkView, ViewChanges
from headrace.sidecar.delivery import sink_writer
from headrace.sidecar.wiring import build
from tests.doubles.memory import MemorySink, MemoryStore, Row
from tests.seeds import seeds
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VISITS, Little, answers


class Troubled(MemorySink):
    """Fails as the test says. `lose`: a write that fails was durable all the same."""

    def __init__(self, name: str, store: MemoryStore) -> None:
        super().__init__(name, store)
        self.error: SinkError | None = None
        self.lose = False
        self.gate = threading.Event()
        self.gate.set()

    def open(self, views: Sequence[SinkView], held: int | None = None) -> SinkState:
        if self.error is not None:
            raise self.error
        return super().open(views, held)

    def write(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        assert self.gate.wait(20)
        if self.error is not None:
            if self.lose:
                self.lose = False
                super().write(changes, frontier, stamps, errors)
            raise self.error
        super().write(changes, frontier, stamps, errors)


class Two(Little):
    """A Little whose views go to two sinks; `sick` is the one in trouble, on the store `other`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch)
        self.other = MemoryStore(keep_history=True)
        self.sick = Troubled("t", self.other)
        self.now = 0.0

        def make(_: object, config: object, *__: object) -> MemorySink:
            if getattr(config, "name", "") == "s":
                return MemorySink("s", self.store)
            self.sick = Troubled("t", self.other)
            return self.sick

        patch.setattr(build, "make_sink", make)
        views = folder / "views" / "v.yaml"
        views.write_text(views.read_text().replace("sinks: [s]", "sinks: [s, t]"))
        real = sink_writer.SinkWriter
        patch.setattr(
            build, "SinkWriter", lambda sink, **more: real(sink, threaded=False, clock=lambda: self.now, **more)
        )

    def configure(self) -> dict[str, object]:
        body = super().configure()
        sinks = body["sinks"]
        assert isinstance(sinks, list)
        sinks.append({**sinks[0], "name": "t"})
        return body

    def turn(self, count: int = 1) -> None:
        assert self.running is not None
        for _ in range(count):
            self.now += 100.0
            self.running.runtime.turn(0.0)
            self.running.runtime.checkpoints.wait(10.0)

    @property
    def detached(self) -> list[str]:
        assert self.running is not None
        return [g.name for g in self.running.runtime.parts.writers if g.detachment is not None]

    def check(self, store: MemoryStore) -> None:
        expected = answers(self.state)
        assert {v: store.rows[v] for v in expected} == expected
        assert store.frontier is not None
        assert store.frontier.sources["shop"].place.order == self.lsn


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    made = Two(tmp_path, monkeypatch)
    yield made
    made.close()


def begun(shop: Two) -> None:
    shop.snapshot({CUSTOMERS: [(1, 5), (2, 6)], ORDERS: [(1, 1)], VISITS: [(1, 1)]})
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.check(shop.store)
    shop.check(shop.other)


def go_on(shop: Two, count: int = 1, seed: int = 7) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        shop.random(draw)
    shop.show_all()
    shop.turn(2)


def restore(shop: Two, frontier: Frontier, rows: Mapping[str, Counter[Row]]) -> None:
    """The sick sink's store is as it once was."""
    shop.other.frontier, shop.other.rows = frontier, {n: Counter(c) for n, c in rows.items()}
    shop.other.writes -= 1


AWAY = SinkAway("the database cannot be reached", sink="t")
REFUSES = SinkError("a constraint on the table refuses a row", sink="t")


@pytest.mark.parametrize("durable", [False, True], ids=["lost", "durable"])
@pytest.mark.parametrize("error", [AWAY, REFUSES], ids=["away", "refuses"])
def test_the_others_go_on_and_it_comes_back(shop: Two, error: SinkError, durable: bool) -> None:
    begun(shop)
    shop.sick.error, shop.sick.lose = error, durable
    go_on(shop, 3)
    assert shop.detached == ["t"]
    shop.check(shop.store)
    go_on(shop, 3, seed=8)
    shop.check(shop.store)
    assert shop.running is not None
    ready, why = shop.running.runtime.ready
    assert ready
    assert str(error) in why
    assert len(shop.other.history) <= 1 + durable, "nothing reaches it"
    shop.sick.error = None
    written = shop.sick.writes
    shop.turn(2)
    assert shop.detached == []
    shop.check(shop.other)
    assert shop.sick.writes > written
    assert shop.other.frontier is not None
    assert shop.other.frontier.incarnation == 1, "it did not go back"
    go_on(shop, 2, seed=9)
    shop.check(shop.other)
    shop.check(shop.store)


def test_what_waits_for_a_sink_that_is_away_is_kept_up_to_a_bound(shop: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(shop)
    shop.sick.error = AWAY
    go_on(shop)
    assert shop.running is not None
    writer = shop.running.runtime.parts.writers[1]
    assert writer.backlog_bytes > 0
    assert not writer.lost
    monkeypatch.setattr(sink_writer, "MAX_BACKLOG_BYTES", 1)
    go_on(shop, seed=8)
    assert writer.lost
    assert writer.backlog_bytes == 0
    shop.sick.error = None
    shop.turn(2)
    shop.check(shop.other)


def test_while_it_is_away_checkpoints_go_on_and_a_restart_gives_it_what_it_lacks(shop: Two) -> None:
    begun(shop)
    shop.sick.error = AWAY
    go_on(shop, 3)
    assert shop.running is not None
    taken = shop.running.runtime.checkpoints.epoch
    go_on(shop, 3, seed=8)
    assert shop.running.runtime.checkpoints.epoch > taken
    shop.end()
    shop.start()
    shop.turn(2)
    shop.check(shop.other)
    assert shop.other.frontier is not None
    assert shop.other.frontier.incarnation == 1, "it was behind, but had not gone back"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_sink_that_went_back_is_compared_and_begins_a_new_incarnation(shop: Two, restarted: bool) -> None:
    begun(shop)
    frontier, rows = shop.other.history[-1]
    go_on(shop, 4)
    shop.check(shop.other)
    if restarted:
        shop.end(drained=True)
    restore(shop, frontier, rows)
    if restarted:
        shop.start()
    shop.turn(2)
    go_on(shop, 2, seed=9)
    shop.check(shop.other)
    shop.check(shop.store)
    assert shop.other.frontier is not None
    assert shop.store.frontier is not None
    assert (shop.other.frontier.incarnation, shop.store.frontier.incarnation) == (2, 1)
    shop.end(drained=True)
    shop.start()
    go_on(shop, seed=10)
    assert shop.other.frontier.incarnation == 2, "kept"


def test_views_in_error_are_marked_when_it_is_back_and_mended_ones_are_not(shop: Two) -> None:
    begun(shop)
    place = shop.transact((ORDERS, "c", (2, 2)))[0]
    shop.places.add(place)
    shop.sick.error = AWAY
    shop.show_all()
    shop.turn(2)
    assert "orders" in shop.store.errors
    assert shop.other.errors == {}
    shop.sick.error = None
    shop.turn(2)
    assert shop.other.errors.keys() == shop.store.errors.keys()
    assert shop.other.rows["orders"] == shop.store.rows["orders"]


def test_a_successor_that_took_the_sink_meanwhile_fences_who_comes_back(shop: Two) -> None:
    begun(shop)
    shop.sick.error = AWAY
    go_on(shop)
    MemorySink("t", shop.other).open(list(shop.other.views.values()))
    shop.sick.error = None
    with pytest.raises(Fenced):
        shop.turn(2)


def test_each_try_waits_longer_until_a_write_succeeds(shop: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(shop)
    shop.sick.error = AWAY
    go_on(shop)
    opened: list[float] = []
    real = Troubled.open

    def counted(sink: Troubled, views: Sequence[SinkView], held: int | None = None) -> SinkState:
        opened.append(shop.now)
        return real(sink, views, held)

    monkeypatch.setattr(Troubled, "open", counted)
    assert shop.running is not None
    start = shop.now
    while shop.now < start + 300:
        shop.now += 0.5
        shop.running.runtime.turn(0.0)
    gaps = [b - a for a, b in pairwise(opened)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == 60
    assert len(opened) < 12


def test_a_slow_sink_holds_the_intake_up_for_a_while_and_is_then_detached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Two(tmp_path, monkeypatch)
    writers: list[sink_writer.SinkWriter] = []
    real = sink_writer.SinkWriter

    def make(sink: MemorySink, **more: float) -> sink_writer.SinkWriter:
        writers.append(real(sink, **{**more, "limit": 0.2}))
        return writers[-1]

    monkeypatch.setattr(build, "SinkWriter", make)
    monkeypatch.setattr(sink_writer, "RETRY_SECONDS", 0.01)
    shop.snapshot({CUSTOMERS: [(1, 5)], ORDERS: [(1, 1)], VISITS: []})
    shop.show_all()
    shop.start()
    shop.turn()
    assert all(g.drain(10) for g in writers)
    shop.sick.gate.clear()
    monkeypatch.setattr(sink_writer, "MAX_BACKLOG_BYTES", 1)
    for seed in range(3):
        go_on(shop, seed=seed)
        writers[0].drain(10)
    assert writers[1].detachment is not None
    assert "slower than its sources" in str(writers[1].detachment.error)
    shop.check(shop.store)
    shop.sick.gate.set()
    end = time.monotonic() + 30
    while not (writers[1].attached and writers[1].drain(0.05)) and time.monotonic() < end:
        shop.turn()
    shop.check(shop.other)
    shop.end()


@pytest.mark.parametrize("seed", seeds(25))
def test_whatever_befalls_it_when_its_rows_are_those_of_a_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    shop = Two(tmp_path, monkeypatch)
    shop.snapshot({CUSTOMERS: [(1, 5), (2, 6)], ORDERS: [(1, 1)], VISITS: [(1, 1)]})
    shop.show_all()
    shop.start()
    for _ in range(25):
        what = draw.randrange(8)
        if what == 0:
            shop.sick.error, shop.sick.lose = draw.choice([AWAY, REFUSES]), draw.random() < 0.5
        elif what in (1, 2):
            shop.sick.error = None
        elif what == 3:
            shop.end(drained=draw.random() < 0.5)
            shop.start()
        elif what == 4 and shop.other.history:
            frontier, rows = draw.choice(shop.other.history)
            restore(shop, frontier, rows)
            if draw.random() < 0.5:
                shop.end()
                shop.start()
        monkeypatch.setattr(sink_writer, "MAX_BACKLOG_BYTES", draw.choice([1, 1 << 30]))
        shop.random(draw)
        shop.show_all()
        shop.turn(draw.randrange(3))
    shop.sick.error = None
    shop.turn(4)
    shop.check(shop.store)
    shop.check(shop.other)
    for frontier, rows in shop.other.history:
        expected = answers(shop.states[frontier.sources["shop"].place.order])
        assert {v: +rows[v] for v in expected} == expected, frontier
    shop.end()
