"""Ranges in a running sidecar: what waits is taken in as one, and a sink inside it is given what it lacks alone."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.epochs.epoch_ranges import EpochRanges
from headrace.sidecar.runtime import loop
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.wiring import build
from tests.seeds import seeds
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS, VISITS, Little, answers, plays

ROWS = {CUSTOMERS: [(i, i % 3) for i in range(1, 6)], ORDERS: [(1, 1), (2, 1)], VISITS: [(1, 1), (2, 2)]}


def transact(shop: Little, draw: random.Random, count: int) -> None:
    for _ in range(count):
        shop.random(draw)
    shop.show_all()


def check(shop: Little) -> None:
    for view, rows in answers(shop.state).items():
        assert shop.rows(view) == rows, view


def test_what_waits_is_one_range_and_a_sink_that_stands_at_its_end_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(1)
    shop = Little(tmp_path, monkeypatch)
    with shop.begun(ROWS):
        transact(shop, draw, 12)
        shop.turn()
        check(shop)
        assert shop.running is not None
        ranges = shop.running.runtime.ranges
        assert ranges.register(5) == range(2, 14)


@pytest.mark.parametrize("seed", seeds(6))
def test_a_sink_that_stands_inside_what_is_replayed_is_given_what_it_lacks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The last checkpoint is older than what the sink holds, and the log is followed in one step beyond it."""
    draw = random.Random(seed)
    shop = Little(tmp_path, monkeypatch, every_turn=False)
    with shop.begun(ROWS):
        for count in (3, 1, 2):
            transact(shop, draw, count)
            shop.turn()
        shop.end()
        stood = shop.store.frontier
        assert stood is not None
        transact(shop, draw, 4)
        shop.start()
        shop.turn(2)
        check(shop)
        assert shop.running is not None
        ranges = shop.running.runtime.ranges
        assert ranges.register(stood.epoch) is None
        assert ranges.register(stood.epoch - 1) is not None, "the rest is one range"


def test_that_test_would_fail_if_the_sinks_epoch_ended_no_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has rows twice then: those of a table without a key."""
    monkeypatch.setattr(EpochRanges, "register", lambda _self, _epoch: None)
    shop = Little(tmp_path, monkeypatch, every_turn=False)
    with shop.begun(ROWS):
        shop.transact((VISITS, "c", (7, 7)))
        shop.show_all()
        shop.turn()
        shop.end()
        shop.transact((VISITS, "c", (8, 8)))
        shop.show_all()
        shop.start()
        shop.turn(2)
        assert shop.rows("visits")[7, 7] == 2


def test_a_sink_that_asks_for_each_transaction_makes_every_epoch_a_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Little(tmp_path, monkeypatch)
    with shop.begun(ROWS):
        assert shop.running is not None
        runtime: Runtime = shop.running.runtime
        runtime.parts.writers[0].each = True
        assert runtime.each.names() == ["sink s"]
        transact(shop, random.Random(1), 12)
        shop.turn()
        check(shop)
        assert [runtime.ranges.register(e) for e in range(1, 14)] == [None] * 13


def ends(runtime: Runtime, low: int, high: int) -> set[int]:
    """Which epochs of these end a range: whoever stands there may go on from there."""
    return {epoch for epoch in range(low, high + 1) if runtime.ranges.register(epoch) is None}


def test_a_table_that_stops_and_one_that_goes_on_again_end_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the table lacks from then on is in no range with what it still had."""
    shop = Little(tmp_path, monkeypatch)
    with shop.begun(ROWS):
        assert shop.running is not None
        before = shop.running.runtime.epoch
        shop.transact((VISITS, "c", (10, 1)))
        shop.transact((ORDERS, "c", (20, 1)))
        (bad,) = shop.transact((ORDERS, "u", (20, 2)))
        for i in range(3):
            shop.transact((VISITS, "c", (11 + i, 1)))
        shop.places.add(bad)
        shop.show_all()
        shop.turn()
        assert shop.stopped() == [ORDERS]
        runtime = shop.running.runtime
        assert ends(runtime, before, runtime.epoch) == {before, before + 2, before + 3, before + 6}
        shop.end()
        shop.places.clear()
        for i in range(2):
            shop.transact((VISITS, "c", (30 + i, 1)))
        shop.show_all()
        shop.start()
        assert shop.running is not None
        runtime, begun = shop.running.runtime, shop.running.runtime.epoch
        shop.turn(3)
        assert shop.stopped() == []
        check(shop)
        assert len(ends(runtime, begun, runtime.epoch)) > 2, "what is owed is a range of its own"


def test_views_that_change_end_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view's first content is as of an epoch at which nobody stands inside a range, though transactions wait all the time."""
    shop = Little(tmp_path, monkeypatch)
    with shop.begun(ROWS):
        assert shop.running is not None
        runtime = shop.running.runtime
        changing = ViewChanger(shop.running)
        draw, before = random.Random(7), runtime.epoch
        transact(shop, draw, 5)
        text = VIEWS.replace("count(*) as n", "count(*) + 1 as n")
        (tmp_path / "views" / "v.yaml").write_text(text)

        def apply() -> Any:
            return changing.apply(drop=False)

        applied = meanwhile(shop, apply)
        transact(shop, draw, 5)
        shop.turn()
        assert before < applied["epoch"] < runtime.epoch
        assert runtime.ranges.register(applied["epoch"]) is None
        assert runtime.ranges.coarse_after(applied["epoch"]) is not None
        counts = answers(shop.state)["by_city"]
        assert shop.rows("by_city") == Counter({(city, n + 1): 1 for city, n in counts})


class Killed(BaseException):
    """The process is gone: nothing that it holds is written any more."""


@plays(20)
def test_kills_between_ranges_change_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, intake: str
) -> None:
    """Ranges are of a few rows, checkpoints are rare, and the process dies behind one of them again and again: what the next one
    cuts otherwise ends in the same states, at each frontier that was published."""
    draw, left = random.Random(seed), [10**9]

    def reached(step: str) -> None:
        if step == "range stepped":
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    monkeypatch.setattr(build, "failpoints", lambda _: reached)
    monkeypatch.setattr(loop, "ROWS", draw.choice([1, 3, 10]))
    shop = Little(tmp_path, monkeypatch, every_turn=draw.random() < 0.5, intake=intake)
    with shop.begun(ROWS):
        for _ in range(8):
            assert shop.running is not None
            shop.running.runtime.parts.writers[0].each = draw.random() < 0.3
            transact(shop, draw, draw.randrange(1, 12))
            left[0] = draw.randrange(0, 6)
            try:
                shop.turn(draw.randrange(1, 3))
            except Killed:
                shop.end()
                left[0] = 10**9
                shop.start()
        left[0] = 10**9
        shop.turn(3)
        check(shop)
        for frontier, rows in shop.store.history:
            wanted = answers(shop.states[frontier.sources["shop"].place.order])
            assert {view: rows[view] for view in wanted} == wanted, frontier
