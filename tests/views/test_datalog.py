"""Datalog programs: what they mean, what is refused of them, with places, and that no text gives a traceback."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from headrace.engine.dataflow import Collection, Dataflow
from headrace.views.compile import check_views, compile_views
from headrace.views.errors import ViewError
from headrace.views.explain import explain
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import load, programs_views
from headrace.views.yaml_reader import ConfigError
from tests.oracle.datalog import INPUTS, TABLES, Drawn, catalog, compiled, rows_of, schema_of, upserts
from tests.reference.datalog import Row

E = ".input e(a, b) = public.e(c0, c1)\n.input g(a, s) = public.g(c0, c1)\n"
ROWS: dict[str, list[Row]] = {"e": [(1, 2), (2, 3), (3, 1), (4, None)], "g": [(1, "x"), (2, "y"), (2, "x"), (5, None)]}


def answers(text: str, rows: dict[str, list[Row]] = ROWS) -> dict[str, Counter[Row]]:
    """The rows of each view of a program over some rows."""
    flow = Dataflow()
    for name in TABLES:
        flow.table(f"public.{name}", schema_of(name))
    rendered: dict[str, Collection] = {}
    outputs = {}
    views = compiled(E + text)
    for view in views:
        rendered[view.name] = render(view, flow, rendered)
        outputs[view.name] = rendered[view.name].output(view.name)
    for name, given in rows.items():
        flow.push(f"public.{name}", upserts(name, [(0, (name, key, row)) for key, row in enumerate(given)]))
    flow.step(1)
    return {v.name.removeprefix("p_"): rows_of(outputs[v.name], v, 0) for v in views}


def mistakes(text: str) -> list[ViewError]:
    return list(check_views(programs_views(ViewSpec("p", E + text)), catalog()).errors)


@pytest.mark.parametrize(
    ("rules", "rows"),
    [
        (
            "r(x, y) :- e(x, y). r(x, z) :- r(x, y), r(y, z).",
            {(x, y) for x in (1, 2, 3) for y in (1, 2, 3)} | {(4, None)},
        ),
        ("r(x) :- e(x, y), e(y, z), e(z, x).", {(1,), (2,), (3,)}),
        ("r(x) :- e(x, _), !g(x, _).", {(3,), (4,)}),
        ("r(x, n) :- e(x, _), n = count : { g(x, _) }.", {(1, 1), (2, 2), (3, 0), (4, 0)}),
        ("r(n) :- n = count : { e(_, _) }.", {(4,)}),
        ("r(n) :- n = count : { e(x, _) ; g(x, _) ; x = 2 }.", {(5,)}),
        (
            "r(x, n) :- e(x, _), n = count : { e(x, y), y > 0 ; e(y, x) ; y = x, g(x, _) }.",
            {(1, 3), (2, 3), (3, 2), (4, 0)},
        ),
        ("r(n) :- n = sum y : { e(_, y), y > 1 ; g(y, 'y') }.", {(5,)}),
        ("r(x, n) :- e(x, _), n = sum y : { e(x, y) }.", {(1, 2), (2, 3), (3, 1), (4, None)}),
        ("r(x, n) :- g(x, _), n = max y : { e(x, y) }.", {(1, 2), (2, 3)}),
        ("r(n) :- n = min a : { e(a, _), a > 9 }.", set()),
        ("r(n) :- n = sum a : { e(a, _), a > 9 }.", {(0,)}),
        ("r(x, n) :- g(x, _), n = count : { e(y, _), y < x }.", {(1, 0), (2, 1), (5, 4)}),
        ("r(x) :- e(x, _), 1 < count : { g(x, _) }.", {(2,)}),
        ("r(n) :- n = mean x : { e(x, _), x > 2 }, n > 3.4.", {(3,)}),
        ("r(z) :- e(x, y), z = x * 10 + y.", {(12,), (23,), (31,), (None,)}),
        ("r(x) :- g(a = x, s = 'x').", {(1,), (2,)}),
        ('r(upper(s) || "!") :- g(_, s), s is not null.', {("X!",), ("Y!",)}),
        ("r(s) :- g(_, s).", {("x",), ("y",), (None,)}),
        ("r(x) :- e(x, y), (y = 2 ; y = 3 ; g(x, 'nope')).", {(1,), (2,)}),
        ("a(x), r(x) :- e(x, 2). r(x) :- a(y), x = y + 1.", {(1,), (2,)}),
        ("r(1, 'a'). r(2, \"b\"). r(x, y) :- g(x, y), x > 4.", {(1, "a"), (2, "b"), (5, None)}),
        (
            "odd(x) :- e(1, x). odd(y) :- even(x), e(x, y). even(y) :- odd(x), e(x, y). r(x) :- even(x).",
            {(1,), (2,), (3,)},
        ),
        (".decl r(n: bigint, t: text)\nr(x, 'c') :- e(x, 1). // a comment\n/* and another */", {(3, "c")}),
        (".decl r(n: bigint)", set()),
        ("none() :- e(9, _). r(x) :- none(), e(x, _).", set()),
        ("none() :- e(9, _). r(x) :- !none(), e(x, 2).", {(1,)}),
        ("some() :- e(1, _). r(x) :- some(), e(x, 2), some().", {(1,)}),
        ("r() :- e(1, _).", {("t",)}),
        ("r() :- e(9, _).", set()),
        ("e(7, 8). e(y, x) :- e(x, y), x < 2. r(x, y) :- e(x, y), x > 1, y > 0.", {(7, 8), (2, 1), (2, 3), (3, 1)}),
        ("r(x) :- e(x, _), !e(x, count : { e(y, _), y > 2 }).", {(2,), (3,), (4,)}),
        ("r(x) :- e(x, max y : { e(y, _), y < 3 }).", {(1,)}),
        ("r(x) :- x = min x + y : { e(x, y) }.", {(3,)}),
        ("r(n) :- e(x, 2), n = max y : { e(y, _), m = count : { e(z, _), z <= y, z >= x }, m < 4 }.", {(3,)}),
        (
            ".decl r(n: bigint)\nr(s) :- s = sum x : { e(x, _) }.\nr(2.5::numeric).\nr(0x1F). r(0b11). r(4u).",
            {(10,), (3,), (31,), (4,)},
        ),
        ("r(x) :- e(x, y), y in (1, 2), case when x = 1 then false else true end.", {(3,)}),
        ("r(x) :- g(x, s), starts_with(s, 'y').", {(2,)}),
        ("r(N) :- e(N, n), n = 3.", {(2,)}),
        ('r(x) :- g(x, s), match("[xz]", s).', {(1,), (2,)}),
        ('r(x) :- g(x, s), !match("x|z", s).', {(2,)}),
        ('r(x) :- g(x, s), !starts_with(s, "y"), contains(s, cat("w", s, "z")).', {(1,), (2,)}),
        ('r(s) :- g(x, y), s = cat(y, "-", to_string(x)), strlen(s) = 3, x < 2.', {("x-1",)}),
        ('r(to_number("12") + to_number(to_float(x) / -2), max(x, y, 2), min(x, y)) :- e(x, y), x = 3.', {(11, 3, 1)}),
        (
            "r(n) :- n = range(1, 4). r(n) :- n = range(9, 7). r(n) :- n = range(0, -7, -5). r(n) :- n = range(5, 5).",
            {(1,), (2,), (3,), (9,), (8,), (0,), (-5,)},
        ),
        ("r(x, n) :- e(x, y), n = range(x, y), n != 1.", {(2, 2), (3, 3), (3, 2)}),
        ("r(x, n) :- e(x, _), x < 3, n = generate_series(1, x).", {(1, 1), (2, 1), (2, 2)}),
        ("r(x band 1, (x bor 4) bxor 1, bnot x, bnot bnot x + 1, x bshl 2) :- e(x, 3).", {(0, 7, -3, 3, 8)}),
        ("r(1). r(n) :- r(m), n = range(m, m + 3), n < 6.", {(1,), (2,), (3,), (4,), (5,)}),
        ("p(x, y) :- e(x, y). p(x, z) :- e(x, y), p(y, z). r(y) :- p(1, y).", {(1,), (2,), (3,)}),
        (
            "p(x, y) :- e(x, y). p(x, z) :- p(x, y), p(y, z). q(x, s) :- g(x, s). q(x, s) :- q(y, s), e(x, y). "
            "r(y, s) :- p(2, y), q(1, s), q(y, 'y'). r(x, s) :- q(x, s), x > 4.",
            {(1, "x"), (2, "x"), (3, "x"), (1, "y"), (2, "y"), (3, "y"), (5, None)},
        ),
        ("r(x) :- e(x, y), x band 1 = y bor 1.", {(3,)}),
        ("band(x) :- e(x, 3). r(x) :- band(x), (x) band (x) = 2.", {(2,)}),
        ("p([x, y]) :- e(x, y). r(x, y) :- p([y, x]).", {(2, 1), (3, 2), (1, 3), (None, 4)}),
        (
            "p([x, y], 1) :- e(x, y). q(v) :- p(v, _). q([x, z]) :- q([x, y]), e(y, z). r(b) :- q([1, b]).",
            {(1,), (2,), (3,)},
        ),
        (
            ".type P = [a: number, b: symbol]\n.type Q = [p: P, n: number]\n.decl q(v: Q)\nq([[x, s], 7]) :- g(x, s).\n"
            "r(n, x) :- q([[x, 'x'], n]), !q([[x, 'y'], _]).",
            {(7, 1)},
        ),
        ("p([x, y]) :- e(x, y). r(n) :- n = count : { p([_, y]), y > 1 }.", {(2,)}),
        (
            "p([x, y]) :- e(x, y). r(x, n) :- p([x, _]), n = count : { p(v), e(x, _) }.",
            {(1, 4), (2, 4), (3, 4), (4, 4)},
        ),
        ("p([x, y]) :- e(x, y). r(a, b) :- p(v), v = [a, b], a < 3.", {(1, 2), (2, 3)}),
        ("p([x, y]) :- e(x, y). r(x) :- p(v), e(x, y), [x, y] = v.", {(1,), (2,), (3,)}),
        ("q(v) :- e(x, y), v = [y, x + 1], x < 4. r(a, b) :- q(w), w = [a, b].", {(2, 2), (3, 3), (1, 4)}),
        (
            "p([x, y]) :- e(x, y). r(n) :- n = count : { p(v), p(w), v != w, v = [a, _], w = [_, a] }.",
            {(3,)},
        ),
        (
            "p([[x, y], x]) :- e(x, y). r(a, c) :- p(v), v = [q, _], q = [a, c], q != [1, 2], x = c, e(x, _).",
            {(2, 3), (3, 1)},
        ),
        (".type id = number\n.decl r(n: id)\nr(x) :- e(x, 1).", {(3,)}),
        (
            ".type id <: number\n.type big <: id\n.decl s(n: big)\n.decl r(n: id)\ns(x) :- e(x, 1).\nr(x) :- s(x).",
            {(3,)},
        ),
        (
            ".type a <: number\n.type b <: number\n.type c = a | b\n.decl s(n: a)\n.decl t(n: b)\n.decl r(n: c)\n"
            "s(x) :- e(x, 1).\nt(x) :- e(x, 1).\nr(x) :- s(x).\nr(x) :- t(x).\nr(x) :- r(x), s(x).",
            {(3,)},
        ),
    ],
)
def test_what_rules_mean(rules: str, rows: set[Row]) -> None:
    assert answers(rules + "\n.output r")["r"] == Counter(rows)


def test_outputs_constraints_and_renamed_columns() -> None:
    text = "r(x) :- e(x, _). s(x, y) :- r(x), g(x, y). .constraint few: s(x, _), x > 1.\n.output r(number), s(a, b)"
    views = compiled(E + text)
    assert [(v.name, v.schema.names, v.reads) for v in views] == [
        ("p_r", ("number",), ()),
        ("p_s", ("a", "b"), ("p_r",)),
        ("p_few", ("x",), ("p_s",)),
    ]
    assert views[2].spec.check == "few of p"
    assert answers(text)["few"] == Counter({(2,): 1})


def test_sql_reads_a_program_and_a_program_reads_sql() -> None:
    program = ".input big = big\nr(n) :- big(n).\n.output r"
    specs = [
        ViewSpec("last", "select max(n) as n from p_r"),
        *programs_views(ViewSpec("p", program)),
        ViewSpec("big", "select c0 as n from e where c0 > 2"),
    ]
    views = compile_views(specs, catalog())
    assert [(v.name, v.reads) for v in views] == [("big", ()), ("p_r", ("big",)), ("last", ("p_r",))]


def test_a_recursive_group_is_a_fixpoint_in_explain() -> None:
    [view] = compiled(E + "r(x, y) :- e(x, y). r(x, z) :- r(x, y), r(y, z).\n.output r")
    assert "Recursion r: a fixpoint" in explain(view)
    assert view.key is None or len(view.key) == 2


def test_warnings() -> None:
    [view] = compiled(E + "r(x) :- e(x, y).\nidle(x) :- e(x, _).\n.output r")
    told = "\n".join(view.warnings)
    assert "line 3: variable y stands in its rule once" in told
    assert "line 4: nothing reads the relation idle" in told


@pytest.mark.parametrize(
    ("rule", "reason", "hint", "at"),
    [
        ("r(x) :- ee(x, _).", "there is no relation ee", "did you mean e?", "ee"),
        ("r(x) :- e(x).", "e has 2 columns, and 1 arguments are given", "a, b", "e(x)"),
        ("r(x) :- g(aa = x).", "g has no column aa", "did you mean a?", "aa"),
        ("r(y) :- e(x, _).", "variable y is not bound", "relation(y, …)", "y)"),
        ("r(x) :- e(x, _), y > 1.", "variable y is not bound", "", "y >"),
        ("r(x) :- e(x, _), !g(y, _).", "variable y is not bound", "", "g(y"),
        ("r(x) :- e(x, 'a').", 'invalid input syntax for type bigint: "a"', "", "'a'"),
        ("r(x) :- g(_, x), x > 1.", "operator does not exist: text > integer", "", "x > 1"),
        ("r(x) :- e(x, _). r(s) :- g(_, s).", "column x of r: the rules: types", "", "s) :-"),
        (".decl r(n: date)\nr(x) :- e(x, _).", "column n of r is date, and the rule gives bigint", "::date", "x) :-"),
        (".decl r(n: dat)\nr(x) :- e(x, _).", 'type "dat" does not exist', "date", "dat"),
        ("r(x) :- e(x, _), foo(x).", "there is no relation foo, nor a function", "", "foo"),
        ("r(x) :- e(x, _), nofunction(x) = 1.", "function nofunction(bigint) does not exist", "", "nofunction"),
        ("r(x) :- e(x, _), sum(x) > 1.", "aggregate", "", "sum"),
        ("r(x :- e(x, _).", 'syntax error at ":-"', "", ":- e"),
        ("r(x) :- e(x, _)", "syntax error at the end of the program", "a dot", ""),
        ("r(x) :- e(x, \"a).", "the string does not end", "close it", '"a'),
        ("r(x) :- r(x).", "the types of r do not follow", ".decl r(x)", "r(x) :-"),
        ("r(_) :- e(_, _).", "_ has no value", "", "_) :-"),
        ("r(x) :- e(x, _), x = (select 1).", "subqueries are not supported in rules", "atom", ""),
        (".input z = public.zz\nr(x) :- z(x).", 'there is no table or view "public.zz"', "", "public.zz"),
        (".comp C {}\nr(x) :- e(x, _).", "components are not supported", "", ".comp"),
        (".functor f(x: number): number\nr(x) :- e(x, _).", "user functors are not supported", "SQL", ".functor"),
        ("r(x) :- e(x, _), y = @f(x).", "user functors are not supported", "", "@f"),
        (".type T = A {x: number}\nr(x) :- e(x, _).", "algebraic types are not supported", "", "A {"),
        ("r(x) :- e(x, _), y = $A(x).", "algebraic types and autoincrement are not supported", "", "$A"),
        (".decl r(x: number) choice-domain x\nr(x) :- e(x, _).", "choice-domain is not supported", "min or max", "choice"),
        ("r(x) <= r(y) :- e(x, y).", "subsumption is not supported", "min or max", "<="),
        ("r(autoinc()) :- e(_, _).", "autoincrement is not supported", "", "autoinc"),
        (".decl r(x: number, y: number) eqrel\nr(x, y) :- e(x, y).", "eqrel is not supported", "r(y, x) :- r(x, y)", "eqrel"),
        ("r([x, y]) :- e(x, y). r([x, y, x]) :- e(x, y).", "a record of 2 fields stands where one of 3", "fixed", "[x, y, x"),
        ("r(x) :- e([x, _], _).", "a record stands where a column of the input e does", "column of its own", "[x, _"),
        ("r([x, y]) :- e(x, y). s(x) :- r(p), x = p + 1.", "the record p stands in an expression", "fields", "p + 1"),
        (".type L = [a: number, l: L]\n.decl r(l: L)\nr(l) :- r(l).", "the record type L holds itself", "fixed width", "L)\n"),
        ("r([]) :- e(_, _).", "a record has no fields", "", "[]"),
        ("r(x) :- e(x, y), x = [y, y].", "a record stands where a column of the input e does", "column of its own", "x = ["),
        ("r(x) :- e(x, _), [x, 1] < [2, 2].", 'syntax error at "<"', "= or !=", "< ["),
        (
            "p([x, y]) :- e(x, y). r(x) :- p(v), v = [x, _], v != [_, 1].",
            "_ has no value", "give the field a variable", "v != [",
        ),
        (
            ".type a <: number\n.type b <: number\n.decl s(n: a)\n.decl t(n: b)\ns(x) :- e(x, _).\nt(x) :- e(x, _).\n"
            "r(x) :- s(x), t(x).",
            "variable x is of the types a, b, which have no value in common", "x::type", "x).",
        ),
        (
            ".type a <: number\n.decl s(n: number)\n.decl r(n: a)\ns(x) :- e(x, _).\nr(x) :- s(x).",
            "column type a of r is not that of x, which is number", "x::bigint", "x) :- s",
        ),
        (".type c = number | symbol\nr(x) :- e(x, _).", "type c has values of number and, as symbol,", "relation", "c ="),
        ("r(x) :- e(x, _), ord(x) > 1.", "function ord(bigint) does not exist", "a key of the inputs' rows", "ord"),
        ("r(x) :- g(x, s), substr(s, 0, 1) = 'x'.", "substr counts from 0 in Soufflé and from 1", "substring(s, start", "substr"),
        ("r(x) :- e(x, y), x band y bor 1 > 0.", "band and bor stand side by side", "put brackets around one", "bor"),
        ("r(x) :- e(x, _), bnot abs(x) < 0.", 'syntax error at "abs"', "a variable, a number or brackets", "abs"),
        ("r(x) :- e(x, _), x = range(1, 3).", "set-returning functions are not allowed in a rule", "of their own", "range"),
        ("r(x) :- e(x, _), !nothing(x).", "there is no relation nothing, nor a function", "its relations are", "nothing"),
    ],
)  # fmt: skip
def test_refused_with_places(rule: str, reason: str, hint: str, at: str) -> None:
    text = f"{E}{rule}\n.output r" if rule.endswith(".") else E + ".output r\n" + rule
    found = list(check_views(programs_views(ViewSpec("p", text)), catalog()).errors)
    told = next((e for e in found if reason in e.what), None)
    assert told is not None, [str(e) for e in found]
    assert hint in told.hint
    if at:
        begin = text.index(at, len(E))
        line = text.count("\n", 0, begin) + 1
        column = begin - text.rfind("\n", 0, begin)
        assert (told.where["line"], told.where["column"]) == (line, column)


P = "p(x, y) :- e(x, y). p(x, z) :- e(x, y), p(y, z). "


@pytest.mark.parametrize(
    ("rules", "copies"),
    [
        (P + "r(y) :- p(1, y).", ["p +-"]),
        (P + "r(y) :- p(1, y). r(x) :- p(x, 2), p(3, x).", ["p +-", "p -+"]),
        (P + "r(y) :- p(1, y). .output p", []),
        (P + "r(y) :- p(1, y). s(x) :- p(x, _). .output s", []),
        (P + "r(y) :- p(1, y). s(y) :- p(2, y). .output s", ["p +-"]),
        (P + "r(y) :- p(1, y). r(x) :- p(x, x).", []),
        (P + "r(y) :- p(1, y), n = count : { p(_, _) }, n > 2.", []),
        (P + "r(x) :- p(x, 3).", []),
        (".decl p(a, b) no_magic\n" + P + "r(y) :- p(1, y).", []),
        ("p(x, y) :- e(x, y). p(x, z) :- p(x, y), e(y, z). r(y) :- p(1, y).", []),
    ],
)
def test_what_constants_ask_for_is_derived_alone_unless_the_whole_is_needed(rules: str, copies: list[str]) -> None:
    [view] = [v for v in compiled(E + rules + "\n.output r") if v.name == "p_r"]
    found = [n for n in view.notes if n.startswith("only what is asked of")]
    assert sorted(found) == [
        f"only what is asked of {copy.partition(' ')[0]} is derived ({copy.partition(' ')[2]})"
        for copy in sorted(copies)
    ]


def test_a_mistake_before_alternatives_is_told_once() -> None:
    [error] = mistakes("r(x) :- e(x, _), !nowhere(x, _), (g(x, _) ; e(_, x)).\n.output r")
    assert "there is no relation nowhere" in error.what


def test_all_mistakes_are_told_at_once() -> None:
    found = mistakes("a(x) :- ee(x).\nb(x) :- e(x).\nc(y) :- e(_, _).\nd(x :- e.\n.output a")
    assert [e.where["line"] for e in found] == [3, 4, 5, 6]


def test_an_unstratified_cycle_is_spelled_rule_by_rule() -> None:
    [error] = mistakes("a(x) :- e(x, _), !b(x).\nb(x) :- c(x).\nc(x) :- a(x).\n.output a")
    assert "b is negated in a, on which it depends itself" in error.what
    for line, rule in ((3, "a(x) :- e(x, _), !b(x)."), (4, "b(x) :- c(x)."), (5, "c(x) :- a(x).")):
        assert f"{rule} (line {line})" in error.what
    [error] = mistakes("a(x, n) :- e(x, _), n = count : { a(x, m), m > 0 }.\n.output a")
    assert "a is aggregated by count in a" in error.what
    assert "unstratified: {rounds: 1000}" in error.hint


def test_places_are_the_yaml_files(tmp_path: Path) -> None:
    path = tmp_path / "v.yaml"
    path.write_text(
        "version: 1\nviews:\n  - name: p\n    datalog: |\n      .input e = public.e\n\n      r(x) :- ee(x).\n      .output r\n"
    )
    [error] = check_views(load(path), catalog()).errors
    assert (error.where["view"], error.where["line"], error.where["column"]) == ("p", 7, 15)
    (tmp_path / "p.dl").write_text(".input e = public.e\nr(x) :- e(_, x, _).\n.output r\n")
    path.write_text(
        "version: 1\nviews:\n  - {name: p, datalog_file: p.dl, sinks: [w], outputs: {r: {indexes: [[x]]}}}\n"
    )
    [spec] = load(path)
    assert (spec.name, spec.sinks, spec.indexes, spec.place(24)) == ("p_r", ("w",), (("x",),), (2, 5))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("datalog: '.output r', sql: select", "a view has either"),
        ("sql: select, outputs: {r: {}}", "outputs are of a program"),
        ("datalog: 'r(1). .output r', key: [a]", "under outputs"),
        ("datalog: 'r(1). .output r', outputs: {rr: {}}", "p puts out no relation rr"),
    ],
)
def test_fields_that_do_not_fit(tmp_path: Path, fields: str, reason: str) -> None:
    path = tmp_path / "v.yaml"
    path.write_text(f"version: 1\nviews: [{{name: p, {fields}}}]\n")
    with pytest.raises(ConfigError, match=reason):
        load(path)


PIECES = [*"(){}[].,;:!=<>+-*/%$@#~?_'\"\\\n", ":-", "::", "count", "sum x", "r", "x", "e(x, y)", "1", "1.5", ".decl", ".input",
          ".output", "null", "case", "end", "and", "/*", "//", "<=", "select", " ", "[x, y]", "[x, [_, 1]]",
          ".query r1(+a, -b)", ".query r0(+a) from public.e(c0)", ".type P = [a: number, b: P]",
          "min x : { r0(x) ; r1(x) }"]  # fmt: skip


def test_no_text_gives_a_traceback() -> None:
    """Programs with pieces taken out, put in and doubled: each is compiled or refused."""
    refused = 0
    for seed in range(200):
        rng = random.Random(seed)
        text = Drawn(rng).program() if seed % 4 else "".join(rng.choice(PIECES) for _ in range(60))
        for _ in range(rng.randint(1, 4)):
            at, size = (
                rng.randrange(len(INPUTS) if seed % 3 else 0, len(text) + 1) if len(text) > len(INPUTS) else 0,
                rng.choice((0, 0, 1, 3)),
            )
            text = text[:at] + rng.choice(["", *PIECES]) + text[at + size :]
        specs = programs_views(ViewSpec("p", text))
        refused += bool(check_views(specs, catalog()).errors)
    assert 100 < refused < 200


DEEP = (
    "(" * 3000,
    f"r(x) :- {'(' * 300}e(x, y){')' * 300}.",
    f"r({'(' * 2000}1{')' * 2000}).",
    f"r(x) :- n = {'count : { ' * 80}e(x, _){' }' * 80}.",
)


@pytest.mark.parametrize("text", DEEP, ids=["open", "alternatives", "expression", "aggregates"])
def test_deep_nesting_is_refused(text: str) -> None:
    assert mistakes(text + "\n.output r")


def test_records_are_columns_of_their_fields() -> None:
    types = ".type P = [a: number, b: symbol]\n.decl r(v: P, n: number)\n"
    text = f"{types}r([x, s], 1) :- g(x, s).\nq(v, m) :- r(v, n), m = n + 1.\n"
    views = compiled(E + text + "s([x, [x, y]]) :- e(x, y).\n.output r, q(pair, next), s\n")
    assert {v.name: v.schema.names for v in views} == {
        "p_r": ("v_a", "v_b", "n"), "p_q": ("pair_a", "pair_b", "next"), "p_s": ("column1_1", "column1_2_1", "column1_2_2"),
    }  # fmt: skip
    assert answers(text + ".output q")["q"] == Counter([(1, "x", 2), (2, "y", 2), (2, "x", 2), (5, None, 2)])
    [view] = compiled(E + text + ".query q(+pair, -n) from public.g(c0, c1)\n")
    assert view.schema.names == ("pair_a", "pair_b", "n")
