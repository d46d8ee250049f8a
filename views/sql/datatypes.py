"""The types that SQL names, in casts and in lists of columns.

Always: a type that the engine cannot compute with is refused at its name. Called by `functions` and `records`.
"""

from __future__ import annotations

from sqlglot import exp

from engine.operators.expressions.families import family_of
from engine.operators.expressions.intervals import INTERVAL
from engine.schema import TIMETZ, DataType, Kind
from views.sql.binder import Binder
from views.sql.foreign import DECLARED

_ELEMENTS = frozenset(
    {
        "bool", "bytea", "date", "float4", "float8", "int2", "int4", "int8", "json", "jsonb", "numeric", "text", "time",
        "timestamp", "timestamptz", "uuid", "varchar",
    }
)  # fmt: skip
"""Types whose arrays have names of their own too: `_int4` is `integer[]`."""
TYPE = "type"
"""What a type's node is marked by with the type that it stands for, which then is not read out of it."""
TIMES = (Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)


def type_named(binder: Binder, node: exp.Expr, *, precise: bool = False) -> DataType:
    """The Postgres type that a cast or a column names. Raises ViewError for one the engine cannot compute with.

    `precise`: times may have a precision, which `digits_of` tells.
    """
    spelled = node.sql(dialect="postgres").lower()
    spelled = {"float": "double precision"}.get(spelled, spelled)
    if spelled[:1] == "_" and spelled[1:] in _ELEMENTS and spelled not in binder.source.catalog.types:
        spelled = f"{spelled[1:]}[]"
    bare = spelled.removesuffix("[]")
    if bare in DECLARED and bare not in binder.source.catalog.types:
        binder.source.refuse(node, f'type "{spelled}" does not exist')
    target = node.meta.get(TYPE) or binder.source.type_named(spelled)
    named = target if target.element is None else target.element
    if not computable(named):
        binder.source.refuse(node, f"type {spelled} is not supported in expressions")
    sized = named.kind in (Kind.NUMERIC, Kind.VARCHAR, Kind.BPCHAR) or named.size is not None
    if "(" in spelled and not sized and not (precise and (target.kind in TIMES or target == TIMETZ)):
        binder.source.refuse(node, f"a precision is not supported for type {target}", "leave it out")
    return target


def computable(target: DataType) -> bool:
    """Whether the engine can compute with values of a type, or an array's elements."""
    named = target if target.element is None else target.element
    family = family_of(named)
    return named.kind is not Kind.OTHER or (family is not None and family.order is not None)


def digits_of(node: exp.Expr, target: DataType) -> int | None:
    """How many digits of its seconds a type of times keeps, where it says so."""
    if target.kind not in TIMES and target not in (TIMETZ, INTERVAL):
        return None
    found = [part.name for part in node.expressions if isinstance(part, exp.DataTypeParam)]
    return min(int(found[0]), 6) if found else None
