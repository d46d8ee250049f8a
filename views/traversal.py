"""Walks over a plan: the nodes of it, a node's inputs and expressions, and the same node over other inputs.

Pure; the binder, the rules and whoever reads a plan call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import is_

from headrace.engine.operators.expressions.core.ir import Expr
from headrace.views.plan import Filter, Join, LeftJoin, OverOne, OverTwo, Plan, Project, Recursion, Union


def children(plan: Plan) -> tuple[Plan, ...]:
    """The direct inputs, left to right."""
    return plan.below


def with_children(plan: Plan, inputs: Sequence[Plan]) -> Plan:
    """The node over other inputs; itself when they are the same objects."""
    if all(map(is_, plan.below, inputs)):
        return plan
    if isinstance(plan, OverTwo):
        return replace(plan, left=inputs[0], right=inputs[1])
    if isinstance(plan, Union):
        return replace(plan, inputs=tuple(inputs))
    if isinstance(plan, Recursion):
        given = iter(inputs)
        starts = tuple(None if p is None else next(given) for p in plan.starts)
        return replace(plan, starts=starts, rules=tuple(given))
    assert isinstance(plan, OverOne), "a leaf has no inputs, and so is itself"
    return replace(plan, input=inputs[0])


def expressions(plan: Plan) -> tuple[Expr, ...]:
    """The expressions of the node itself, over its inputs' rows (aggregates apart: they read columns)."""
    if isinstance(plan, Project):
        return plan.exprs
    if isinstance(plan, Filter):
        return (plan.predicate,)
    return (plan.residual,) if isinstance(plan, Join | LeftJoin) and plan.residual is not None else ()


def walk(plan: Plan) -> Iterator[Plan]:
    """The node and everything below, outermost first."""
    yield plan
    for child in plan.below:
        yield from walk(child)
