"""Aggregates that collect the values of their group: string_agg, array_agg and those of JSON, with DISTINCT and ORDER BY
inside; and those of pairs of numbers (corr, regr_slope …).

Always: one that is given no order has its values in that of the functions or of the ordered subquery in FROM, then in their
own, so that the answer is a function of the rows; what is collected is packed with what it is ordered by. Called by
`aggregate_calls`.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.ir import Aggregate, Case, ColumnRef, Expr, Literal
from headrace.engine.operators.python_aggregates import folding
from headrace.engine.schema import BYTEA, DOUBLE, TEXT, DataType, Kind, array_of
from headrace.views.expressions import ONE_ROW, columns, walk
from headrace.views.placeholders import AggregateValue, Placeholder
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.ordering import check_ordered
from headrace.views.sql.rows.row_values import cells

_OBJECTS = frozenset(
    f"json{b}_object_agg{kind}" for b in ("", "b") for kind in ("", "_strict", "_unique", "_unique_strict")
)
PAIRED = _OBJECTS | {"string_agg"}
"""The aggregates that collect two values of each row."""

LISTS = frozenset({"json_agg", "jsonb_agg", "json_agg_strict", "jsonb_agg_strict"})
COLLECTING = PAIRED | LISTS | {"array_agg"}
UNDETERMINED = "could not determine polymorphic type because input has type unknown"
_JSONS = {"json": DataType(Kind.JSON), "jsonb": DataType(Kind.JSONB)}


def placed(binder: Binder, found: Aggregate) -> Expr:
    """What stands for an aggregate until the groups are known."""
    assert binder.aggregates is not None
    if found not in binder.aggregates:
        binder.aggregates.append(found)
    return AggregateValue((), found.type, binder.aggregates.index(found))


def is_constant(expr: Expr) -> bool:
    """Whether the expression is made of constants alone."""
    return not (columns(expr) or any(isinstance(part, Placeholder) for part in walk(expr)))


def constant(binder: Binder, node: exp.Expr, expr: Expr, what: str, kind: DataType) -> object:
    """The value of an expression without columns. Raises ViewError."""
    return evaluated(binder, node, expr, what, kind).as_py()


def evaluated(binder: Binder, node: exp.Expr, expr: Expr, what: str, kind: DataType) -> pa.Scalar:
    """As `constant`, of any type: Python cannot say every time. Raises ViewError."""
    if not is_constant(expr):
        binder.source.refuse(node, f"{what} must be a constant")
    try:
        found = evaluate(coerce.coerced(expr, kind), ONE_ROW)
    except HeadraceError as error:
        binder.source.refuse(node, error.what, error.hint)
    return found.values[0]


def collected(
    binder: Binder,
    node: exp.Expr,
    name: str,
    bound: list[Expr],
    by: list[tuple[exp.Expr, Expr]],
    where: Expr | None,
    *,
    distinct: bool,
    in_order: bool = False,
) -> Expr:
    """An aggregate that collects; `in_order`: rows that come in an order. Raises ViewError."""
    if in_order and by:
        binder.source.refuse(node, "aggregate ORDER BY is not implemented for window functions")
    if name == "string_agg" and bound[0].type == coerce.UNKNOWN and bound[1].type.kind is Kind.BYTEA:
        by = [(o, coerce.read(e, BYTEA) if e == bound[0] else e) for o, e in by]
        bound = [coerce.read(bound[0], BYTEA), bound[1]]
    if name == "string_agg" and bound[0].type.kind is Kind.BYTEA:
        # Hexadecimal digits sort as their bytes do.
        separator = coerce.read(bound[1], BYTEA) if bound[1].type == coerce.UNKNOWN else bound[1]
        if separator.type.kind is not Kind.BYTEA:
            binder.source.refuse(node, f"function string_agg(bytea, {separator.type}) does not exist")
        digits = [_digits(bound[0]), _digits(separator)]
        sorted_by = [(o, digits[0] if e == bound[0] else e) for o, e in by]
        found = collected(binder, node, name, digits, sorted_by, where, distinct=distinct, in_order=in_order)
        return coerce.called("decode", [found, Literal("hex", TEXT)])
    if bound[0].type == coerce.UNKNOWN and name not in PAIRED:
        what = "function array_agg(unknown) is not unique" if name == "array_agg" else UNDETERMINED
        binder.source.refuse(node, what, "cast it")
    args = [coerce.settled(e) for e in bound]
    values, result, options = _values(binder, node, name, args)
    name = str(options.pop("fold", name))
    orders: list[tuple[str, bool, bool]] = []
    keys: list[Expr] = []
    for ordered, expr in by:
        binder.source.only(ordered, {"this", "desc", "nulls_first"})
        check_ordered(binder.source, ordered.this, expr.type)
        key = coerce.sorting(expr)
        orders.append((key.type.kind.value, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))))
        keys.append(key)
    if not (by or distinct or in_order):
        for order in binder.scope.arrival():
            key = coerce.sorting(ColumnRef(order.column, binder.scope.column(order.column).type))
            keys, orders = [*keys, key], [*orders, (key.type.kind.value, order.descending, order.begins_with_nulls)]
    alone = len(keys) == 1 and keys[0] in (args[0], bound[0]) and not orders[0][1]
    if name == "string_agg" and len(values) == 1 and (not keys or alone):
        return placed(binder, Aggregate(folding(name, **options, distinct=distinct), values[0], result, filter=where))
    # What makes values distinct, and what orders those that are given no order.
    for arg in args[: len(values)] if distinct else [] if by or in_order else args[:1]:
        if not distinct and not _has_order(arg.type):
            keys, orders = [*keys, coerce.coerced(arg, TEXT)], [*orders, ("text", False, False)]
        elif (own := coerce.sorting(arg)) not in keys:
            coerce.check_comparable(arg.type, "DISTINCT")
            keys, orders = [*keys, own], [*orders, (own.type.kind.value, False, False)]
    pack = "$packed" if name == "string_agg" else "$collected"
    packed = coerce.called(pack, [*values, *keys])
    options |= {"orders": orders, "distinct": distinct, "width": len(values)}
    return placed(binder, Aggregate(folding(name, **options), packed, result, filter=where))


def _digits(value: Expr) -> Expr:
    """The hexadecimal digits of bytes."""
    return coerce.called("encode", [value, Literal("hex", TEXT)])


def _has_order(kind: DataType) -> bool:
    try:
        coerce.called("<", [Literal(None, kind), Literal(None, kind)])
    except HeadraceError:
        return False
    return True


def _values(
    binder: Binder, node: exp.Expr, name: str, args: list[Expr]
) -> tuple[list[Expr], DataType, dict[str, object]]:
    """(what is collected of each row, the aggregate's type, what else it needs)."""
    first = args[0]
    if name == "string_agg":
        if first.type.kind not in (Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR):
            binder.source.refuse(node, f"function string_agg({first.type}, unknown) does not exist", "cast it to text")
        if is_constant(args[1]):
            separator = constant(binder, node.expressions[-1], args[1], "the separator of string_agg", TEXT)
            return [coerce.coerced(first, TEXT)], TEXT, {"separator": separator}
        return [coerce.coerced(e, TEXT) for e in (first, args[1])], TEXT, {"separator": None}
    if name == "array_agg":
        if first.type.element is not None:
            return (
                [coerce.called("$image", [coerce.called("$stacked", [first])])],
                first.type,
                {"fold": "array_agg_of_arrays"},
            )
        return [_image(first)], array_of(first.type), {}
    result = _JSONS[name.partition("_")[0]]
    plain = name.removesuffix("_strict").removesuffix("_unique")
    strict = name.endswith("_strict")
    if name in _OBJECTS:
        options: dict[str, object] = {"fold": plain} | ({"unique": True} if "_unique" in name else {})
        options |= {"strict": True} if strict else {}
        key = f"${name.partition('_')[0]} key"
        return [coerce.called(key, [first]), _json(args[1], strict=strict)], result, options
    broken = first.type.element is not None or _is_row(binder, node)
    return [_json(first, strict=strict)], result, {"broken": broken, "fold": plain}


def _json(value: Expr, *, strict: bool) -> Expr:
    """The value as JSON; `strict`: NULL is none."""
    made = coerce.called("$json", [value])
    return Case(((coerce.called("is not null", [value]), made),), Literal(None, TEXT), TEXT) if strict else made


def _is_row(binder: Binder, node: exp.Expr) -> bool:
    """Whether what is collected is rows, of which each stands on a line."""
    first = node.expressions[0]
    first = first.this if isinstance(first, exp.Order) else first
    first = first.expressions[0] if isinstance(first, exp.Distinct) else first
    return cells(binder, first) is not None


def _image(expr: Expr) -> Expr:
    """The value's image, as it stands in an array."""
    return coerce.called("$image", [expr])


def regression(
    binder: Binder, node: exp.Expr, name: str, bound: list[Expr], where: Expr | None, *, distinct: bool
) -> Expr:
    """An aggregate of pairs of numbers. Raises ViewError."""
    try:
        y, x = (coerce.assigned_implicitly(e, DOUBLE) for e in bound)
    except HeadraceError:
        names = ", ".join(str(e.type) for e in bound)
        binder.source.refuse(node, f"function {name}({names}) does not exist")
    pair = coerce.called("$pair", [y, x])
    if name == "regr_count":
        return placed(binder, coerce.aggregated("count", pair, distinct=distinct, where=where))
    options: dict[str, object] = {"distinct": True} if distinct else {}
    return placed(binder, Aggregate(folding(name, **options), pair, DOUBLE, filter=where))
