"""Recursive queries drawn at random: none is answered differently by Postgres after any transaction."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.view_models import Strategy
from tests.oracle.pipelined import Server
from tests.oracle.recursive_cases import Recursive, queries_of
from tests.oracle.run import verdicts_of
from tests.oracle.trial import Steps, Verdict, tried
from tests.views.features import Refused
from tests.views.recursive import RECURSIVE_REFUSED

BATCHES, QUERIES = 5, 40


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres) -> Iterator[Server]:
    with Server(postgres.url()) as made:
        yield made


@pytest.mark.timeout(300)
def test_recursive_queries_are_equal_after_every_transaction(server: Server) -> None:
    found: list[Verdict] = []
    for seed in range(BATCHES):
        found += verdicts_of(server, queries_of(seed, QUERIES), seed)
        other = [v for v in found if v.kind != "equal"]
        assert not other, f"seed {seed}: {other[0].kind}: {other[0].sql}\n{other[0].why}"
    assert len(found) == BATCHES * QUERIES


@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", ["auto", "update", "history"])
@pytest.mark.parametrize("step_work", [1, 300])
def test_what_leaves_its_steps_comes_back_with_the_answer_of_postgres(
    server: Server, step_work: int, strategy: Strategy
) -> None:
    returns: list[str] = []
    for seed in range(4):
        found = tried(server, queries_of(seed, QUERIES), seed, 20, Steps(step_work, strategy, returns))
        other = [v for v in found if v.kind != "equal"]
        assert not other, f"seed {seed}: {other[0].kind}: {other[0].sql}\n{other[0].why}"
    assert len(returns) > 50


OURS = ("of a type without equality", "three deep", "outer LIMIT", "look different", "put out the", "without RECURSIVE")
"""Parts of the features that Postgres takes, or refuses in words that it has for other set operations too."""


ALIKE = [case for case in RECURSIVE_REFUSED if not any(part in case.feature for part in OURS)]


@pytest.mark.parametrize("case", ALIKE, ids=lambda case: case.feature)
def test_refused_in_the_words_of_postgres(server: Server, case: Refused) -> None:
    assert server.begin([case.sql]) == [case.reason]


def test_the_same_seed_draws_the_same() -> None:
    assert queries_of(3, 20) == queries_of(3, 20)
    assert queries_of(3, 20) != queries_of(4, 20)
    used = set().union(*(Recursive(Random(k)).used for k in range(800)))
    assert {
        "union", "union all", "correlated", "in a subquery", "an item that nothing reads", "a forward reference", "failing",
        "a column list", "DISTINCT", "DISTINCT ON", "LIMIT", "OFFSET", "a window function", "GROUP BY", "EXCEPT", "INTERSECT",
        "an aggregate", "an aggregate of nothing", "an aggregate by groups", "a WITH read twice", "a recursion within",
        "a recursion over the recursion", "LEFT JOIN", "RIGHT JOIN", "LATERAL", "LATERAL of a function", "EXISTS", "NOT EXISTS",
        "a scalar subquery", "a WITH within", "a WITH of its own", "CYCLE", "SEARCH",
    } <= used  # fmt: skip
