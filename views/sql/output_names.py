"""The name of an output column that has no alias, as Postgres makes it.

Always: None stands for Postgres's `?column?`. Called by the binder for each item of a SELECT list.
"""

from __future__ import annotations

import re

from sqlglot import exp

from headrace.views.sql.parsing.constants import SINGLE_BITS
from headrace.views.sql.parsing.nodes import UnaryPlus
from headrace.views.sql.parsing.parse import name_of, spelled_as

_TYPES = {
    "integer": "int4", "int": "int4", "smallint": "int2", "bigint": "int8", "boolean": "bool", "real": "float4",
    "double precision": "float8", "character varying": "varchar", "character": "bpchar",
    "timestamp with time zone": "timestamptz", "timestamp without time zone": "timestamp",
    "time without time zone": "time", "decimal": "numeric", "char": "bpchar",
}  # fmt: skip
_FIXED: dict[type[exp.Expr], str] = {
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.StrPosition: "position",
    exp.Overlay: "overlay",
    exp.AtTimeZone: "timezone",
    exp.Tuple: "row",
}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}


def output_name(node: exp.Expr) -> str | None:
    """The name Postgres gives the column of an unaliased expression.

    >>> import sqlglot
    >>> output_name(sqlglot.parse_one("a.b", dialect="postgres"))
    'b'
    """
    return _named(node)[1]


def _named(node: exp.Expr) -> tuple[int, str | None]:
    """Strength (2 a column or function, 1 a type, 0 nothing) and name."""
    if isinstance(node, UnaryPlus):
        return 0, None
    if isinstance(node, exp.Subquery | exp.SetOperation):
        return _named(node.this)
    if isinstance(node, exp.Select):
        first = node.expressions[0] if node.expressions else None
        if isinstance(first, exp.Alias):
            return 2, name_of(first.args["alias"])
        return (0, None) if first is None else (2, _named(first)[1])
    if isinstance(node, exp.Values):
        return 2, "column1"
    if isinstance(node, exp.Exists):
        return 2, "exists"
    if isinstance(node, exp.Paren | exp.Filter | exp.Window | exp.WithinGroup):
        return _named(node.this)
    if isinstance(node, exp.Column):
        return 2, name_of(node.args["table"] if isinstance(node.this, exp.Star) else node.this)
    if isinstance(node, exp.Anonymous):
        return 2, str(node.this).lower()
    if isinstance(node, exp.Dot):
        field = node.expression
        return (2, name_of(field)) if isinstance(field, exp.Identifier) else _named(field)
    if isinstance(node, exp.Trim):
        return 2, _TRIMS.get(str(node.args.get("position") or "").upper(), "btrim")
    if type(node) in _FIXED:
        return 2, _FIXED[type(node)]
    if isinstance(node, exp.Array):
        return 2, "array"
    if isinstance(node, exp.Bracket):
        return _named(node.this)
    if isinstance(node, exp.Interval):
        return 1, "interval"
    if isinstance(node, exp.Cast):
        strength, name = _named(node.this)
        return (strength, name) if strength > 1 else (1, _type_name(node))
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        strength, name = _named(default) if default is not None else (0, None)
        return (strength, name) if strength > 1 else (1, "case")
    return 0, None


def _type_name(node: exp.Cast) -> str:
    if node.to.this is exp.DType.DOUBLE and node.to.expressions:
        return "float4" if int(node.to.expressions[0].name) <= SINGLE_BITS else "float8"
    spelled = re.split(r"[(\[]", spelled_as(node.to).lower().removesuffix(" array"))[0].strip()
    # An interval's fields are no part of its type's name.
    return "interval" if spelled.startswith("interval ") else _TYPES.get(spelled, spelled)
