"""Whole rows, and rows written out, as JSON: row_to_json(t), to_jsonb(t), json_agg(t).

Always: a table's row is an object of its columns' names, one of a composite type of its fields', one written out of f1, f2 …;
a row that an outer join lacks is NULL.
Called by the handlers of functions and aggregates.
"""

from __future__ import annotations

import json

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Case, Cast, Expr, Literal
from headrace.engine.schema import TEXT, DataType, Kind
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.rows.composites import is_missing
from headrace.views.sql.rows.row_values import cells, names, table_of, whole

JSON, JSONB = DataType(Kind.JSON), DataType(Kind.JSONB)


def document(binder: Binder, node: exp.Expr, kind: DataType) -> Expr | None:
    """A row as JSON, or jsonb; None for anything else. Raises ViewError."""
    columns = cells(binder, node)
    if columns is None:
        return None
    if is_missing(binder, node):
        return Literal(None, kind)
    fields = names(binder, node, columns)
    values = [document(binder, c, kind) or binder.settled(c) for c in columns]
    if kind == JSONB:
        pairs = [e for name, value in zip(fields, values, strict=True) for e in (Literal(name, TEXT), value)]
        found: Expr = coerce.called("jsonb_build_object", pairs)
    else:
        found = _spelled(fields, values)
    return found if whole(binder, node) is None else unless_missing(binder, node, found)


def _spelled(names: list[str], values: list[Expr]) -> Expr:
    """An object without spaces, as Postgres spells a row's."""
    parts: list[Expr] = []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        parts.append(Literal(("," if place else "{") + json.dumps(name, ensure_ascii=False) + ":", TEXT))
        text = coerce.cast(coerce.called("to_json", [value]), TEXT)
        parts.append(
            coerce.called("concat", [Case(((coerce.called("is null", [value]), Literal("null", TEXT)),), text, TEXT)])
        )
    return Cast(coerce.called("concat", [*parts, Literal("}", TEXT)]), JSON)


def unless_missing(binder: Binder, node: exp.Expr, found: Expr) -> Expr:
    """What a row is as, or NULL where an outer join has no such row. Raises ViewError."""
    relation = binder.scope.relation(table_of(node))
    if relation is None or not relation.missing:
        return found
    if relation.sure is None:
        binder.source.refuse(node, "a whole row that may be missing is not supported here", "write its columns")
    there = binder.reference(relation.offset + relation.sure, node)
    return Case(((coerce.called("is null", [there]), Literal(None, found.type)),), found, found.type)
