"""Types of expressions while they are bound: unknown literals, coercions, and calls resolved through the catalogue.

Always: what leaves here is explicit: arguments have their parameters' types, by `Cast` nodes or by literals read as
that type, as Postgres does it. The only module of the SQL front that asks the catalogue. Errors are `TypeProblem`,
without a place: the binder knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.coercion import STRINGS, can_cast, common_type
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, Cast, Expr, Literal
from headrace.engine.operators.expressions.core.resolve import aggregate_type, resolve
from headrace.engine.operators.expressions.core.text_io import parse_literal
from headrace.engine.operators.expressions.core.text_types import needs_key
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, MAX_DIGITS, NUMERIC, TEXT, DataType, Kind, array_of
from headrace.views.sql.constant_arguments import unread

UNKNOWN = DataType(Kind.OTHER, name="unknown")
"""The type of a quoted literal or NULL before its surroundings give it one; never leaves the binder."""


class TypeProblem(HeadraceError):
    """Types that do not go together."""

    code = "view"


def known(expr: Expr) -> DataType | None:
    """The expression's type; None for an unknown literal."""
    return None if expr.type == UNKNOWN else expr.type


def number(text: str) -> Literal:
    """A numeric constant, with the minus before it, as Postgres types it: integer, bigint or numeric, with the scale it is
    written with unless it has too many digits for a column of known scale.

    >>> number("1.50").value, number("1.50").type.scale, number("7").type.sql()
    ('1.50', 2, 'integer')
    >>> number("-2147483648").type.sql(), number("2147483648").type.sql()
    ('integer', 'bigint')
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise TypeProblem(f'trailing junk after numeric literal at or near "{text}"') from None
    if text.removeprefix("-").isdigit():
        if -(2**31) <= value < 2**31:
            return Literal(int(text), INTEGER)
        if -(2**63) <= value < 2**63:
            return Literal(int(text), BIGINT)
    plain = format(value if value else abs(value), "f")
    whole, _, fraction = plain.partition(".")
    fits = len(whole.removeprefix("-")) + len(fraction) <= MAX_DIGITS
    return Literal(plain, DataType(Kind.NUMERIC, scale=len(fraction)) if fits else NUMERIC)


def settled(expr: Expr) -> Expr:
    """An unknown literal becomes text; all else stays."""
    return coerced(expr, TEXT) if expr.type == UNKNOWN else expr


def coerced(expr: Expr, target: DataType) -> Expr:
    """`expr` as a `target`, which the caller knows to be allowed. Raises TypeProblem for a literal it cannot be."""
    if expr.type == target:
        return expr
    if expr.type != UNKNOWN:
        return Cast(expr, target, implicit=True)
    return read(expr, target)


def read(expr: Expr, target: DataType) -> Expr:
    """An unknown literal (or a choice among such) read as a `target`. Raises TypeProblem."""
    if not isinstance(expr, Literal) or expr.value is None:
        return Literal(None, target)
    text = str(expr.value)
    try:
        return Literal(parse_literal(text, target), target)
    except HeadraceError as error:
        raise TypeProblem(error.what, hint=error.hint) from None


_COMPARISONS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})


def called(name: str, args: Sequence[Expr]) -> Call:
    """The catalogue's function or operator over `args`. Raises TypeProblem (or NoSuchFunction, likewise placeless)."""
    cut = next((a.type for a in args if a.type.name == "name"), None)
    if cut is not None and name in _COMPARISONS:
        # A constant beside a name is one, and is cut off as it is.
        args = [coerced(a, cut) if a.type == UNKNOWN else a for a in args]
    resolution = resolve(name, [known(a) for a in args])
    bound = tuple(coerced(a, p) for a, p in zip(args, resolution.params, strict=True))
    why = unread(name, bound)
    if why is not None:
        raise TypeProblem(why)
    return Call(resolution.function, bound, resolution.result)


def unified(args: Sequence[Expr], what: str = "") -> tuple[tuple[Expr, ...], DataType]:
    """`args` brought to their common type, as `what` (CASE, COALESCE, UNION …) has them. Raises TypeProblem."""
    types = [known(a) for a in args]
    if any(t is not None and t.kind is Kind.NUMERIC for t in types):
        types = [_written(a) if t is None else t for a, t in zip(args, types, strict=True)]
    try:
        target = common_type(types)
    except HeadraceError as error:
        raise TypeProblem(f"{what} {error.what}".strip(), hint=error.hint or "cast one of them") from None
    return tuple(coerced(a, target) for a in args), target


def _written(literal: Expr) -> DataType | None:
    """The type of a quoted number beside numerics, which has the scale that it is written with; None for anything else."""
    if not isinstance(literal, Literal) or literal.value is None:
        return None
    try:
        finite = Decimal(str(literal.value).strip()).is_finite()
    except InvalidOperation:
        return None
    return number(str(literal.value).strip()).type if finite else NUMERIC


def cast(expr: Expr, target: DataType) -> Expr:
    """CAST(expr AS target). Raises TypeProblem where Postgres has no such cast."""
    element = target.element
    measured = element is not None and (element.length is not None or element.size is not None)
    if measured and element is not None and (expr.type == UNKNOWN or expr.type.kind in STRINGS):
        expr = cast(expr, array_of(replace(element, length=None) if element.size is None else element.bare))
    elif expr.type == UNKNOWN and target.length is None and target.size is None:
        return read(expr, target)
    if expr.type == UNKNOWN or (target.size is not None and expr.type.kind in STRINGS):
        # What is too long is read first, and cut then.
        expr = cast(expr, target.bare)
    if not can_cast(expr.type, target, "explicit"):
        raise TypeProblem(f"cannot cast type {expr.type} to {target}")
    return expr if expr.type == target else Cast(expr, target)


def assigned(expr: Expr, target: DataType, what: str) -> Expr:
    """`expr` stored as a `target`, as the number that `what` (LIMIT …) wants. Raises TypeProblem."""
    if expr.type != UNKNOWN and expr.type != target and not can_cast(expr.type, target, "assignment"):
        raise TypeProblem(f"argument of {what} must be type {target}, not type {expr.type}")
    return coerced(expr, target)


def assigned_implicitly(expr: Expr, target: DataType) -> Expr:
    """`expr` as a `target`, as a function's parameter takes it. Raises TypeProblem."""
    if expr.type not in (UNKNOWN, target) and not can_cast(expr.type, target, "implicit"):
        raise TypeProblem(f"type {expr.type} is no {target}")
    return coerced(expr, target)


def truth(expr: Expr, what: str) -> Expr:
    """`expr` as the boolean that `what` (WHERE, AND …) wants."""
    if expr.type == UNKNOWN:
        return read(expr, BOOLEAN)
    if expr.type.kind is not Kind.BOOLEAN:
        raise TypeProblem(
            f"argument of {what} must be type boolean, not type {expr.type}", hint="compare it with a value"
        )
    return expr


def check_comparable(target: DataType, what: str) -> None:
    """Raises TypeProblem for a type whose values cannot be told equal, as `what` (GROUP BY, DISTINCT …) must."""
    try:
        resolve("=", [target, target])
    except HeadraceError:
        raise TypeProblem(f"{what} cannot compare values of type {target}", hint="cast it to text") from None


_UNKNOWN_AS = {
    **dict.fromkeys(("count", "min", "max"), TEXT),
    **dict.fromkeys(("bool_and", "bool_or", "every"), BOOLEAN),
}
"""What Postgres reads an unknown literal as where it stands alone in an aggregate; elsewhere it finds no best candidate."""


def aggregated(function: str, arg: Expr | None, distinct: bool, where: Expr | None) -> Aggregate:
    """The aggregate with its result's type. Raises NoSuchFunction or TypeProblem."""
    if arg is None:
        return Aggregate(function, None, BIGINT, distinct, where)
    if arg.type == UNKNOWN and function in _UNKNOWN_AS:
        arg = coerced(arg, _UNKNOWN_AS[function])
    if distinct and arg.type != UNKNOWN:
        check_comparable(arg.type, "DISTINCT")
    result = aggregate_type(function, known(arg))
    if arg.type == UNKNOWN or (function in ("min", "max") and arg.type.kind is not result.kind):
        arg = coerced(arg, result)
    return Aggregate(function, arg, result, distinct, where)


def sorting(expr: Expr) -> Expr:
    """What is sorted in the place of `expr`: itself, or its key where its lane does not sort as its type does."""
    return called("$key", [expr]) if needs_key(expr.type) else expr
