"""Rule: a projection of a projection is one; a projection that changes nothing goes."""

from __future__ import annotations

from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr, Literal
from headrace.views.expressions import substituted, walk
from headrace.views.plan import Plan, Project, Reduce
from headrace.views.rewrite import transform


def merge_projects(plan: Plan) -> Plan:
    """Inner expressions put into the outer ones, unless that would compute something twice. Names may be lost.

    An expression that the outer projection does not read is no longer computed, so neither are its errors.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> from headrace.views.plan import Scan
    >>> a = Scan("public.a", Schema((Column("x", BIGINT), Column("y", BIGINT))))
    >>> x, y = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)
    >>> merge_projects(Project(Project(a, (y, x), ("y", "x")), (y,), ("x",))) == Project(a, (x,), ("x",))
    True
    >>> merge_projects(Project(a, (x, y), ("x", "y"))) == a
    True
    """
    return transform(plan, _merged, Project, Reduce)


def _merged(plan: Plan) -> Plan:
    if isinstance(plan, Project):
        if isinstance(plan.input, Project) and not _repeats(plan.exprs, plan.input.exprs):
            exprs = tuple(substituted(e, plan.input.exprs) for e in plan.exprs)
            return _merged(replace(plan, input=plan.input.input, exprs=exprs))
        if _is_identity(plan):
            return plan.input
    if isinstance(plan, Reduce) and isinstance(plan.input, Project) and isinstance(plan.input.input, Project):
        return replace(plan, input=_merged(plan.input))
    return plan


def _repeats(outer: tuple[Expr, ...], inner: tuple[Expr, ...]) -> bool:
    """Whether some computed inner expression is read more than once."""
    reads = [e.index for expr in outer for e in walk(expr) if isinstance(e, ColumnRef)]
    return any(reads.count(i) > 1 for i, e in enumerate(inner) if not isinstance(e, ColumnRef | Literal))


def _is_identity(plan: Project) -> bool:
    cols = plan.input.schema.columns
    same = all(isinstance(e, ColumnRef) and e.index == i for i, e in enumerate(plan.exprs))
    return same and len(plan.exprs) == len(cols)
