"""Queries bound: WITH, and what holds SELECTs together (UNION, INTERSECT, EXCEPT, VALUES, parentheses), to plans.

Always: a plan has the output names of the SELECT list, `?column?` where Postgres has none. Called by `compile` through
`bind_view`.
"""

from __future__ import annotations

from sqlglot import exp

from engine.operators.expressions.ir import ColumnRef
from views.plan import Plan, Project
from views.rewrite import fenced
from views.sql import arrays, expressions, functions, intervals, subqueries, windows
from views.sql.environment import Environment
from views.sql.ordering import CLAUSES, limit_of, order_output, topped
from views.sql.parse import Source, name_of
from views.sql.scope import Scope
from views.sql.select import UNNAMED, Select
from views.sql.setops import output_node, set_operation
from views.sql.subqueries import Subqueries
from views.sql.values import values

# Importing these registers their handlers with the binder.
HANDLERS = (arrays, expressions, functions, intervals, subqueries, windows)


def bind_view(source: Source, env: Environment, query: exp.Expr) -> Plan:
    """The plan of a view's statement, with usable output names. Raises ViewError."""
    plan = bind_query(source, env, query)
    names = [c.name for c in plan.schema.columns]
    for position, name in enumerate(names):
        if name == UNNAMED or name in names[:position]:
            node = output_node(query, position)
            if name == UNNAMED:
                source.refuse(node, f"column {position + 1} has no name", "give it one with AS")
            source.refuse(node, f'two columns are named "{name}"', "give one of them another name with AS")
    return plan


def bind_query(source: Source, env: Environment, query: exp.Expr) -> Plan:
    """The plan of a query; quoted literals without a type are text."""
    return _bind(source, env, query, settle=True)


def _bind(source: Source, env: Environment, query: exp.Expr, *, settle: bool) -> Plan:
    if isinstance(query, exp.Subquery):
        source.only(query, {"this", "with_", *CLAUSES})
        env = _with_ctes(source, env, query.args.get("with_"))
        return _cut(source, env, query, _bind(source, env, query.this, settle=settle or bool(query.args.get("order"))))
    env = _with_ctes(source, env, query.args.get("with_"))
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


def _with_ctes(source: Source, env: Environment, clause: exp.Expr | None) -> Environment:
    if clause is None:
        return env
    if clause.args.get("recursive"):
        source.refuse_words(clause, r"\brecursive\b", "WITH RECURSIVE is not supported yet")
    source.only(clause, {"expressions"})
    seen: set[str] = set()
    for cte in clause.expressions:
        source.only(cte, {"this", "alias", "materialized"})
        alias = cte.args["alias"]
        name = name_of(alias.this)
        if name in seen:
            source.refuse(alias, f'WITH name "{name}" is used twice', "rename one of them")
        seen.add(name)
        if not isinstance(cte.this, exp.Query):
            source.refuse(cte, "a CTE that changes data is not a view")
        plan = bind_query(source, env, cte.this)
        if cte.args.get("materialized") or _reads(clause, name) > 1:
            plan = fenced(plan)
        given = [name_of(c) for c in alias.args.get("columns") or ()]
        env = env.with_cte(name, _renamed(source, alias, plan, given) if given else plan)
    return env


def _reads(clause: exp.Expr, name: str) -> int:
    """How often the query that a WITH belongs to names a table so."""
    around = clause.parent or clause
    return sum(name_of(t.this) == name for t in around.find_all(exp.Table) if isinstance(t.this, exp.Identifier))


def _renamed(source: Source, node: exp.Expr, plan: Plan, given: list[str]) -> Plan:
    cols = plan.schema.columns
    if len(given) > len(cols):
        source.refuse(node, f"{len(given)} names are given for {len(cols)} columns")
    names = (*given, *(c.name for c in cols[len(given) :]))
    return Project(plan, tuple(ColumnRef(i, c.type) for i, c in enumerate(cols)), names)
