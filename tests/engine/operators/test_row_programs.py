"""Expressions over a few rows in one call of a kernel: the same rows as evaluating them one by one, or no answer."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from headrace.engine.batch import Updates
from headrace.engine.batch.consolidation import without_pairs
from headrace.engine.batch.gather_rows import Assembly
from headrace.engine.batch.keys import image_plan
from headrace.engine.operators.delta import Delta, take
from headrace.engine.operators.expressions.core.coercion import NoSuchFunction
from headrace.engine.operators.expressions.core.ir import Call, Case, Cast, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.operators.expressions.core.resolve import resolve
from headrace.engine.operators.linear import filter_rows, project
from headrace.engine.operators.row_programs import FEW, condition, keep_few, project_few, projection
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, SMALLINT, TEXT, Column, DataType, Schema
from tests.engine.strategies import row_values, rows_of, schema_of

TYPES = (
    "boolean", "smallint", "integer", "bigint", "numeric(12,2)", "numeric(38,0)", "real", "double precision", "text", "bytea",
    "date", "timestamp with time zone", "boolean", "integer", "bigint", "numeric(12,2)", "text", "numeric",
)  # fmt: skip
SCHEMA = schema_of(TYPES)
NUMBERS = ("smallint", "integer", "bigint", "numeric(12,2)", "numeric(38,0)")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from")
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "smallint": st.integers(-2, 2) | st.sampled_from([-(2**15), 2**15 - 1]),
    "integer": st.integers(-2, 2) | st.sampled_from([-(2**31), 2**31 - 1]),
    "bigint": st.integers(-2, 2) | st.sampled_from([-(2**63), 2**63 - 1]),
    "numeric(12,2)": st.sampled_from(["0.00", "-1.50", "9999999999.99"]),
    "numeric(38,0)": st.sampled_from(["0", "3", "9" * 38, "-" + "9" * 38]),
    "real": st.sampled_from([0.0, -0.0, 1.5]),
    "double precision": st.sampled_from([0.0, -0.0, 1.5]),
    "text": st.sampled_from(["", "a", "b", "é", "a "]),
}


def call(name: str, *args: Expr) -> Call:
    found = resolve(name, [a.type for a in args])
    params = zip(args, found.params, strict=True)
    return Call(found.function, tuple(a if a.type == p else Cast(a, p) for a, p in params), found.result)


def columns(of: str) -> st.SearchStrategy[Expr]:
    at = [k for k, name in enumerate(TYPES) if name == of]
    return st.sampled_from([ColumnRef(k, SCHEMA.columns[k].type) for k in at])


def leaves(of: str) -> st.SearchStrategy[Expr]:
    if of not in LITERALS:
        return columns(of)
    datatype = DataType.parse(of)
    return columns(of) | (st.none() | LITERALS[of]).map(lambda value: Literal(value, datatype))


@st.composite
def values(draw: st.DrawFn, of: str, depth: int) -> Expr:
    """An expression of a type, or of numbers of one that fits."""
    if not depth or draw(st.integers(0, 3)) == 0:
        return draw(leaves(of))
    if of == "boolean":
        return draw(truths(depth))
    deeper = values(of, depth - 1)
    one = draw(deeper)
    how = draw(st.integers(0, 5))
    if how == 0:
        return Coalesce((one, _as(draw(deeper), one)), one.type)
    if how == 1:
        return Case(((draw(truths(depth - 1)), one),), _as(draw(deeper), one), one.type)
    if how == 2:
        return call("nullif", one, draw(deeper))
    if of in NUMBERS:
        if how == 3:
            return call(draw(st.sampled_from(["-", "+", "abs"])), one)
        names = ["+", "-", "*", *(["/", "%"] if of in NUMBERS[:3] else [])]
        return call(draw(st.sampled_from(names)), one, draw(values(draw(st.sampled_from(NUMBERS)), depth - 1)))
    return one


def _as(expr: Expr, other: Expr) -> Expr:
    return expr if expr.type == other.type else Cast(expr, other.type)


@st.composite
def truths(draw: st.DrawFn, depth: int) -> Expr:
    if not depth:
        return draw(leaves("boolean"))
    inner = truths(depth - 1)
    how = draw(st.integers(0, 6))
    if how < 2:
        return Call(("and", "or")[how], tuple(draw(st.lists(inner, min_size=2, max_size=3))), BOOLEAN)
    if how == 2:
        words = ("not", "is true", "is not false", "is unknown", "is not unknown", "is false", "is not true")
        return call(draw(st.sampled_from(words)), draw(inner))
    of = draw(st.sampled_from(TYPES[:-1]))
    if how == 3:
        return call(draw(st.sampled_from(["is null", "is not null"])), draw(values(of, depth - 1)))
    if how == 4:
        items = draw(st.lists(values(of, depth - 1), min_size=1, max_size=2))
        return call(draw(st.sampled_from(["in", "not in"])), draw(values(of, depth - 1)), *items)
    other = draw(st.sampled_from(NUMBERS)) if of in NUMBERS else of
    return call(draw(st.sampled_from(COMPARISONS)), draw(values(of, depth - 1)), draw(values(other, depth - 1)))


@st.composite
def some_rows(draw: st.DrawFn) -> Updates:
    """Rows of SCHEMA that take the place of one another, in either of their forms, and what stands before them sliced off."""
    drawn = draw(
        st.lists(st.tuples(row_values(TYPES), st.integers(0, 2), st.sampled_from([-1, 1, 2])), min_size=1, max_size=6)
    )
    drawn = [d for one in drawn for d in ((one, one) if draw(st.booleans()) else (one,))]
    rows = rows_of(TYPES, [d[0] for d in drawn])
    times, diffs = np.array([d[1] for d in drawn], np.int64), np.array([d[2] for d in drawn], np.int64)
    for k in range(1, len(diffs)):
        if diffs[k - 1] == -1 and draw(st.booleans()):
            diffs[k], times[k] = 1, times[k - 1]
    cut = draw(st.integers(0, len(drawn) - 1))
    made = Updates(rows.slice(cut), times[cut:], diffs[cut:])
    if draw(st.booleans()):
        at = np.arange(len(made))[None]
        loose = Assembly.of(SCHEMA.arrow, range(len(TYPES))).picked(
            np.array([made.struct.address]), np.zeros_like(at), at
        )
        return Updates(loose, made.times, made.diffs)
    return made


def shown(updates: Updates | None) -> list[tuple[object, ...]]:
    if updates is None:
        return []
    names = [column.to_pylist() for column in updates.rows.columns]
    facts = zip(updates.times.tolist(), updates.diffs.tolist(), strict=True)
    return [(*fact, *map(repr, row)) for fact, row in zip(facts, zip(*names, strict=True), strict=True)]


def paired(made: Delta, schema: Schema) -> Delta:
    left = None if made.rows is None else without_pairs(made.rows, image_plan(schema.arrow))
    if left is None or made.rows is None:
        return made
    return Delta(take(made.rows, left) if len(left) else None, made.errors)


def of(exprs: Sequence[Expr]) -> Schema:
    return Schema(tuple(Column(f"c{k}", e.type) for k, e in enumerate(exprs)))


def some_exprs() -> st.SearchStrategy[list[Expr]]:
    return st.lists(st.sampled_from(TYPES).flatmap(lambda name: values(name, 3)), min_size=1, max_size=4)


@given(some_rows(), st.data(), st.booleans())
@settings(max_examples=300)
def test_a_projection(rows: Updates, data: st.DataObject, pairs: bool) -> None:
    try:
        exprs = data.draw(some_exprs())
    except NoSuchFunction:
        reject()
    schema = of(exprs)
    program = projection(SCHEMA.arrow.types, exprs, schema.arrow)
    found = project_few(rows, program, paired=pairs)
    if found is None:
        return
    made = project(rows, exprs, schema.arrow)
    assert made.errors is None
    assert found.errors is None
    assert shown(found.rows) == shown((paired(made, schema) if pairs else made).rows)


@given(some_rows(), st.data())
@settings(max_examples=300)
def test_a_filter(rows: Updates, data: st.DataObject) -> None:
    try:
        predicate = data.draw(truths(3))
    except NoSuchFunction:
        reject()
    found = keep_few(rows, condition(SCHEMA.arrow, predicate))
    if found is None:
        return
    made = filter_rows(rows, predicate)
    assert made.errors is None
    assert found.errors is None
    assert shown(found.rows) == shown(made.rows)


SMALL, INT, BIG, MONEY = (ColumnRef(k, SCHEMA.columns[k].type) for k in (1, 2, 3, 4))
WIDE, TEXTS = ColumnRef(5, SCHEMA.columns[5].type), ColumnRef(8, TEXT)


def one_row(**given_values: Any) -> Updates:
    row = [given_values.get(f"c{k}") for k in range(len(TYPES))]
    return Updates(rows_of(TYPES, [tuple(row)]), np.zeros(1, np.int64), np.ones(1, np.int64))


def only(expr: Expr, row: Updates) -> object:
    """The value that the program gives, or None for no answer."""
    schema = of([expr])
    program = projection(SCHEMA.arrow.types, [expr], schema.arrow)
    assert program is not None
    found = project_few(row, program, paired=False)
    return None if found is None or found.rows is None else found.rows.rows.column(0).to_pylist()[0]


@pytest.mark.parametrize(
    ("expr", "row", "value"),
    [
        (call("*", MONEY, BIG), {"c4": Decimal("-1.50"), "c3": 2**62}, Decimal(-(2**62)) * Decimal("1.50")),
        (call("*", BIG, BIG), {"c3": -3_037_000_499}, 3_037_000_499**2),
        (call("+", WIDE, MONEY), {"c5": Decimal(2**62), "c4": Decimal("0.05")}, Decimal(2**62) + Decimal("0.05")),
        (call("-", WIDE, WIDE), {"c5": Decimal(10**38 - 1)}, Decimal(0)),
        (call("/", INT, SMALL), {"c2": -7, "c1": 2}, -3),
        (call("%", INT, SMALL), {"c2": -7, "c1": 2}, -1),
        (call("length", TEXTS), {"c8": "é€𝄞a"}, 4),
        (Coalesce((TEXTS, Literal("none", TEXT)), TEXT), {}, "none"),
        (Cast(BIG, SMALLINT), {"c3": -(2**15)}, -(2**15)),
        (Cast(MONEY, DataType.parse("numeric(20,4)")), {"c4": Decimal("-1.50")}, Decimal("-1.5000")),
        (Cast(INT, DataType.parse("numeric(12,2)")), {"c2": 7}, Decimal("7.00")),
    ],
)
def test_a_program_answers(expr: Expr, row: dict[str, Any], value: object) -> None:
    assert only(expr, one_row(**row)) == value


@pytest.mark.parametrize(
    ("expr", "row"),
    [
        (call("+", BIG, BIG), {"c3": 2**62}),
        (call("-", BIG, Literal(1, BIGINT)), {"c3": -(2**63)}),
        (call("*", BIG, BIG), {"c3": 3_037_000_500}),
        (call("*", INT, Literal(-1, INTEGER)), {"c2": -(2**31)}),
        (call("-", SMALL), {"c1": -(2**15)}),
        (call("/", INT, Literal(0, INTEGER)), {"c2": 1}),
        (call("%", BIG, Literal(0, BIGINT)), {"c3": 1}),
        (call("/", BIG, Literal(-1, BIGINT)), {"c3": -(2**63)}),
        (call("+", WIDE, WIDE), {"c5": Decimal(5 * 10**37)}),
        (Cast(BIG, SMALLINT), {"c3": 2**15}),
        (Cast(WIDE, DataType.parse("numeric(12,2)")), {"c5": Decimal(10**10)}),
    ],
)
def test_what_fails_or_does_not_fit_has_no_answer(expr: Expr, row: dict[str, Any]) -> None:
    assert only(expr, one_row(**row)) is None


def test_what_is_not_known_has_no_program() -> None:
    for expr in (call("upper", TEXTS), ColumnRef(17, SCHEMA.columns[17].type)):
        has_steps = projection(SCHEMA.arrow.types, [expr], of([expr]).arrow) is not None
        assert has_steps is isinstance(expr, ColumnRef)
    assert condition(SCHEMA.arrow, call("=", *[ColumnRef(17, SCHEMA.columns[17].type)] * 2)) is None


def test_many_rows_have_no_answer() -> None:
    rows = Updates(rows_of(["bigint"], [(k,) for k in range(FEW)]), np.zeros(FEW, np.int64), np.ones(FEW, np.int64))
    schema = schema_of(["bigint"])
    program = projection(schema.arrow.types, [call("+", ColumnRef(0, BIGINT), Literal(1, BIGINT))], schema.arrow)
    assert program is not None
    assert project_few(rows, program, paired=False) is None


def test_all_rows_that_pass_are_those_that_came() -> None:
    rows = one_row(c2=1)
    found = keep_few(rows, condition(SCHEMA.arrow, call("is not null", INT)))
    assert found is not None
    assert found.rows is rows
