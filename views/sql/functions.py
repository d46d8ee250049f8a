"""Handlers of functions, aggregates, CASE and casts, among them the spellings that SQL gives a grammar of their own.

Always: what is not in the catalogue of expressions is refused by name. Registered with the binder at import.
"""

from __future__ import annotations

from sqlglot import exp

from engine.operators.expressions.ir import Call, Case, Coalesce, Expr, Literal
from engine.schema import INTEGER, TEXT, DataType, Kind
from views.scalar import columns, reaches_out
from views.sql import coerce
from views.sql.binder import GROUPING, PLACEHOLDER, Binder, binds, unsupported
from views.sql.coerce import UNKNOWN
from views.sql.parse import name_of
from views.sql.refusals import LATER_AGGREGATES, SETS, VOLATILE, VOLATILE_HINT, WINDOWS

AGGREGATES = frozenset({"count", "sum", "avg", "min", "max", "bool_and", "bool_or", "every"})

_UNARY: dict[type[exp.Expr], str] = {exp.BitwiseNot: "~", exp.Abs: "abs", exp.Sqrt: "sqrt"}


@binds(*_UNARY, reads="this")
def _unary(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.called(_UNARY[type(node)], [binder.bind(node.this)])


@binds(exp.Case, reads="this ifs default")
def _case(binder: Binder, node: exp.Expr) -> Expr:
    subject = None if node.this is None else binder.bind(node.this)
    conditions: list[Expr] = []
    values: list[Expr] = []
    for branch in node.args["ifs"]:
        if subject is None:
            conditions.append(binder.boolean(branch.this, "CASE/WHEN"))
        else:
            conditions.append(coerce.called("=", [subject, binder.bind(branch.this)]))
        values.append(binder.bind(branch.args["true"]))
    default = node.args.get("default")
    values.append(Literal(None, UNKNOWN) if default is None else binder.bind(default))
    bound, target = coerce.unified(values)
    return Case(tuple(zip(conditions, bound[:-1], strict=True)), bound[-1], target)


@binds(exp.Cast, reads="this to")
def _cast(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.cast(binder.bind(node.this), _type_named(binder, node.args["to"]))


def _type_named(binder: Binder, node: exp.Expr) -> DataType:
    """The Postgres type that a cast names. Raises ViewError for one the engine cannot compute with."""
    spelled = node.sql(dialect="postgres").lower()
    spelled = {"float": "double precision"}.get(spelled, spelled)
    target = DataType.parse(spelled)
    if target.kind is Kind.OTHER:
        binder.source.refuse(node, f"type {spelled} is not supported in expressions")
    if "(" in spelled and target.kind not in (Kind.NUMERIC, Kind.VARCHAR, Kind.BPCHAR):
        binder.source.refuse(node, f"a precision is not supported for type {target.kind.value}", "leave it out")
    return target


@binds(exp.Anonymous, reads="this expressions")
def _function(binder: Binder, node: exp.Expr) -> Expr:
    name = str(node.this).lower()
    args = node.expressions
    if name in AGGREGATES:
        return _aggregate(binder, node, None)
    if name in VOLATILE:
        binder.source.refuse(
            node, f"{name}() is not supported: its answer is not a function of the tables", VOLATILE_HINT
        )
    if name in SETS:
        binder.source.refuse(node, f"{name}() is not supported: it returns a set of rows")
    if name in LATER_AGGREGATES:
        binder.source.refuse(node, f"aggregate {name} is not supported yet")
    if name in WINDOWS:
        binder.source.refuse(node, f"window function {name} is not supported yet")
    if name == "grouping":
        return _grouping(binder, node)
    if name == "coalesce":
        bound, target = coerce.unified([binder.bind(a) for a in args])
        return Coalesce(bound, target) if len(bound) > 1 else bound[0]
    if name in ("greatest", "least"):
        return coerce.called(name, coerce.unified([binder.bind(a) for a in args])[0])
    return coerce.called(name, [binder.bind(a) for a in args])


def _grouping(binder: Binder, node: exp.Expr) -> Expr:
    if binder.aggregates is None or binder.inside_aggregate:
        binder.source.refuse(node, f"grouping() is not allowed in {binder.clause}")
    args = tuple(binder.settled(a) for a in node.expressions)
    if args not in binder.groupings:
        binder.groupings.append(args)
    return Call(GROUPING, (Literal(binder.groupings.index(args), INTEGER),), INTEGER)


def _aggregate(binder: Binder, node: exp.Expr, where: exp.Expr | None) -> Expr:
    name = str(node.this).lower()
    name = "bool_and" if name == "every" else name
    if binder.aggregates is None or binder.inside_aggregate:
        inside = "another aggregate" if binder.inside_aggregate else binder.clause
        binder.source.refuse(node, f"aggregate {name} is not allowed in {inside}", "aggregate in a subquery in FROM")
    args = list(node.expressions)
    distinct = len(args) == 1 and isinstance(args[0], exp.Distinct)
    if distinct:
        binder.source.only(args[0], {"expressions"})
        args = args[0].expressions
    star = len(args) == 1 and isinstance(args[0], exp.Star)
    if (star and (distinct or name != "count")) or len(args) != 1:
        binder.source.refuse(node, f"{name} takes one argument", "" if name != "count" else "write count(*)")
    binder.inside_aggregate = True
    try:
        arg = None if star else binder.bind(args[0])
        condition = None if where is None else binder.boolean(where, "FILTER")
    finally:
        binder.inside_aggregate = False
    if arg is not None and reaches_out(arg) and not columns(arg):
        binder.source.refuse(node, f"{name} of a column of the query around is not supported", "aggregate it there")
    # DISTINCT changes nothing for these, and without it they need no set of values seen.
    distinct = distinct and name not in ("min", "max", "bool_and", "bool_or")
    found = coerce.aggregated(name, arg, distinct, condition)
    if found not in binder.aggregates:
        binder.aggregates.append(found)
    return Call(PLACEHOLDER, (Literal(binder.aggregates.index(found), INTEGER),), found.type)


@binds(exp.Filter)
def _filtered(binder: Binder, node: exp.Expr) -> Expr:
    inner = node.this
    if not isinstance(inner, exp.Anonymous) or str(inner.this).lower() not in AGGREGATES:
        binder.source.refuse(node, "FILTER is only for the aggregates " + ", ".join(sorted(AGGREGATES)))
    return _aggregate(binder, inner, node.expression.this)


@binds(exp.Extract)
def _extract(binder: Binder, node: exp.Expr) -> Expr:
    part = Literal(str(node.this.this if isinstance(node.this, exp.Literal | exp.Var) else node.this).lower(), TEXT)
    return coerce.called("extract", [part, binder.bind(node.expression)])


@binds(exp.Substring, reads="this start length")
def _substring(binder: Binder, node: exp.Expr) -> Expr:
    start = node.args.get("start") or exp.Literal.number(1)
    rest = [start] if node.args.get("length") is None else [start, node.args["length"]]
    return coerce.called("substring", [binder.bind(n) for n in (node.this, *rest)])


@binds(exp.Trim, reads="this expression position")
def _trim(binder: Binder, node: exp.Expr) -> Expr:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "btrim")
    return coerce.called(name, [binder.bind(n) for n in (node.this, node.expression) if n is not None])


@binds(exp.StrPosition, reads="this substr")
def _find_text(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.called("strpos", [binder.bind(node.this), binder.bind(node.args["substr"])])


@binds(exp.AtTimeZone, reads="this zone")
def _at_time_zone(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.called("timezone", [binder.bind(node.args["zone"]), binder.bind(node.this)])


@binds(exp.Dot)
def _dotted(binder: Binder, node: exp.Expr) -> Expr:
    if name_of(node.this) == "pg_catalog" and isinstance(node.expression, exp.Anonymous):
        return binder.bind(node.expression)
    return unsupported(binder, node)
