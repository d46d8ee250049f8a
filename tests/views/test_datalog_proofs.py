"""Why rows are there: proof trees of least height from what the engine holds, and how far rules come for rows that are not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.errors import HeadraceError
from headrace.sidecar.cli.view_commands import proof_lines
from headrace.views.compile import compile_views
from headrace.views.proofs import Row, ask_row, explained
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import programs_views
from tests.oracle.datalog import TABLES, catalog, compiled, rows_of, schema_of, upserts
from tests.reference.datalog import Row as Fact

EDGES = ".input e(a, b) = public.e(c0, c1)\n.input f(a, b) = public.f(c0, c1)\n"
CLOSURE = "tc(x, y) :- e(x, y).\ntc(x, z) :- tc(x, y), tc(y, z).\n.output tc\n"
SPECS = programs_views(ViewSpec("p", EDGES + CLOSURE))


def explain(text: str, view: str, key: Sequence[str], tables: dict[str, list[Fact]]) -> dict[str, Any]:
    """What is said of a row of a program's view over some rows."""
    views = {v.name: v for v in compiled(EDGES + text)}
    asked = ask_row("?query", views[view], key, catalog(), views)
    flow = Dataflow()
    for name in TABLES:
        flow.table(f"public.{name}", schema_of(name))
    rendered: dict[str, Collection] = {}
    for name in asked.rest:
        rendered[name] = render(views[name], flow, rendered)
    outputs = [(part, render(part, flow, rendered).output(part.name)) for part in asked.views]
    for name, rows in tables.items():
        flow.push(f"public.{name}", upserts(name, [(0, (name, key, row)) for key, row in enumerate(rows)]))
    flow.step(1)
    found: list[list[Row]] = []
    for part, output in outputs:
        rows = rows_of(output, part, 0)
        found.append([tuple(None if v is None else str(v) for v in row) for row in rows])
    return explained(asked, found)


def height(proof: dict[str, Any]) -> int:
    return 1 + max(map(height, proof["body"])) if "rule" in proof else 0


def test_a_proof_tree() -> None:
    found = explain(CLOSURE, "p_tc", ["1", "3"], {"e": [(1, 2), (2, 3)]})
    [proof] = found["proofs"]
    assert proof_lines(proof, "", "") == [
        "tc(1, 3)   line 4: tc(x, z) :- tc(x, y), tc(y, z).",
        "├─ tc(1, 2)   line 3: tc(x, y) :- e(x, y).",
        "│  └─ e(1, 2)   public.e",
        "└─ tc(2, 3)   line 3: tc(x, y) :- e(x, y).",
        "   └─ e(2, 3)   public.e",
    ]


def test_trees_are_of_least_height_and_each_step_is_a_rule() -> None:
    """Non-linear rules double what is known each round: the height is the logarithm of the shortest path."""
    for seed in range(4):
        rng = random.Random(seed)
        edges: list[Fact] = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(14)]
        steps: dict[tuple[Any, Any], int] = {}
        frontier, length = {(a, b) for a, b in edges}, 1
        while frontier:
            steps.update(dict.fromkeys(frontier, length))
            frontier = {(a, d) for a, b in frontier for c, d in edges if b == c} - set(steps)
            length += 1
        pair = rng.choice(sorted(steps))
        [proof] = explain(CLOSURE, "p_tc", [str(v) for v in pair], {"e": edges})["proofs"]
        assert height(proof) == 1 + (steps[pair] - 1).bit_length(), (seed, pair)
        check(proof, {tuple(map(str, e)) for e in edges})


def check(proof: dict[str, Any], edges: set[tuple[str, ...]]) -> None:
    """That each row of a closure's proof follows from those below it."""
    if "rule" not in proof:
        assert tuple(proof["row"]) in edges
        return
    rows = [b["row"] for b in proof["body"]]
    if len(rows) == 1:
        assert proof["row"] == rows[0]
    else:
        assert [rows[0][0], rows[1][1]] == proof["row"]
        assert rows[0][1] == rows[1][0]
    for below in proof["body"]:
        check(below, edges)


def test_negation_conditions_and_aggregates_are_met_but_not_shown() -> None:
    text = "r(x, n) :- e(x, y), !f(y, _), x > 0, n = count : { e(x, _) }.\n.output r\n"
    tables: dict[str, list[Fact]] = {"e": [(1, 2), (1, 3), (0, 2)], "f": [(3, 1)]}
    [proof] = explain(text, "p_r", ["1", "2"], tables)["proofs"]
    assert [b["row"] for b in proof["body"]] == [["1", "2"]]
    found = explain(text, "p_r", ["0", "1"], tables)
    assert found["proofs"] == []
    assert [m["fails_at"] for m in found["missing"]] == ["x > 0"]


def test_why_a_row_is_not_there_one_level_at_a_time() -> None:
    found = explain(CLOSURE, "p_tc", ["1", "9"], {"e": [(1, 2), (2, 3), (8, 9), (7, 9)]})
    assert found["missing"] == [
        {"rule": "tc(x, y) :- e(x, y).", "line": 3, "fails_at": "e(x, y)", "rows_before": 1},
        {"rule": "tc(x, z) :- tc(x, y), tc(y, z).", "line": 4, "fails_at": "tc(y, z)", "rows_before": 2},
    ]


def test_relations_made_whole_are_leaves() -> None:
    text = "way(y, 0) :- f(y, _).\nway(y, d + 1) :- near(x, d), e(x, y).\nnear(y, m) :- way(y, _), m = min d : { way(y, d) }.\n"
    found = explain(text + ".output near\n", "p_near", ["2", "2"], {"e": [(0, 1), (1, 2)], "f": [(0, 0)]})
    [proof] = found["proofs"]
    assert proof["rule"].startswith("near(y, m)")
    assert proof["body"] == [{"relation": "way", "row": ["2", "2"], "source": "relation way"}]


@pytest.mark.parametrize(
    ("view", "key", "reason"),
    [
        ("v", ["1"], "v is no relation of a program"),
        ("p_tc", ["1"], "is named by"),
        ("p_tc", ["a", "1"], "invalid input syntax"),
    ],
)
def test_what_cannot_be_explained(view: str, key: list[str], reason: str) -> None:
    views = {v.name: v for v in compile_views([*SPECS, ViewSpec("v", "select id from e")], catalog())}
    with pytest.raises(HeadraceError, match=reason):
        ask_row("?query", views[view], key, catalog(), views)
