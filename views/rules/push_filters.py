"""Rule: filters go down, as far as nothing that may fail comes before what kept it from a row.

Only parts of a predicate that cannot fail are moved (DECISIONS.md 12): a part that may fail stays where SQL's order of
clauses has it. Below a join a part joins the join's condition, where `order_joins` finds it; below
a left join go parts of the left side alone, below a full join none, below a top or a window those of its groups,
below a spread those of its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.operators.expressions.ir import ColumnRef, Expr
from views.plan import (
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
from views.rewrite import transform
from views.scalar import columns, conjunction, conjuncts, fallible, substituted


def push_filters(plan: Plan) -> Plan:
    """Each part of each filter as far down as it may go.

    >>> from engine.operators.expressions.ir import Call, ColumnRef, Literal
    >>> from engine.schema import BIGINT, BOOLEAN, Column, Schema
    >>> from views.plan import Scan
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
        if moved is None or fallible(moved) or not columns(moved):
            stay.append(part)
        else:
            down.append(moved)
    return down, stay


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
