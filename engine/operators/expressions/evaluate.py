"""Evaluation of typed expressions over the columns of a batch: values, and an error message for each row that fails.

Always: nothing raises for data; a failing row has a message (Postgres's) and a null value; an error in what Postgres
would not have evaluated (a branch not taken, the right of a deciding AND) does not count. An expression is prepared
once, constants folded as Postgres's planner folds them, and then called a batch at a time. Called by the operators.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.batch.exported import Exported
from engine.errors import InvariantBroken
from engine.operators.expressions import columns as col
from engine.operators.expressions import functions
from engine.operators.expressions.casts import cast_kernel, literal_scalar
from engine.operators.expressions.ir import Call, Case, Cast, Coalesce, ColumnRef, Expr, Literal
from engine.operators.expressions.registry import Evaluated, Kernel, Outcome
from engine.schema import DataType

Columns = Callable[[int], pa.Array]
"""The batch's columns by position, made only when asked for."""

Program = Callable[[Columns], Outcome]


@dataclass(frozen=True)
class _Node:
    """A prepared expression: a constant outcome, or a program over columns."""

    program: Program
    constant: Outcome | None = None


def _constant(values: Any, errors: Any) -> _Node:
    outcome = (values, errors)
    return _Node(lambda _columns: outcome, outcome)


_prepared: dict[int, tuple[weakref.ref[Expr], _Node]] = {}
"""By the expression's id, for as long as it lives: programs do not hold what they were made from."""


def evaluate(expr: Expr, rows: pa.RecordBatch | Exported) -> Evaluated:
    """`expr` for each row of `rows`. Raises KeyError for a function that is not in the catalogue, for nothing else."""
    held = _prepared.get(id(expr))
    if held is None:
        # Before its id can be taken by another, the program goes with the expression.
        gone = functools.partial(_forget, id(expr))
        held = _prepared[id(expr)] = (weakref.ref(expr, gone), _prepare(expr))
    values, errors = held[1].program(rows.column)
    count = rows.num_rows
    if isinstance(values, pa.Scalar):
        values = pa.repeat(values, count)
    if errors is None:
        return Evaluated(values, None)
    errors = col.as_column(errors, count)
    if errors.null_count == count:
        return Evaluated(values, None)
    return Evaluated(pc.if_else(errors.is_valid(), pa.scalar(None, values.type), values), errors)


def _forget(at: int, _gone: weakref.ref[Expr]) -> None:
    _prepared.pop(at, None)


def _prepare(expr: Expr) -> _Node:
    if isinstance(expr, ColumnRef):
        index = expr.index
        return _Node(lambda columns: (columns(index), None))
    if isinstance(expr, Literal):
        return _constant(*literal_scalar(expr.value, expr.type))
    if isinstance(expr, Cast):
        kernel = cast_kernel(expr.arg.type, expr.type)
        arg = _prepare(expr.arg)
        return arg if kernel is None else _apply(kernel, [arg], True, expr.type)
    if isinstance(expr, Case):
        return _case(expr)
    if isinstance(expr, Coalesce):
        return _coalesce([_prepare(a) for a in expr.args])
    return _call(expr)


def _call(expr: Call) -> _Node:
    args = [_prepare(a) for a in expr.args]
    if expr.function == "and":
        return _junction(args, decides=False)
    if expr.function == "or":
        return _junction(args, decides=True)
    signature = functions.by_function(expr.function)
    if signature.make is None:
        raise InvariantBroken("a refused function was called", function=expr.function)
    kernel = signature.make(tuple(a.type for a in expr.args), expr.type)
    return _apply(kernel, args, signature.strict, expr.type)


def _apply(kernel: Kernel, args: Sequence[_Node], strict: bool, result: DataType) -> _Node:
    if strict and any(a.constant and not a.constant[0].is_valid and a.constant[1] is None for a in args):
        return _constant(pa.scalar(None, result.arrow), None)
    if all(a.constant for a in args):
        return _folded(kernel, args)
    if len(args) == 1:
        only = args[0].program

        def unary(columns: Columns) -> Outcome:
            value, before = only(columns)
            values, errors = kernel(value)
            return values, errors if before is None else col.first_error(before, errors)

        return _Node(unary)
    if len(args) == 2:
        first, second = args[0].program, args[1].program

        def binary(columns: Columns) -> Outcome:
            left, before = first(columns)
            right, then = second(columns)
            values, errors = kernel(left, right)
            if before is None and then is None:
                return values, errors
            return values, col.first_error(before, then, errors)

        return _Node(binary)
    programs = [a.program for a in args]

    def nary(columns: Columns) -> Outcome:
        outcomes = [p(columns) for p in programs]
        values, errors = kernel(*(o[0] for o in outcomes))
        return values, col.first_error(*(o[1] for o in outcomes), errors)

    return _Node(nary)


def _folded(kernel: Kernel, args: Sequence[_Node]) -> _Node:
    constants = [a.constant for a in args if a.constant]
    for _value, error in constants:
        if error is not None:
            return _constant(*_first(kernel(*(pa.repeat(v, 1) for v, _ in constants)), error))
    return _constant(*_first(kernel(*(pa.repeat(v, 1) for v, _ in constants)), None))


def _first(outcome: Outcome, error: Any) -> Outcome:
    values, errors = outcome
    value = values if isinstance(values, pa.Scalar) else values[0]
    own = errors if errors is None or isinstance(errors, pa.Scalar) else errors[0]
    if own is not None and not own.is_valid:
        own = None
    return value, own if error is None else error


def _no_columns(index: int) -> pa.Array:
    raise InvariantBroken("a constant expression asked for a column", column=index)


_UNKNOWN = pa.scalar(None, pa.bool_())


def _junction(args: Sequence[_Node], *, decides: bool) -> _Node:
    """AND (decided by false) or OR (by true), left to right: what is right of a deciding operand is not asked."""
    if any(a.constant and a.constant[1] is None and a.constant[0].as_py() is decides for a in args):
        return _constant(pa.scalar(decides), None)
    programs = [a.program for a in args]
    combine = pc.get_function("or_kleene" if decides else "and_kleene")

    def program(columns: Columns) -> Outcome:
        values, errors = programs[0](columns)
        if errors is not None:
            values = pc.if_else(pc.is_valid(errors), _UNKNOWN, values)
        for other in programs[1:]:
            right, fault = other(columns)
            if fault is not None:
                undecided = pc.fill_null(pc.not_equal(values, decides), True)
                fault = pc.if_else(undecided, fault, pa.scalar(None, col.MESSAGE))
            values = combine.call([values, right])
            errors = col.first_error(errors, fault)
            if errors is not None:  # a failing row decides nothing
                values = pc.if_else(pc.is_valid(errors), _UNKNOWN, values)
        return values, errors

    if all(a.constant for a in args):
        return _constant(*_first(program(_no_columns), None))
    return _Node(program)


def _case(expr: Case) -> _Node:
    whens: list[tuple[_Node, _Node]] = []
    otherwise = _prepare(expr.otherwise)
    for condition, value in expr.whens:
        when = _prepare(condition)
        if when.constant and when.constant[1] is None:
            if when.constant[0].as_py() is True:
                otherwise = _prepare(value)
                break
            continue
        whens.append((when, _prepare(value)))
    if not whens:
        return otherwise
    lane = expr.type.arrow

    def program(columns: Columns) -> Outcome:
        values, errors = otherwise.program(columns)
        for condition, value in reversed(whens):
            test, test_fault = condition.program(columns)
            then, fault = value.program(columns)
            taken = pc.fill_null(test, False)
            if fault is not None or errors is not None:
                errors = pc.if_else(taken, _or_null(fault), _or_null(errors))
            values = pc.if_else(taken, then, values)
            errors = col.first_error(test_fault, errors)
            if test_fault is not None:
                values = pc.if_else(pc.is_valid(test_fault), pa.scalar(None, lane), values)
        return values, errors

    return _Node(program)


def _or_null(fault: Any) -> Any:
    return pa.scalar(None, col.MESSAGE) if fault is None else fault


def _coalesce(args: Sequence[_Node]) -> _Node:
    kept: list[_Node] = []
    for arg in args:
        if arg.constant and arg.constant[1] is None and not arg.constant[0].is_valid and len(args) > 1:
            continue
        kept.append(arg)
        if arg.constant:
            break
    if not kept:
        return args[0]
    if len(kept) == 1:
        return kept[0]

    def program(columns: Columns) -> Outcome:
        outcomes = [a.program(columns) for a in kept]
        if all(o[1] is None for o in outcomes):
            return pc.coalesce(*(o[0] for o in outcomes)), None
        values, errors = outcomes[-1]
        for value, fault in reversed(outcomes[:-1]):
            there = pc.is_valid(value)
            errors = pc.if_else(there, pa.scalar(None, col.MESSAGE), _or_null(errors))
            values = pc.if_else(there, value, values)
            if fault is not None:
                values = pc.if_else(pc.is_valid(fault), pa.scalar(None, values.type), values)
                errors = col.first_error(fault, errors)
        return values, errors

    return _Node(program)
