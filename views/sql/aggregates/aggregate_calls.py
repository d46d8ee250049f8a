"""Handlers of aggregates: DISTINCT, FILTER, ORDER BY inside and WITHIN GROUP; and of grouping().

Always: an aggregate becomes one that the engine keeps, or an expression over several (variance of exact numbers is that
of a count, a sum and a sum of squares); while it is bound a placeholder says which. Called by `functions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.engine.operators.expressions.core.coercion import numeric_image
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, Expr, Literal
from headrace.engine.operators.expressions.core.text_types import needs_key
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL
from headrace.engine.operators.expressions.range.range_text import ELEMENTS
from headrace.engine.operators.python_aggregates import folding
from headrace.engine.operators.regressions import REGRESSIONS
from headrace.engine.schema import BIGINT, BIT, DOUBLE, INTEGER, MAX_DIGITS, NUMERIC, DataType, Kind
from headrace.views.placeholders import GroupingValue
from headrace.views.sql import coerce
from headrace.views.sql.aggregates.aggregate_placement import around, check_allowed
from headrace.views.sql.aggregates.collecting_aggregates import COLLECTING, LISTS, PAIRED, collected, placed, regression
from headrace.views.sql.aggregates.ordered_set_aggregates import PERCENTILES, PLACES, within_group
from headrace.views.sql.binder import Binder, binds
from headrace.views.sql.rows.row_json import JSON, JSONB, document, unless_missing
from headrace.views.sql.rows.row_values import cells, counted, keyed, whole

_INTS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_FLOATS = (Kind.REAL, Kind.DOUBLE)
_KEPT = frozenset({"count", "sum", "avg", "min", "max", "bool_and", "bool_or"})
_SPREADS = {
    "variance": "var_samp", "var_samp": "var_samp", "var_pop": "var_pop", "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp", "stddev_pop": "stddev_pop",
}  # fmt: skip
_BITS = frozenset({"bit_and", "bit_or", "bit_xor"})
_OF_RANGES = frozenset({"range_agg", "range_intersect_agg"})
AGGREGATES = (
    _KEPT | _BITS | _OF_RANGES | frozenset(_SPREADS) | {"every", "any_value"} | PERCENTILES | COLLECTING | REGRESSIONS
)


def grouping(binder: Binder, node: exp.Expr) -> Expr:
    """grouping(…), which is known once the grouping sets are. Raises ViewError."""
    if binder.aggregates is None or binder.inside_aggregate:
        binder.source.refuse(node, f"grouping() is not allowed in {binder.clause}")
    args = tuple(binder.settled(a) for a in node.expressions)
    if args not in binder.groupings:
        binder.groupings.append(args)
    return GroupingValue((), INTEGER, binder.groupings.index(args))


def aggregate(
    binder: Binder,
    node: exp.Expr,
    where: exp.Expr | None,
    within: exp.Expr | None = None,
    over: list[Aggregate] | None = None,
    in_order: bool = False,
) -> Expr:
    """An aggregate's call, with its FILTER and WITHIN GROUP; `over`: where it is put if it is over a window, whose rows
    may hold aggregates themselves; `in_order`: which come in the window's order. Raises ViewError.
    """
    name = written = str(node.this).lower()
    name = {"every": "bool_and", "any_value": "min"}.get(name, name)
    if written == "any_value" and over is None and node.expressions and isinstance(node.expressions[-1], exp.Order):
        return _first_in_order(binder, node, where)
    if binder.inside_aggregate or binder.scope.outer is None:
        check_allowed(binder, node, name)
    args, distinct, orders = _taken_apart(binder, node)
    if (name in PERCENTILES | PLACES) != (within is not None):
        binder.source.refuse(node, f"{name} is written with{'' if within is None else 'out'} WITHIN GROUP")
    if within is not None:
        if distinct:
            binder.source.refuse(node, "cannot use DISTINCT with WITHIN GROUP")
        binder.source.only(within, {"expressions"})
        return within_group(binder, node, name, args, list(within.expressions), where)
    binder.inside_aggregate = over is None
    try:
        if name == "count" and not distinct and len(args) == 1:
            args = [counted(binder, args[0]) or args[0]]
        row = _row(binder, name, args, distinct=distinct)
        bound = [] if _is_star(args) else [row or binder.bind(a) for a in args]
        by = [(o, binder.settled(o.this)) for o in orders]
        condition = None if where is None else binder.boolean(where, "FILTER")
    finally:
        binder.inside_aggregate = False
    wanted = 2 if name in PAIRED or name in REGRESSIONS else 1
    if (_is_star(args) and (distinct or name != "count")) or (len(bound) != wanted and not _is_star(args)):
        hint = "write count(*)" if name == "count" else ""
        binder.source.refuse(node, f"{written} takes {'one argument' if wanted == 1 else 'two arguments'}", hint)
    parts = [*bound, *([] if condition is None else [condition])]
    outer = around(binder, node, name, parts, lambda other: aggregate(other, node, where), alone=over is None)
    if outer is not None:
        return outer
    check_allowed(binder, node, name)
    for ordered, key in by if distinct else ():
        if key not in bound:
            reason = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list"
            binder.source.refuse(ordered.this, reason)
    if over is not None:
        binder = binder.collecting(over)
    return _call(binder, node, name, bound, by, condition, distinct=distinct, in_order=in_order)


def _call(
    binder: Binder, node: exp.Expr, name: str, bound: list[Expr], by: list[tuple[exp.Expr, Expr]],
    condition: Expr | None, *, distinct: bool, in_order: bool,
) -> Expr:  # fmt: skip
    """What an aggregate of bound arguments is made of, by its name. Raises ViewError."""
    if name in COLLECTING:
        return collected(binder, node, name, bound, by, condition, distinct=distinct, in_order=in_order)
    if name in REGRESSIONS:
        return regression(binder, node, name, bound, condition, distinct=distinct)
    arg: Expr | None = bound[0] if bound else None
    if arg is not None and name in _BITS:
        return _bits(binder, node, name, arg, condition, distinct=distinct)
    if arg is not None and name in _OF_RANGES:
        return _ranges(binder, node, name, arg, condition)
    if arg is not None and name in _SPREADS:
        return _spread(binder, node, _SPREADS[name], arg, condition, distinct=distinct)
    if arg is not None and arg.type == INTERVAL and name in ("sum", "avg"):
        return _of_intervals(binder, name, arg, condition, distinct=distinct)
    if str(node.this).lower() == "any_value" and arg is not None and arg.type.kind is Kind.VARCHAR:
        least = coerce.aggregated(name, arg, distinct=False, where=condition)
        return coerce.cast(placed(binder, least), arg.type)
    # DISTINCT changes nothing for these, and without it they need no set of values seen.
    distinct = distinct and name not in ("min", "max", "bool_and", "bool_or")
    sorts = name in ("min", "max") and arg is not None and needs_key(arg.type)
    if arg is not None and sorts and coerce.aggregated(name, arg, distinct=False, where=condition).arg == arg:
        found = coerce.aggregated(name, coerce.called("$behind key", [arg]), distinct=False, where=condition)
        return Call("$of key(text)", (placed(binder, found),), arg.type)
    return placed(binder, coerce.aggregated(name, arg, distinct, condition))


def _first_in_order(binder: Binder, node: exp.Expr, where: exp.Expr | None) -> Expr:
    """any_value(… ORDER BY …): the first there is in that order."""
    listed = exp.Anonymous(this="array_agg", expressions=node.expressions)
    listed.meta.update(node.meta)
    there: exp.Expr = exp.Not(this=exp.Is(this=node.expressions[-1].this.copy(), expression=exp.Null()))
    met = there if where is None else exp.And(this=exp.Paren(this=where), expression=there)
    kept = exp.Filter(this=listed, expression=exp.Where(this=met))
    return binder.bind(exp.Bracket(this=exp.Paren(this=kept), expressions=[exp.Literal.number(1)]))


def _row(binder: Binder, name: str, args: Sequence[exp.Expr], *, distinct: bool) -> Expr | None:
    """A whole row, or one written out, that an aggregate takes; None for anything else."""
    if len(args) != 1 or _is_star(args):
        return None
    if name in LISTS and distinct and cells(binder, args[0]) is not None:
        # Postgres orders them as rows, by their columns.
        hint = "collect the rows of a subquery that is DISTINCT"
        binder.source.refuse(args[0], f"{name}(DISTINCT …) of rows is not supported", hint)
    if name in LISTS:
        return document(binder, args[0], JSONB if name.startswith("jsonb") else JSON)
    found = keyed(binder, args[0]) if name == "count" and distinct else None
    return found if found is None or whole(binder, args[0]) is None else unless_missing(binder, args[0], found)


def _of_intervals(binder: Binder, name: str, arg: Expr, where: Expr | None, *, distinct: bool) -> Expr:
    """sum or avg of intervals: that of their months, days and microseconds."""
    if distinct:
        folded = Aggregate(folding("sum_of_intervals", mean=name == "avg", keyed=True, distinct=True),
                           coerce.called("$behind key", [arg]), INTERVAL, filter=where)  # fmt: skip
        return placed(binder, folded)
    parts = [coerce.called(part, [arg]) for part in ("$months", "$days", "$micros")]
    total = coerce.called("$summed", [placed(binder, coerce.aggregated("sum", part, False, where)) for part in parts])
    if name == "sum":
        return total
    count = placed(binder, coerce.aggregated("count", arg, False, where))
    return coerce.called("/", [total, coerce.called("nullif", [count, Literal(0, BIGINT)])])


def _taken_apart(binder: Binder, node: exp.Expr) -> tuple[list[exp.Expr], bool, list[exp.Expr]]:
    """(arguments, whether DISTINCT, the ORDER BY inside)."""
    args = list(node.expressions)
    orders: list[exp.Expr] = []
    if args and isinstance(args[-1], exp.Order):
        orders = list(args[-1].expressions)
        args[-1] = args[-1].this
    distinct = len(args) == 1 and isinstance(args[0], exp.Distinct)
    if distinct:
        binder.source.only(args[0], {"expressions"})
        args = list(args[0].expressions)
    return args, distinct, orders


def _is_star(args: Sequence[exp.Expr]) -> bool:
    return len(args) == 1 and isinstance(args[0], exp.Star)


def _bits(binder: Binder, node: exp.Expr, name: str, arg: Expr, where: Expr | None, *, distinct: bool) -> Expr:
    if arg.type.bare == BIT and arg.type.size is None:
        reason = f"{name} of bit strings of no declared length is not supported"
        binder.source.refuse(node, reason, "cast them to bit(…)")
    if arg.type.kind not in _INTS and arg.type.bare != BIT:
        binder.source.refuse(node, f"function {name}({arg.type}) does not exist")
    options: dict[str, object] = {"distinct": True} if distinct and name == "bit_xor" else {}
    if arg.type.bare == BIT:
        arg, options = coerce.coerced(arg, BIT), options | {"width": arg.type.size}
    function = folding(name, **options)
    return placed(binder, Aggregate(function, arg, arg.type, filter=where))


def _ranges(binder: Binder, node: exp.Expr, name: str, arg: Expr, where: Expr | None) -> Expr:
    """What some ranges or multiranges cover together, or each of them."""
    own = arg.type.name or ""
    if own.replace("multirange", "range") not in ELEMENTS:
        binder.source.refuse(node, f"function {name}({arg.type}) does not exist")
    several = own if own.endswith("multirange") else own.replace("range", "multirange")
    into = several if name == "range_agg" else own
    found = Aggregate(folding(name, type=own, into=into), arg, DataType(Kind.OTHER, name=into), filter=where)
    return placed(binder, found)


def _spread(binder: Binder, node: exp.Expr, name: str, arg: Expr, where: Expr | None, *, distinct: bool) -> Expr:
    """Variance and standard deviation: of exact numbers from sums, of floats and distinct values from the values."""
    if arg.type == coerce.UNKNOWN:
        arg = coerce.coerced(arg, DOUBLE)
    kind = arg.type.kind
    if kind not in (*_INTS, *_FLOATS, Kind.NUMERIC):
        binder.source.refuse(node, f"function {name}({arg.type}) does not exist")
    if distinct or kind in _FLOATS:
        options = {"sample": name.endswith("samp"), "root": name.startswith("stddev"), "distinct": distinct}
        wide = coerce.coerced(arg, DOUBLE) if kind in _FLOATS else arg
        result = DOUBLE if kind in _FLOATS else NUMERIC
        return placed(binder, Aggregate(folding("spread", **options), wide, result, filter=where))
    exact = coerce.coerced(arg, BIGINT) if kind in (Kind.SMALLINT, Kind.INTEGER) else arg
    if kind in (Kind.BIGINT, Kind.NUMERIC):
        # The square of a value with more than half of the lane's digits has no room in it.
        crowded = kind is Kind.NUMERIC and 2 * (arg.type.precision or 0) > MAX_DIGITS
        exact = coerce.coerced(arg, NUMERIC if crowded else numeric_image(arg.type))
    square = coerce.called("$square", [exact]) if exact.type == NUMERIC else coerce.called("*", [exact, exact])
    parts = [coerce.aggregated("count", arg, distinct=False, where=where)]
    parts += [coerce.aggregated("sum", e, distinct=False, where=where) for e in (exact, square)]
    return coerce.called(f"${name}", [placed(binder, part) for part in parts])


@binds(exp.Filter)
def _filtered(binder: Binder, node: exp.Expr) -> Expr:
    inner, within = node.this, None
    if isinstance(inner, exp.WithinGroup):
        inner, within = inner.this, inner.expression
    if not isinstance(inner, exp.Anonymous) or str(inner.this).lower() not in _named(within):
        binder.source.refuse(node, "FILTER is only for the aggregates " + ", ".join(sorted(AGGREGATES)))
    return aggregate(binder, inner, node.expression.this, within)


def _named(within: exp.Expr | None) -> frozenset[str]:
    return AGGREGATES if within is None else PERCENTILES | PLACES


@binds(exp.WithinGroup, reads="this expression")
def _within_group(binder: Binder, node: exp.Expr) -> Expr:
    if not isinstance(node.this, exp.Anonymous) or str(node.this.this).lower() not in PERCENTILES | PLACES:
        binder.source.refuse(node, "WITHIN GROUP is only for " + ", ".join(sorted(PERCENTILES | PLACES)))
    return aggregate(binder, node.this, None, node.expression)
