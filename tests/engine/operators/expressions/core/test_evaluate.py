"""Evaluation: errors per row, laziness, constants, scalars, sliced and empty batches. Values themselves: the oracle."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.operators.expressions.core.evaluate import evaluate, satisfied
from headrace.engine.operators.expressions.core.ir import Call, Case, Cast, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.operators.expressions.core.resolve import resolve
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL
from headrace.engine.schema import BIGINT, BOOLEAN, DOUBLE, INTEGER, NUMERIC, TEXT, DataType, Kind

A, B = ColumnRef(0, INTEGER), ColumnRef(1, INTEGER)
ZERO = Literal(0, INTEGER)


def call(name: str, *args: Expr) -> Call:
    found = resolve(name, [a.type for a in args])
    params = zip(args, found.params, strict=True)
    return Call(found.function, tuple(a if a.type == p else Cast(a, p) for a, p in params), found.result)


def batch(a: list[int | None], b: list[int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(a, pa.int32()), pa.array(b, pa.int32())], names=["a", "b"])


def answers(expr: Expr, rows: pa.RecordBatch) -> list[object]:
    out = evaluate(expr, rows)
    assert out.values.type == expr.type.arrow
    assert len(out.values) == rows.num_rows
    errors = [None] * rows.num_rows if out.errors is None else out.errors.to_pylist()
    return [e if e is not None else v for v, e in zip(out.values.to_pylist(), errors, strict=True)]


def test_a_failing_row_has_its_message_and_a_null_value() -> None:
    out = evaluate(call("/", A, B), batch([6, 7, None, -7], [3, 0, 0, 2]))
    assert out.values.to_pylist() == [2, None, None, -3]
    assert out.errors is not None
    assert out.errors.to_pylist() == [None, "division by zero", None, None]


def test_no_failing_row_means_no_errors() -> None:
    assert evaluate(call("/", A, B), batch([6], [3])).errors is None


def test_the_first_of_two_errors_counts() -> None:
    expr = call("+", call("/", A, B), call("+", A, Literal(2**31 - 1, INTEGER)))
    assert answers(expr, batch([1, 1, -1], [0, 1, 1])) == ["division by zero", "integer out of range", 2**31 - 3]


@pytest.mark.parametrize(("name", "decides"), [("and", False), ("or", True)])
def test_an_operand_that_decides_does_so_beside_one_that_fails(name: str, decides: bool) -> None:
    guard = call("<>" if name == "and" else "=", B, ZERO)
    fails = call(">", call("/", A, B), ZERO)
    for expr in (call(name, guard, fails), call(name, fails, guard)):
        assert answers(expr, batch([1, 1], [0, 1])) == [decides, True]


@pytest.mark.parametrize("name", ["and", "or"])
def test_null_decides_nothing_inside_an_expression(name: str) -> None:
    fails = call(">", call("/", A, B), ZERO)
    unknown = call("=", B, Literal(None, INTEGER))
    for expr in (call(name, unknown, fails), call(name, fails, unknown)):
        assert answers(expr, batch([1], [0])) == ["division by zero"]


def test_null_or_false_keeps_a_row_out_beside_a_condition_that_fails() -> None:
    fails = call(">", call("/", A, B), ZERO)
    large = call(">", A, Literal(5, INTEGER))
    rows = batch([None, 1, 6, 6], [0, 0, 0, 2])
    nested = call("and", call("is not null", B), call("and", fails, large))
    negated = call("not", call("or", call("not", fails), call("not", large)))
    for predicate in (call("and", fails, large), call("and", large, fails), nested, negated):
        found = satisfied(predicate, rows)
        assert found.errors is not None
        assert found.errors.to_pylist() == [None, None, "division by zero", None]
        assert [value is True for value in found.values.to_pylist()] == [False, False, False, True]


def test_branches_not_taken_do_not_count() -> None:
    expr = Case(((call("=", B, ZERO), Literal(-1, INTEGER)),), call("/", A, B), INTEGER)
    assert answers(expr, batch([6, 6, None], [0, 2, 1])) == [-1, 3, None]
    first = Coalesce((A, call("/", B, ZERO)), INTEGER)
    assert answers(first, batch([1, None], [1, 1])) == [1, "division by zero"]


def test_an_error_in_a_condition_counts_where_it_is_reached() -> None:
    divided = call(">", call("/", A, B), ZERO)
    expr = Case(((call("=", A, ZERO), ZERO), (divided, Literal(1, INTEGER))), Literal(2, INTEGER), INTEGER)
    assert answers(expr, batch([0, 1, 1], [0, 0, 1])) == [0, "division by zero", 1]


def test_constants_fold_and_are_spread_over_the_rows() -> None:
    expr = call("+", Literal(1, INTEGER), Literal(2, INTEGER))
    assert answers(expr, batch([1, 2], [1, 2])) == [3, 3]
    assert answers(call("/", Literal(1, INTEGER), ZERO), batch([1, 2], [1, 2])) == ["division by zero"] * 2
    assert answers(call("+", call("/", A, B), Literal(None, INTEGER)), batch([1], [0])) == [None]


def test_sliced_and_empty_batches() -> None:
    rows = batch([1, None, 2**31 - 1, 4], [1, 2, 3, 0])
    for expr in (call("+", A, B), call("%", A, B), call("*", A, B), call("/", A, B), Cast(A, DOUBLE), Cast(A, TEXT)):
        assert answers(expr, rows.slice(1, 3)) == answers(expr, rows)[1:]
        assert answers(expr, rows.slice(0, 0)) == []


def test_numeric_scales_and_the_limit_of_38_digits() -> None:
    money = DataType(Kind.NUMERIC, 12, 2)
    rows = pa.RecordBatch.from_arrays([pa.array([Decimal("1.50"), None], pa.decimal128(38, 2))], names=["n"])
    n = ColumnRef(0, money)
    product = call("*", n, n)
    assert product.type == DataType(Kind.NUMERIC, scale=4)
    assert answers(product, rows) == [Decimal("2.2500"), None]
    assert call("/", n, n).type == NUMERIC
    wide = DataType(Kind.NUMERIC, 38, 19)
    big = pa.RecordBatch.from_arrays([pa.array([Decimal(9 * 10**18)], pa.decimal128(38, 19))], names=["n"])
    squared = call("*", ColumnRef(0, wide), ColumnRef(0, wide))
    assert squared.type == DataType(Kind.NUMERIC, scale=38)
    assert "38 digits" in str(answers(squared, big)[0])


def test_an_expression_is_prepared_once_however_many_there_are() -> None:
    rows = batch([1], [1])
    for i in range(5000):
        assert answers(call("+", A, Literal(i, INTEGER)), rows) == [1 + i]


INTEGERS = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(INTEGERS, INTEGERS), max_size=80))
def test_integer_arithmetic_against_python(pairs: list[tuple[int | None, int | None]]) -> None:
    rows = batch([a for a, _ in pairs], [b for _, b in pairs])
    for name in ("+", "-", "*", "/", "%"):
        assert answers(call(name, A, B), rows) == [_python(name, a, b) for a, b in pairs], name


def _python(name: str, a: int | None, b: int | None) -> object:
    if a is None or b is None:
        return None
    if name in "/%" and b == 0:
        return "division by zero"
    quotient = 0 if name not in "/%" else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    out = {"+": a + b, "-": a - b, "*": a * b, "/": quotient, "%": a - quotient * b}[name]
    return out if -(2**31) <= out < 2**31 else "integer out of range"


LONGS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**63 - 1, -(2**63), -1, 0, 3037000500]))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(LONGS, LONGS), min_size=1, max_size=40))
def test_bigint_products_against_python(pairs: list[tuple[int, int]]) -> None:
    arrays = [pa.array([p[i] for p in pairs], pa.int64()) for i in (0, 1)]
    rows = pa.RecordBatch.from_arrays(arrays, names=["a", "b"])
    expr = call("*", ColumnRef(0, BIGINT), ColumnRef(1, BIGINT))
    expected = [a * b if -(2**63) <= a * b < 2**63 else "bigint out of range" for a, b in pairs]
    assert answers(expr, rows) == expected


def test_boolean_junctions_are_three_valued() -> None:
    values = [True, False, None]
    rows = pa.RecordBatch.from_arrays(
        [pa.array([a for a in values for _ in values]), pa.array(values * 3, pa.bool_())], names=["a", "b"]
    )
    a, b = ColumnRef(0, BOOLEAN), ColumnRef(1, BOOLEAN)
    assert answers(call("and", a, b), rows) == [True, False, None, False, False, False, None, False, None]
    assert answers(call("or", a, b), rows) == [True, True, True, True, False, None, True, None, None]


@pytest.mark.parametrize("name", ["=", "<", "is distinct from", "in", "nullif", "greatest"])
def test_a_value_that_has_no_order_is_an_error_of_its_row(name: str) -> None:
    """Not a NULL, which would leave the row out where nobody sees it."""
    spans = pa.RecordBatch.from_arrays(
        [pa.array(["1 day", "no interval"], pa.large_string()), pa.array(["24:00:00"] * 2, pa.large_string())],
        names=["a", "b"],
    )
    expr = call(name, ColumnRef(0, INTERVAL), ColumnRef(1, INTERVAL))
    good, bad = answers(expr, spans)
    assert good != bad
    assert "no interval" in str(bad)
