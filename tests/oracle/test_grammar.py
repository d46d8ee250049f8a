"""Queries drawn from the whole grammar: none is answered differently, and the same seed draws the same."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headrace.engine.dataflow.stateless import FilterNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.schema import Kind
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.oracle import pipelined, run, trial
from tests.oracle.grammar import Drawn
from tests.oracle.pipelined import Answer, Server
from tests.oracle.run import TRANSACTIONS, WRONG, queries_of, smaller, verdicts_of
from tests.oracle.test_views import Change, bare
from tests.oracle.trial import Verdict

BATCHES = 5
"""Of forty queries each, through twenty transactions."""
REFUSED = 0.01
"""The share that may be refused, of those that Postgres takes: it may not rise."""


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres) -> Iterator[Server]:
    with Server(postgres.url()) as made:
        yield made


@pytest.mark.timeout(900)
def test_drawn_queries_are_equal_after_every_transaction(server: Server) -> None:
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


def why(server: Server, sql: str) -> str:
    [verdict] = verdicts_of(server, [sql], 7)
    return f"{verdict.kind}: {verdict.why}".rstrip(": ")


def test_other_types_are_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "select count(*) as a, sum(o.total) as b from orders o"
    assert why(server, sql) == "equal"
    monkeypatch.setattr(trial, "bare", lambda kind: "text" if kind.kind is Kind.BIGINT else bare(kind))
    assert why(server, sql).startswith(
        "different: columns: ours (('a', 'text'), ('b', 'numeric')), Postgres's (('a', 'bigint')"
    )


def test_errors_in_other_words_are_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "select o.status::integer as a from orders o"
    assert why(server, sql) == "equal"
    monkeypatch.setattr(pipelined, "_message", lambda _result: "some other error")
    assert "Postgres fails: some other error; ours: ['invalid input syntax" in why(server, sql)


def test_only_queries_of_changed_tables_are_asked_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    transaction = Server.transaction

    def counted(of: Server, changes: list[Change], some: list[int]) -> Mapping[int, Answer]:
        asked.append(some)
        return transaction(of, changes, some)

    monkeypatch.setattr(Server, "transaction", counted)
    sql = "select p.id as a from products p"
    assert why(server, sql) == "equal"
    assert asked[0] == [0]
    assert 0 < len([some for some in asked if some]) < len(asked) == TRANSACTIONS
    monkeypatch.setattr(trial, "_reads", lambda _sql: frozenset())
    assert "ours changes, but no table that it reads does" in why(server, sql)


def test_what_is_raised_is_told_of_the_query_that_raised(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(_node: FilterNode, _deltas: object) -> None:
        raise InvariantBroken("not as promised")

    monkeypatch.setattr(FilterNode, "of", raising)
    found = verdicts_of(server, ["select id as a from orders", "select id as a from orders where total > 5"], 7)
    assert [v.kind for v in found] == ["equal", "broken"]
    assert "not as promised" in found[1].why


def test_sums_are_of_the_last_lines_of_the_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BATCHES", tmp_path / "batches.jsonl")
    told: list[dict[str, object]] = []
    monkeypatch.setattr(run.counts, "write", lambda _name, facts: told.append(facts))
    line = {"queries": 40, "refused": {}, "wrong": [], "seconds": 1.0, "commit": "a"}
    lines = [
        {**line, "seed": 1, "counts": {"equal": 40}},
        {**line, "seed": 2, "counts": {"different": 1}, "wrong": [{"kind": "different", "sql": "select"}]},
        {**line, "seed": 9, "counts": {"equal": 40}},
        {**line, "seed": 2, "counts": {"equal": 38, "refused": 2}, "refused": {"no": 2}, "commit": "b"},
    ]
    run.BATCHES.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    kept = run.kept(range(1, 4))
    assert sorted(kept) == [1, 2]
    assert run.report(range(1, 4), list(kept.values()), 2.0) == 0
    assert {"queries": 80, "equal": 78, "refused": 2, "different": 0, "commits": ["a", "b"]}.items() <= told[0].items()
    run.BATCHES.write_text("".join(f"{json.dumps(one)}\n" for one in lines[:2]))
    assert run.report(range(1, 4), list(run.kept(range(1, 4)).values()), 2.0) == 1


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
        "failing",
        "LIMIT by a subquery",
        "LEFT JOIN of a function",
        "ROW",
    } <= used
