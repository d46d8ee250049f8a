"""Keys by which the rows of a body meet those of a relation that is negated, or the groups of an aggregate.

Invariant: both sides keep their columns, and what is added stands behind them. Called by `bodies`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr
from headrace.views.datalog.expressions import State
from headrace.views.expressions import columns, equality, null_safe, shifted
from headrace.views.plan import Plan, Project, identity

Keyed = tuple[Plan, Plan, tuple[int, ...], tuple[int, ...]]
"""Both sides, and the columns of each that are its key."""


def keyed(left: Plan, right: Plan, pairs: Sequence[Expr]) -> Keyed:
    """Both sides with the sides of equalities between them as columns, and where these stand. Each equality is over the
    joined row.
    """
    width = len(left.schema.columns)
    lefts, rights = [], []
    for pair in pairs:
        sides = equality(pair)
        assert sides is not None, "it was bound as an equality"
        of_right = next(s for s in sides if any(c >= width for c in columns(s)))
        lefts.append(sides[1] if of_right is sides[0] else sides[0])
        rights.append(shifted(of_right, -width))
    (left, left_key), (right, right_key) = _with(left, lefts), _with(right, rights)
    return left, right, left_key, right_key


def matched(state: State, groups: Plan, outer: Sequence[str]) -> Keyed:
    """The rows and the groups of their values, which NULL may be, with keys by which the two meet."""
    sides: tuple[list[Expr], list[Expr]] = ([], [])
    for place, name in enumerate(outer):
        refs = [_ref(state.plan, state.places[name]), _ref(groups, place)]
        nullable = any(p.schema.columns[r.index].nullable for p, r in zip((state.plan, groups), refs, strict=True))
        for side, ref in zip(sides, refs, strict=True):
            side += null_safe(ref, nullable=nullable)
    (left, left_key), (right, right_key) = _with(state.plan, sides[0]), _with(groups, sides[1])
    return left, right, left_key, right_key


def _ref(plan: Plan, position: int) -> ColumnRef:
    return ColumnRef(position, plan.schema.columns[position].type)


def _with(plan: Plan, exprs: Sequence[Expr]) -> tuple[Plan, tuple[int, ...]]:
    """The plan with expressions as columns, and where they stand."""
    places = []
    own, names = identity(plan.schema)
    made: list[Expr] = list(own)
    for expr in exprs:
        if isinstance(expr, ColumnRef):
            places.append(expr.index)
            continue
        places.append(len(made))
        made.append(expr)
    if len(made) == len(own):
        return plan, tuple(places)
    return Project(plan, tuple(made), (*names, *(f"key{i}" for i in range(len(made) - len(own))))), tuple(places)
