"""Rule: a DISTINCT goes where no two rows are equal anyway, and a join of a table with itself by its primary key reads it once.

Keys alone prove it, whatever the data: DISTINCT over a primary key, over groups, over joins that add no rows. `prune_columns`
removes left joins that are not read and add no rows, because it knows what is read.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr
from headrace.views.expressions import conjunction, conjuncts, fallible
from headrace.views.keys import unique_sets
from headrace.views.plan import Distinct, Filter, Join, Plan, Project, Scan, identity
from headrace.views.rewrite import transform


def needless(plan: Plan) -> Plan:
    """The same rows, of fewer nodes.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> a = Scan("public.a", Schema((Column("id", BIGINT), Column("x", BIGINT)), (0,)))
    >>> needless(Distinct(a)) == a
    True
    >>> needless(Join(a, a, (0,), (0,))) == Project(a, *identity(a.schema, (0, 1, 0, 1)))
    True
    """
    return transform(plan, _without, Distinct, Join)


def _without(plan: Plan) -> Plan:
    if isinstance(plan, Distinct):
        return plan.input if unique_sets(plan.input) else _outer(plan)
    return _once(plan) if isinstance(plan, Join) else plan


def _outer(plan: Distinct) -> Plan:
    """Of two DISTINCTs with a choice of columns between them, keep one. With a computation between them both stay: it could
    tell equal values apart.
    """
    chosen = plan.input
    if not (isinstance(chosen, Project) and isinstance(chosen.input, Distinct)):
        return plan
    whole = all(isinstance(e, ColumnRef) for e in chosen.exprs)
    return Distinct(replace(chosen, input=chosen.input.input)) if whole else plan


def _once(plan: Join) -> Plan:
    """A table's rows beside themselves, where each meets itself and no other."""
    left, right = _table(plan.left), _table(plan.right)
    key = left[0].schema.key
    same = left[0] == right[0] and key is not None and plan.left_key == plan.right_key
    if not same or not isinstance(left[0], Scan) or sorted(plan.left_key) != sorted(key or ()):
        return plan
    if any(map(fallible, (*left[1], *right[1]))):
        return plan  # what fails is asked in the order in which it is written
    asked = conjunction([p for q in dict.fromkeys((*left[1], *right[1])) for p in conjuncts(q)])
    found = left[0] if asked is None else Filter(left[0], asked)
    exprs, names = identity(found.schema)
    beside = Project(found, exprs * 2, names * 2)
    return beside if plan.residual is None else Filter(beside, plan.residual)


def _table(plan: Plan) -> tuple[Plan, tuple[Expr, ...]]:
    """What is filtered, and by what."""
    found: list[Expr] = []
    while isinstance(plan, Filter):
        found.append(plan.predicate)
        plan = plan.input
    return plan, tuple(found)
