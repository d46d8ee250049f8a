"""Handlers of aggregates: DISTINCT, FILTER, ORDER BY inside and WITHIN GROUP; and of grouping().

Always: an aggregate becomes one that the engine keeps, or an expression over several (variance of exact numbers is that
of a count, a sum and a sum of squares); while it is bound it is a call that says which. Called by `functions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from engine.errors import HeadraceError
from engine.operators.expressions.coercion import numeric_image
from engine.operators.expressions.evaluate import evaluate
from engine.operators.expressions.ir import Aggregate, Call, Expr, Literal
from engine.operators.folded import folding
from engine.schema import BIGINT, DOUBLE, INTEGER, NUMERIC, TEXT, DataType, Kind
from views.scalar import ONE_ROW, columns, reaches_out
from views.sql import coerce
from views.sql.binder import GROUPING, PLACEHOLDER, Binder, binds
from views.sql.coerce import UNKNOWN
from views.sql.ordering import check_ordered

_INTS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_FLOATS = (Kind.REAL, Kind.DOUBLE)
_KEPT = frozenset({"count", "sum", "avg", "min", "max", "bool_and", "bool_or"})
_SPREADS = {
    "variance": "var_samp", "var_samp": "var_samp", "var_pop": "var_pop", "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp", "stddev_pop": "stddev_pop",
}  # fmt: skip
_BITS = frozenset({"bit_and", "bit_or", "bit_xor"})
WITHIN = frozenset({"percentile_cont", "percentile_disc", "mode"})
"""The aggregates that are written WITHIN GROUP."""

AGGREGATES = _KEPT | _BITS | frozenset(_SPREADS) | {"every", "string_agg", "any_value"} | WITHIN

_SORTED = (*_INTS, Kind.NUMERIC, Kind.TEXT, Kind.VARCHAR)
"""What string_agg can be ordered by besides its own argument."""


def grouping(binder: Binder, node: exp.Expr) -> Expr:
    """grouping(…), which is known once the grouping sets are. Raises ViewError."""
    if binder.aggregates is None or binder.inside_aggregate:
        binder.source.refuse(node, f"grouping() is not allowed in {binder.clause}")
    args = tuple(binder.settled(a) for a in node.expressions)
    if args not in binder.groupings:
        binder.groupings.append(args)
    return Call(GROUPING, (Literal(binder.groupings.index(args), INTEGER),), INTEGER)


def aggregate(
    binder: Binder,
    node: exp.Expr,
    where: exp.Expr | None,
    within: exp.Expr | None = None,
    over: list[Aggregate] | None = None,
) -> Expr:
    """An aggregate's call, with its FILTER and WITHIN GROUP; `over`: where it is put if it is over a window, whose rows
    may hold aggregates themselves. Raises ViewError.
    """
    name = str(node.this).lower()
    name = {"every": "bool_and", "any_value": "min"}.get(name, name)
    if binder.aggregates is None or binder.inside_aggregate:
        inside = "another aggregate" if binder.inside_aggregate else binder.clause
        binder.source.refuse(node, f"aggregate {name} is not allowed in {inside}", "aggregate in a subquery in FROM")
    args, distinct, orders = _taken_apart(binder, node)
    if (name in WITHIN) != (within is not None):
        binder.source.refuse(node, f"{name} is written with{'' if name in WITHIN else 'out'} WITHIN GROUP")
    if within is not None:
        binder.source.only(within, {"expressions"})
        return _within(binder, node, name, args, list(within.expressions), where)
    binder.inside_aggregate = over is None
    try:
        bound = [] if _is_star(args) else [binder.bind(a) for a in args]
        by = [(o, binder.settled(o.this)) for o in orders]
        condition = None if where is None else binder.boolean(where, "FILTER")
    finally:
        binder.inside_aggregate = False
    wanted = 2 if name == "string_agg" else 1
    if (_is_star(args) and (distinct or name != "count")) or (len(bound) != wanted and not _is_star(args)):
        hint = "write count(*)" if name == "count" else ""
        binder.source.refuse(node, f"{name} takes {'one argument' if wanted == 1 else 'two arguments'}", hint)
    for part in bound:
        if reaches_out(part) and not columns(part):
            binder.source.refuse(node, f"{name} of a column of the query around is not supported", "aggregate it there")
    if over is not None:
        binder = binder.collecting(over)
    if name == "string_agg":
        return _string_agg(binder, node, bound, by, condition, distinct=distinct)
    arg: Expr | None = bound[0] if bound else None
    if arg is not None and name in _BITS:
        return _bits(binder, node, name, arg, condition, distinct=distinct)
    if arg is not None and name in _SPREADS:
        return _spread(binder, node, _SPREADS[name], arg, condition, distinct=distinct)
    # DISTINCT changes nothing for these, and without it they need no set of values seen.
    distinct = distinct and name not in ("min", "max", "bool_and", "bool_or")
    return _placed(binder, coerce.aggregated(name, arg, distinct, condition))


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


def _placed(binder: Binder, found: Aggregate) -> Expr:
    """The call that stands for an aggregate until the groups are known."""
    assert binder.aggregates is not None
    if found not in binder.aggregates:
        binder.aggregates.append(found)
    return Call(PLACEHOLDER, (Literal(binder.aggregates.index(found), INTEGER),), found.type)


def _bits(binder: Binder, node: exp.Expr, name: str, arg: Expr, where: Expr | None, *, distinct: bool) -> Expr:
    if arg.type.kind not in _INTS:
        binder.source.refuse(node, f"function {name}({arg.type}) does not exist")
    function = folding(name, distinct=True) if distinct and name == "bit_xor" else folding(name)
    return _placed(binder, Aggregate(function, arg, arg.type, filter=where))


def _spread(binder: Binder, node: exp.Expr, name: str, arg: Expr, where: Expr | None, *, distinct: bool) -> Expr:
    """Variance and standard deviation: of exact numbers from sums, of floats and distinct values from the values."""
    kind = arg.type.kind
    if kind not in (*_INTS, *_FLOATS, Kind.NUMERIC):
        binder.source.refuse(node, f"function {name}({arg.type}) does not exist")
    if distinct or kind in _FLOATS:
        options = {"sample": name.endswith("samp"), "root": name.startswith("stddev"), "distinct": distinct}
        wide = coerce.coerced(arg, DOUBLE) if kind in _FLOATS else arg
        result = DOUBLE if kind in _FLOATS else NUMERIC
        return _placed(binder, Aggregate(folding("spread", **options), wide, result, filter=where))
    exact = coerce.coerced(arg, BIGINT) if kind in (Kind.SMALLINT, Kind.INTEGER) else arg
    if kind in (Kind.BIGINT, Kind.NUMERIC):
        exact = coerce.coerced(arg, numeric_image(arg.type))
    square = coerce.called("*", [exact, exact])
    parts = [coerce.aggregated("count", arg, distinct=False, where=where)]
    parts += [coerce.aggregated("sum", e, distinct=False, where=where) for e in (exact, square)]
    return coerce.called(f"${name}", [_placed(binder, part) for part in parts])


def _string_agg(
    binder: Binder,
    node: exp.Expr,
    bound: list[Expr],
    by: list[tuple[exp.Expr, Expr]],
    where: Expr | None,
    *,
    distinct: bool,
) -> Expr:
    """string_agg: without an order of its own the texts stand in theirs."""
    text = coerce.coerced(bound[0], TEXT) if bound[0].type.kind in (Kind.VARCHAR, Kind.BPCHAR) else bound[0]
    text = coerce.coerced(text, TEXT) if text.type == UNKNOWN else text
    if text.type.kind is not Kind.TEXT:
        binder.source.refuse(node, f"function string_agg({bound[0].type}, unknown) does not exist", "cast it to text")
    separator = _constant(binder, node.expressions[-1], bound[1], "the separator of string_agg", TEXT)
    own = len(by) == 1 and by[0][1] in (text, bound[0]) and not by[0][0].args.get("desc")
    if not by or own:
        name = folding("string_agg", separator=separator, distinct=distinct)
        return _placed(binder, Aggregate(name, text, TEXT, filter=where))
    if distinct:
        binder.source.refuse(node, "string_agg(DISTINCT …) is ordered by its own argument, ascending")
    orders = []
    for ordered, expr in by:
        binder.source.only(ordered, {"this", "desc", "nulls_first"})
        if expr.type.kind not in _SORTED:
            hint = "order by a number or a text"
            binder.source.refuse(ordered, f"string_agg ordered by type {expr.type} is not supported", hint)
        flags = bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))
        orders.append((expr.type.kind.value, *flags))
    packed = coerce.called("$packed", [text, *(e for _, e in by)])
    name = folding("string_agg", separator=separator, orders=orders)
    return _placed(binder, Aggregate(name, packed, TEXT, filter=where))


def _within(
    binder: Binder,
    node: exp.Expr,
    name: str,
    args: list[exp.Expr],
    orders: list[exp.Expr],
    where: exp.Expr | None,
) -> Expr:
    """percentile_cont, percentile_disc and mode."""
    if len(orders) != 1 or len(args) != (name != "mode"):
        binder.source.refuse(node, f"{name} takes one expression to order by")
    fraction = None
    if args:
        fraction = _constant(binder, args[0], binder.bind(args[0]), f"the fraction of {name}", DOUBLE)
        if not isinstance(fraction, float) or not 0 <= fraction <= 1:
            binder.source.refuse(args[0], f"percentile value {fraction} is not between 0 and 1")
    binder.inside_aggregate = True
    try:
        arg = binder.settled(orders[0].this)
        condition = None if where is None else binder.boolean(where, "FILTER")
    finally:
        binder.inside_aggregate = False
    check_ordered(binder.source, orders[0], arg.type)
    if name == "percentile_cont":
        if arg.type.kind not in (*_INTS, *_FLOATS, Kind.NUMERIC):
            binder.source.refuse(node, f"percentile_cont of type {arg.type} is not supported")
        arg = coerce.coerced(arg, DOUBLE)
    options = folding(name, fraction=fraction, descending=bool(orders[0].args.get("desc")))
    return _placed(binder, Aggregate(options, arg, arg.type, filter=condition))


def _constant(binder: Binder, node: exp.Expr, expr: Expr, what: str, kind: DataType) -> object:
    """The value of an expression without columns. Raises ViewError."""
    if columns(expr) or reaches_out(expr):
        binder.source.refuse(node, f"{what} must be a constant")
    try:
        found = evaluate(coerce.coerced(expr, kind), ONE_ROW)
    except HeadraceError as error:
        binder.source.refuse(node, error.what, error.hint)
    return found.values[0].as_py()


@binds(exp.Filter)
def _filtered(binder: Binder, node: exp.Expr) -> Expr:
    inner, within = node.this, None
    if isinstance(inner, exp.WithinGroup):
        inner, within = inner.this, inner.expression
    if not isinstance(inner, exp.Anonymous) or str(inner.this).lower() not in AGGREGATES:
        binder.source.refuse(node, "FILTER is only for the aggregates " + ", ".join(sorted(AGGREGATES)))
    return aggregate(binder, inner, node.expression.this, within)


@binds(exp.WithinGroup, reads="this expression")
def _within_group(binder: Binder, node: exp.Expr) -> Expr:
    if not isinstance(node.this, exp.Anonymous) or str(node.this.this).lower() not in WITHIN:
        binder.source.refuse(node, "WITHIN GROUP is only for " + ", ".join(sorted(WITHIN)))
    return aggregate(binder, node.this, None, node.expression)
