"""What can be told of a filter's condition without a row: the constant that a column must equal, and whether it can fail.

Pure. Called where plans are built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Expr, Literal
from headrace.engine.schema import Kind

Wanted = tuple[int, int | str]
"""A column, and the value that it must have."""

_EXACT = {Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.TEXT, Kind.VARCHAR}
"""Kinds of which Python's values are equal where Postgres's are."""

_COMPARED = ("=(", "<>(", "<(", "<=(", ">(", ">=(")
_NULL_TESTS = ("is null(any)", "is not null(any)")


def parts(condition: Expr) -> Iterator[Expr]:
    """The conditions that all must hold."""
    if isinstance(condition, Call) and condition.function == "and":
        for part in condition.args:
            yield from parts(part)
    else:
        yield condition


def wanted(condition: Expr) -> Wanted | None:
    """The constant that a column must equal for a row to stay or to be in error; None where there is no such column.

    >>> from headrace.engine.schema import BOOLEAN, TEXT
    >>> same = Call("=(text,text)", (ColumnRef(2, TEXT), Literal("open", TEXT)), BOOLEAN)
    >>> wanted(Call("and", (ColumnRef(0, BOOLEAN), same), BOOLEAN))
    (2, 'open')
    """
    for part in parts(condition):
        if not isinstance(part, Call) or not part.function.startswith("=("):
            continue
        for one, two in (part.args, part.args[::-1]):
            if not (isinstance(one, ColumnRef) and isinstance(two, Literal)):
                continue
            value = two.value
            if (
                {one.type.kind, two.type.kind} <= _EXACT
                and isinstance(value, int | str)
                and not isinstance(value, bool)
            ):
                return one.index, value
    return None


def cannot_fail(condition: Expr) -> bool:
    """True if the condition only compares columns and constants, and tests for NULL: no row puts it in error."""
    return all(_is_plain(part) for part in parts(condition))


def _is_plain(part: Expr) -> bool:
    if isinstance(part, Call):
        known = part.function.startswith(_COMPARED) or part.function in _NULL_TESTS
        return known and all(isinstance(arg, ColumnRef | Literal) for arg in part.args)
    return isinstance(part, ColumnRef)


def columns_of(condition: Expr) -> set[int]:
    """The columns that a condition which cannot fail reads."""
    args = [arg for part in parts(condition) for arg in (part.args if isinstance(part, Call) else (part,))]
    return {arg.index for arg in args if isinstance(arg, ColumnRef)}


def placed(condition: Expr, places: Mapping[int, int]) -> Expr:
    """A condition which cannot fail, over rows whose column i stands at `places[i]`."""
    if isinstance(condition, ColumnRef):
        return ColumnRef(places[condition.index], condition.type)
    if isinstance(condition, Call):
        return Call(condition.function, tuple(placed(arg, places) for arg in condition.args), condition.type)
    return condition
