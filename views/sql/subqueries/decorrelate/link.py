"""Decorrelation: turns a subquery that reads the query around it into a plan that does not, and the equalities that link the two.

It is the one algorithm for EXISTS, IN, scalar subqueries and LATERAL. Where a subquery reads the row around in equalities alone,
and nothing in it may fail, these are pulled out of it (`pull_up`). Otherwise the distinct values that it reads, its domain, are
pushed into it (`push_domain`). The binder of subqueries and of FROM calls `link`, and nothing else of this package but
`outer_columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr
from headrace.views.expressions import fallible, null_safe, seen
from headrace.views.plan import Distinct, Plan, Project, Spread
from headrace.views.sql.subqueries.decorrelate.outer_columns import lowered, lowered_in, raised
from headrace.views.sql.subqueries.decorrelate.pull_up import pulled
from headrace.views.sql.subqueries.decorrelate.push_domain import CannotPush, pushed
from headrace.views.traversal import expressions, walk

__all__ = ["CannotPush", "Linked", "link"]


@dataclass(frozen=True)
class Linked:
    """A subquery made free: its rows belong to a row around it where each of `pairs` (an expression over that row, one
    over this plan's) is equal. Its own columns stand from `first` on.

    `empty`: what it gives a row around that has no row here, one value a column; None: nothing.
    """

    plan: Plan
    pairs: tuple[tuple[Expr, Expr], ...]
    first: int
    width: int
    empty: tuple[Expr, ...] | None = None


def link(around: Plan, plan: Plan, values: Mapping[int, Expr], *, whole: bool = False) -> Linked:
    """The subquery `plan` linked to the rows of `around`; `values`: what it reads there, over such a row, by position.

    Invariant: the plan that comes back reads nothing of the query one level up, and references further up count one level less.
    `whole`: `empty` must be None. Raises CannotPush.
    """
    width = len(plan.schema.columns)
    if not values:
        return Linked(lowered(plan, {}), (), 0, width)
    if not any(isinstance(node, Spread) or any(map(fallible, expressions(node))) for node in walk(plan)):
        found = pulled(plan)
        if found is not None and not (whole and found.empty is not None):
            pairs = tuple(
                (lowered_in(expr, values), ColumnRef(at, found.plan.schema.columns[at].type))
                for expr, at in found.pairs
            )
            return Linked(lowered(found.plan, {}), pairs, 0, width, found.empty)
    # What looks different is asked apart, however equal it is.
    exprs = seen(tuple(values.values()))
    names = tuple(f"outer{i}" for i in range(len(exprs)))
    domain = Distinct(Project(around, exprs, names))
    # What `around` itself reads around it must stay what it is when the whole is lowered.
    inner = pushed(raised(domain), plan, {position: i for i, position in enumerate(values)})
    linked: list[tuple[Expr, Expr]] = []
    for i, (expr, column) in enumerate(zip(exprs, domain.schema.columns, strict=True)):
        keys = (null_safe(e, nullable=column.nullable) for e in (expr, ColumnRef(i, column.type)))
        linked += zip(*keys, strict=True)
    return Linked(lowered(inner, {}), tuple(linked), len(exprs), width)
