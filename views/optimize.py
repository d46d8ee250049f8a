"""The optimizer: a plan as bound goes in, an equal plan that is good to run comes out, by a tuple of rules.

Invariant: every rule is a pure function that keeps rows, columns, types and (except for unread columns) errors. `compile`
calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.views.plan import Plan, Project
from headrace.views.rules.canonical_groups import value_classes
from headrace.views.rules.delta_joins import delta_joins
from headrace.views.rules.expose_primary_key import bare_tables
from headrace.views.rules.factor_conditions import factor_conditions
from headrace.views.rules.flatten_unions import flatten_unions
from headrace.views.rules.inner_joins import inner_joins
from headrace.views.rules.merge_projects import merge_projects
from headrace.views.rules.order_joins import order_joins
from headrace.views.rules.prune_columns import prune_columns
from headrace.views.rules.push_filters import push_filters
from headrace.views.rules.redundant_distinct_and_joins import needless

Rule = Callable[[Plan], Plan]

RULES: tuple[Rule, ...] = (
    flatten_unions,
    factor_conditions,
    push_filters,
    inner_joins,
    merge_projects,
    needless,
    order_joins,
    push_filters,
    needless,
    bare_tables,
    prune_columns,
    merge_projects,
    delta_joins,
)


FINAL: tuple[Rule, ...] = (value_classes, merge_projects)
"""What makes an optimized plan one that runs, once its keys are known."""


def optimize(plan: Plan, rules: tuple[Rule, ...] = RULES, fired: list[str] | None = None) -> Plan:
    """The plan after all rules, with the same output names. `fired`: what those did that changed it is added there."""
    names = plan.schema.names
    for rule in rules:
        before, plan = plan, rule(plan)
        if fired is not None and plan is not before and plan != before:
            fired.append(said_of(rule))
    if plan.schema.names == names:
        return plan
    if isinstance(plan, Project):
        return Project(plan.input, plan.exprs, names)
    return Project(plan, tuple(ColumnRef(i, c.type) for i, c in enumerate(plan.schema.columns)), names)


def said_of(rule: Rule) -> str:
    """A rule's name, and what its file says that it does.

    >>> said_of(flatten_unions).split(":")[0]
    'flatten_unions'
    """
    first = (sys.modules[rule.__module__].__doc__ or "").split("\n\n")[0]
    return f"{rule.__name__}: {' '.join(first.removeprefix('Rule: ').split())}"
