"""Queries drawn from the whole grammar: none is answered differently, and the same seed draws the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from engine.dataflow.nodes import FilterNode
from sidecar.devstack.postgres import EmbeddedPostgres
from tests.oracle.grammar import Drawn
from tests.oracle.pipelined import Server
from tests.oracle.run import WRONG, queries_of, smaller, verdicts_of
from tests.oracle.trial import Verdict

BATCHES = 50
"""Of forty queries each, through twenty transactions."""
REFUSED = 0.5
"""The share that may be refused, of those that Postgres takes: it may not rise."""


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres) -> Iterator[Server]:
    with Server(postgres.url()) as made:
        yield made


def test_two_thousand_queries_are_equal_after_every_transaction(server: Server) -> None:
    found: list[Verdict] = []
    for seed in range(BATCHES):
        found += verdicts_of(server, queries_of(seed), seed)
        wrong = [v for v in found if v.kind in WRONG]
        assert not wrong, f"seed {seed}: {wrong[0].sql}\n{wrong[0].why}"
    refused, equal = (sum(v.kind == kind for v in found) for kind in ("refused", "equal"))
    assert refused < REFUSED * (refused + equal)


def test_a_wrong_answer_is_seen_and_made_small(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "select o.id as a, upper(o.status) as b from orders o where o.total > 5 and o.id > 0"
    assert verdicts_of(server, [sql], 7)[0].kind == "equal"
    monkeypatch.setattr(FilterNode, "of", lambda _self, deltas: deltas[0])

    def differing(some: list[str]) -> list[str]:
        return [v.sql for v in verdicts_of(server, some, 7) if v.kind == "different"]

    assert differing([sql]) == [sql]
    least = smaller(sql, differing)
    assert len(least) < len(sql) - 20
    assert "WHERE" in least


def test_the_same_seed_draws_the_same() -> None:
    assert queries_of(3) == queries_of(3)
    assert queries_of(3) != queries_of(4)
    drawn = [Drawn(random.Random(k)) for k in range(400)]
    used = set().union(*(d.used for d in drawn))
    assert {
        "WITH",
        "UNION",
        "LATERAL",
        "FULL JOIN",
        "EXISTS",
        "NOT IN",
        "GROUPING SETS",
        "FILTER",
        "scalar subquery",
    } <= used
