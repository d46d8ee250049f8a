"""What an Update may do: a part of a Bootstrap, and for each round that is over what it spares the Bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.engine.recursion.budget import SWITCH, WorkByRound, budget
from headrace.engine.recursion.meter import OverBudget
from headrace.engine.recursion.state import Store
from headrace.engine.recursion.switching import SparseRecursion, Strategy
from tests.engine.recursion.histories import changes_of, state_of, translated
from tests.reference.elastic import PROGRAMS, Fact

WHOLE, LEAST, ROUNDS = 1_000_000, 100, 10
EVEN = np.arange(ROUNDS + 1) / ROUNDS
"""A Bootstrap of ten rounds that take as much each."""


def ended(spent: list[int], size: int = 10) -> tuple[bool, int]:
    """Whether an Update that has spent so much by the end of each round comes to its end, and how much it had spent."""
    meter = budget(size, 100_000, WHOLE, lambda: EVEN, LEAST)
    try:
        for now, by_then in enumerate(spent):
            meter.spend(by_then - meter.spent)
            meter.round_is_over(now)
    except OverBudget:
        return False, meter.spent
    return True, meter.spent


@pytest.mark.parametrize("a_round", [10_000, 50_000, 60_000])
def test_an_update_whose_rounds_take_less_than_a_bootstraps_goes_on(a_round: int) -> None:
    assert ended([k * a_round for k in range(1, 11)]) == (True, 10 * a_round)


@pytest.mark.parametrize(("a_round", "rounds"), [(100_000, 2), (150_000, 1), (250_000, 1)], ids=str)
def test_an_update_whose_rounds_take_more_is_dropped(a_round: int, rounds: int) -> None:
    assert ended([k * a_round for k in range(1, 11)]) == (False, rounds * a_round)


@pytest.mark.parametrize("rounds", range(ROUNDS))
def test_whenever_it_is_dropped_both_come_to_little_more_than_a_bootstrap(rounds: int) -> None:
    cheap = [(k + 1) * 60_000 for k in range(rounds)]
    is_over, spent = ended([*cheap, WHOLE])
    assert not is_over
    meter = budget(10, 100_000, WHOLE, lambda: EVEN, LEAST)
    for now, by_then in enumerate(cheap):
        meter.spend(by_then - meter.spent)
        meter.round_is_over(now)
    # The round in which it is dropped is handed over too.
    assert meter.most + WHOLE * (1 - EVEN[rounds]) <= 1.25 * WHOLE
    assert spent > meter.most


def test_of_a_large_change_less_is_tried() -> None:
    assert (
        budget(10_000, 100_000, WHOLE, lambda: EVEN, LEAST).most < budget(10, 100_000, WHOLE, lambda: EVEN, LEAST).most
    )
    assert budget(10, 100_000, 0, lambda: EVEN, LEAST).most == LEAST


def test_the_work_by_round_is_the_last_bootstraps_or_else_told_by_the_rows() -> None:
    store, found = Store(1), WorkByRound()
    places = store.place(np.arange(100, dtype=np.int64).reshape(-1, 1))
    store.set(places, 1 + np.arange(100, dtype=np.int32) // ROUNDS, np.ones(100, np.int32))
    assert found.shares([store]).tolist() == EVEN.tolist()
    found.told(np.zeros(1), [0, 10, 40, 100])
    assert found.shares([store]).tolist() == [0, 0.1, 0.4, 1]
    # Of a Bootstrap that went on from the second round, after which it took 20 and 40.
    found.told(200 * found.shares([store])[:3], [0, 0, 0, 20, 60])
    assert found.shares([store]).tolist() == [0, 20 / 140, 80 / 140, 100 / 140, 1]


def graph() -> set[Fact]:
    """Twice as many edges as nodes, of which nearly every one is on the shortest path of some pair."""
    pairs = np.random.default_rng(3).integers(0, 800, (1_600, 2)).tolist()
    return {("e", (a, b)) for a, b in pairs}


@pytest.mark.parametrize(
    ("gone", "switch", "way"),
    [
        (8, None, "updates"),
        (8, 0.2, "dropped"),
        (30, 0.2, "dropped"),
        (400, None, "dropped"),
        (400, 10.0, "updates"),
    ],
    ids=str,
)
def test_closure_of_a_random_graph(gone: int, switch: float | None, way: str) -> None:
    program, before = PROGRAMS["closure"], graph()
    after = before - set(sorted(before)[:: len(before) // gone][:gone])
    recursion = SparseRecursion(translated(program), Strategy.AUTO, switch)
    recursion.follow(changes_of(program, set(), before))
    whole = recursion.account.work
    followed = recursion.follow(changes_of(program, before, after))
    account = recursion.account
    assert {"dropped": account.dropped, "updates": account.updates}[way] == 1
    assert account.bootstraps == 1 + account.dropped
    if switch is None:
        assert followed.work > SWITCH * whole if way == "updates" else followed.work < 1.25 * whole + account.work
    again = SparseRecursion(translated(program), Strategy.BOOTSTRAP)
    again.follow(changes_of(program, set(), after))
    assert state_of(recursion, program) == state_of(again, program)


def test_what_a_bootstrap_takes_is_told_by_bootstraps_alone() -> None:
    program = PROGRAMS["closure"]
    recursion = SparseRecursion(translated(program), Strategy.UPDATE)
    before: set[Fact] = {("e", (0, 1))}
    recursion.follow(changes_of(program, set(), before))
    whole = recursion.account.work
    for size in (300, 1, 300):
        after: set[Fact] = {("e", (0, k + 1)) for k in range(size)}
        recursion.follow(changes_of(program, before, after))
        before = after
        assert recursion.account.work == whole


def test_updates_that_come_to_more_than_a_bootstrap_are_not_tried_again() -> None:
    program, before = PROGRAMS["closure"], graph()
    recursion = SparseRecursion(translated(program), Strategy.AUTO, switch=10.0)
    recursion.follow(changes_of(program, set(), before))
    for k in range(4):
        after = graph() - set(sorted(graph())[k :: len(graph()) // 200])
        recursion.follow(changes_of(program, before, after))
        before = after
    assert (recursion.account.updates, recursion.account.dropped, recursion.account.not_tried) == (3, 0, 1)
