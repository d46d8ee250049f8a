"""Rule: filters go down, as far as nothing that may fail comes before what kept it from a row.

Only parts of a predicate that cannot fail are moved (decision 12); a part that may fail stays where SQL's order of clauses has
it. At a join a part becomes part of the join's condition, where `order_joins` finds it; a part that may fail does so only while
the join has no keys, since a false part keeps it from failing (decision 39). Parts of the left side alone go below a left join,
none below a full join, parts of the groups below a top or a window, parts of the input below a spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr
from headrace.views.expressions import columns, conjunction, conjuncts, fallible, substituted
from headrace.views.plan import (
    Distinct,
    Filter,
    Join,
    LeftJoin,
    Plan,
    Project,
    Reduce,
    Semijoin,
    Spread,
    Top,
    Union,
    Windowed,
)
from headrace.views.rewrite import transform


def push_filters(plan: Plan) -> Plan:
    """Each part of each filter as far down as it may go.

    >>> from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Literal
    >>> from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema
    >>> from headrace.views.plan import Scan
    >>> a = Scan("public.a", Schema((Column("x", BIGINT), Column("y", BIGINT))))
    >>> x, y = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)
    >>> big = lambda e: Call(">(bigint,bigint)", (e, Literal(5, BIGINT)), BOOLEAN)
    >>> push_filters(Filter(Project(a, (y,), ("y",)), big(x))) == Project(Filter(a, big(y)), (y,), ("y",))
    True
    """
    return transform(plan, _pushed, Filter)


def _pushed(plan: Plan) -> Plan:
    if not isinstance(plan, Filter):
        return plan
    return filtered(plan.input, conjuncts(plan.predicate))


def filtered(plan: Plan, parts: Sequence[Expr]) -> Plan:
    """`plan` with only the rows for which all `parts` are true, each part as far down as it may go."""
    if not parts:
        return plan
    if isinstance(plan, Filter):
        # The inner filter goes first; a part that cannot fail may share its node.
        return filtered(plan.input, (*conjuncts(plan.predicate), *parts))
    down, stay = _divided(plan, parts)
    below = _below(plan, down) if down else plan
    rest = conjunction(stay)
    return below if rest is None else Filter(below, rest)


def _divided(plan: Plan, parts: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The parts, over the input's row where they go down, and those that stay."""
    down: list[Expr] = []
    stay: list[Expr] = []
    for part in parts:
        moved: Expr | None = None
        if isinstance(plan, Project):
            moved = substituted(part, plan.exprs)
        elif isinstance(plan, Join | Semijoin | Distinct | Union) or (
            isinstance(plan, Reduce | LeftJoin | Top | Windowed | Spread)
            and columns(part)
            and columns(part) <= _passed(plan)
        ):
            moved = part
        if moved is None or not columns(moved) or (fallible(moved) and not _is_unordered(plan)):
            stay.append(part)
        else:
            down.append(moved)
    return down, stay


def _is_unordered(plan: Plan) -> bool:
    """Whether it is an inner join that the binder made, whose conditions `order_joins` will place."""
    return isinstance(plan, Join) and not plan.left_key


def _passed(plan: Reduce | LeftJoin | Top | Windowed | Spread) -> frozenset[int]:
    """The columns of which a filter may be asked of the (left) input's rows instead."""
    if isinstance(plan, Top | Windowed):
        return frozenset(plan.key)
    if isinstance(plan, Reduce):
        return frozenset(range(len(plan.key)))
    if isinstance(plan, Spread):
        return frozenset(range(len(plan.input.schema.columns)))
    return frozenset(() if plan.full else range(len(plan.left.schema.columns)))


def _below(plan: Plan, parts: Sequence[Expr]) -> Plan:
    if isinstance(plan, Join):
        return replace(plan, residual=conjunction([*conjuncts(plan.residual), *parts]))
    if isinstance(plan, LeftJoin | Semijoin):
        return replace(plan, left=filtered(plan.left, parts))
    if isinstance(plan, Union):
        return replace(plan, inputs=tuple(filtered(p, parts) for p in plan.inputs))
    if isinstance(plan, Reduce):
        inputs = plan.input.schema.columns
        refs = [ColumnRef(k, inputs[k].type) for k in plan.key]
        return replace(plan, input=filtered(plan.input, [substituted(p, refs) for p in parts]))
    if isinstance(plan, Project | Distinct | Top | Windowed | Spread):
        return replace(plan, input=filtered(plan.input, parts))
    raise AssertionError(f"nothing goes below a {type(plan).__name__}")
