"""The rules in their order: a plan as bound goes in, an equal plan that is good to run comes out.

Always: every rule is a pure function that keeps the rows, the columns, their types and (but for unread columns) the
errors. Called by `compile`.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.operators.expressions.ir import ColumnRef
from views.plan import Plan, Project
from views.rules.bare_tables import bare_tables
from views.rules.factor_conditions import factor_conditions
from views.rules.flatten_unions import flatten_unions
from views.rules.inner_joins import inner_joins
from views.rules.merge_projects import merge_projects
from views.rules.order_joins import order_joins
from views.rules.prune_columns import prune_columns
from views.rules.push_filters import push_filters

Rule = Callable[[Plan], Plan]

RULES: tuple[Rule, ...] = (
    flatten_unions,
    factor_conditions,
    push_filters,
    inner_joins,
    merge_projects,
    order_joins,
    push_filters,
    bare_tables,
    prune_columns,
    merge_projects,
)


def optimize(plan: Plan, rules: tuple[Rule, ...] = RULES) -> Plan:
    """The plan after all rules, with the same output names."""
    names = plan.schema.names
    for rule in rules:
        plan = rule(plan)
    if plan.schema.names == names:
        return plan
    if isinstance(plan, Project):
        return Project(plan.input, plan.exprs, names)
    return Project(plan, tuple(ColumnRef(i, c.type) for i, c in enumerate(plan.schema.columns)), names)
