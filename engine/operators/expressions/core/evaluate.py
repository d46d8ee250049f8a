"""Evaluation of typed expressions over the columns of a batch: values, and an error message for each row that fails.

Always: nothing raises for data; a failing row has a message (Postgres's) and a null value; an error in a branch not taken
does not count, nor one beside an operand that decides an AND or OR, wherever that stands (decision 39). An expression is
prepared once, constants folded as Postgres's planner folds them, and then called a batch at a time. Called by the operators.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.c_data import Exported
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import functions
from headrace.engine.operators.expressions.core.casts import cast_kernel, literal_scalar
from headrace.engine.operators.expressions.core.function_catalog import Evaluated, Kernel, Outcome
from headrace.engine.operators.expressions.core.ir import Call, Case, Cast, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.schema import DataType

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


_Held = dict[int, tuple[weakref.ref[Expr], _Node]]
_prepared: _Held = {}
"""By the expression's id, for as long as it lives: programs do not hold what they were made from."""
_conditions: _Held = {}
"""As `_prepared`, of expressions that decide whether a row stays."""


def evaluate(expr: Expr, rows: pa.RecordBatch | Exported) -> Evaluated:
    """`expr` for each row of `rows`. Raises KeyError for a function that is not in the catalogue, for nothing else."""
    return _evaluated(_node(_prepared, _prepare, expr), rows)


def satisfied(predicate: Expr, rows: pa.RecordBatch | Exported) -> Evaluated:
    """Whether each row stays: not where any part of the AND is false or NULL, and an error only where one fails and none is.

    >>> from headrace.engine.schema import BOOLEAN, INTEGER
    >>> fails = Call("=(integer,integer)", (Call("/(integer,integer)", (ColumnRef(0, INTEGER),) * 2, INTEGER),
    ...     Literal(1, INTEGER)), BOOLEAN)
    >>> rows = pa.record_batch([pa.array([0, 0], pa.int32()), pa.array([True, None])], names=["n", "b"])
    >>> satisfied(Call("and", (fails, ColumnRef(1, BOOLEAN)), BOOLEAN), rows).errors.to_pylist()
    ['division by zero', None]
    """
    return _evaluated(_node(_conditions, _prepare_condition, predicate), rows)


def _node(held: _Held, prepare: Callable[[Expr], _Node], expr: Expr) -> _Node:
    found = held.get(id(expr))
    if found is None:
        # Before its id can be taken by another, the program goes with the expression.
        gone = functools.partial(_forget, held, id(expr))
        found = held[id(expr)] = (weakref.ref(expr, gone), prepare(expr))
    return found[1]


def _evaluated(node: _Node, rows: pa.RecordBatch | Exported) -> Evaluated:
    values, errors = node.program(rows.column)
    count = rows.num_rows
    if isinstance(values, pa.Scalar):
        values = pa.repeat(values, count)
    if errors is None:
        return Evaluated(values, None)
    errors = col.as_column(errors, count)
    if errors.null_count == count:
        return Evaluated(values, None)
    return Evaluated(pc.if_else(errors.is_valid(), pa.scalar(None, values.type), values), errors)


def _forget(held: _Held, at: int, _gone: weakref.ref[Expr]) -> None:
    held.pop(at, None)


def _prepare_condition(predicate: Expr) -> _Node:
    return _junction([_prepare(part) for part in _parts(predicate, negated=False)], decides=False, null_decides=True)


def _parts(expr: Expr, *, negated: bool) -> list[Expr]:
    """The conditions that all must hold: the operands of ANDs, and of ORs under a NOT, which Postgres pulls apart too."""
    if isinstance(expr, Call):
        if expr.function == "not(boolean)":
            return _parts(expr.args[0], negated=not negated)
        if expr.function == ("or" if negated else "and"):
            return [part for arg in expr.args for part in _parts(arg, negated=negated)]
    return [Call("not(boolean)", (expr,), expr.type) if negated else expr]


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


def _junction(args: Sequence[_Node], *, decides: bool, null_decides: bool = False) -> _Node:
    """AND (decided by false) or OR (by true): an operand that decides does so whatever stands before or behind it fails.

    `null_decides`: NULL decides too, as for conditions of rows.
    """
    certain = [a.constant[0].as_py() for a in args if a.constant and a.constant[1] is None]
    if decides in certain or (null_decides and None in certain):
        return _constant(pa.scalar(decides), None)
    programs = [a.program for a in args]
    combine = pc.get_function("or_kleene" if decides else "and_kleene")

    def program(columns: Columns) -> Outcome:
        values: Any = None
        errors: Any = None
        outcomes: list[Outcome] = []
        for part in programs:
            value, fault = part(columns)
            if fault is not None:
                value = pc.if_else(pc.is_valid(fault), _UNKNOWN, value)
                errors = fault if errors is None else col.first_error(errors, fault)
            outcomes.append((value, fault))
            values = value if values is None else combine.call([values, value])
            if errors is None and _is_decided(values, decides, null_decides=null_decides):
                return values, None
        if errors is None:
            return values, None
        decided = pc.fill_null(pc.equal(values, decides), False)
        for value, fault in outcomes if null_decides else ():
            missing = pc.is_null(value) if fault is None else pc.and_(pc.is_null(value), pc.is_null(fault))
            decided = pc.or_(decided, missing)
        return values, pc.if_else(decided, pa.scalar(None, col.MESSAGE), errors)

    if all(a.constant for a in args):
        return _constant(*_first(program(_no_columns), None))
    return _Node(program)


def _is_decided(values: Any, decides: bool, *, null_decides: bool) -> bool:
    """Whether each row has an operand that decides, so that no other one counts."""
    if not isinstance(values, pa.BooleanArray) or (values.null_count and not null_decides):
        return False
    return not (values.false_count if decides else values.true_count)


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
