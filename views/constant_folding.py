"""Constant folding: refuses constants that fail before any row is read, as Postgres's planner does.

Invariant: a plan that this refuses fails in Postgres over any rows. A subquery that only selects, computes and filters is
merged into the query around it, as in Postgres, so that CASE, COALESCE, AND and OR hide what they leave out. Nothing is said
where Postgres may leave an expression to the rows (settings, texts of dates and times). `compile` calls it with plans as
bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.ir import Call, Case, Cast, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.schema import BOOLEAN, Kind
from headrace.engine.value import remembered
from headrace.views.expressions import COMPARISONS, ONE_ROW, base_name, rebuild, shifted, substituted
from headrace.views.expressions import children as operands
from headrace.views.placeholders import Placeholder
from headrace.views.plan import Filter, Join, LeftJoin, Plan, Project, identity
from headrace.views.rewrite import is_fence
from headrace.views.rules.prune_columns import prune_columns
from headrace.views.traversal import children

_PLAIN = frozenset({
    Kind.BOOLEAN, Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.NUMERIC, Kind.TEXT, Kind.VARCHAR,
    Kind.BPCHAR,
})  # fmt: skip
"""Types whose text depends on no setting."""
_COMPUTED = _PLAIN | {Kind.BYTEA, Kind.DATE, Kind.TIME, Kind.TIMESTAMP}
"""Types of which functions may be computed beforehand."""
_UNSETTLED = frozenset({
    "concat", "concat_ws", "format", "to_char", "to_number", "to_date", "to_timestamp", "quote_literal", "quote_nullable",
    "array_to_string", "pg_typeof", "pg_input_is_valid",
})  # fmt: skip
"""Functions of such types that depend on settings, and so wait for rows."""
_STRICT = COMPARISONS | {"+", "-", "*", "/", "%", "like", "ilike", "not"}


class Fails(Exception):
    """An expression of constants fails; the message is Postgres's."""

    def __init__(self, message: str, expr: Expr) -> None:
        super().__init__(message)
        self.expr = expr


def failing(plan: Plan) -> Fails | None:
    """What Postgres's planner fails with, and of which expression; or None.

    >>> from headrace.engine.schema import INTEGER
    >>> from headrace.views.plan import One
    >>> zero = Call("/(integer,integer)", (Literal(1, INTEGER), Literal(0, INTEGER)), INTEGER)
    >>> found = failing(Project(One(), (zero,), ("x",)))
    >>> str(found), found.expr == zero
    ('division by zero', True)
    """
    try:
        _computed(plan)
    except Fails:
        # What nothing reads is never computed: asked again without it.
        try:
            _computed(prune_columns(plan))
        except Fails as error:
            return error
    return None


def _computed(plan: Plan) -> None:
    for expr in _columns(plan) or ():
        simplified(expr)


Known = Sequence[Expr] | None
"""Of each column an expression of constants and of columns of which nothing is known; None where nothing is known of any."""


@remembered
def _columns(plan: Plan) -> Known:
    """What stands for the columns where they are read."""
    if isinstance(plan, Project):
        found = _columns(plan.input)
        exprs = [_over(e, found) for e in plan.exprs]
        return None if all(isinstance(e, ColumnRef) for e in exprs) else exprs
    if isinstance(plan, Filter):
        found = _columns(plan.input)
        if is_fence(plan):
            return None if found is None else [_apart(e, i) for i, e in enumerate(found)]
        simplified(_over(plan.predicate, found))
        return found
    if isinstance(plan, Join | LeftJoin):
        return _beside(plan)
    for child in children(plan):
        _computed(child)
    return None


def _over(expr: Expr, found: Known) -> Expr:
    return expr if found is None else substituted(expr, found)


def _beside(plan: Join | LeftJoin) -> Known:
    """What stands for a join's columns."""
    sides = _columns(plan.left), _columns(plan.right)
    if sides == (None, None):
        if plan.residual is not None:
            simplified(plan.residual)
        return None
    width = len(plan.left.schema.columns)
    left, plain = (
        identity(p.schema)[0] if s is None else s for p, s in zip((plan.left, plan.right), sides, strict=True)
    )
    right = [shifted(e, width) for e in plain]
    if plan.residual is not None:
        simplified(substituted(plan.residual, [*left, *right]))
    if isinstance(plan, Join):
        return [*left, *right]
    full = [_apart(e, i) for i, e in enumerate(left)] if plan.full else left
    return [*full, *(_apart(e, width + i) for i, e in enumerate(right))]


def _apart(expr: Expr, place: int) -> Expr:
    """What stands for a column of a query planned by itself, or of rows that may be missing: only its failing is known."""
    try:
        simplified(expr)
    except Fails:
        return expr
    return ColumnRef(place, expr.type)


@lru_cache(maxsize=65536)
def simplified(expr: Expr) -> Expr:
    """The expression with what constants decide decided, in Postgres's order. Raises Fails."""
    if isinstance(expr, ColumnRef | Literal):
        return expr
    if isinstance(expr, Case):
        return _chosen(expr)
    if isinstance(expr, Coalesce):
        return _present(expr)
    if isinstance(expr, Placeholder) or (isinstance(expr, Call) and expr.function.startswith("$")):
        return expr
    if isinstance(expr, Call) and base_name(expr) in ("and", "or"):
        return _decided(expr, deciding=base_name(expr) == "or")
    parts = tuple(simplified(e) for e in operands(expr))
    if isinstance(expr, Call) and base_name(expr) in _STRICT and any(map(_is_null, parts)):
        return Literal(None, expr.type)
    known = rebuild(expr, parts)
    return _value(known) if _constant(known) else known


def _value(expr: Expr) -> Expr:
    """The constant that an expression of constants is. Raises Fails."""
    found = evaluate(expr, ONE_ROW)
    if found.errors is not None and found.errors[0].is_valid:
        raise Fails(found.errors[0].as_py(), expr)
    if not found.values[0].is_valid:
        return Literal(None, expr.type)
    if expr.type.kind is Kind.BOOLEAN:
        return Literal(found.values[0].as_py(), expr.type)
    return expr  # what it is matters to no choice


def _chosen(expr: Case) -> Expr:
    whens: list[tuple[Expr, Expr]] = []
    for condition, value in expr.whens:
        asked = simplified(condition)
        if isinstance(asked, Literal) and not asked.value:
            continue
        given = simplified(value)
        if isinstance(asked, Literal):
            return Case(tuple(whens), given, expr.type) if whens else given
        whens.append((asked, given))
    otherwise = simplified(expr.otherwise)
    return Case(tuple(whens), otherwise, expr.type) if whens else otherwise


def _present(expr: Coalesce) -> Expr:
    args: list[Expr] = []
    for part in expr.args:
        arg = simplified(part)
        if _is_null(arg):
            continue
        args.append(arg)
        if _constant(arg):
            break
    if not args:
        return Literal(None, expr.type)
    return args[0] if len(args) == 1 else Coalesce(tuple(args), expr.type)


def _decided(expr: Call, *, deciding: bool) -> Expr:
    """AND and OR: what stands behind the constant that decides is not looked at."""
    args: list[Expr] = []
    for part in expr.args:
        arg = simplified(part)
        if isinstance(arg, Literal) and arg.value is deciding:
            return arg
        if not (isinstance(arg, Literal) and arg.value is (not deciding)):
            args.append(arg)
    if not args:
        return Literal(not deciding, BOOLEAN)
    return args[0] if all(map(_is_null, args)) else Call(expr.function, tuple(args), expr.type)


@lru_cache(maxsize=65536)
def _constant(expr: Expr) -> bool:
    """Whether Postgres knows the value of a simplified expression beforehand."""
    if not isinstance(expr, Call | Cast):
        return isinstance(expr, Literal)
    return all(map(_constant, operands(expr))) and _settled(expr)


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def _settled(expr: Call | Cast) -> bool:
    """Whether the value of a function or cast of constants depends on no setting."""
    if isinstance(expr, Cast):
        return expr.arg.type.kind in _PLAIN and expr.type.kind in _PLAIN
    kinds = {expr.type.kind, *(a.type.kind for a in expr.args)}
    return base_name(expr) not in _UNSETTLED and kinds <= _COMPUTED
