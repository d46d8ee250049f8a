"""Facts of typed expressions without running them: their columns, whether they may fail, whether they may be NULL.

Invariant: the answers err on the safe side; an unknown function may fail and may give NULL. Pure; the plan, the rules and the
binder call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import TypeVar

import pyarrow as pa

from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.ir import Call, Case, Cast, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.operators.expressions.core.text_types import has_spellings
from headrace.engine.operators.ranks import has_images
from headrace.engine.schema import BOOLEAN, NUMERIC, TEXT, TIMESTAMP, TIMESTAMPTZ, Column, DataType, Kind
from headrace.views.placeholders import OuterColumn, Placeholder

P = TypeVar("P", bound=Placeholder)

COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})

_NEVER_FAIL = COMPARISONS | {
    "is null", "is not null", "is true", "is not true", "is false", "is not false", "is unknown", "is not unknown",
    "is distinct from", "is not distinct from", "and", "or", "not", "in", "not in", "nullif", "greatest", "least",
    "||", "concat", "like", "ilike", "lower", "upper", "length", "char_length", "character_length", "btrim", "ltrim",
    "rtrim", "trim",
    "starts_with", "reverse", "octet_length", "json_typeof", "jsonb_typeof", "->", "->>", "?", "@>", "<@",
    "$key", "$behind key", "$of key",
}  # fmt: skip

_NULL_ONLY_FROM_NULL = COMPARISONS | {
    "+", "-", "*", "/", "%", "||", "and", "or", "not", "in", "not in", "greatest", "least", "abs", "round", "ceil",
    "ceiling", "floor", "trunc", "mod", "lower", "upper", "length", "char_length", "like", "ilike", "btrim", "ltrim",
    "rtrim", "trim", "substring", "replace", "left", "right", "strpos", "position", "date_trunc", "sign",
    "$key", "$behind key", "$of key",
}  # fmt: skip

_NEVER_NULL = frozenset(
    {
        "is null", "is not null", "is true", "is not true", "is false", "is not false", "is unknown", "is not unknown",
        "is distinct from", "is not distinct from", "concat",
    }
)  # fmt: skip

_STRICT = COMPARISONS | {"+", "-", "*", "/", "%", "||", "like", "ilike", "not", "lower", "upper", "length", "abs"}

_WIDENING = {
    Kind.SMALLINT: {Kind.INTEGER, Kind.BIGINT, Kind.NUMERIC, Kind.REAL, Kind.DOUBLE},
    Kind.INTEGER: {Kind.BIGINT, Kind.NUMERIC, Kind.REAL, Kind.DOUBLE},
    Kind.BIGINT: {Kind.NUMERIC, Kind.REAL, Kind.DOUBLE},
    Kind.REAL: {Kind.DOUBLE},
    Kind.DATE: {Kind.TIMESTAMP},
}
_COMMON = (NUMERIC, TIMESTAMPTZ, TIMESTAMP)
"""What values of two lanes are compared as, the first of which one side is."""

ONE_ROW = pa.record_batch([pa.array([True])], names=["row"])
_STRINGS = {Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR}


def base_name(call: Call) -> str:
    """The catalogue's name of a call without its signature.

    >>> base_name(Call("=(bigint,bigint)", (), BOOLEAN))
    '='
    """
    return call.function.split("(", 1)[0]


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands, in order of evaluation."""
    if isinstance(expr, ColumnRef):  # most of all, and so asked first
        return ()
    if isinstance(expr, Call):
        return expr.args
    if isinstance(expr, Cast):
        return (expr.arg,)
    if isinstance(expr, Coalesce):
        return expr.args
    if isinstance(expr, Case):
        return (*(e for when in expr.whens for e in when), expr.otherwise)
    return ()


def rebuild(expr: Expr, parts: Sequence[Expr]) -> Expr:
    """`expr` with `children` replaced by `parts`."""
    if isinstance(expr, Call | Coalesce):
        return replace(expr, args=tuple(parts))
    if isinstance(expr, Cast):
        return replace(expr, arg=parts[0])
    if isinstance(expr, Case):
        pairs = tuple((parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2))
        return replace(expr, whens=pairs, otherwise=parts[-1])
    return expr


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Top-down replacement: where `change` gives an expression it stands, elsewhere operands are visited."""
    changed = change(expr)
    if changed is not None:
        return changed
    below = children(expr)
    if not below:
        return expr
    parts = tuple([rewrite(e, change) for e in below])
    return expr if all(map(is_, parts, below)) else rebuild(expr, parts)


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything in it."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def outermost(expr: Expr, kind: type[P]) -> list[P]:
    """The placeholders of a kind that stand in no other one of it."""
    if isinstance(expr, kind):
        return [expr]
    return [found for part in children(expr) for found in outermost(part, kind)]


@lru_cache(maxsize=65536)
def columns(expr: Expr) -> frozenset[int]:
    """The input positions that the expression reads."""
    return frozenset(e.index for e in walk(expr) if isinstance(e, ColumnRef))


def moved(expr: Expr, to: Mapping[int, int]) -> Expr:
    """The expression over a row whose column i now stands at `to[i]`. Raises KeyError for a column without a place."""

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, ColumnRef):
            return None
        place = to[e.index]
        return e if place == e.index else ColumnRef(place, e.type)

    return rewrite(expr, change)


def shifted(expr: Expr, by: int) -> Expr:
    """The expression with every column position raised by `by`."""
    if not by:
        return expr
    return rewrite(expr, lambda e: ColumnRef(e.index + by, e.type) if isinstance(e, ColumnRef) else None)


def substituted(expr: Expr, exprs: Sequence[Expr]) -> Expr:
    """The expression with column i replaced by `exprs[i]`."""
    return rewrite(expr, lambda e: exprs[e.index] if isinstance(e, ColumnRef) else None)


def conjuncts(predicate: Expr | None) -> tuple[Expr, ...]:
    """The operands of nested ANDs, left to right; none for no predicate."""
    if predicate is None:
        return ()
    if isinstance(predicate, Call) and base_name(predicate) == "and":
        return tuple(c for arg in predicate.args for c in conjuncts(arg))
    return (predicate,)


def conjunction(parts: Sequence[Expr]) -> Expr | None:
    """AND of the parts in order; None for none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return Call("and", tuple(parts), BOOLEAN)


def equality(expr: Expr) -> tuple[Expr, Expr] | None:
    """The sides of an `=`, brought to one lane so that equal values meet as keys; else None.

    >>> wide, narrow = (ColumnRef(i, DataType(Kind.NUMERIC, scale=s)) for i, s in ((0, 4), (1, 2)))
    >>> sides = equality(Call("=(numeric,numeric)", (wide, narrow), BOOLEAN))
    >>> [(side.type.kind.value, side.type.scale) for side in sides or ()]
    [('numeric', None), ('numeric', None)]
    """
    if not (isinstance(expr, Call) and base_name(expr) == "=" and len(expr.args) == 2):
        return None
    one, two = expr.args
    if has_spellings(one.type):
        return valued(one), valued(two)
    if one.type.arrow == two.type.arrow:
        return one, two
    for kind in _COMMON:
        if kind.kind in (one.type.kind, two.type.kind):
            return _as(one, kind), _as(two, kind)
    # Integers meet whatever their widths are.
    return one, two


def valued(expr: Expr) -> Expr:
    """A text that is equal for equal values of `expr`, whose type is known by its text."""
    return Call("$key(any)", (expr,), TEXT) if has_spellings(expr.type) else Cast(expr, TEXT)


def seen(exprs: Sequence[Expr]) -> tuple[Expr, ...]:
    """The expressions, and the texts of those whose equal values may look different: what is equal in all looks alike."""
    several = (e for e in exprs if has_images(e.type) or has_spellings(e.type))
    return (*exprs, *(Cast(e, TEXT) for e in several))


def _as(expr: Expr, kind: DataType) -> Expr:
    return expr if expr.type == kind else Cast(expr, kind, implicit=True)


_ANY_VALUE: dict[Kind, bool | int | float | str | bytes] = {
    Kind.BOOLEAN: False, Kind.SMALLINT: 0, Kind.INTEGER: 0, Kind.BIGINT: 0, Kind.REAL: 0.0, Kind.DOUBLE: 0.0,
    Kind.NUMERIC: "0", Kind.TEXT: "", Kind.VARCHAR: "", Kind.BPCHAR: "", Kind.BYTEA: b"", Kind.DATE: "2000-01-01",
    Kind.TIME: "00:00:00", Kind.TIMESTAMP: "2000-01-01 00:00:00", Kind.TIMESTAMPTZ: "2000-01-01 00:00:00+00",
    Kind.UUID: "00000000-0000-0000-0000-000000000000",
}  # fmt: skip


def null_safe(expr: Expr, *, nullable: bool) -> tuple[Expr, ...]:
    """Keys that are never NULL, and equal where two values of `expr` are equal or both NULL.

    >>> from headrace.engine.schema import BIGINT
    >>> len(null_safe(ColumnRef(0, BIGINT), nullable=True)), len(null_safe(ColumnRef(0, BIGINT), nullable=False))
    (2, 1)
    """
    kind = expr.type.kind
    # What Postgres cannot compare is told apart by its text.
    key = expr if kind in _ANY_VALUE else valued(expr)
    if not nullable:
        return (key,)
    missing = Call("is null(any)", (expr,), BOOLEAN)
    any_value = _ANY_VALUE.get(kind, "")
    if kind is Kind.NUMERIC:  # in the scale of its lane
        any_value = f"{0:.{max(key.type.scale or 0, 0)}f}"
    return (Coalesce((key, Literal(any_value, key.type)), key.type), missing)


def outer_columns(expr: Expr) -> Iterator[OuterColumn]:
    """The columns of queries around that the expression reads."""
    return (e for e in walk(expr) if isinstance(e, OuterColumn))


@lru_cache(maxsize=65536)
def reaches_out(expr: Expr) -> bool:
    """Whether the expression reads a query around its own."""
    return any(True for _ in outer_columns(expr))


@lru_cache(maxsize=65536)
def fallible(expr: Expr) -> bool:
    """Whether some row could make the expression fail (division by zero, overflow, text that is no number …)."""
    if isinstance(expr, Placeholder):
        return not isinstance(expr, OuterColumn)
    if isinstance(expr, Call | Cast) and not columns(expr) and not reaches_out(expr):
        return _constant_fails(expr)
    if isinstance(expr, Call) and (base_name(expr) not in _NEVER_FAIL or _of_arrays(expr)):
        return True
    if isinstance(expr, Call) and base_name(expr) in ("like", "ilike") and not _is_whole_pattern(expr.args[1]):
        return True
    if isinstance(expr, Cast) and not _cast_never_fails(expr.arg.type, expr.type):
        return True
    return any(fallible(e) for e in children(expr))


def _of_arrays(call: Call) -> bool:
    """Whether the call takes an array: operators of arrays may fail, and take NULL for an empty one."""
    return any(a.type.element is not None for a in call.args)


def _is_whole_pattern(pattern: Expr) -> bool:
    """Whether a LIKE pattern is known not to end in its escape character."""
    return isinstance(pattern, Literal) and not str(pattern.value).endswith("\\")


def _constant_fails(expr: Expr) -> bool:
    """Whether an expression without columns fails: it is tried."""
    errors = evaluate(expr, ONE_ROW).errors
    return errors is not None and errors.null_count < len(errors)


def _cast_never_fails(source: DataType, target: DataType) -> bool:
    if source.kind in _STRINGS and target.kind in _STRINGS:
        # An implicit or explicit cast to a length cuts, it does not fail.
        return True
    if source.kind is target.kind:
        return source == target or (target.precision is None and (target.scale is None or target.scale == source.scale))
    if target.kind in (Kind.TEXT, Kind.VARCHAR):
        return True
    return target.kind in _WIDENING.get(source.kind, ()) and target.precision is None


def may_be_null(expr: Expr, inputs: Sequence[Column]) -> bool:
    """Whether the expression can be NULL over rows of `inputs`."""
    if isinstance(expr, ColumnRef):
        return inputs[expr.index].nullable
    if isinstance(expr, Literal):
        return expr.value is None
    if isinstance(expr, Cast):
        return may_be_null(expr.arg, inputs)
    if isinstance(expr, Coalesce):
        return all(may_be_null(a, inputs) for a in expr.args)
    if isinstance(expr, Case):
        return any(may_be_null(e, inputs) for e in (*(v for _, v in expr.whens), expr.otherwise))
    name = base_name(expr)
    if name in _NEVER_NULL:
        return False
    if name in ("greatest", "least"):
        return all(may_be_null(a, inputs) for a in expr.args)
    return name not in _NULL_ONLY_FROM_NULL or any(may_be_null(a, inputs) for a in expr.args)


def proved_present(predicate: Expr | None) -> frozenset[int]:
    """Columns that are not NULL in any row for which the predicate is true."""
    found: set[int] = set()
    for part in conjuncts(predicate):
        if isinstance(part, ColumnRef):
            found.add(part.index)
        elif isinstance(part, Call):
            name = base_name(part)
            if name in ("is not null", "is true", "is false"):
                found |= _strict_columns(part.args[0])
            elif name in _STRICT:
                found |= _strict_columns(part)
            elif name == "in":
                found |= _strict_columns(part.args[0])
    return frozenset(found)


def _strict_columns(expr: Expr) -> set[int]:
    """Columns whose NULL makes the expression NULL."""
    if isinstance(expr, ColumnRef):
        return {expr.index}
    if isinstance(expr, Cast):
        return _strict_columns(expr.arg)
    if isinstance(expr, Call) and base_name(expr) in _STRICT and not (_of_arrays(expr) and base_name(expr) == "||"):
        return {c for a in expr.args for c in _strict_columns(a)}
    return set()
