"""Recursion in Datalog beyond rules that only add: extremes of their own recursion, and rounds from nothing."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.recursive import RecursiveNode
from headrace.views.compile import check_views, compile_views
from headrace.views.explain import explain
from headrace.views.limits import Unstratified
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import load, programs_views
from headrace.views.yaml_reader import ConfigError
from tests.oracle.datalog import TABLES, catalog, rows_of, schema_of, upserts
from tests.reference.datalog import Row, evaluate

INPUT = (
    ".input h(a, b, w) = public.h(c0, c1, c2)\n.input e(a, b) = public.e(c0, c1)\n.input f(a, b) = public.f(c0, c1)\n"
)
PATHS = """
step(y, 0) :- f(y, _).
step(y, d + w) :- dist(x, d), e(x, y), w = x % 3 + 1.
dist(y, m) :- step(y, _), m = min d : { step(y, d) }.
.output dist
"""
DIRECT = """
dist(x, 0) :- f(x, 0).
dist(y, m) :- e(_, y), m = min d + 1 : { dist(x, d), e(x, y), d < 4 }.
.output dist
"""
WIDEST = """
wide(x, 9) :- f(x, _).
over(y, least(w, y + 2)) :- wide(x, w), e(x, y).
wide(y, m) :- over(y, _), m = max w : { over(y, w) }.
.output wide
"""


def answers(
    text: str, steps: list[dict[str, list[Row]]], unstratified: Unstratified | None = None, rounds: int = 100
) -> list[dict[str, set[Row]]]:
    """The rows of each output after each step, in which each table has the rows given; errors are rows of their text."""
    views = compile_views(
        programs_views(ViewSpec("p", INPUT + text, unstratified=unstratified, rounds=rounds)), catalog()
    )
    flow, outputs = Dataflow(), {}
    for name in TABLES:
        flow.table(f"public.{name}", schema_of(name))
    rendered: dict[str, Collection] = {}
    for view in views:
        rendered[view.name] = render(view, flow, rendered)
        outputs[view.spec.relation] = view, rendered[view.name].output(view.name)
    held: dict[str, int] = {}
    found = []
    for epoch, tables in enumerate(steps):
        for name, rows in tables.items():
            changes = [(epoch, (name, key, row)) for key, row in enumerate(rows)]
            changes += [(epoch, (name, key, None)) for key in range(len(rows), held.get(name, 0))]
            held[name] = len(rows)
            flow.push(f"public.{name}", upserts(name, changes))
        flow.step(epoch + 1)
        found.append({n: _set(rows_of(output, view, epoch)) for n, (view, output) in outputs.items()})
    return found


def _set(rows: Counter[Row]) -> set[Row]:
    assert set(rows.values()) <= {1}
    return set(rows)


def drawn(rng: random.Random, steps: int) -> list[dict[str, list[Row]]]:
    """Edges and roots, which come and go."""
    return [
        {
            "e": [(rng.randint(0, 7), rng.randint(0, 7)) for _ in range(rng.randint(0, 14))],
            "f": [(rng.randint(0, 7), rng.randint(0, 1)) for _ in range(rng.randint(0, 2))],
        }
        for _ in range(steps)
    ]


@pytest.mark.parametrize("text", [PATHS, DIRECT])
def test_shortest_paths_follow_inserts_and_deletes(text: str) -> None:
    for seed in range(6):
        steps = drawn(random.Random(seed), 12)
        found = answers(text, steps)
        for tables, got in zip(steps, found, strict=True):
            want = evaluate(INPUT + text, {"h": set(), **{n: set(rows) for n, rows in tables.items()}})
            assert got["dist"] == want["dist"], (seed, tables)
            assert text is DIRECT or len({x for x, _ in got["dist"]}) == len(got["dist"])


def test_shortest_paths_are_those_of_dijkstra() -> None:
    rng = random.Random(7)
    steps = drawn(rng, 8)
    for tables, got in zip(steps, answers(PATHS, steps), strict=True):
        best = {x: 0 for x, _ in tables["f"]}
        for _ in range(9):
            for x, y in tables["e"]:
                if x in best:
                    best[y] = min(best.get(y, 99), best[x] + x % 3 + 1)
        assert got["dist"] == set(best.items())


def test_negative_cycles_are_errors_while_they_stand() -> None:
    text = PATHS.replace("x % 3 + 1", "-1")
    specs = programs_views(ViewSpec("p", INPUT + text, rounds=50))
    assert "the minimum of step only improves" in explain(compile_views(specs, catalog())[0])
    steps: list[dict[str, list[Row]]] = [
        {"e": [(0, 1), (1, 2)], "f": [(0, 0)]},
        {"e": [(0, 1), (1, 2), (2, 0)], "f": [(0, 0)]},
        {"e": [(0, 1), (1, 2)], "f": [(0, 0)]},
    ]
    first, second, third = answers(text, steps, rounds=50)
    assert first["dist"] == third["dist"] == {(0, 0), (1, -1), (2, -2)}
    [said] = [row[1] for row in second["dist"] if row[0] == "error"]
    assert "did not end within 50 rounds" in str(said)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (PATHS.replace("step(y, d + w)", "step(y, w - d)"), "is computed with otherwise than by adding"),
        (PATHS.replace("e(x, y),", "e(x, y), d > 1,"), "stands in a condition that a better one may not meet"),
        (PATHS.replace("e(x, y),", "e(x, y), f(d, _),"), "is compared with one value"),
        (PATHS.replace("e(x, y),", "e(x, y), !f(d, _),"), "is looked for by negation"),
        (PATHS.replace("dist(x, d), e(x, y)", "dist(x, 1), d = 1, e(x, y)"), "is compared with one value"),
        (PATHS.replace("e(x, y),", "e(x, y), 0 < max q : { step(x, q) },"), "aggregated"),
        (WIDEST, "is computed with otherwise"),
    ],
)
def test_what_a_better_value_may_take_back_is_refused(rules: str, reason: str) -> None:
    errors = check_views(programs_views(ViewSpec("p", INPUT + rules)), catalog()).errors
    assert any(reason in e.what for e in errors), [e.what for e in errors]
    assert all("unstratified: {rounds: 1000}" in e.hint for e in errors)


CONTROL = """
// Who owns more than half of a company, itself or by companies that it controls, controls it.
owns(x, x, y, w) :- h(x, y, w).
owns(x, z, y, w) :- controls(x, z), h(z, y, w).
controls(x, y) :- owns(x, _, y, _), t = sum w : { owns(x, _, y, w) }, t > 50.
.output controls
"""
WIN = "win(x) :- e(x, y), !win(y).\n.output win\n"


def test_rounds_from_nothing_until_nothing_changes() -> None:
    """A game without cycles has one answer, which the rounds come to."""
    for seed in range(4):
        rng = random.Random(seed)
        steps = [{"e": [(a, b) for a, b in t["e"] if a < b]} for t in drawn(rng, 8)]
        for tables, got in zip(steps, answers(WIN, steps, Unstratified(rounds=50)), strict=True):
            moves: dict[int, set[int]] = {}
            for a, b in tables["e"]:
                moves.setdefault(a, set()).add(b)
            wins: dict[int, bool] = {}
            for node in range(7, -1, -1):
                wins[node] = any(not wins[b] for b in moves.get(node, ()))
            assert got["win"] == {(n,) for n, won in wins.items() if won}


def test_at_the_limit_there_is_an_error_or_the_last_round() -> None:
    cycle: list[dict[str, list[Row]]] = [{"e": [(0, 0)]}, {"e": [(0, 1)]}]
    looping, ended = answers(WIN, cycle, Unstratified(rounds=20))
    assert "error" in {row[0] for row in looping["win"]}
    assert ended["win"] == {(0,)}
    for rounds, rows in ((1, {(0,)}), (2, set()), (3, {(0,)}), (4, set())):
        looping, ended = answers(WIN, cycle, Unstratified(rounds=rounds, at_limit="return"))
        assert looping["win"] == rows == evaluate(INPUT + WIN, {"h": set(), "f": set(), "e": {(0, 0)}}, rounds)["win"]
        assert ended["win"] == {(0,)}


def test_company_control() -> None:
    """Shares are summed over companies that are controlled, which is not stratified."""
    text = CONTROL.replace("h(x, y, w)", "h(x, y, s), w = s::bigint").replace("h(z, y, w)", "h(z, y, s), w = s::bigint")
    shares: list[Row] = [(1, 2, "60"), (1, 3, "30"), (2, 3, "25"), (3, 4, "51"), (4, 1, "50")]
    first, second = answers(text, [{"h": shares}, {"h": shares[1:]}], Unstratified(rounds=100))
    assert first["controls"] == {(1, 2), (1, 3), (1, 4), (3, 4)}
    assert second["controls"] == {(3, 4)}


def test_it_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "v.yaml"
    more = "unstratified: {rounds: 30, at_limit: return}"
    path.write_text(f"version: 1\nviews: [{{name: p, datalog: 'r(1). .output r', {more}}}]\n")
    assert load(path)[0].unstratified == Unstratified(rounds=30, at_limit="return")
    path.write_text(f"version: 1\nviews: [{{name: p, sql: select 1, {more}}}]\n")
    with pytest.raises(ConfigError, match="unstratified is of a program"):
        load(path)


def test_a_group_that_several_outputs_share_is_computed_once() -> None:
    text = """
    odd(x) :- e(0, x).
    even(y) :- odd(x), e(x, y).
    odd(y) :- even(x), e(x, y).
    both(x) :- odd(x), even(x).
    .output odd, even, both
    """
    views = compile_views(programs_views(ViewSpec("p", INPUT + text)), catalog())
    flow = Dataflow()
    rendered: dict[str, Collection] = {}
    for view in views:
        rendered[view.name] = render(view, flow, rendered)
    groups = {n for c in rendered.values() for n in reachable([c.node]) if isinstance(n, RecursiveNode)}
    assert len(groups) == 1
    edges: list[Row] = [(0, 1), (1, 2), (2, 3), (3, 1)]
    [found] = answers(text, [{"e": edges}])
    assert found == {"odd": {(1,), (2,), (3,)}, "even": {(1,), (2,), (3,)}, "both": {(1,), (2,), (3,)}}
    [found] = answers(text, [{"e": edges[:3]}])
    assert found == {"odd": {(1,), (3,)}, "even": {(2,)}, "both": set()}
