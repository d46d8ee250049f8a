"""Keys: the sets of columns on which no two rows of a plan agree.

Invariant: a set is proved, under Postgres's equality, whatever the data. At most `LIMIT` sets are kept for a node, the
smallest first. `compile`, the binder, the rules for join order and render call it.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.engine.value import remembered
from headrace.views.plan import (
    DeltaJoin,
    Distinct,
    Filter,
    Import,
    Join,
    LeftJoin,
    One,
    Plan,
    Project,
    Recursion,
    Reduce,
    Scan,
    Semijoin,
    Spread,
    Top,
    Windowed,
)

Keys = tuple[frozenset[int], ...]

LIMIT = 16


@remembered
def unique_sets(plan: Plan) -> Keys:
    """The proved keys of `plan`, as sets of positions; the empty set means at most one row.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> table = Scan("public.t", Schema((Column("id", BIGINT), Column("x", BIGINT)), (0,)))
    >>> unique_sets(Distinct(table))
    (frozenset({0}),)
    """
    if isinstance(plan, Scan | Import):
        return () if plan.schema.key is None else (frozenset(plan.schema.key),)
    if isinstance(plan, One):
        return (frozenset(),)
    if isinstance(plan, Filter | Windowed | DeltaJoin):
        return unique_sets(plan.input)
    if isinstance(plan, Top):
        alone = [frozenset(plan.key)] if plan.limit == 1 and not plan.ties else []
        return _smallest([*unique_sets(plan.input), *alone])
    if isinstance(plan, Distinct):
        return _smallest([*unique_sets(plan.input), frozenset(range(len(plan.schema.columns)))])
    if isinstance(plan, Reduce):
        return (frozenset(range(len(plan.key) - plan.determined)),)
    if isinstance(plan, Project):
        return _projected(plan)
    if isinstance(plan, Join):
        return _joined(plan)
    if isinstance(plan, Semijoin):
        return unique_sets(plan.left)
    if isinstance(plan, LeftJoin):
        return _left_joined(plan)
    if isinstance(plan, Recursion):
        whole = [frozenset(range(len(plan.schema.columns)))] if plan.kinds_of[plan.shown] == "set" else []
        return _smallest([*unique_sets(plan.rules[plan.shown]), *whole])
    if isinstance(plan, Spread) and plan.ordinal and not plan.outer:
        number = frozenset({len(plan.schema.columns) - 1})
        return _smallest(s | number for s in unique_sets(plan.input))
    return ()


def is_unique(plan: Plan, positions: Iterable[int]) -> bool:
    """Whether no two rows of `plan` agree on `positions`."""
    given = frozenset(positions)
    return any(s <= given for s in unique_sets(plan))


def _projected(plan: Project) -> Keys:
    places: dict[int, int] = {}
    for position, expr in enumerate(plan.exprs):
        if isinstance(expr, ColumnRef):
            places.setdefault(expr.index, position)
    kept = [s for s in unique_sets(plan.input) if all(i in places for i in s)]
    return _smallest([frozenset(places[i] for i in s) for s in kept])


def _joined(plan: Join) -> Keys:
    width = len(plan.left.schema.columns)
    left = unique_sets(plan.left)
    right = unique_sets(plan.right)
    moved = [frozenset(width + i for i in s) for s in right]
    found: list[frozenset[int]] = [a | b for a in left for b in moved]
    if any(s <= frozenset(plan.right_key) for s in right):
        found += left
    if any(s <= frozenset(plan.left_key) for s in left):
        found += moved
    # Keys that must be equal stand for each other.
    for one, other in zip(plan.left_key, (width + k for k in plan.right_key), strict=True):
        found += [s - {one} | {other} for s in found if one in s]
        found += [s - {other} | {one} for s in found if other in s]
    return _smallest(found)


def _left_joined(plan: LeftJoin) -> Keys:
    left, right = unique_sets(plan.left), unique_sets(plan.right)
    width = len(plan.left.schema.columns)
    if plan.full:
        # Only what is never NULL in a side tells its rows from those that have NULL in its place.
        sides = [
            [s for s in sets if not any(side.schema.columns[i].nullable for i in s)]
            for sets, side in ((left, plan.left), (right, plan.right))
        ]
        return _smallest(a | frozenset(width + i for i in b) for a in sides[0] for b in sides[1])
    # A left row stands alone or beside partners, so that those tell its rows apart, and alone it is one.
    found = [a | frozenset(width + i for i in b) for a in left for b in right]
    if any(s <= frozenset(plan.right_key) for s in right):
        found += left
    return _smallest(found)


def _smallest(sets: Iterable[frozenset[int]]) -> Keys:
    kept: list[frozenset[int]] = []
    for candidate in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        if not any(k <= candidate for k in kept):
            kept.append(candidate)
    return tuple(kept[:LIMIT])
