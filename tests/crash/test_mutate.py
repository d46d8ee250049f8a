"""A state folder that is not as it was written gives the old state, the new one or a named error, never a wrong answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.sidecar.state.generation import numbers, open_generation
from tests.crash.mutate import NAMED, Case, every_byte, mutants, whole


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path, 2)
    yield made
    made.close()


def test_bytes_cut_and_flipped_everywhere_are_noticed() -> None:
    outcomes, wrong = every_byte(step=997, seed=1)
    assert wrong == []
    assert outcomes.total() > 100
    assert {"old state", "checkpoint", "reclock"} <= outcomes.keys()


def test_a_run_on_a_mutated_folder_gives_sqls_answers_or_names_what_is_wrong() -> None:
    outcomes, wrong = whole(25, seed=5)
    assert wrong == []
    assert outcomes["recovered"] > 5
    assert sum(outcomes[code] for code in NAMED) > 2


def test_a_log_that_ends_between_the_frontiers_of_two_sinks_makes_neither_wrong(case: Case) -> None:
    """Found by cutting the log: the sink that was not beyond it lost what was held back for the other one."""
    log = open_generation(case.state, numbers(case.state)[-1]).log.read_bytes().splitlines(keepends=True)
    epochs = {name: store.frontier.epoch for name, store in case.stores.items() if store.frontier is not None}
    assert epochs["t"] < epochs["s"]
    case.shop.batch = 1
    for kept in range(len(log) + 1):
        state = case.restore()
        open_generation(state, numbers(state)[-1]).log.write_bytes(b"".join(log[:kept]))
        assert case.outcome() == "recovered", f"{kept} lines kept"


def test_the_mutants_are_every_cut_and_every_bit() -> None:
    found = list(mutants(b"ab", 1, 0))
    assert len(set(found)) == len(found) == 18
    assert {b"", b"a"} <= set(found)
