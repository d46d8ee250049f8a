"""A small builder of typed expressions that writes the same expression as SQL: what the oracle compares.

Always: types are settled by `resolve`, `common_type` and `can_cast` alone, as the binder of views must; the SQL side
refers to columns of a row variable `r`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.engine.operators.expressions.core.coercion import common_type
from headrace.engine.operators.expressions.core.ir import Call, Case, Cast, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.operators.expressions.core.resolve import resolve
from headrace.engine.operators.expressions.core.text_io import parse_literal
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, TEXT, DataType, Kind


@dataclass(frozen=True)
class Built:
    """An expression both ways; `expr` None is an unknown literal whose text is `unknown` (None: NULL)."""

    sql: str
    expr: Expr | None
    unknown: str | None = None

    @property
    def type(self) -> DataType | None:
        return None if self.expr is None else self.expr.type


def column(name: str, index: int, datatype: DataType) -> Built:
    return Built(f"r.{name}", ColumnRef(index, datatype))


def text(value: str | None) -> Built:
    """An unknown literal."""
    return Built("NULL" if value is None else "'" + value.replace("'", "''") + "'", None, value)


def number(spelling: str) -> Built:
    """A numeric constant, typed as Postgres types it."""
    if spelling.isdigit():
        return Built(spelling, Literal(int(spelling), INTEGER if int(spelling) < 2**31 else BIGINT))
    return Built(spelling, Literal(spelling, DataType(Kind.NUMERIC, scale=len(spelling.partition(".")[2]))))


def typed(datatype: str, value: str | None) -> Built:
    """`'value'::datatype`."""
    target = DataType.parse(datatype)
    return Built(
        f"{text(value).sql}::{datatype}", Literal(None if value is None else parse_literal(value, target), target)
    )


def to(arg: Built, target: DataType) -> Expr:
    if arg.expr is None:
        return Literal(None if arg.unknown is None else parse_literal(arg.unknown, target), target)
    return arg.expr if arg.expr.type == target else Cast(arg.expr, target, True)


def cast(arg: Built, datatype: str) -> Built:
    return Built(f"({arg.sql})::{datatype}", Cast(to(arg, arg.type or TEXT), DataType.parse(datatype)))


def call(name: str, args: Sequence[Built], sql: str | None = None) -> Built:
    found = resolve(name, [a.type for a in args])
    expr = Call(found.function, tuple(to(a, p) for a, p in zip(args, found.params, strict=True)), found.result)
    return Built(sql or f"{name}({', '.join(a.sql for a in args)})", expr)


def op(left: Built, name: str, right: Built) -> Built:
    return call(name, [left, right], f"({left.sql} {name} {right.sql})")


def prefix(name: str, arg: Built) -> Built:
    return call(name, [arg], f"({name} {arg.sql})")


def suffix(arg: Built, name: str) -> Built:
    return call(name, [arg], f"({arg.sql} {name})")


def within(name: str, value: Built, items: Sequence[Built]) -> Built:
    return call(name, [value, *items], f"({value.sql} {name} ({', '.join(i.sql for i in items)}))")


def case(whens: Sequence[tuple[Built, Built]], otherwise: Built) -> Built:
    common = common_type([otherwise.type, *(v.type for _, v in whens)])
    sql = "CASE " + " ".join(f"WHEN {c.sql} THEN {v.sql}" for c, v in whens) + f" ELSE {otherwise.sql} END"
    return Built(sql, Case(tuple((to(c, BOOLEAN), to(v, common)) for c, v in whens), to(otherwise, common), common))


def coalesce(*args: Built) -> Built:
    common = common_type([a.type for a in args])
    return Built(f"coalesce({', '.join(a.sql for a in args)})", Coalesce(tuple(to(a, common) for a in args), common))
