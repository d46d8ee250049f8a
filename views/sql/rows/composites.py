"""Values of composite types: rows with a type's own names and types, `ROW(…)::t`, `NULL::t`, `'(1,a)'::t`.

Always: such a value is its fields, side by side, each cast to what the type says; that it is no value at all is told apart.
The types are the database's own and those of tables' rows. Called by `row_values` and `column_definitions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.engine.schema import Column
from headrace.views.sql.binder import Binder
from headrace.views.sql.parsing.nodes import FieldType
from headrace.views.sql.parsing.parse import name_of, start_of


def named(node: exp.Expr) -> tuple[str | None, str] | None:
    """(schema, name) of a type that is named as a database's own; None for one of Postgres's, and for arrays."""
    kind = node.args.get("kind")
    if isinstance(kind, exp.Dot):
        return name_of(kind.this), name_of(kind.expression)
    return (None, name_of(kind)) if isinstance(kind, exp.Identifier) else None


def fields_of(binder: Binder, node: exp.Expr) -> tuple[Column, ...] | None:
    """The fields of the composite type of a cast; None for any other type."""
    known = node.known.name if isinstance(node, FieldType) else ""
    name = (None, known) if known else named(node)
    return None if name is None else binder.source.catalog.composite(*name)


def typed(binder: Binder, node: exp.Expr) -> tuple[Column, ...] | None:
    """The fields of the type that a value is cast to; None where it is no composite one."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    return fields_of(binder, node.args["to"]) if isinstance(node, exp.Cast) else None


def is_missing(binder: Binder, node: exp.Expr) -> bool:
    """Whether the node is NULL of a composite type."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if typed(binder, node) is None:
        return False
    return isinstance(node.this.unnest(), exp.Null) or is_missing(binder, node.this)


def spelled(binder: Binder, node: exp.Expr, fields: Sequence[Column]) -> list[exp.Expr] | None:
    """The fields of NULL, or of a text, that is cast to a composite type; None for anything else."""
    inner = node.this.unnest()
    if isinstance(inner, exp.Null):
        return cast(node, [exp.Null() for _ in fields], fields)
    if not isinstance(inner, exp.Literal | exp.RawString) or (
        isinstance(inner, exp.Literal) and not inner.args.get("is_string")
    ):
        return None
    parts = read(inner.name)
    if parts is None or len(parts) != len(fields):
        binder.source.refuse(
            node, f'malformed record literal: "{inner.name}"', "write (value,…), a value for each field"
        )
    for part, field in zip(parts, fields, strict=True):
        if part is not None and (field.type.length is not None or field.type.size is not None):
            hint = "write ROW(…) with values of its fields"
            binder.source.refuse(node, f"a row as text with a field of type {field.type} is not supported", hint)
    return cast(node, [exp.Null() if p is None else exp.Literal.string(p) for p in parts], fields)


def cast(node: exp.Expr, parts: Sequence[exp.Expr], fields: Sequence[Column]) -> list[exp.Expr]:
    """Values, each as its field of the type that stands in the cast `node`."""
    made: list[exp.Expr] = []
    begin = start_of(node)
    for part, field in zip(parts, fields, strict=True):
        spelled = exp.DataType.build(str(field.type), dialect="postgres", udt=True)
        to = FieldType(**spelled.args, known=field.type, digits=field.digits)
        if begin is not None:
            to.meta["start"] = begin
        made.append(exp.Cast(this=part.copy(), to=to))
    return made


def read(text: str) -> list[str | None] | None:
    """The fields that a row's text spells, None for NULL; None for a text that spells no row.

    >>> read(' (1,"a, b",,"")')
    ['1', 'a, b', None, '']
    """
    body = text.strip(" \t\n\v\f\r")
    if body[:1] != "(":
        return None
    found: list[str | None] = []
    at = 1
    while True:
        part, at = _field(body, at)
        found.append(part)
        if body[at : at + 1] != ",":
            break
        at += 1
    return found if body[at:] == ")" else None


def _field(text: str, at: int) -> tuple[str | None, int]:
    """(the field that begins at a place, the place after it)."""
    begin, quoted, made = at, False, ""
    while at < len(text) and (quoted or text[at] not in ",)"):
        sign = text[at]
        if sign == "\\" and at + 1 < len(text):
            at += 1
            made += text[at]
        elif sign == '"' and quoted and text[at + 1 : at + 2] == '"':
            at += 1
            made += sign
        elif sign == '"':
            quoted = not quoted
        else:
            made += sign
        at += 1
    return (None if at == begin else made), at
