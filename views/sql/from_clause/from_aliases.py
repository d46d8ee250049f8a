"""What names mean in FROM: that of a table, a view or a CTE, and those that an alias gives to an item and its columns.

Always: a name without a schema is a CTE's before it is a view's or a table's, and one of both is refused. Called by `tables`.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headrace.engine.schema import Column
from headrace.views.catalog import DEFAULT_SCHEMA
from headrace.views.plan import Import, Plan, Scan
from headrace.views.sql.environment import Environment
from headrace.views.sql.from_clause.set_returning import FromCall
from headrace.views.sql.parsing.parse import Source, name_of, start_of
from headrace.views.sql.scope import Relation, Scope
from headrace.views.yaml_models import nearest


def named(source: Source, env: Environment, node: exp.Expr) -> tuple[Plan, tuple[Column, ...], str]:
    """The plan that a table's name means. Raises ViewError."""
    name = name_of(node.this)
    schema = None if node.args.get("db") is None else name_of(node.args["db"])
    at = start_of(node) or 0
    if schema is None and name in env.ctes:
        plan = env.cte(name)
        return plan, plan.schema.columns, name
    table = env.catalog.find(schema, name)
    # Views are in the schema `public`, where a table of the same name goes before them.
    unhidden = schema is None or (schema == DEFAULT_SCHEMA and table is None)
    view = env.views.get(name) if unhidden else None
    if view is not None and table is not None:
        hint = f"write {table[0]} for the table, or rename the view"
        source.refuse(node, f'"{name}" is both a table and a view', hint)
    if view is not None and view.failing is not None:
        return view.failing, view.schema.columns, name
    if view is not None:
        return Import(name, view.fingerprint, view.schema, at=at), view.schema.columns, name
    if table is not None:
        return Scan(table[0], table[1], at=at), table[1].columns, name
    spelled = name if schema is None else f"{schema}.{name}"
    if unhidden and name == env.self_name:
        source.refuse(node, f"view {name} reads itself", "write WITH RECURSIVE in the view")
    names = env.spellings() if schema is None else tuple(env.catalog.tables)
    hint = nearest(spelled, names)
    if schema is None and any(name_of(c.args["alias"].this) == name for c in node.root().find_all(exp.CTE)):
        # Postgres's own hint, where an item of WITH is not in sight.
        hint = "use WITH RECURSIVE, or re-order the WITH items to remove forward references"
    raise source.error(f'there is no table or view "{spelled}"', hint, offset=at)


def aliased(
    source: Source, node: exp.Expr, name: str, columns: tuple[Column, ...], plan: Plan, row: str = "record"
) -> Scope:
    """The scope of one item under its alias, its columns renamed if the alias lists names; `row`: its rows' type."""
    alias = node.args.get("alias")
    if alias is not None:
        source.only(alias, {"this", "columns"})
        name = name_of(alias.this) if alias.this is not None else name
        given = [name_of(c.this if isinstance(c, exp.ColumnDef) else c) for c in alias.args.get("columns") or ()]
        if len(given) > len(columns):
            reason = f'"{name}" has {len(columns)} columns, but {len(given)} names are given'
            source.refuse(alias, reason)
        columns = tuple(replace(c, name=n) for c, n in zip(columns, given, strict=False)) + columns[len(given) :]
    if not isinstance(plan, Scan | Import):
        return Scope.of(name, columns, row=row)
    key = plan.schema.key if isinstance(plan, Scan) else None
    full = plan.table if isinstance(plan, Scan) else f"public.{plan.view}"
    return Scope.of(name, columns, key or (), plan.schema.names, row, "" if alias is not None else full)


def of_function(source: Source, node: exp.Expr, call: FromCall, columns: tuple[Column, ...], *, placed: bool) -> Scope:
    """The names of what a function in FROM gives: where its rows are numbered unasked, the number has none."""
    hidden = columns[len(columns) - 1 :] if placed and not call.ordinal else ()
    columns = columns[: len(columns) - len(hidden)]
    if len(call.given) > len(columns):
        reason = f'"{call.alias}" has {len(columns)} columns, but {len(call.given)} names are given'
        source.refuse(node, reason)
    columns = tuple(replace(c, name=n) for c, n in zip(columns, call.column_names(), strict=True))
    value = len(columns) == 1 and not call.gives_records
    place = len(columns) - 1 if call.ordinal else None
    rows = [Relation(call.alias, columns, value=value, place=place)]
    rows += [Relation("", hidden, len(columns), place=0)] if hidden else []
    return Scope(tuple(rows), tuple((c.name, i) for i, c in enumerate(columns)))


def check_aliases(source: Source, node: exp.Expr, left: Scope, right: Scope) -> None:
    """Refuses a name used twice in one FROM clause."""
    for relation in right.relations if left.relations else ():
        same = left.relations_named(relation.alias) if relation.alias else []
        if any(not (r.table and relation.table) or r.table == relation.table for r in same):
            source.refuse(node, f'table name "{relation.alias}" is used twice', "give each its own alias")
