"""Rewriting plans: a change of one node carried through a whole plan.

Always: a node that stands in several places is rewritten once, and stays one; a node of which nothing changes stays the
object it is, with its schema and digest. Called by the rules and the binder.
"""

from __future__ import annotations

from collections.abc import Callable

from views.plan import Plan, children, with_children


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


def transform(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """`change`, a pure function, applied to every node, inputs first."""
    visit = once(lambda node: change(with_children(node, [visit(p) for p in children(node)])))
    return visit(plan)
