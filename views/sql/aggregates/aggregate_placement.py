"""Where an aggregate may stand, and whose it is: that of its own query, or of one around whose columns alone it reads.

Always: an aggregate that reads columns of a query around and none of its own is over that query's rows, as in Postgres. Called
by the handlers of aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Expr
from headrace.views.expressions import columns, outer_columns
from headrace.views.placeholders import OuterColumn
from headrace.views.sql.binder import Binder
from headrace.views.sql.scope import Bound


def check_allowed(binder: Binder, node: exp.Expr, name: str) -> None:
    """Refuses an aggregate where there are no groups, or inside another one."""
    if binder.aggregates is None or binder.inside_aggregate:
        inside = "another aggregate" if binder.inside_aggregate else binder.clause
        binder.source.refuse(node, f"aggregate {name} is not allowed in {inside}", "aggregate in a subquery in FROM")


def around(
    binder: Binder, node: exp.Expr, name: str, parts: Sequence[Expr], again: Bound, *, alone: bool = True
) -> Expr | None:
    """What stands for an aggregate that reads columns of a query around and none of its own: it is over that query's rows,
    and bound `again` there. None for any other. `alone`: not over a window. Raises ViewError.
    """
    levels = {column.level for part in parts for column in outer_columns(part)}
    if binder.queries is not None:
        levels |= binder.queries.levels_read(parts)
    if not levels or any(columns(p) for p in parts):
        return None
    scope = binder.scope
    for _ in range(min(levels)):
        assert scope.outer is not None, "what is read there is there"
        scope = scope.outer
    if scope.aggregating is None or not alone:
        reason = f"{name} is of columns of the query around alone, which does not aggregate there"
        binder.source.refuse(node, reason, "aggregate in a subquery in FROM")
    position, kind = scope.aggregating(again)
    return OuterColumn((), kind, min(levels), position)
