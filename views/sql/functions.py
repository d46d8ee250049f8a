"""Handlers of functions, aggregates, CASE and casts, among them the spellings that SQL gives a grammar of their own.

Always: what is not in the catalogue of expressions is refused by name. Registered with the binder at import.
"""

from __future__ import annotations

from functools import partial

from sqlglot import exp

from headrace.engine.operators.expressions.array.array_text import spell
from headrace.engine.operators.expressions.core.coercion import NoSuchFunction
from headrace.engine.operators.expressions.core.functions import by_function
from headrace.engine.operators.expressions.core.functions import overloads as named
from headrace.engine.operators.expressions.core.ir import Call, Case, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL
from headrace.engine.operators.expressions.json.json_records import RECORDS
from headrace.engine.schema import BIT, BOOLEAN, TEXT, DataType, Kind, array_of
from headrace.views.sql import coerce
from headrace.views.sql.aggregates.aggregate_calls import AGGREGATES, aggregate, grouping
from headrace.views.sql.aggregates.collecting_aggregates import UNDETERMINED
from headrace.views.sql.arrays import cast_elements
from headrace.views.sql.binder import Binder, binds, unsupported
from headrace.views.sql.coerce import UNKNOWN
from headrace.views.sql.datatypes import digits_of, rounded, type_named
from headrace.views.sql.from_clause.set_returning import is_set
from headrace.views.sql.intervals import is_interval, to_interval
from headrace.views.sql.named_arguments import positional
from headrace.views.sql.rows.row_json import JSON, JSONB, document
from headrace.views.sql.rows.row_text import row_text
from headrace.views.sql.subqueries.array_subquery import gathered, is_gathered
from headrace.views.sql.unsupported import LATER_AGGREGATES, NOT_HERE, VOLATILE, VOLATILE_HINT, WINDOWS
from headrace.views.sql.variadic import is_variadic, variadic

ONE_BIT = DataType.parse("bit")
_UNARY: dict[type[exp.Expr], str] = {exp.BitwiseNot: "~", exp.Abs: "abs", exp.Sqrt: "|/", exp.Cbrt: "||/"}


@binds(*_UNARY, reads="this")
def _unary(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.called(_UNARY[type(node)], [binder.bind(node.this)])


@binds(exp.Case, reads="this ifs default")
def _case(binder: Binder, node: exp.Expr) -> Expr:
    ifs, default = node.args["ifs"], node.args.get("default")
    subject = None if node.this is None else coerce.settled(binder.choosing("CASE", [node.this])[0])
    tests = binder.choosing("CASE", [branch.this for branch in ifs])
    conditions: list[Expr] = []
    for branch, test in zip(ifs, tests, strict=True):
        if subject is None:
            conditions.append(binder.typed(branch.this, partial(coerce.truth, test, "CASE/WHEN")))
        else:
            conditions.append(coerce.called("=", [subject, test]))
    values = binder.choosing("CASE", [branch.args["true"] for branch in ifs])
    otherwise = Literal(None, UNKNOWN) if default is None else binder.choosing("CASE", [default])[0]
    # Of types that turn into one another ELSE's goes first.
    bound, target = coerce.unified([otherwise, *values], "CASE")
    return Case(tuple(zip(conditions, bound[1:], strict=True)), bound[0], target)


@binds(exp.Cast, reads="this to")
def _cast(binder: Binder, node: exp.Expr) -> Expr:
    if is_interval(node.args["to"]):
        return to_interval(binder, node)
    target = type_named(binder, node.args["to"], precise=True)
    digits = digits_of(node.args["to"], target)
    if target.element is not None and isinstance(node.this, exp.Array):
        return cast_elements(binder, node.this, target)
    row = row_text(binder, node.this) if target.kind in (Kind.TEXT, Kind.VARCHAR) else None
    value = binder.bind(node.this) if row is None else row
    if target == ONE_BIT and node.args["to"].this is exp.DType.USERDEFINED:
        return coerce.read(Literal(node.this.this, UNKNOWN), BIT)  # bit '…' is as long as it is written
    if target.kind is Kind.TIME and value.type == INTERVAL:
        found: Expr = coerce.called("$time", [value])
    else:
        found = coerce.cast(value, target)
    return rounded(found, digits)


@binds(exp.Anonymous, reads="this expressions")
def _function(binder: Binder, node: exp.Expr) -> Expr:
    name = str(node.this).lower()
    args = positional(binder, node)
    if is_gathered(node):
        return gathered(binder, node)
    if name in AGGREGATES:
        return aggregate(binder, node, None)
    if name == "normalize" and len(args) == 2 and isinstance(args[1], exp.Column) and args[1].name.lower() in _FORMS:
        return coerce.called(name, [binder.bind(args[0]), Literal(args[1].name.upper(), TEXT)])
    if name in VOLATILE:
        binder.source.refuse(
            node, f"{name}() is not supported: its answer is not a function of the tables", VOLATILE_HINT
        )
    if any(s.columns for s in named(name)):
        return _set(binder, node, name)
    if name == "row":
        unsupported(binder, node)
    if name in LATER_AGGREGATES:
        binder.source.refuse(node, f"aggregate {name} is not supported yet")
    if name in WINDOWS:
        binder.source.refuse(node, f"window function {name} requires an OVER clause")
    if name == "grouping":
        return grouping(binder, node)
    if name == "coalesce":
        bound, target = coerce.unified(binder.choosing("COALESCE", args), "COALESCE")
        return Coalesce(bound, target) if len(bound) > 1 else bound[0]
    if name in ("greatest", "least"):
        return coerce.called(name, coerce.unified([binder.bind(a) for a in args], name.upper())[0])
    if name == "pg_typeof" and len(args) == 1:
        return _type_of(binder.bind(args[0]))
    if name in _OF_ENUMS and len(args) == 1:
        return _of_enum(binder, node, name, binder.bind(args[0]))
    if name == "enum_range" and len(args) == 2:
        return _between_labels(binder, node, [binder.bind(a) for a in args])
    if name in _ROWS and len(args) == 1:
        found = document(binder, args[0], _ROWS[name])
        if found is not None:
            return found
    if is_variadic(node):
        return variadic(binder, node, name)
    if not args and name in _EMPTY:
        return _EMPTY[name]
    given = [binder.bind(a) for a in args]
    if name == "array_fill" and given:
        _check_element(binder, args[0], given[0])
    try:
        return coerce.called(name, given)
    except NoSuchFunction:
        if not named(name) and NOT_HERE.fullmatch(name):
            binder.source.refuse(node, f"function {name} is not supported", "call it when reading the view")
        if len(given) != 1 or name not in _CASTS:
            raise
        return coerce.cast(given[0], DataType.parse(name))


_CASTS = frozenset({
    "int2", "int4", "int8", "float4", "float8", "bool", "text", "date", "timestamptz", "timetz", "bytea", "uuid", "jsonb", "inet",
    "cidr", "macaddr",
})  # fmt: skip
"""Names of types that may be called as functions: a cast."""

_EMPTY = {
    f"{kind.kind.value}_build_{of}": Literal(text, kind)
    for kind in (JSON, JSONB)
    for of, text in (("array", "[]"), ("object", "{}"))
}
"""What functions of any number of arguments are of none."""


_ROWS = {"row_to_json": JSON, "to_json": JSON, "to_jsonb": JSONB}
"""Functions that make JSON of a row."""

REGTYPE = DataType.parse("regtype")
"""The names of types, which are shown and not computed with."""


def _type_of(arg: Expr) -> Expr:
    """The name of a value's type; the value is asked for where it may fail, and is NULL or not."""
    spelled = "character" if arg.type.kind is Kind.BPCHAR else str(arg.type.bare).replace('"bit"', "bit")
    name = Literal(spelled, REGTYPE)
    if isinstance(arg, ColumnRef | Literal):
        return name
    return Case(((Call("is null(any)", (arg,), BOOLEAN), name),), name, REGTYPE)


_OF_ENUMS = ("enum_first", "enum_last", "enum_range")


def _of_enum(binder: Binder, node: exp.Expr, name: str, arg: Expr) -> Expr:
    """What is asked of an enum's type, whatever the value."""
    labels = arg.type.labels
    if not labels or arg.type.element is not None:
        binder.source.refuse(node, f"function {name}({arg.type}) does not exist")
    if name == "enum_range":
        return Literal(spell(list(labels)), array_of(arg.type))
    return Literal(labels[0 if name == "enum_first" else -1], arg.type)


def _check_element(binder: Binder, node: exp.Expr, value: Expr) -> None:
    """Refuses what no array is made of."""
    if value.type == UNKNOWN:
        binder.source.refuse(node, UNDETERMINED, "cast it")
    if value.type.element is not None:
        binder.source.refuse(node, f"could not find array type for data type {value.type}")


def _between_labels(binder: Binder, node: exp.Expr, args: list[Expr]) -> Expr:
    """enum_range of two labels of one enum, NULL being no bound."""
    kinds = {a.type for a in args if a.type != UNKNOWN}
    if len(kinds) != 1 or not all(k.labels and k.element is None for k in kinds):
        binder.source.refuse(node, f"function enum_range({', '.join(str(a.type) for a in args)}) does not exist")
    (kind,) = kinds
    return coerce.called("$enum range", [coerce.coerced(a, kind) for a in args])


def _set(binder: Binder, node: exp.Expr, name: str) -> Expr:
    """A set-returning function in a SELECT list."""
    sets, windows = binder.sets, binder.windows
    if sets is None or binder.inside_aggregate or (windows is not None and windows.inside):
        inside = "aggregate function calls" if binder.inside_aggregate else binder.clause
        binder.source.refuse(node, f"set-returning functions are not allowed in {inside}", "put it in FROM")
    args = binder.choosing("the arguments of another", positional(binder, node))
    call = coerce.called(name, args)
    if not is_set(call):
        return call
    if name in RECORDS or len(by_function(call.function).columns) > 1:
        binder.source.refuse(node, f"{name}() gives several columns: a row value is not supported", "put it in FROM")
    return sets.call(call)


@binds(exp.Extract)
def _extract(binder: Binder, node: exp.Expr) -> Expr:
    part = Literal(str(node.this.this if isinstance(node.this, exp.Literal | exp.Var) else node.this).lower(), TEXT)
    return coerce.called("extract", [part, binder.bind(node.expression)])


@binds(exp.Substring, reads="this start length")
def _substring(binder: Binder, node: exp.Expr) -> Expr:
    start = node.args.get("start") or exp.Literal.number(1)
    rest = [start] if node.args.get("length") is None else [start, node.args["length"]]
    return coerce.called("substring", [binder.bind(n) for n in (node.this, *rest)])


@binds(exp.Overlay, reads="this expression from_ for_")
def _overlay(binder: Binder, node: exp.Expr) -> Expr:
    nodes = (node.this, node.expression, node.args.get("from_"), node.args.get("for_"))
    return coerce.called("overlay", [binder.bind(n) for n in nodes if n is not None])


@binds(exp.StartsWith)
def _starts(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.called("^@", [binder.bind(node.this), binder.bind(node.expression)])


_FORMS = ("nfc", "nfd", "nfkc", "nfkd")


@binds(exp.Trim, reads="this expression position")
def _trim(binder: Binder, node: exp.Expr) -> Expr:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "btrim")
    return coerce.called(name, [binder.bind(n) for n in (node.this, node.expression) if n is not None])


@binds(exp.StrPosition, reads="this substr")
def _find_text(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.called("position", [binder.bind(node.this), binder.bind(node.args["substr"])])


@binds(exp.AtTimeZone, reads="this zone")
def _at_time_zone(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.called("timezone", [binder.bind(node.args["zone"]), binder.bind(node.this)])
