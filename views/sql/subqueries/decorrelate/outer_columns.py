"""What a plan reads of the queries around its own, as columns that have no place in it, and the same plan seen from elsewhere.

The levels are counted from the plan: the query around it is level 1. Pure; decorrelation and the binder call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.value import remembered
from headrace.views.expressions import outer_columns, rewrite
from headrace.views.placeholders import OuterColumn
from headrace.views.plan import Plan
from headrace.views.rewrite import SPEAKING, transform, with_expressions
from headrace.views.traversal import expressions, walk


def read_outside(plan: Plan) -> Iterator[OuterColumn]:
    """The columns of queries around that a plan reads, each as often as it reads it."""
    return (column for node in walk(plan) for expr in expressions(node) for column in outer_columns(expr))


def parameters(plan: Plan) -> tuple[tuple[int, Expr], ...]:
    """The columns of the query one level up that a plan reads: (position, the reference), in order."""
    found = {column.index: column for column in read_outside(plan) if column.level == 1}
    return tuple(sorted(found.items()))


@remembered
def levels_read(plan: Plan) -> frozenset[int]:
    """How many levels up stand the queries whose columns a plan reads."""
    own = frozenset(column.level for expr in expressions(plan) for column in outer_columns(expr))
    return own.union(*map(levels_read, plan.below))


def reads_around(expr: Expr | None) -> bool:
    """Whether the expression reads the query one level up."""
    return expr is not None and any(column.level == 1 for column in outer_columns(expr))


def raised(plan: Plan, by: int = 1) -> Plan:
    """The plan seen from so many levels further in."""
    if not by or not levels_read(plan):
        return plan

    def change(e: Expr) -> Expr | None:
        return OuterColumn((), e.type, e.level + by, e.index) if isinstance(e, OuterColumn) else None

    return transform(plan, lambda node: with_expressions(node, lambda e: rewrite(e, change)), *SPEAKING)


def lowered(plan: Plan, values: Mapping[int, Expr]) -> Plan:
    """The plan with the columns that it reads one level up replaced by `values`."""
    return transform(plan, lambda node: with_expressions(node, lambda e: lowered_in(e, values)), *SPEAKING)


def lowered_in(expr: Expr, values: Mapping[int, Expr]) -> Expr:
    """As `lowered`, of one expression."""

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, OuterColumn):
            return None
        return values[e.index] if e.level == 1 else OuterColumn((), e.type, e.level - 1, e.index)

    return rewrite(expr, change)
