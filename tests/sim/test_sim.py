"""Ten lives from their seeds, one that is played twice, and guards without which lives go wrong. `make sim` and
`make sim-guards` do more of both."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.guards import GUARDS as ALL

GUARDS = (
    "the reclock log is synced",
    "an older generation is fenced from the database",
    "what a sink holds is left out",
    "a transaction waits for all its events",
)
"""One of each kind: a sync, a fence, a dedupe, an order."""


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of ours, where hashes are seeded."""
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip


@pytest.mark.timeout(900)
def test_ten_lives() -> None:
    told = ran("tests.sim.run", "--seeds", "10")
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]


def test_a_seed_plays_the_same_life_again() -> None:
    told = [ran("tests.sim.run", "--seeds", "2", "--seed", "77", "--trace") for _ in range(2)]
    assert told[0].returncode == 0, told[0].stdout[-3000:] + told[0].stderr[-3000:]
    traces = [[line for line in t.stdout.splitlines() if line.startswith("trace")] for t in told]
    assert len(traces[0]) == 2
    assert traces[0] == traces[1]


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_is_needed(name: str) -> None:
    told = ran("tests.sim.guards", name)
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
    assert "fails" in told.stdout


@pytest.mark.parametrize("name", ALL)
def test_what_a_guard_takes_away_is_there(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        ALL[name](patch)
