"""LEFT JOIN bound: its condition taken apart into keys and filters of one side, for it cannot become a filter above.

Always: nothing in the condition can fail, so that it does not matter in which order its parts are asked; the row is the
left side's columns, then the right side's. Called by `tables`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from engine.operators.expressions.ir import Case, Expr, Literal
from engine.schema import BOOLEAN
from views.plan import Filter, LeftJoin, Plan, Project, Union, identity, keyed
from views.scalar import columns, conjunction, conjuncts, equality, fallible, shifted

Refuse = Callable[[str, str], NoReturn]
"""Refuses the join, with a reason and a hint."""


def left_join(left: Plan, right: Plan, condition: Expr | None, refuse: Refuse) -> Plan:
    """`left LEFT JOIN right ON condition`, which is over both rows, one after the other. Raises ViewError."""
    width = len(left.schema.columns)
    pairs: list[tuple[Expr, Expr]] = []
    lefts: list[Expr] = []
    rights: list[Expr] = []
    for part in conjuncts(condition):
        if fallible(part):
            refuse("a part of this LEFT JOIN's condition may fail", "compute it in a subquery, and join by its column")
        reads = columns(part)
        if reads and all(c >= width for c in reads):
            rights.append(shifted(part, -width))
        elif all(c < width for c in reads):
            lefts.append(part)
        else:
            pairs.append(_pair(part, width) or refuse(_NOT_EQUAL, _NOT_EQUAL_HINT))
    if not pairs:
        refuse("a LEFT JOIN needs an equality between its two sides", "join ON left.column = right.column")
    kept = conjunction(rights)
    partners = right if kept is None else Filter(right, kept)
    asked = conjunction(lefts)
    if asked is None:
        return _joined(left, partners, pairs)
    # Rows that the condition leaves out have no partner whatever their key is.
    rows = _joined(Filter(left, asked), partners, pairs)
    alone = Filter(left, Case(((asked, Literal(False, BOOLEAN)),), Literal(True, BOOLEAN), BOOLEAN))
    own, names = identity(left.schema)
    nulls = tuple(Literal(None, c.type) for c in right.schema.columns)
    return Union((rows, Project(alone, (*own, *nulls), (*names, *right.schema.names))))


_NOT_EQUAL = "this LEFT JOIN's condition compares its two sides by more than equality"
_NOT_EQUAL_HINT = "write ON left.column = right.column, with AND conditions on one side alone"


def _pair(part: Expr, width: int) -> tuple[Expr, Expr] | None:
    """The sides of an equality between the two rows, each over its own."""
    for one, two in (sides, sides[::-1]) if (sides := equality(part)) else ():
        if columns(one) and columns(two) and max(columns(one)) < width <= min(columns(two)):
            return one, shifted(two, -width)
    return None


def _joined(left: Plan, right: Plan, pairs: list[tuple[Expr, Expr]]) -> Plan:
    """The join by `pairs`; keys that are no columns are computed beside them, and left out again."""
    one, left_key = keyed(left, [a for a, _ in pairs])
    two, right_key = keyed(right, [b for _, b in pairs])
    joined = LeftJoin(one, two, left_key, right_key)
    if one is left and two is right:
        return joined
    width = len(one.schema.columns)
    places = [*range(len(left.schema.columns)), *(width + k for k in range(len(right.schema.columns)))]
    return Project(joined, *identity(joined.schema, places))
