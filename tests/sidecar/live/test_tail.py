"""A view followed: what is told, added up, is the view at every resume point, through changes of views and errors."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from sidecar.live.changing import Changing
from sidecar.live.history import History
from sidecar.live.tail import Tail, TailError
from tests.sidecar.little import CUSTOMERS, VIEWS, Little, answers
from tests.sidecar.live.busy import meanwhile


class Follower:
    """Reads lines and adds up what they say."""

    def __init__(self, little: Little, history: History, view: str, start: int | None = None) -> None:
        assert little.running is not None
        self.little = little
        self.tail = Tail(little.running, history, view, as_json=True)
        self.lines = self.tail.lines(start)
        self.held: Counter[Any] = Counter()
        self.at = -1
        self.wholes = 0
        self.errors: list[str] = []

    def read(self) -> None:
        """Until it is where the sidecar is."""
        assert self.little.running is not None
        goal = self.little.running.runtime.epoch
        meanwhile(self.little, lambda: self._read(goal), busy=False)

    def _read(self, goal: int) -> None:
        while self.at < goal:
            line = next(self.lines)
            if "columns" in line and line["whole"]:
                self.held, self.wholes = Counter(), self.wholes + 1
            elif "row" in line:
                self.held[tuple(line["row"].values())] += line["diff"]
            elif "in_error" in line:
                self.errors.append(line["in_error"])
                return
            self.at = line.get("resume", self.at)


@pytest.fixture
def history(shop: Little) -> History:
    assert shop.running is not None
    return History(shop.running.runtime, 1 << 20)


def some(shop: Little, seed: int, count: int = 4) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        shop.random(draw)
        shop.show_all()
        shop.turn()


def test_what_is_told_adds_up_to_the_view(shop: Little, history: History) -> None:
    follower = Follower(shop, history, "by_city")
    for seed in range(5):
        some(shop, seed)
        follower.read()
        assert +follower.held == answers(shop.state)["by_city"]
    assert follower.wholes == 1


def test_a_follower_goes_on_where_it_stopped(shop: Little, history: History) -> None:
    first = Follower(shop, history, "orders")
    first.read()
    some(shop, 1, 8)
    second = Follower(shop, history, "orders", first.at)
    second.held = first.held
    second.read()
    assert +second.held == answers(shop.state)["orders"]
    assert second.wholes == 0


def test_an_epoch_that_is_not_kept_is_refused_by_name(shop: Little) -> None:
    assert shop.running is not None
    history = History(shop.running.runtime, 600)
    follower = Follower(shop, history, "orders")
    follower.read()
    start = follower.at
    some(shop, 2, 12)
    with pytest.raises(TailError, match=r"not kept any more.*history_mib"):
        Follower(shop, history, "orders", start)
    with pytest.raises(TailError, match="not complete yet"):
        Follower(shop, history, "orders", 10_000)
    follower.read()  # who follows already is given the view whole again
    assert (+follower.held, follower.wholes) == (answers(shop.state)["orders"], 2)


def test_a_changed_view_is_given_whole(shop: Little, history: History) -> None:
    assert shop.running is not None
    follower = Follower(shop, history, "by_city")
    follower.read()
    changing = Changing(shop.running, history.renew)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS.replace("count(*) as n", "count(*) + 1 as n"))
    meanwhile(shop, lambda: changing.apply(drop=False))
    some(shop, 3)
    follower.read()
    assert +follower.held == Counter({(city, n + 1): 1 for city, n in answers(shop.state)["by_city"]})
    assert follower.wholes == 2


def test_a_view_in_error_says_so_and_comes_back_whole(shop: Little, history: History) -> None:
    assert shop.running is not None
    view = "  - {name: part, sinks: [s], sql: 'select id, 12 / v as x from public.customers'}\n"
    changing = Changing(shop.running, history.renew)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + view)
    meanwhile(shop, lambda: changing.apply(drop=False))
    follower = Follower(shop, history, "part")
    follower.read()
    shop.transact((CUSTOMERS, "c", (11, 0)) if (11, 1) not in shop.state[CUSTOMERS] else (CUSTOMERS, "u", (11, 0)))
    shop.show_all()
    shop.turn()
    follower.read()
    assert follower.errors == ["division by zero"]
    shop.transact((CUSTOMERS, "u", (11, 4)))
    shop.show_all()
    shop.turn()
    follower.read()
    assert +follower.held == Counter({(i, 12 // v): n for (i, v), n in (+shop.state[CUSTOMERS]).items()})
    assert follower.wholes == 2


def test_views_that_cannot_be_followed_are_refused_by_name(shop: Little, history: History) -> None:
    with pytest.raises(TailError, match="no such view"):
        Follower(shop, history, "nobody")
