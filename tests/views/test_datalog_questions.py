"""Questions of relations: the answers are the whole relation's rows with the given values, and less is derived than the whole."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from headrace.engine.dataflow import Collection, Dataflow
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, check_views
from headrace.views.errors import ViewError
from headrace.views.explain import explain
from headrace.views.questions import compile_question
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import programs_views
from tests.engine.work import counted
from tests.oracle.datalog import TABLES, Change, Drawn, catalog, drawn_changes, rows_of, schema_of, upserts
from tests.reference.datalog import Row, evaluate

EDGES = ".input e(a, b) = public.e(c0, c1)\n"
CLOSURES = {
    "left": "tc(x, y) :- e(x, y). tc(x, z) :- tc(x, y), e(y, z).\n",
    "right": "tc(x, y) :- e(x, y). tc(x, z) :- e(x, y), tc(y, z).\n",
    "both": "tc(x, y) :- e(x, y). tc(x, z) :- tc(x, y), tc(y, z).\n",
}
SAME = "sg(x, y) :- e(x, p), e(y, p), x != y. sg(x, y) :- e(x, p), sg(p, q), e(y, q).\n"


def views_of(text: str) -> tuple[CompiledView, ...]:
    checked = check_views(programs_views(ViewSpec("p", text)), catalog())
    assert not checked.errors, [str(e) for e in checked.errors]
    return checked.views


class Flow:
    """Views over the tables of the oracle."""

    def __init__(self, views: tuple[CompiledView, ...]) -> None:
        self.flow = Dataflow()
        for name in TABLES:
            self.flow.table(f"public.{name}", schema_of(name))
        self.views = views
        self.rendered: dict[str, Collection] = {}
        self.outputs = {}
        for view in views:
            self.rendered[view.name] = render(view, self.flow, self.rendered)
            self.outputs[view.name] = self.rendered[view.name].output(view.name)

    def push(self, epoch: int, changes: list[Change]) -> None:
        for name in TABLES:
            due = [(epoch, c) for c in changes if c[0] == name]
            if due:
                self.flow.push(f"public.{name}", upserts(name, due))
        self.flow.step(epoch + 1)

    def rows(self, name: str, epoch: int) -> Counter[Row]:
        return rows_of(self.outputs[name], next(v for v in self.views if v.name == name), epoch)


@pytest.mark.parametrize("rules", CLOSURES.values(), ids=CLOSURES)
@pytest.mark.parametrize("pattern", ["+x, -y", "-x, +y", "+x, +y"])
def test_answers_are_the_whole_relation_s(rules: str, pattern: str) -> None:
    """A table's values come and go like the edges; NULL asks for nothing."""
    given = "(c0, c1)" if pattern.count("+") == 2 else "(c0)"
    text = f"{EDGES}{rules}.query tc({pattern}) from public.f{given}\n"
    whole = f"{EDGES}{rules}.input f(c0, c1) = public.f(c0, c1)\n.output tc\n"
    met = 0
    for seed in range(5):
        views = views_of(text)
        assert [v.name for v in views] == ["p_tc"]
        assert views[0].schema.names == ("x", "y")
        flow, held = Flow(views), {n: dict[int, Row]() for n in TABLES}
        for epoch, changes in enumerate(drawn_changes(random.Random(seed), 8)):
            flow.push(epoch, changes)
            for table, key, row in changes:
                held[table].pop(key, None)
                if row is not None:
                    held[table][key] = row
            rows = {n: set(r.values()) for n, r in held.items()}
            pairs = evaluate(whole, rows)["tc"]
            asked = {row if pattern.count("+") == 2 else row[:1] for row in rows["f"]}
            places = [i for i, p in enumerate(pattern.split(", ")) if p[0] == "+"]
            want = {p for p in pairs if None not in (v := tuple(p[i] for i in places)) and v in asked}
            assert flow.rows("p_tc", epoch) == Counter(want), (seed, epoch)
            met += len(want)
    assert met > 5


def test_questions_of_programs_drawn_at_random() -> None:
    """Of any relation, any columns given: with negation, aggregates, expressions in heads, several heads."""
    met, copies = 0, 0
    for seed in range(30):
        rng = random.Random(900 + seed)
        drawn = Drawn(rng)
        text = drawn.program()
        names = [n for n, kinds in drawn.shapes.items() if n not in TABLES and kinds] or ["e"]
        name = rng.choice(names)
        width = len(drawn.shapes[name])
        given = sorted(rng.sample(range(width), rng.randint(1, width)))
        numbers = [i for i in given if drawn.shapes[name][i] == "n"] or [0]
        given = numbers[:2] if drawn.shapes[name][numbers[0]] == "n" else []
        if not given:
            continue
        signs = ", ".join(f"{'+' if i in given else '-'}q{i}" for i in range(width))
        rules = text.rpartition(".output")[0].partition(".constraint")[0]
        columns = ", ".join(f"c{i}" for i in range(len(given)))
        views = views_of(f"{rules}.query {name}({signs}) from public.f({columns})\n")
        copies += any("is derived" in note for note in views[0].notes)
        flow, held = Flow(views), {n: dict[int, Row]() for n in TABLES}
        for epoch, changes in enumerate(drawn_changes(rng, 6)):
            flow.push(epoch, changes)
            for table, key, row in changes:
                held[table].pop(key, None)
                if row is not None:
                    held[table][key] = row
        rows = {n: set(r.values()) for n, r in held.items()}
        asked = {row[: len(given)] for row in rows["f"]}
        whole = evaluate(rules + f".output {name}\n", rows)[name]
        want = {r for r in whole if None not in (v := tuple(r[i] for i in given)) and v in asked}
        assert flow.rows(f"p_{name}", 5) == Counter(want), (seed, signs, rules)
        met += len(want)
    assert met > 5
    assert copies > 7


def work(view: CompiledView, edges: list[tuple[int, int]], asked: Sequence[int]) -> tuple[list[int], int]:
    """How much is read and written at each step, in which one value more is asked for, and how many rows there are then."""
    flow, found = Flow((view,)), []
    for epoch, value in enumerate(asked):
        changes: list[Change] = [("f", epoch, (value, 0))]
        with counted() as made:
            flow.push(epoch, [*(("e", key, edge) for key, edge in enumerate(edges) if not epoch), *changes])
        found.append(made.total)
    return found, flow.rows(view.name, len(asked) - 1).total()


@pytest.mark.parametrize("rules", [CLOSURES["left"], CLOSURES["right"], SAME], ids=["left", "right", "same"])
def test_only_what_the_values_reach_is_derived(rules: str) -> None:
    """A hundred trees, two of which are asked about."""
    name = rules.partition("(")[0]
    edges = [(100 * tree + node, 100 * tree + (node - 1) // 2) for tree in range(100) for node in range(1, 31)]
    [question] = views_of(f"{EDGES}{rules}.query {name}(+x, -y) from public.f(c0)\n")
    [whole] = views_of(f"{EDGES}{rules}.output {name}\n")
    little, answered = work(question, edges, [4230, 5130])
    much, every = work(whole, edges, [4230])
    assert 6 < answered < every / 100
    # Both read all edges at first, which is most of what the question does; then a value costs what it reaches.
    assert little[0] < much[0] / 1.5
    assert little[1] < much[0] / 50


def test_explain_says_what_is_taken_as_a_whole_and_why() -> None:
    asks = ".query tc(+x, -y) from public.f(c0)\n"
    [view] = views_of(EDGES + CLOSURES["right"] + asks)
    assert "only what is asked of tc is derived (+-)" in explain(view)
    [view] = views_of(EDGES + ".decl tc(x: bigint, y: bigint) no_magic\n" + CLOSURES["right"] + asks)
    assert "the whole of tc is taken: it is declared no_magic" in explain(view)
    assert "stratum 1: tc: recursive, a fixpoint of sets" in explain(view)
    views = views_of(
        EDGES + CLOSURES["right"] + "up(x, y) :- tc(y, x).\n.query up(+x, -y) from public.f(c0)\n.output tc\n"
    )
    assert [v.name for v in views] == ["p_tc", "p_up"]
    assert "the whole of tc is taken: it stands as the view p_tc" in explain(views[1])
    assert views[1].reads == ("p_tc",)
    [view] = views_of(
        EDGES + "none(x) :- e(x, _), !tc(x, x).\n" + CLOSURES["right"] + ".query none(+x) from public.f(c0)\n"
    )
    assert "stratum 1: tc: recursive, a fixpoint of sets" in explain(view)


def test_a_question_is_asked_of_what_runs() -> None:
    text = EDGES + CLOSURES["right"] + ".query tc(+x, -y)\nsome(x) :- e(x, _).\n.output some\n"
    views = views_of(text)
    running = {v.name: v for v in views}
    asked, rest = compile_question("?query", "p.tc", {"x": "2"}, catalog(), running)
    assert rest == ()
    flow = Flow((*views, asked))
    edges: list[Row] = [(1, 2), (2, 3), (3, 2), (4, 5), (None, 2)]
    flow.push(0, [("e", key, edge) for key, edge in enumerate(edges)])
    assert flow.rows("?query", 0) == Counter({(2, 2): 1, (2, 3): 1})
    _, rest = compile_question(
        "?query", "p.tc", {"x": "2"}, catalog(), {v.name: v for v in views_of(text + ".output tc\n")}
    )
    assert rest == ("p_tc",)


@pytest.mark.parametrize(
    ("question", "values", "reason"),
    [
        ("q.tc", {"x": "1"}, "no program q is running"),
        ("p.some", {"x": "1"}, "has no question some"),
        ("p.tc", {}, "p.tc needs a value of x"),
        ("p.tc", {"x": "1", "y": "2"}, "p.tc does not ask for y"),
        ("p.tc", {"x": "a"}, "invalid input syntax for type bigint"),
    ],
)
def test_questions_that_cannot_be_asked(question: str, values: dict[str, str], reason: str) -> None:
    views = views_of(EDGES + CLOSURES["right"] + ".query tc(+x, -y)\nsome(x) :- e(x, _).\n.output some\n")
    with pytest.raises(Exception, match=reason):
        compile_question("?query", question, values, catalog(), {v.name: v for v in views})


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (".query tcc(+x, -y)", "there is no relation tcc to ask"),
        (".query tc(+x)", "tc has 2 columns, and 1 names are given"),
        (".query tc(-x, -y)", "gives no value"),
        (".query tc(x, -y)", "syntax error"),
        (".query tc(+x, -x)", "two columns of the question have one name"),
        (".query tc(+x, -y)\n.query tc(-x, +y)", "tc is asked twice"),
        (".query tc(+x, -y) from public.ff", "there is no table or view"),
        (".query tc(+x, -y) from public.f(c0, c1)", "gives 1 values, and f has 2 columns"),
        (".query tc(+x, -y) from public.g(c1)", "bigint"),
    ],
)
def test_questions_that_are_wrong(query: str, reason: str) -> None:
    text = f"{EDGES}{CLOSURES['right']}some(x) :- e(x, _).\n.output some\n{query}\n"
    errors = check_views(programs_views(ViewSpec("p", text)), catalog()).errors
    assert any(reason in e.what for e in errors), [e.what for e in errors]
    assert all(isinstance(e, ViewError) for e in errors)
    assert isinstance(catalog(), Catalog)
