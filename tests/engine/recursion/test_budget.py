"""What an Update may do: a part of a Bootstrap, or more where the end that its rounds foretell is less than a Bootstrap's."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.engine.recursion.budget import SWITCH, Budget, budget
from headrace.engine.recursion.meter import OverBudget
from headrace.engine.recursion.state import Store
from headrace.engine.recursion.switching import SparseRecursion, Strategy
from tests.engine.recursion.histories import changes_of, state_of, translated
from tests.reference.elastic import PROGRAMS, Fact

WHOLE, LEAST, ROUNDS = 1_000_000, 100, 10


def stores() -> list[Store]:
    """A hundred rows of one derivation each, as many in each of ten rounds."""
    store = Store(1)
    places = store.place(np.arange(100, dtype=np.int64).reshape(-1, 1))
    store.set(places, 1 + np.arange(100, dtype=np.int32) // ROUNDS, np.ones(100, np.int32))
    return [store]


def ended(spent: list[int]) -> tuple[bool, int]:
    """Whether an Update that has spent so much by the end of each round comes to its end, and how much it had spent."""
    meter = budget(10, 100_000, WHOLE, stores(), LEAST, None)
    try:
        for now, by_then in enumerate(spent):
            meter.spend(by_then - meter.spent)
            meter.round_is_over(now)
    except OverBudget:
        return False, meter.spent
    return True, meter.spent


def test_an_update_whose_end_is_foreseen_goes_past_its_part() -> None:
    assert ended([k * 50_000 for k in range(1, 11)]) == (True, 500_000)


@pytest.mark.parametrize(
    ("a_round", "dropped_at"), [(70_000, 210_000), (150_000, 300_000), (250_000, 250_000)], ids=str
)
def test_an_update_that_comes_near_to_a_bootstrap_is_dropped_past_its_part(a_round: int, dropped_at: int) -> None:
    assert ended([k * a_round for k in range(1, 11)]) == (False, dropped_at)


def test_an_update_that_grows_beyond_a_whole_bootstrap_is_dropped_late() -> None:
    assert ended([50_000, 100_000, 150_000, 200_000, 250_000, 600_000]) == (False, 600_000)
    assert ended([50_000, 100_000, 150_000, 200_000, 250_000, 300_000, 350_000, 900_000]) == (False, 900_000)


def test_an_update_that_is_nearly_over_goes_on_whatever_it_took() -> None:
    assert ended([*(k * 50_000 for k in range(1, 9)), 800_000, 1_100_000]) == (True, 1_100_000)


def test_nothing_is_foreseen_of_large_changes_and_of_a_part_that_a_view_says() -> None:
    assert isinstance(budget(10, 100_000, WHOLE, stores(), LEAST, None), Budget)
    large = budget(10_000, 100_000, WHOLE, stores(), LEAST, None)
    assert not isinstance(large, Budget)
    assert large.most < SWITCH * WHOLE
    fixed = budget(10, 100_000, WHOLE, stores(), LEAST, 0.2)
    assert not isinstance(fixed, Budget)
    assert fixed.most == 200_000
    assert budget(10, 100_000, 0, stores(), LEAST, None).most == LEAST


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


def test_updates_that_come_to_more_than_a_bootstrap_are_not_tried_again() -> None:
    program, before = PROGRAMS["closure"], graph()
    recursion = SparseRecursion(translated(program), Strategy.AUTO, switch=10.0)
    recursion.follow(changes_of(program, set(), before))
    for k in range(4):
        after = graph() - set(sorted(graph())[k :: len(graph()) // 200])
        recursion.follow(changes_of(program, before, after))
        before = after
    assert (recursion.account.updates, recursion.account.dropped, recursion.account.not_tried) == (3, 0, 1)
