"""Lists of columns with types: what a function in FROM that gives records (json_to_record and similar ones) gives them as.

Always: the list that stands after the function names the columns, or the type of its first argument, a table's or another
composite one, whose fields stand where an object says nothing. Called by `set_returning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Call, Case, ColumnRef, Expr, Literal
from headrace.engine.operators.expressions.json.json_records import RECORDS
from headrace.engine.schema import BOOLEAN, MOST_DIGITS, TEXT, Column, Kind
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.datatypes import column_named, computable, rounded
from headrace.views.sql.named_arguments import positional
from headrace.views.sql.parsing.parse import name_of, spelled_as
from headrace.views.sql.rows import row_values
from headrace.views.sql.rows.composites import named, typed


def listed(binder: Binder, nodes: Sequence[exp.Expr]) -> tuple[Column, ...]:
    """The columns of a list that gives each a type; none for one of names alone. Raises ViewError."""
    found: list[Column] = []
    for node in nodes:
        if isinstance(node, exp.ColumnDef):
            binder.source.only(node, {"this", "kind"})
            found.append(column_named(binder, name_of(node.this), node.args["kind"]))
    return tuple(found)


@dataclass(frozen=True)
class Records:
    """The records that a function gives: their columns, and what stands in each where an object has no such member."""

    columns: tuple[Column, ...] = ()
    base: tuple[Expr, ...] = ()

    def fields(self, row: Expr) -> list[Expr]:
        """The columns of a record: members of the object that stands for it."""
        kind = "jsonb" if row.type.kind is Kind.JSONB else "json"
        found: list[Expr] = []
        for place, column in enumerate(self.columns):
            args = (row, Literal(column.name, TEXT))
            value: Expr = Call(f"$json field({kind},text)", args, column.type)
            value = rounded(value, column.digits if column.digits < MOST_DIGITS else None)
            if self.base:
                given = Call(f"$json has({kind},text)", args, BOOLEAN)
                none = (coerce.called("is null", [row]), Literal(None, column.type))
                value = Case((none, (given, value)), self.base[place], column.type)
            found.append(value)
        return found


NONE = Records()


def record_of(binder: Binder, node: exp.Expr, columns: tuple[Column, ...]) -> tuple[list[exp.Expr], Records]:
    """The arguments to bind and the column definitions of a function in FROM; no columns for a function without definitions."""
    name = str(node.this).lower()
    args = positional(binder, node)
    if name not in RECORDS:
        if columns:
            reason = 'a column definition list is only allowed for functions returning "record"'
            binder.source.refuse(node, reason, "leave the types out")
        return args, NONE
    if "populate" in name:
        return args[1:], _like(binder, node, args, columns)
    if not columns:
        reason = 'a column definition list is required for functions returning "record"'
        binder.source.refuse(node, reason, f"write FROM {name}(…) AS t(a integer, b text)")
    return args, Records(columns)


def _like(binder: Binder, node: exp.Expr, args: Sequence[exp.Expr], columns: tuple[Column, ...]) -> Records:
    """The records of a function whose first argument says what they are, and what they have where an object says nothing."""
    name = str(node.this).lower()
    if not args:
        binder.source.refuse(node, f"function {name}() does not exist")
    base = args[0].unnest()
    null = isinstance(base, exp.Cast) and isinstance(base.this.unnest(), exp.Null)
    if null and named(base.args["to"]) == (None, "record"):
        if not columns:
            binder.source.refuse(node, f"could not determine row type for result of {name}")
        return Records(columns)
    fields = _fields(binder, base)
    if fields is None:
        if null:
            reason = f'type "{spelled_as(base.args["to"]).lower()}" is no table or composite type here'
            binder.source.refuse(base, reason)
        hint = "write NULL::table, ROW(…)::type, or NULL::record and a list of columns"
        binder.source.refuse(node, f"{name} of a row of no type of its own is not supported", hint)
    if columns:
        reason = "a column definition list is redundant for a function returning a named composite type"
        binder.source.refuse(node, reason)
    for field in fields:
        if not computable(field.type):
            reason = f"{name} with a field of type {field.type} ({field.name}) is not supported"
            binder.source.refuse(node, reason, "name the columns in a list: json_to_record(…) AS t(a integer, b text)")
    values = [] if null else [binder.bind(part) for part in row_values.cells(binder, base) or ()]
    return Records(tuple(Column(f.name, f.type, digits=f.digits) for f in fields), tuple(values))


def _fields(binder: Binder, base: exp.Expr) -> tuple[Column, ...] | None:
    """The fields of a value of a composite type, or of a table's row; None for anything else."""
    columns = row_values.whole(binder, base)
    if columns is None:
        return typed(binder, base)
    values = [binder.bind(c) for c in columns]
    digits = [binder.scope.column(v.index).digits if isinstance(v, ColumnRef) else MOST_DIGITS for v in values]
    names = row_values.names(binder, base, columns)
    return tuple(Column(n, v.type, digits=d) for n, v, d in zip(names, values, digits, strict=True))
