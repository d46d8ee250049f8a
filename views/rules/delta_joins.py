"""Rule: a tree of three or more joins keeps no rows of its inner joins; each change is looked up in all the other inputs.

The arrangements are then of the inputs alone, which other views share; what lies between is a stream.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.views.expressions import columns, moved
from headrace.views.join_graph import Flat, chooses, flat
from headrace.views.plan import DeltaJoin, Join, Plan, Project, identity
from headrace.views.rewrite import once
from headrace.views.traversal import children, with_children

LEAST = 3


def delta_joins(plan: Plan) -> Plan:
    """Put every such tree under one node, with the columns that are read above it.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> from headrace.views.plan import Scan
    >>> a, b, c = (Scan(f"public.{n}", Schema((Column("x", BIGINT), Column("y", BIGINT)))) for n in "abc")
    >>> both = Join(a, b, (0,), (1,))
    >>> delta_joins(both) == both
    True
    >>> three = Join(both, c, (2,), (0,))
    >>> delta_joins(three) == DeltaJoin(three)
    True
    """
    visit = once(lambda node: _joined(node, visit))
    return visit(plan)


def _joined(plan: Plan, visit: Callable[[Plan], Plan]) -> Plan:
    if isinstance(plan, DeltaJoin) or Join not in plan.kinds:
        return plan
    if isinstance(plan, Project) and isinstance(plan.input, Join):
        tree = _inside(plan.input, visit)
        if tree is None:
            return with_children(plan, [visit(plan.input)])
        if chooses(plan):
            return DeltaJoin(Project(tree, plan.exprs, plan.names))
        held = sorted(set[int]().union(*(columns(e) for e in plan.exprs)))
        chosen = Project(tree, *identity(plan.input.schema, held))
        to = {column: place for place, column in enumerate(held)}
        return Project(DeltaJoin(chosen), tuple(moved(e, to) for e in plan.exprs), plan.names)
    tree = _inside(plan, visit) if isinstance(plan, Join) else None
    return with_children(plan, [visit(p) for p in children(plan)]) if tree is None else DeltaJoin(tree)


def _fits(tree: Flat) -> bool:
    """Whether it joins enough, by columns of one lane, no two of which are one input's."""
    if len(tree.leaves) < LEAST:
        return False
    for some in tree.equal:
        lanes = {tree.leaves[i].schema.columns[c].type.arrow for i, c in some}
        if len(lanes) > 1 or len({i for i, _ in some}) < len(some):
            return False
    return True


def _inside(plan: Join, visit: Callable[[Plan], Plan]) -> Plan | None:
    """The tree, its leaves under the rule; None if it is no delta join's."""
    tree = flat(plan)
    if not _fits(tree):
        return None
    leaves = {id(leaf) for leaf in tree.leaves}

    def within(node: Plan) -> Plan:
        return visit(node) if id(node) in leaves else with_children(node, [within(p) for p in children(node)])

    return within(plan)
