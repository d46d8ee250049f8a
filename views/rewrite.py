"""Rewriting: carries a change of one node through a whole plan.

Invariant: a node that stands in several places is rewritten once and stays one; a node in which nothing changes stays the
same object. The rules and the binder call it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import Expr, Literal
from headrace.engine.schema import BOOLEAN
from headrace.views.plan import Filter, Join, LeftJoin, Plan, Project
from headrace.views.traversal import expressions, with_children


def once(change: Callable[[Plan], Plan]) -> Callable[[Plan], Plan]:
    """`change`, a pure function, asked once of each node."""
    done: dict[int, tuple[Plan, Plan]] = {}

    def changed(plan: Plan) -> Plan:
        found = done.get(id(plan))
        if found is None:
            # The node is held, so that no other takes its id.
            found = done[id(plan)] = plan, change(plan)
        return found[1]

    return changed


def transform(plan: Plan, change: Callable[[Plan], Plan], kind: type[Plan], *kinds: type[Plan]) -> Plan:
    """`change`, a pure function, applied to every node of these kinds, inputs first. Where none stands nothing is visited."""
    wanted = frozenset[type]((kind, *kinds))

    def changed(node: Plan) -> Plan:
        # A changed input is not equal to what it was, and so neither is the node over it.
        over = with_children(node, [p if wanted.isdisjoint(p.kinds) else visit(p) for p in node.below])
        if type(over) not in wanted:
            return over
        found = change(over)
        return found if found is over or found != node else node

    visit = once(changed)
    return plan if wanted.isdisjoint(plan.kinds) else visit(plan)


SPEAKING = (Project, Filter, Join, LeftJoin)
"""The nodes that have `expressions`."""


def with_expressions(plan: Plan, change: Callable[[Expr], Expr]) -> Plan:
    """The node with `change` applied to each of its `expressions`; itself when that gives the same objects."""
    before = expressions(plan)
    exprs = tuple(change(e) for e in before)
    if all(a is b for a, b in zip(exprs, before, strict=True)):
        return plan
    if isinstance(plan, Project):
        return replace(plan, exprs=exprs)
    if isinstance(plan, Filter):
        return replace(plan, predicate=exprs[0])
    assert isinstance(plan, Join | LeftJoin), "no other node has expressions"
    return replace(plan, residual=exprs[0])


def fenced(plan: Plan) -> Plan:
    """The plan of a query that Postgres plans by itself, and does not take into the one around it."""
    return Filter(plan, Literal(True, BOOLEAN))


def is_fence(plan: Plan) -> bool:
    """Whether the node is there for `fenced` alone."""
    return isinstance(plan, Filter) and plan.predicate == Literal(True, BOOLEAN)


def without_fences(plan: Plan) -> Plan:
    """The plan as it runs."""
    return transform(plan, lambda node: node.input if isinstance(node, Filter) and is_fence(node) else node, Filter)
