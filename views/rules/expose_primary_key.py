"""Rule: take projections off a table that is left-joined by its primary key, so that its one arrangement serves every view."""

from __future__ import annotations

from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.views.expressions import moved
from headrace.views.plan import LeftJoin, Plan, Project, Scan, identity
from headrace.views.rewrite import transform


def bare_tables(plan: Plan) -> Plan:
    """Move a choice of columns between a left join and its right table above the join, if the key is the table's own.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> a = Scan("public.a", Schema((Column("x", BIGINT),)))
    >>> b = Scan("public.b", Schema((Column("id", BIGINT), Column("y", BIGINT)), (0,)))
    >>> chosen = Project(b, (ColumnRef(1, BIGINT), ColumnRef(0, BIGINT)), ("y", "id"))
    >>> bare_tables(LeftJoin(a, chosen, (0,), (1,))).input == LeftJoin(a, b, (0,), (0,))
    True
    """
    return transform(plan, _bare, LeftJoin)


def _bare(plan: Plan) -> Plan:
    if not (isinstance(plan, LeftJoin) and isinstance(plan.right, Project) and isinstance(plan.right.input, Scan)):
        return plan
    table, width = plan.right.input, len(plan.left.schema.columns)
    places = [e.index for e in plan.right.exprs if isinstance(e, ColumnRef)]
    if len(places) < len(plan.right.exprs):
        return plan
    key = tuple(places[k] for k in plan.right_key)
    if key != table.schema.key:
        return plan
    order = [*range(width), *(width + p for p in places)]
    residual = None if plan.residual is None else moved(plan.residual, dict(enumerate(order)))
    joined = replace(plan, right=table, right_key=key, residual=residual)
    exprs, _ = identity(joined.schema, order)
    return Project(joined, exprs, plan.schema.names)
