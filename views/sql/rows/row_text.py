"""Whole rows, and rows written out, as text: `t::text`, `ROW(a, b)::text`.

Always: the text is what Postgres shows a row as: `(1,"a b",)`, each field as its type's output function spells it, nothing for
NULL, in quotes where it is empty or has what the spelling itself uses. Called by the handler of casts.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Case, Coalesce, Expr, Literal
from headrace.engine.schema import TEXT, DataType, Kind
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.rows.composites import is_missing
from headrace.views.sql.rows.row_json import unless_missing
from headrace.views.sql.rows.row_values import cells, type_of, whole

_QUOTED = ' \t\n\v\f\r(),"\\'
"""What a field has no quotes without."""


def row_text(binder: Binder, node: exp.Expr) -> Expr | None:
    """A row as text; None for anything else. Raises ViewError."""
    columns = cells(binder, node)
    if columns is None:
        return None
    if is_missing(binder, node):
        return Literal(None, TEXT)
    parts: list[Expr] = []
    for place, column in enumerate(columns):
        parts += [_text(",")] if place else []
        inner = row_text(binder, column)
        parts.append(_field(binder.settled(column) if inner is None else inner))
    found: Expr = coerce.called("concat", [_text("("), *parts, _text(")")])
    return found if whole(binder, node) is None else unless_missing(binder, node, found)


def row_value(binder: Binder, node: exp.Expr) -> Expr | None:
    """A row as a value of its type, which is held as its text; None for anything else, and where its type has no name here."""
    kind = type_of(binder, node)
    if kind is None:
        return None

    def made() -> Expr:
        text = row_text(binder, node)
        assert text is not None  # what has a type is a row
        return Coalesce((text,), DataType(Kind.OTHER, name=kind))

    return binder.typed(node, made)


def _field(value: Expr) -> Expr:
    """A field between its commas."""
    plain: Expr = coerce.called("concat", [value])
    doubled = plain
    for sign in ("\\", '"'):
        doubled = coerce.called("replace", [doubled, _text(sign), _text(sign * 2)])
    quoted: Expr = coerce.called("concat", [_text('"'), doubled, _text('"')])
    bare = coerce.called("translate", [plain, _text(_QUOTED), _text("")])
    empty, needed = coerce.called("=", [plain, _text("")]), coerce.called("<>", [plain, bare])
    missing = coerce.called("is null", [value])
    return Case(((missing, _text("")), (empty, quoted), (needed, quoted)), plain, TEXT)


def _text(text: str) -> Literal:
    return Literal(text, TEXT)
