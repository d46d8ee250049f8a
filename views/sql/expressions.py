"""Handlers of names, constants, logic, comparisons and operators; and of node kinds refused by name.

Always: a handler gives a typed expression over the scope's row or raises. Registered with the binder at import.
"""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.coercion import STRINGS
from headrace.engine.operators.expressions.core.ir import Call, Expr, Literal
from headrace.engine.schema import BIT, BOOLEAN, TEXT, Kind
from headrace.views.sql import coerce
from headrace.views.sql.arrays import quantified
from headrace.views.sql.binder import Binder, binds, unsupported
from headrace.views.sql.coerce import UNKNOWN
from headrace.views.sql.parsing.nodes import UnaryPlus, UnknownTruth, WholeRowColumn
from headrace.views.sql.rows import row_values
from headrace.views.sql.subqueries.subquery_binder import member_of
from headrace.views.sql.unsupported import VOLATILE_HINT

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.Pow: "^", exp.DPipe: "||",
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>",
    exp.JSONExtract: "->", exp.JSONExtractScalar: "->>", exp.JSONBExtract: "#>", exp.JSONBExtractScalar: "#>>",
    exp.JSONBContainsTopKey: "?", exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
    exp.ArrayContainsAll: "@>", exp.ArrayContainedBy: "<@", exp.ArrayOverlaps: "&&",
    exp.ExtendsLeft: "&<", exp.ExtendsRight: "&>", exp.Adjacent: "-|-", exp.JSONBPathExists: "@?",
    exp.JSONBDeleteAtPath: "#-", exp.NullSafeEQ: "is not distinct from", exp.NullSafeNEQ: "is distinct from",
    exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "~", exp.RegexpILike: "~*", exp.SimilarTo: "similar to",
}  # fmt: skip
_NONASSOCIATIVE = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


@binds(exp.Column, WholeRowColumn, reads="this table db")
def _column(binder: Binder, node: exp.Expr) -> Expr:
    if isinstance(node.this, exp.Star):
        binder.source.refuse(node, "* stands for columns only in a SELECT list", "name the columns")
    return binder.column(node)


_NUMBERS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.NUMERIC)


@binds(exp.Paren, reads="this")
def _paren(binder: Binder, node: exp.Expr) -> Expr:
    return binder.bind(node.this)


@binds(UnaryPlus, reads="this")
def _plus(binder: Binder, node: exp.Expr) -> Expr:
    value = binder.bind(node.this)
    if value.type != UNKNOWN and value.type.kind not in _NUMBERS:
        binder.source.refuse(node, f"operator does not exist: + {value.type}")
    return value


@binds(exp.RawString, reads="this")
def _dollar_quoted(_binder: Binder, node: exp.Expr) -> Expr:
    return Literal(node.this, UNKNOWN)


@binds(exp.BitString, reads="this")
def _bits(_binder: Binder, node: exp.Expr) -> Expr:
    return coerce.read(Literal(str(node.this), UNKNOWN), BIT)


@binds(exp.HexString, reads="this is_integer")
def _hexadecimal(_binder: Binder, node: exp.Expr) -> Expr:
    return coerce.read(Literal(f"x{node.this}", UNKNOWN), BIT)


@binds(exp.Boolean, reads="this")
def _boolean(_binder: Binder, node: exp.Expr) -> Expr:
    return Literal(bool(node.this), BOOLEAN)


@binds(exp.Null, reads="")
def _null(_binder: Binder, _node: exp.Expr) -> Expr:
    return Literal(None, UNKNOWN)


@binds(exp.Literal, reads="this is_string")
def _literal(_binder: Binder, node: exp.Expr) -> Expr:
    return Literal(node.this, UNKNOWN) if node.args.get("is_string") else coerce.number(str(node.this))


@binds(exp.And, exp.Or)
def _logic(binder: Binder, node: exp.Expr) -> Expr:
    word = "and" if isinstance(node, exp.And) else "or"
    # sqlglot nests a chain to the left, one level an operand: it is unrolled, as chains may be long.
    sides: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is type(node):
        sides.append(left.expression)
        left = left.this
    args: list[Expr] = []
    for side in (left, *reversed(sides)):
        bound = binder.boolean(side, word.upper())
        args += bound.args if isinstance(bound, Call) and bound.function == word else (bound,)
    return Call(word, tuple(args), BOOLEAN)


@binds(exp.Not, reads="this")
def _negation(binder: Binder, node: exp.Expr) -> Expr:
    inner = node.this
    if isinstance(inner, exp.Is):
        return _tested(binder, inner, negated=True)
    if isinstance(inner, exp.In):
        return _member(binder, inner, "not in")
    return coerce.called("not", [binder.boolean(inner, "NOT")])


@binds(exp.Is, reads="this expression negate")
def _test(binder: Binder, node: exp.Expr) -> Expr:
    return _tested(binder, node, negated=False)


def _tested(binder: Binder, node: exp.Expr, *, negated: bool) -> Expr:
    what = node.expression
    word = "is not" if negated != bool(node.args.get("negate")) else "is"
    columns = row_values.cells(binder, node.this)
    if isinstance(what, exp.Null) and columns is not None:
        found = row_values.null(binder, node, columns, "is not" if node.args.get("negate") else "is")
        return coerce.called("not", [found]) if negated else found
    if isinstance(what, UnknownTruth):
        return coerce.called(f"{word} null", [binder.boolean(node.this, f"{word.upper()} UNKNOWN")])
    if isinstance(what, exp.Null):
        return coerce.called(f"{word} null", [binder.settled(node.this)])
    if isinstance(what, exp.Boolean):
        value = "true" if what.this else "false"
        return coerce.called(f"{word} {value}", [binder.boolean(node.this, f"IS {value.upper()}")])
    if isinstance(what, exp.JSON):
        found = _is_json(binder, node)
        return coerce.called("not", [found]) if negated else found
    return unsupported(binder, what)


def _is_json(binder: Binder, node: exp.Expr) -> Expr:
    """value IS JSON …. Raises ViewError."""
    test = node.expression
    value = binder.settled(node.this)
    kind = value.type.kind
    if kind is Kind.BYTEA:
        binder.source.refuse(node, "IS JSON of a bytea is not supported", "use convert_from(…, 'UTF8') IS JSON")
    if kind not in (Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR, Kind.JSON, Kind.JSONB):
        binder.source.refuse(node, f"cannot use type {value.type} in IS JSON predicate")
    args = [value, Literal(str(test.this).lower(), TEXT), Literal(bool(test.args.get("unique")), BOOLEAN)]
    return coerce.called("$is_json", args)


@binds(exp.In, reads="this expressions query")
def _membership(binder: Binder, node: exp.Expr) -> Expr:
    return _member(binder, node, "in")


def _member(binder: Binder, node: exp.Expr, word: str) -> Expr:
    query = node.args.get("query")
    if query is None and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Values):
        query = node.expressions[0]
    if query is not None:
        negated = word == "not in"
        return member_of(binder, row_values.bare(node.this), query, "<>" if negated else "=", every=negated)
    if row_values.cells(binder, node.this) is not None:
        equal = [row_values.equal(binder, node.this, row) for row in node.expressions]
        found = Call("or", tuple(equal), BOOLEAN) if len(equal) > 1 else equal[0]
        return coerce.called("not", [found]) if word == "not in" else found
    left, *others = (binder.bind(n) for n in (node.this, *node.expressions))
    try:
        args, _ = coerce.unified([left, *others])
    except HeadraceError:
        # Values of no common type are compared one by one, each as its type is.
        each = tuple(coerce.called("=", [left, other]) for other in others)
        found = Call("or", each, BOOLEAN) if len(each) > 1 else each[0]
        return coerce.called("not", [found]) if word == "not in" else found
    return coerce.called(word, args)


@binds(exp.Between, reads="this low high symmetric")
def _between(binder: Binder, node: exp.Expr) -> Expr:
    value, low, high = (binder.bind(e) for e in (node.this, node.args["low"], node.args["high"]))

    def within(least: Expr, most: Expr) -> Expr:
        return Call("and", (coerce.called(">=", [value, least]), coerce.called("<=", [value, most])), BOOLEAN)

    if node.args.get("symmetric"):
        return Call("or", (within(low, high), within(high, low)), BOOLEAN)
    return within(low, high)


@binds(*_OPERATORS, reads="this expression typed safe negate only_json_types")
def _operator(binder: Binder, node: exp.Expr) -> Expr:
    sides = [node.this, node.expression]
    if isinstance(sides[1], exp.Any | exp.All) or _is_called(sides[1]):
        if node.args.get("negate"):
            binder.source.refuse(node, "NOT LIKE ANY and ALL are not supported", "write NOT (… LIKE ALL …)")
        return _quantified(binder, node)
    word = _OPERATORS[type(node)]
    if any(row_values.cells(binder, side) is not None for side in sides):
        return row_values.compared(binder, node, word)
    call = coerce.called(word, [binder.bind(s) for s in sides])
    return coerce.called("not", [call]) if node.args.get("negate") else call


@binds(exp.Operator, reads="this operator expression")
def _spelled_operator(binder: Binder, node: exp.Expr) -> Expr:
    """`a OPERATOR(pg_catalog.+) b`, and operators that have no node of their own."""
    sign = str(node.args["operator"]).removeprefix("pg_catalog.")
    return coerce.called(sign, [binder.bind(node.this), binder.bind(node.expression)])


def _is_called(node: exp.Expr) -> bool:
    """Whether sqlglot took ALL (array) or SOME (array) for a function."""
    named = isinstance(node, exp.Anonymous) and str(node.this).lower() in ("all", "some")
    return named and len(node.expressions) == 1


def _quantified(binder: Binder, node: exp.Expr) -> Expr:
    inner = node.expression.expressions[0] if _is_called(node.expression) else node.expression.this
    inner = inner.this if isinstance(inner, exp.Paren) else inner
    if isinstance(inner, exp.Query) and isinstance(node.expression, exp.Any | exp.All):
        every = isinstance(node.expression, exp.All)
        return member_of(binder, row_values.bare(node.this), inner, _OPERATORS[type(node)], every=every)
    every = isinstance(node.expression, exp.All) or str(node.expression.this).lower() == "all"
    return quantified(binder, node, _OPERATORS[type(node)], inner, every=every)


_COMPARING = (*_NONASSOCIATIVE, exp.Ordered, exp.In)
_BYTEWISE = ("C", "POSIX", "ucs_basic")


@binds(exp.Collate)
def _collated(binder: Binder, node: exp.Expr) -> Expr:
    """COLLATE "C" of what is compared or sorted, as all texts are here."""
    around = node.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    name = node.expression.name if node.expression.find(exp.Identifier) is not None else ""
    if name not in _BYTEWISE:
        binder.source.refuse(node, f"collation {name} is not supported: texts are compared by their bytes", 'write "C"')
    if not isinstance(around, _COMPARING):
        binder.source.refuse(node, "COLLATE is supported only of what is compared or sorted")
    value = binder.settled(node.this)
    if value.type.kind not in STRINGS and value.type.name != "name":
        binder.source.refuse(node, f"collations are not supported by type {value.type}")
    return value


@binds(exp.Escape)
def _escaped(binder: Binder, node: exp.Expr) -> Expr:
    like = node.this
    if not isinstance(like, exp.Like | exp.ILike | exp.SimilarTo):
        return unsupported(binder, node)
    call = coerce.called(
        _OPERATORS[type(like)], [binder.bind(n) for n in (like.this, like.expression, node.expression)]
    )
    return coerce.called("not", [call]) if like.args.get("negate") else call


@binds(exp.Neg, reads="this")
def _minus(binder: Binder, node: exp.Expr) -> Expr:
    number = _number(node)
    return coerce.called("-", [binder.bind(node.this)]) if number is None else coerce.number(number)


def _number(node: exp.Expr) -> str | None:
    """The text of a numeric constant with its minus: -2147483648 is an integer, though 2147483648 is none."""
    if isinstance(node, exp.Literal):
        return None if node.args.get("is_string") else str(node.this)
    if isinstance(node, exp.Paren) and not isinstance(node, UnaryPlus):
        return _number(node.this)
    inner = _number(node.this) if isinstance(node, exp.Neg) else None
    return inner and (inner.removeprefix("-") if inner.startswith("-") else f"-{inner}")


@binds(
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.Localtime,
    exp.Localtimestamp,
    reads=None,
)
def _volatile(binder: Binder, node: exp.Expr) -> NoReturn:
    name = type(node).__name__.replace("Current", "CURRENT_").upper()
    words = r"\b(current_\w+|localtime(stamp)?|session_user|user)\b"
    reason = f"{name} is not supported: its answer is not a function of the tables"
    binder.source.refuse_words(node, words, reason, VOLATILE_HINT)
