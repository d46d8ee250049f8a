"""Arrays of rows of a named type, taken apart in FROM: unnest(array[row(1, 2)::pair]) gives the columns of pair.

Always: an element is held as its text, as Postgres spells it, and each field is read from that as its type; an element that is
NULL is a row of NULLs. Called by `set_returning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Call, Coalesce, Expr, Literal
from headrace.engine.schema import INTEGER, Column, DataType, Kind, array_of
from headrace.views.sql import coerce
from headrace.views.sql.arrays import MADE
from headrace.views.sql.binder import Binder
from headrace.views.sql.datatypes import computable
from headrace.views.sql.from_clause.column_definitions import Records
from headrace.views.sql.rows import row_values
from headrace.views.sql.rows.row_text import row_value

_LISTED = 'a column definition list is required for functions returning "record"'


@dataclass(frozen=True)
class RowElements(Records):
    """The columns of what an array of rows holds."""

    def fields(self, row: Expr) -> list[Expr]:
        """The columns of one element."""
        found: list[Expr] = []
        for place, column in enumerate(self.columns):
            text = coerce.called("$record field", [row, Literal(place, INTEGER)])
            known = computable(column.type)
            found.append(coerce.cast(text, column.type) if known else Coalesce((text,), column.type))
        return found


def rows_of(binder: Binder, node: exp.Expr) -> tuple[Expr, RowElements] | None:
    """The array and the columns of its elements, where the elements are rows of a named type; None for any other array.
    Raises ViewError."""
    if isinstance(node, exp.Array):
        return _written(binder, node)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Array):
        kind = node.args["to"]
        element = kind.expressions[0] if kind.this is exp.DType.ARRAY and kind.expressions else None
        cast = (
            [exp.Cast(this=n.copy(), to=element.copy()) for n in node.this.expressions] if element is not None else []
        )
        if cast and row_values.cells(binder, cast[0]) is not None:
            return _written(binder, exp.Array(expressions=cast))
        return None
    if isinstance(node, exp.Column):
        held = binder.bind(node)
        element_type = held.type.element
        fields = _composite(binder, element_type)
        return None if fields is None else (held, RowElements(fields))
    return None


def _composite(binder: Binder, kind: DataType | None) -> tuple[Column, ...] | None:
    if kind is None or kind.kind is not Kind.OTHER or kind.name is None or computable(kind):
        return None
    return binder.source.catalog.composite(None, kind.name)


def _written(binder: Binder, node: exp.Expr) -> tuple[Expr, RowElements] | None:
    """ARRAY[…] of rows."""
    parts: Sequence[exp.Expr] = node.expressions
    rows = [part for part in parts if row_values.cells(binder, part) is not None]
    if not rows:
        return None
    names = list(dict.fromkeys(row_values.type_of(binder, row) or "" for row in rows))
    if "record" in names or "" in names:
        binder.source.refuse(rows[0], _LISTED, "cast the rows to a type: ROW(…)::type")
    nulls = [part for part in parts if isinstance(part, exp.Null)]
    if len(rows) + len(nulls) < len(parts) or len(names) > 1:
        reason = "an array of rows and of other values, or of rows of several types, is not supported"
        binder.source.refuse(node, reason, "cast each of them to one type")
    kind = DataType(Kind.OTHER, name=names[0])
    fields = _composite(binder, kind)
    assert fields is not None, "type_of named it"
    values = [Literal(None, kind) if part in nulls else row_value(binder, part) for part in parts]
    return Call(MADE, tuple(value for value in values if value is not None), array_of(kind)), RowElements(fields)
