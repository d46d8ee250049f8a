"""Rule: a left join whose right side's NULLs a filter rules out is an inner join, which joins in any order."""

from __future__ import annotations

from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Expr
from headrace.engine.schema import BOOLEAN
from headrace.views.expressions import conjunction, proved_present
from headrace.views.plan import Filter, Join, LeftJoin, Plan
from headrace.views.rewrite import transform


def inner_joins(plan: Plan) -> Plan:
    """Make a left join inner if a filter above it passes no row without a partner.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> from headrace.views.plan import Scan
    >>> a, b = (Scan(f"public.{n}", Schema((Column("x", BIGINT),))) for n in "ab")
    >>> big = Call(">(bigint,bigint)", (ColumnRef(1, BIGINT), ColumnRef(0, BIGINT)), BOOLEAN)
    >>> isinstance(inner_joins(Filter(LeftJoin(a, b, (0,), (0,)), big)).input, Join)
    True
    """
    return transform(plan, _inner, Filter)


def _inner(plan: Plan) -> Plan:
    if not (isinstance(plan, Filter) and isinstance(plan.input, LeftJoin)) or plan.input.full:
        return plan
    joined = plan.input
    left, right = joined.left.schema.columns, joined.right.schema.columns
    if not any(c >= len(left) for c in proved_present(plan.predicate)):
        return plan
    parts: list[Expr] = []
    for one, two in zip(joined.left_key, joined.right_key, strict=True):
        kind = left[one].type.kind.value
        if left[one].type != right[two].type:
            return plan
        refs = ColumnRef(one, left[one].type), ColumnRef(len(left) + two, right[two].type)
        parts.append(Call(f"=({kind},{kind})", refs, BOOLEAN))
    if joined.residual is not None:
        parts.append(joined.residual)
    return Filter(Join(joined.left, joined.right, residual=conjunction(parts), at=joined.at), plan.predicate)
