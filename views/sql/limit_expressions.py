"""Counts and sizes that the tables say: what LIMIT, OFFSET and a frame's bounds take beside constants, uncorrelated subqueries.

Always: such a number is a subquery of one row by itself, so that it is checked once, with or without rows around it, as
Postgres does before it reads one; it reads no column of its own query. Called by `frames` and `ordering`.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Call, Expr, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, TEXT
from headrace.views.expressions import columns
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder, binds


class Count(exp.Expression):
    """A number of rows (`unit` LIMIT, OFFSET, ROWS, GROUPS), or the offset of a RANGE; `what` it is called in messages."""

    arg_types = {"this": True, "unit": True, "what": True, "required": False}  # noqa: RUF012 (sqlglot's manner)


def says_tables(node: exp.Expr) -> bool:
    """Whether a number depends on tables."""
    return node.find(exp.Query) is not None


def queried(binder: Binder, value: exp.Expr, unit: str, what: str, *, required: bool) -> Expr:
    """The number as the scalar subquery that gives it, checked. Raises ViewError."""
    checked = Count(this=value.copy(), unit=unit, what=what, required=required)
    alone = exp.Subquery(this=exp.Select(expressions=[exp.alias_(checked, "value")]))
    found = binder.bind(alone)
    if columns(found):
        variables(binder, value, unit)
    return found


def variables(binder: Binder, node: exp.Expr, unit: str) -> None:
    """Refuses a number that reads the row. Raises ViewError."""
    binder.source.refuse(node, f"argument of {unit} must not contain variables", "write a number or a subquery")


@binds(Count, reads="this unit what required")
def _checked(binder: Binder, node: exp.Expr) -> Expr:
    value, unit, what = binder.bind(node.this), node.args["unit"], Literal(node.args["what"], TEXT)
    if unit == "RANGE":
        return coerce.called("$present", [coerce.settled(value), what])
    number = binder.typed(node.this, lambda: coerce.assigned(value, BIGINT, unit))
    return Call(
        "$counted(bigint,text,boolean)", (number, what, Literal(bool(node.args.get("required")), BOOLEAN)), BIGINT
    )
