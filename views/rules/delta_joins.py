"""Rule: a tree of three or more joins keeps no join's rows, but looks every change up in all the other inputs.

The arrangements are then of the inputs alone, which other views share; what lies between is a stream.
"""

from __future__ import annotations

from views.joins import chooses, flat
from views.plan import DeltaJoin, Join, Plan, Project, children, identity, with_children
from views.scalar import columns, moved

LEAST = 3


def delta_joins(plan: Plan) -> Plan:
    """Every such tree under one node, with the columns that are read above it.

    >>> from engine.schema import BIGINT, Column, Schema
    >>> from views.plan import Scan
    >>> a, b, c = (Scan(f"public.{n}", Schema((Column("x", BIGINT), Column("y", BIGINT)))) for n in "abc")
    >>> both = Join(a, b, (0,), (1,))
    >>> delta_joins(both) == both
    True
    >>> three = Join(both, c, (2,), (0,))
    >>> delta_joins(three) == DeltaJoin(three)
    True
    """
    if isinstance(plan, DeltaJoin):
        return plan
    if isinstance(plan, Project) and isinstance(plan.input, Join) and _fits(plan.input):
        if chooses(plan):
            return DeltaJoin(Project(_inside(plan.input), plan.exprs, plan.names))
        held = sorted(set[int]().union(*(columns(e) for e in plan.exprs)))
        chosen = Project(_inside(plan.input), *identity(plan.input.schema, held))
        to = {column: place for place, column in enumerate(held)}
        return Project(DeltaJoin(chosen), tuple(moved(e, to) for e in plan.exprs), plan.names)
    if isinstance(plan, Join) and _fits(plan):
        return DeltaJoin(_inside(plan))
    return with_children(plan, [delta_joins(p) for p in children(plan)])


def _fits(plan: Join) -> bool:
    """Whether it joins enough, by columns of one lane, no two of which are one input's."""
    tree = flat(plan)
    if len(tree.leaves) < LEAST:
        return False
    for some in tree.equal:
        lanes = {tree.leaves[i].schema.columns[c].type.arrow for i, c in some}
        if len(lanes) > 1 or len({i for i, _ in some}) < len(some):
            return False
    return True


def _inside(plan: Plan) -> Plan:
    """The tree, its leaves under the rule."""
    leaves = {id(leaf) for leaf in flat(plan).leaves}

    def visit(node: Plan) -> Plan:
        return delta_joins(node) if id(node) in leaves else with_children(node, [visit(p) for p in children(node)])

    return visit(plan)
