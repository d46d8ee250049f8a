"""Queries bound: WITH, and what holds SELECTs together (UNION, INTERSECT, EXCEPT, VALUES, parentheses), to plans.

Always: a plan has the output names of the SELECT list, `?column?` where Postgres has none. Called by `compile` through
`bind_view`.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.views.plan import Plan
from headrace.views.sql import arrays, expressions, functions, intervals
from headrace.views.sql.environment import Environment
from headrace.views.sql.from_clause.values import values
from headrace.views.sql.ordering import CLAUSES, limit_of, order_output, topped
from headrace.views.sql.parsing.parse import Source
from headrace.views.sql.recursive import with_items
from headrace.views.sql.scope import Scope
from headrace.views.sql.select import UNNAMED, Select
from headrace.views.sql.set_operations import output_node, set_operation
from headrace.views.sql.subqueries import subquery_binder
from headrace.views.sql.subqueries.subquery_binder import Subqueries
from headrace.views.sql.windows import window_calls

# Importing these registers their handlers with the binder.
HANDLERS = (arrays, expressions, functions, intervals, subquery_binder, window_calls)


def bind_view(source: Source, env: Environment, query: exp.Expr) -> Plan:
    """The plan of a view's statement, with usable output names. Raises ViewError."""
    plan = bind_query(source, env, query)
    names = [c.name for c in plan.schema.columns]
    for position, name in enumerate(names):
        kind = plan.schema.columns[position].type
        if kind.name in ("record", "record[]"):
            node = output_node(query, position)
            source.refuse(node, f'column "{name}" has pseudo-type {kind}', "leave it out, or cast it to text")
        if name == UNNAMED or name in names[:position]:
            node = output_node(query, position)
            if name == UNNAMED:
                source.refuse(node, f"column {position + 1} has no name", "give it one with AS")
            source.refuse(node, f'two columns are named "{name}"', "give one of them another name with AS")
    return plan


def bind_query(source: Source, env: Environment, query: exp.Expr) -> Plan:
    """The plan of a query; quoted literals without a type are text."""
    return _bind(source, env, query, settle=True)


def bind_asked(source: Source, env: Environment, query: exp.Expr) -> Plan:
    """As `bind_query`, of a query that is asked, not stored: a column of a SELECT may be a row."""
    if not isinstance(query, exp.Select):
        return bind_query(source, env, query)
    env = with_items(source, env, query.args.get("with_"), _bind)
    return Select(source, env, query, bind_query, shown=True).bind(settle=True)


def _bind(source: Source, env: Environment, query: exp.Expr, *, settle: bool) -> Plan:
    if isinstance(query, exp.Subquery):
        source.only(query, {"this", "with_", *CLAUSES})
        env = with_items(source, env, query.args.get("with_"), _bind)
        return _cut(source, env, query, _bind(source, env, query.this, settle=settle or bool(query.args.get("order"))))
    env = with_items(source, env, query.args.get("with_"), _bind)
    if isinstance(query, exp.SetOperation):
        source.only(query, {"this", "expression", "distinct", "with_", *CLAUSES})
        sides = [_bind(source, env, side, settle=False) for side in (query.this, query.expression)]
        return _cut(
            source, env, query, set_operation(source, query, sides, settle=settle or bool(query.args.get("order")))
        )
    if isinstance(query, exp.Values):
        return _cut(source, env, query, values(source, env, query, bind_query, settle=settle))
    if not isinstance(query, exp.Select):
        source.refuse(query, f"{type(query).__name__.upper()} is not supported")
    return Select(source, env, query, bind_query).bind(settle=settle)


def _cut(source: Source, env: Environment, query: exp.Expr, plan: Plan) -> Plan:
    """The rows that the limit of a query without a SELECT list of its own keeps."""
    queries = Subqueries(source, env, bind_query)
    limit = limit_of(source, query, queries, Scope((), (), outer=env.outer))
    return topped(source, query, plan, order_output(source, query, plan), limit, queries)
