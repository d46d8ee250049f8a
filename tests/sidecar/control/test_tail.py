"""A view followed: what is told, added up, is the view at every resume point, through changes of views and errors."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.change_history import ChangeHistory
from headrace.sidecar.control.tail import Tail, TailError
from headrace.sidecar.epochs.each_transaction import EachEnded
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.support.little import CUSTOMERS, VIEWS, Little, answers


class Follower:
    """Reads lines and adds up what they say."""

    def __init__(
        self,
        little: Little,
        history: ChangeHistory,
        view: str,
        start: int | None = None,
        *,
        each: bool = False,
        lag: float = 60.0,
    ) -> None:
        assert little.running is not None
        self.little = little
        self.states: dict[int, Counter[Any]] = {}
        self.tail = Tail(little.running, history, view, as_json=True, each=each, lag=lag)
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
            if "resume" in line:
                self.at = line["resume"]
                self.states[self.at] = +self.held


@pytest.fixture
def history(shop: Little) -> ChangeHistory:
    assert shop.running is not None
    return ChangeHistory(shop.running.runtime, 1 << 20)


def some(shop: Little, seed: int, count: int = 4) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        shop.random(draw)
        shop.show_all()
        shop.turn()


def test_what_is_told_adds_up_to_the_view(shop: Little, history: ChangeHistory) -> None:
    follower = Follower(shop, history, "by_city")
    for seed in range(5):
        some(shop, seed)
        follower.read()
        assert +follower.held == answers(shop.state)["by_city"]
    assert follower.wholes == 1


def test_a_follower_goes_on_where_it_stopped(shop: Little, history: ChangeHistory) -> None:
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
    history = ChangeHistory(shop.running.runtime, 600)
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


def test_an_epoch_inside_a_range_is_refused_with_the_two_nearest(shop: Little, history: ChangeHistory) -> None:
    """Several transactions were taken in as one: nobody here knows the view between them."""
    assert shop.running is not None
    draw, before = random.Random(4), shop.running.runtime.epoch
    for _ in range(5):
        shop.random(draw)
    shop.show_all()
    shop.turn()
    with pytest.raises(TailError, match=f"as one with others.*nearest={before} and {before + 5}"):
        Follower(shop, history, "orders", before + 2)
    follower = Follower(shop, history, "orders", before + 5)
    some(shop, 5)
    follower.read()
    assert follower.wholes == 0


def test_a_changed_view_is_given_whole(shop: Little, history: ChangeHistory) -> None:
    assert shop.running is not None
    follower = Follower(shop, history, "by_city")
    follower.read()
    changing = ViewChanger(shop.running, history.renew)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS.replace("count(*) as n", "count(*) + 1 as n"))
    meanwhile(shop, lambda: changing.apply(drop=False))
    some(shop, 3)
    follower.read()
    assert +follower.held == Counter({(city, n + 1): 1 for city, n in answers(shop.state)["by_city"]})
    assert follower.wholes == 2


def test_a_view_in_error_says_so_and_comes_back_whole(shop: Little, history: ChangeHistory) -> None:
    assert shop.running is not None
    view = "  - {name: part, sinks: [s], sql: 'select id, 12 / v as x from public.customers'}\n"
    changing = ViewChanger(shop.running, history.renew)
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


def test_views_that_cannot_be_followed_are_refused_by_name(shop: Little, history: ChangeHistory) -> None:
    with pytest.raises(TailError, match="no such view"):
        Follower(shop, history, "nobody")


def at_once(shop: Little, seed: int, count: int) -> None:
    """Transactions that are all there when the loop looks."""
    draw = random.Random(seed)
    for _ in range(count):
        shop.random(draw)
    shop.show_all()
    shop.turn()


def test_who_asks_for_each_transaction_is_told_each_by_itself(shop: Little, history: ChangeHistory) -> None:
    """The sum at every `resume` is the view after that transaction, though all of them are taken in by one step."""
    assert shop.running is not None
    each = shop.running.runtime.each
    follower = Follower(shop, history, "by_city", each=True)
    assert each.names() == ["tail of view by_city"]
    follower.read()
    begun = follower.at
    at_once(shop, 8, 12)
    follower.read()
    states = [answers(state)["by_city"] for _, state in sorted(shop.states.items())]
    told = [state for epoch, state in sorted(follower.states.items()) if epoch >= begun]
    assert follower.at == begun + 12
    assert follower.wholes == 1
    expected = {begun + i: state for i, state in enumerate(states[-13:])}
    assert {e: s for e, s in follower.states.items() if e >= begun} == {
        e: expected[e] for e in follower.states if e >= begun
    }
    assert len(told) > 4, "a transaction that changes nothing of the view is not told, most do"
    follower.lines.close()
    assert each.names() == []
    at_once(shop, 9, 6)
    assert shop.running.runtime.ranges.coarse_after(begun + 12) == range(begun + 13, begun + 19)
    assert (each.cost.ranges, each.cost.otherwise) == (12, 1)


def test_it_would_not_be_so_if_it_did_not_ask(shop: Little, history: ChangeHistory) -> None:
    follower = Follower(shop, history, "by_city")
    follower.read()
    begun = follower.at
    at_once(shop, 8, 12)
    lines = []
    meanwhile(shop, lambda: lines.extend(next(follower.lines) for _ in range(2)), busy=False)
    follower.lines.close()
    assert {(line.get("first"), line["epoch"]) for line in lines} == {(begun + 1, begun + 12)}, "a change carries both"


def test_each_from_an_epoch_is_refused_where_what_followed_was_taken_in_as_one(
    shop: Little, history: ChangeHistory
) -> None:
    assert shop.running is not None
    runtime = shop.running.runtime
    before = runtime.epoch
    at_once(shop, 4, 5)
    with pytest.raises(
        TailError, match=f"were taken in as one.*as_one={before + 1} to {before + 5}.*from {before + 5} on"
    ):
        Follower(shop, history, "orders", before, each=True)
    assert runtime.each.names() == []
    follower = Follower(shop, history, "orders", before + 5, each=True)
    follower.held = answers(shop.state)["orders"]
    at_once(shop, 5, 6)
    follower.read()
    assert (follower.wholes, +follower.held) == (0, answers(shop.state)["orders"])
    another = Follower(shop, history, "orders", before + 7, each=True)
    another.read()
    assert (another.wholes, another.at) == (0, before + 11)


def test_one_that_holds_the_intake_up_is_ended_by_name(shop: Little, history: ChangeHistory) -> None:
    assert shop.running is not None
    runtime, now = shop.running.runtime, [0.0]
    runtime.each._clock = lambda: now[0]
    follower = Follower(shop, history, "orders", each=True, lag=3.0)
    patient = Follower(shop, history, "orders", each=True, lag=30.0)
    follower.read()
    patient.read()
    source = runtime.parts.intakes[0].source
    source.batch = 1  # type: ignore[attr-defined]  # the double's: more waits than it reads
    draw = random.Random(2)
    for _ in range(12):
        shop.random(draw)
    shop.show_all()
    shop.turn(2)
    now[0] += 4.0
    shop.turn()
    assert runtime.each.names() == ["tail of view orders"]
    [ended] = runtime.each.take_ended()
    assert (ended.name, ended.lag) == ("tail of view orders", 3.0)
    source.batch = 1 << 16  # type: ignore[attr-defined]
    some(shop, 6)
    with pytest.raises(EachEnded, match=r"intake has not come to the end.*who=tail of view orders, lag=3"):
        [follower.read() for _ in range(2)]  # what it had until then is told first
    patient.read()
    assert +patient.held == answers(shop.state)["orders"]


def test_one_whose_changes_are_not_kept_any_more_is_ended_by_name(shop: Little) -> None:
    """Else it would be given the view whole, and miss transactions."""
    assert shop.running is not None
    history = ChangeHistory(shop.running.runtime, 600)
    follower = Follower(shop, history, "orders", each=True)
    follower.read()
    some(shop, 2, 12)
    with pytest.raises(EachEnded, match="its reader takes longer"):
        follower.read()
    assert shop.running.runtime.each.names() == []
