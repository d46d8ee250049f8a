"""What views changed since a commit: undone, the sink's rows are what SQL answered then, however far the sink is by now."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from headrace.sidecar.control.change_history import ChangeHistory
from headrace.sidecar.control.rewind import changed_since, registered
from tests.sidecar.support.little import VISITS, Little, answers

VIEWS = ["customers", "orders", "visits", "by_city"]


def burst(shop: Little, seed: int, count: int) -> list[int]:
    """Transactions that one step takes in; the LSN of each."""
    draw, before = random.Random(seed), set(shop.states)
    for _ in range(count):
        shop.random(draw)
    shop.show_all()
    shop.turn()
    return sorted(set(shop.states) - before)


def undone(shop: Little, history: ChangeHistory, lsn: int, epoch: int) -> dict[str, Counter[Any]]:
    assert shop.running is not None
    found = {name: Counter(shop.rows(name)) for name in VIEWS}
    for line in changed_since(shop.running, history, "shop", lsn, epoch, VIEWS):
        if "row" in line:
            found[line["view"]][tuple(map(int, line["row"]))] -= line["diff"]
        elif line["lost"]:
            del found[line["view"]]
    return {name: Counter({r: n for r, n in rows.items() if n}) for name, rows in found.items()}


def test_the_sink_is_wound_back_to_any_commit_since_somebody_registered(shop: Little) -> None:
    assert shop.running is not None
    runtime = shop.running.runtime
    history = ChangeHistory(runtime, 1 << 20)
    lines = registered(shop.running, "audit", sleep=lambda _: None)
    assert next(lines)["asks"] == "audit"
    assert runtime.each.names() == ["audit"]
    lsns = burst(shop, 1, 9) + burst(shop, 2, 7)
    for lsn in lsns:
        assert undone(shop, history, lsn, runtime.epoch) == answers(shop.states[lsn]), lsn
    assert next(lines)["epoch"] == runtime.epoch
    lines.close()  # type: ignore[attr-defined]  # it is a generator
    assert runtime.each.names() == []
    assert runtime.each.noted() == []


def test_without_it_the_commits_of_a_step_are_not_apart(shop: Little) -> None:
    assert shop.running is not None
    runtime = shop.running.runtime
    history = ChangeHistory(runtime, 1 << 20)
    runtime.each.ask("somebody", None, noting=True)
    runtime.each.names = list  # type: ignore[method-assign]  # as if nobody asked
    lsns = burst(shop, 1, 9)
    assert any(undone(shop, history, lsn, runtime.epoch) != answers(shop.states[lsn]) for lsn in lsns)


def test_a_view_whose_changes_are_not_kept_is_told_as_lost(shop: Little) -> None:
    assert shop.running is not None
    runtime = shop.running.runtime
    history = ChangeHistory(runtime, 600)
    lines = registered(shop.running, "audit", sleep=lambda _: None)
    next(lines)
    [first, *_] = [lsn for _ in range(9) for lsn in burst(shop, 3, 1)]
    shop.transact((VISITS, "c", (99, 1)))
    shop.show_all()
    shop.turn()
    lost = [
        line["view"]
        for line in changed_since(shop.running, history, "shop", first, runtime.epoch, [*VIEWS, "nobody"])
        if line.get("lost")
    ]
    assert "visits" in lost
    assert "nobody" in lost


@pytest.mark.parametrize("view", VIEWS)
def test_at_the_last_commit_there_is_nothing_to_undo(shop: Little, view: str) -> None:
    assert shop.running is not None
    history = ChangeHistory(shop.running.runtime, 600)
    told = list(changed_since(shop.running, history, "shop", shop.lsn, shop.running.runtime.epoch, [view]))
    assert told == [{"view": view, "lost": False}]
