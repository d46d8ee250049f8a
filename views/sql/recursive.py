"""WITH bound: its items in an order in which each comes after those it reads, the recursive ones as recursions.

A recursive query is its non-recursive term UNION [ALL] a term that reads it, once. Its columns have the types that the first
term gives them, and the second must not change them. A column may be NULL where either term may make it so, which is found
by binding the second until nothing changes. Called by `queries`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.engine.schema import NUMERIC, TEXT, Column, Kind, Schema
from headrace.views.plan import Plan, Project, Reference, identity
from headrace.views.plan_node import Variable
from headrace.views.recursion import nesting, recursion
from headrace.views.rewrite import fenced
from headrace.views.sql.coerce import UNKNOWN, cast
from headrace.views.sql.cycles import added_by, check_recursive, with_records, written_out
from headrace.views.sql.environment import Environment
from headrace.views.sql.parsing.parse import Source, name_of
from headrace.views.sql.select import UNNAMED
from headrace.views.sql.self_references import check_form, items_of, names_in
from headrace.views.sql.set_operations import aligned, comparable, counted, output_node

Bind = Callable[..., Plan]
"""Binds a query: source, environment, query, and whether quoted literals without a type are text."""

MOST_NESTED = 2
"""So many recursions may stand one in another, each of which reads the one around it: times have rounds for no more."""


def with_items(source: Source, env: Environment, clause: exp.Expr | None, bind: Bind) -> Environment:
    """The environment in which the names of a WITH have their meanings. Raises ViewError."""
    if clause is None:
        return env
    source.only(clause, {"expressions", "recursive"})
    items = _checked(source, clause)
    recursive = bool(clause.args.get("recursive"))
    reads = {name: _read_by(cte, items) for name, cte in items.items()} if recursive else {}
    bodies = {name: check_form(source, name, items[name]) for name in items if name in reads.get(name, ())}
    for name, cte in items.items():
        check_recursive(source, cte, recursive=name in bodies)
    for name in _ordered(source, items, reads) if recursive else items:
        cte = items[name]
        given = [name_of(c) for c in cte.args["alias"].args.get("columns") or ()]
        if name in bodies:
            env = env.with_cte(name, fenced(_recursive(source, env, name, bodies[name], cte, bind)))
            continue
        plan = bind(source, env, cte.this, settle=True)
        if cte.args.get("materialized") or _reads(clause, name) > 1:
            plan = fenced(plan)
        env = env.with_cte(name, _renamed(source, cte.args["alias"], plan, given) if given else plan)
    return env


def _checked(source: Source, clause: exp.Expr) -> dict[str, exp.Expr]:
    """The items by name. Raises ViewError for a name that is given twice, and for what is no query."""
    for at, cte in enumerate(clause.expressions):
        source.only(cte, {"this", "alias", "materialized", "search", "cycle"})
        alias = cte.args["alias"]
        name = name_of(alias.this)
        if any(name_of(c.args["alias"].this) == name for c in clause.expressions[:at]):
            source.refuse(alias, f'WITH name "{name}" is used twice', "rename one of them")
        if not isinstance(cte.this, exp.Query | exp.Values):
            source.refuse(cte, "a CTE that changes data is not a view")
    return items_of(clause)


def _read_by(cte: exp.Expr, items: dict[str, exp.Expr]) -> tuple[str, ...]:
    """The items that an item names."""
    return tuple(dict.fromkeys(n for n in (name_of(found.node.this) for found in names_in(cte.this)) if n in items))


def _ordered(source: Source, items: dict[str, exp.Expr], reads: dict[str, tuple[str, ...]]) -> list[str]:
    """The items, each after those it reads. Raises ViewError where two read each other."""
    order: list[str] = []
    left = list(items)
    while left:
        ready = next((n for n in left if all(r in order or r == n for r in reads[n])), None)
        if ready is None:
            reason = "mutual recursion between WITH items is not implemented"
            source.refuse(items[left[0]].args["alias"], reason, "make one query of them, with a column that says which")
        order.append(ready)
        left.remove(ready)
    return order


def _recursive(source: Source, env: Environment, name: str, body: exp.Expr, cte: exp.Expr, bind: Bind) -> Plan:
    """The plan of a query that reads itself."""
    around = with_items(source, env, body.args.get("with_"), bind)
    terms = [body.this, body.expression]
    start = bind(source, around, terms[0], settle=False)
    alias = cte.args["alias"]
    given = [name_of(c) for c in alias.args.get("columns") or ()]
    if given:
        start = _renamed(source, alias, start, given)
    added = added_by(source, cte, start.schema.columns)
    if added:
        names = [*start.schema.names, *(one.name for one in added)]
        terms = written_out(source, name, cte, terms, list(start.schema.names), added)
        start = _renamed(source, alias, bind(source, around, terms[0], settle=False), names)
    variable = Variable(name, 1 + max((v.level for plan, _ in around.ctes.values() for v in plan.free), default=-1))
    columns = [replace(c, type=TEXT) if c.type == UNKNOWN else c for c in start.schema.columns]
    while True:
        reference = Reference(variable, Schema(tuple(columns)))
        step = bind(source, around.with_cte(name, reference), terms[1], settle=False)
        sides = aligned(source, "UNION", terms, [start, step], settle=True)
        wider = [_wider(source, name, body, c, at, sides) for at, c in enumerate(columns)]
        if wider == columns:
            break
        columns = wider
    sides = [_brought(side, columns) for side in sides]
    every = not body.args.get("distinct")
    if not every:
        for position, column in enumerate(columns):
            comparable(source, output_node(body, position), column, "UNION")
    limits = source.spec
    made = recursion(
        name,
        reference,
        *sides,
        every=every,
        rounds=limits.rounds,
        rows=limits.rows,
        less=partial(counted, word="EXCEPT", every=False),
    )
    if nesting(made) > MOST_NESTED:
        reason = f"recursions that read the one around them are nested {nesting(made)} deep"
        source.refuse(alias, reason, f"{MOST_NESTED} is the most: join two of them into one")
    return with_records(made, added) if added else made


def _wider(source: Source, name: str, body: exp.Expr, column: Column, at: int, sides: list[Plan]) -> Column:
    """A column of the recursion. It may be NULL, and its numerics may have any scale, where that holds in either term. Raises
    ViewError where the second term's type is not the first term's.
    """
    found = [side.schema.columns[at] for side in sides]
    overall = next((c.type for c in found if c.type != column.type), column.type)
    if overall.kind is Kind.NUMERIC and column.type.kind is Kind.NUMERIC and column.type.precision is None:
        # How many digits are shown behind the point is no part of an unconstrained numeric's type.
        overall = column.type if overall == column.type else NUMERIC
    elif overall != column.type:
        shown = column.name if column.name != UNNAMED else f"column {at + 1}"
        reason = f'recursive query "{name}" column {at + 1} has type {column.type} in non-recursive term'
        hint = f"cast the output of the non-recursive term to the correct type: {shown}::{overall}"
        source.refuse(output_node(body.this, at), f"{reason} but type {overall} overall", hint)
    return replace(column, type=overall, nullable=column.nullable or any(c.nullable for c in found))


def _brought(side: Plan, columns: list[Column]) -> Plan:
    """A term's rows in the types of the columns."""
    own, names = identity(side.schema)
    exprs = tuple(e if e.type == c.type else cast(e, c.type) for e, c in zip(own, columns, strict=True))
    return side if exprs == own else Project(side, exprs, names)


def _reads(clause: exp.Expr, name: str) -> int:
    """How often the query that a WITH belongs to names a table so."""
    around = clause.parent or clause
    return sum(name_of(t.this) == name for t in around.find_all(exp.Table) if isinstance(t.this, exp.Identifier))


def _renamed(source: Source, node: exp.Expr, plan: Plan, given: list[str]) -> Plan:
    cols = plan.schema.columns
    if len(given) > len(cols):
        name = name_of(node.this)
        reason = f'WITH query "{name}" has {len(cols)} columns available but {len(given)} columns specified'
        source.refuse(node, reason, "leave some names out")
    names = (*given, *(c.name for c in cols[len(given) :]))
    if isinstance(plan, Project):
        return replace(plan, names=names)
    return Project(plan, tuple(ColumnRef(i, c.type) for i, c in enumerate(cols)), names)


__all__ = ["with_items"]
