"""Fifty Datalog programs against the naive twin, and fifty against a loop in Postgres; `python -m tests.oracle.datalog` and
`python -m tests.oracle.datalog_postgres` run more."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.oracle.datalog import Drawn, trial
from tests.oracle.datalog_postgres import Server
from tests.oracle.datalog_postgres import trial as postgres_trial
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(10))
def test_programs_drawn_at_random(seed: int) -> None:
    """Five programs a test, so that workers share them."""
    assert [found for s in range(5) if (found := trial(5000 + 5 * seed + s, 8))] == []


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres) -> Iterator[Server]:
    made = Server(postgres.url())
    yield made
    made.db.close()


@pytest.mark.parametrize("seed", seeds(10))
def test_programs_are_those_of_a_loop_in_postgres(server: Server, seed: int) -> None:
    """Five programs a test, with `min` and `max` in their own recursion records, and NULLs in heads."""
    assert [found for s in range(5) if (found := postgres_trial(server, 7000 + 5 * seed + s, 3))] == []


def test_programs_for_postgres_have_extremes_in_their_recursion() -> None:
    texts = [Drawn(random.Random(7000 + k), extremes=True).program() for k in range(50)]
    assert sum("v = min d" in t for t in texts) > 10
    assert sum("v = max d" in t for t in texts) > 10
    assert sum("null::" in t for t in texts) > 10
    assert sum("pairs([x, [y, 2]], x)" in t for t in texts) > 10
