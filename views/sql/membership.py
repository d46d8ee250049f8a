"""WHERE … IN (SELECT …) bound: a part of the condition that asks whether a row's values are among those of a query.

Always: such a part stands among the parts of WHERE that are joined by AND, and becomes a semijoin (NOT IN: an antijoin,
which is the same only where nothing can be NULL). Elsewhere the binder refuses a subquery. Called by `select`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from engine.operators.expressions.ir import ColumnRef, Expr
from views.plan import Plan, Semijoin, keyed
from views.scalar import equality, may_be_null
from views.sql import coerce
from views.sql.binder import Binder

BindQuery = Callable[[exp.Expr], Plan]
"""Binds a subquery, which sees nothing of the row around it."""


@dataclass(frozen=True)
class Membership:
    """`node` IN (or, `negated`, NOT IN) its query."""

    node: exp.Expr
    negated: bool


def divided(condition: exp.Expr) -> tuple[list[Membership], list[exp.Expr]]:
    """The memberships among the parts of a condition that AND joins, and the other parts, both in their order."""
    if isinstance(condition, exp.Paren):
        found = divided(condition.this)
        return found if found[0] else ([], [condition])
    if isinstance(condition, exp.And):
        sides = [divided(side) for side in (condition.this, condition.expression)]
        if any(members for members, _ in sides):
            return [m for members, _ in sides for m in members], [part for _, parts in sides for part in parts]
        return [], [condition]
    negated = isinstance(condition, exp.Not)
    inner = condition.this if negated else condition
    while negated and isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.In) and inner.args.get("query") is not None:
        return [Membership(inner, negated)], []
    return [], [condition]


def semijoined(plan: Plan, binder: Binder, member: Membership, bind: BindQuery) -> Plan:
    """The rows of `plan` that the membership holds for. Raises ViewError."""
    source, node = binder.source, member.node
    source.only(node, {"this", "query"})
    asked: Sequence[exp.Expr] = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    query = bind(node.args["query"])
    columns = query.schema.columns
    if len(asked) != len(columns):
        source.refuse(node.args["query"], f"the subquery gives {len(columns)} columns for {len(asked)} on the left")
    lefts: list[Expr] = []
    rights: list[Expr] = []
    for position, part in enumerate(asked):
        left, right = binder.bind(part), ColumnRef(position, columns[position].type)
        sides = equality(binder.typed(part, lambda left=left, right=right: coerce.called("=", [left, right])))  # type: ignore[misc]
        assert sides is not None
        if member.negated and (may_be_null(left, plan.schema.columns) or columns[position].nullable):
            reason = "NOT IN (SELECT …) is not supported where a side can be NULL: no row is then known to be missing"
            source.refuse(node.args["query"], reason, "write a LEFT JOIN … WHERE … IS NULL, or add IS NOT NULL")
        lefts.append(sides[0])
        rights.append(sides[1])
    left_plan, left_key = keyed(plan, lefts)
    right_plan, right_key = keyed(query, rights)
    return Semijoin(left_plan, right_plan, left_key, right_key, member.negated)
