"""Lists of columns with types: what a function in FROM that gives records (json_to_record and its kin) gives them as.

Always: the list that stands after the function names the columns, or the table whose type its first argument is. Called
by `sets`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from engine.operators.expressions.ir import Call, Expr, Literal
from engine.operators.expressions.json_records import RECORDS
from engine.schema import TEXT, Column, Kind
from views.catalog import Catalog
from views.sql.binder import Binder
from views.sql.datatypes import type_named
from views.sql.named import positional
from views.sql.parse import name_of


def listed(binder: Binder, nodes: Sequence[exp.Expr]) -> tuple[Column, ...]:
    """The columns of a list that gives each a type; none for one of names alone. Raises ViewError."""
    found: list[Column] = []
    for node in nodes:
        if isinstance(node, exp.ColumnDef):
            binder.source.only(node, {"this", "kind"})
            found.append(Column(name_of(node.this), type_named(binder, node.args["kind"])))
    return tuple(found)


def record_of(
    binder: Binder, catalog: Catalog, node: exp.Expr, columns: tuple[Column, ...]
) -> tuple[list[exp.Expr], tuple[Column, ...]]:
    """(the arguments to bind, the columns of its records) of a function in FROM; no columns for one that gives none."""
    name = str(node.this).lower()
    args = positional(binder, node)
    if name not in RECORDS:
        if columns:
            reason = 'a column definition list is only allowed for functions returning "record"'
            binder.source.refuse(node, reason, "leave the types out")
        return args, ()
    if "populate" in name:
        columns = _like(binder, catalog, node, columns)
        args = args[1:]
    elif not columns:
        reason = 'a column definition list is required for functions returning "record"'
        binder.source.refuse(node, reason, f"write FROM {name}(…) AS t(a integer, b text)")
    return args, columns


def _like(binder: Binder, catalog: Catalog, node: exp.Expr, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of a function whose first argument says what its records are."""
    base = node.expressions[0] if node.expressions else None
    if not isinstance(base, exp.Cast) or not isinstance(base.this, exp.Null):
        hint = "write NULL::table, or NULL::record and a list of columns"
        binder.source.refuse(node, f"{str(node.this).lower()} of another row than NULL is not supported", hint)
    kind = base.args["to"].args.get("kind")
    names = [name_of(part) for part in (kind.this, kind.expression)] if isinstance(kind, exp.Dot) else []
    names = names or ([name_of(kind)] if isinstance(kind, exp.Identifier) else [])
    if names == ["record"]:
        if not columns:
            binder.source.refuse(node, "could not determine row type for result of " + str(node.this).lower())
        return columns
    found = catalog.find(None if len(names) == 1 else names[0], names[-1]) if names else None
    if found is None:
        binder.source.refuse(base, f'type "{base.args["to"].sql(dialect="postgres").lower()}" is no table here')
    if columns:
        reason = "a column definition list is redundant for a function returning a named composite type"
        binder.source.refuse(node, reason)
    return tuple(Column(c.name, c.type) for c in found[1].columns)


def field(row: Expr, column: Column) -> Expr:
    """A column of a record: a member of the object that stands for it."""
    kind = "jsonb" if row.type.kind is Kind.JSONB else "json"
    return Call(f"$json field({kind},text)", (row, Literal(column.name, TEXT)), column.type)
