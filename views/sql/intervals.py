"""Handlers of intervals: constants, casts to the type, and OVERLAPS.

Always: a constant is read once, and held as Postgres shows it; what its type restricts (`interval day to hour`) is left
out of it. Registered with the binder at import.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.ir import Expr, Literal
from headrace.engine.operators.expressions.datetime import interval_input, interval_text
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL
from headrace.engine.schema import DataType, Kind
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder, binds, unsupported
from headrace.views.sql.datatypes import digits_of, restricted
from headrace.views.sql.parsing.parse import spelled_as

_FIELDS = ("year", "month", "day", "hour", "minute", "second")


@binds(exp.Interval, reads="this unit fraction_in_string")
def _interval(binder: Binder, node: exp.Expr) -> Expr:
    value = node.this
    if not isinstance(value, exp.Literal):
        return unsupported(binder, node)
    return interval_constant(binder, node, str(value.this), *fields_of(binder, node, node.args.get("unit")))


def fields_of(binder: Binder, node: exp.Expr, unit: exp.Expr | None) -> tuple[tuple[str, ...], int | None]:
    """The fields that an interval's type names, the first and the last, and the digits of its seconds. Raises ViewError."""
    ends = (unit.this, unit.expression) if isinstance(unit, exp.IntervalSpan) else (unit,) if unit is not None else ()
    named = [str(getattr(end, "this", end)).lower().partition("(") for end in ends]
    fields = tuple(name for name, _, _ in named if name)
    if any(f not in _FIELDS for f in fields):
        unsupported(binder, node)
    digits = [int(told[:-1]) for _, _, told in named if told]
    return fields, digits[0] if digits else None


def interval_constant(
    binder: Binder, node: exp.Expr, spelled: str, fields: tuple[str, ...] = (), digits: int | None = None
) -> Expr:
    """The interval that a text spells. Raises ViewError."""
    try:
        found = interval_text.restricted(interval_input.read(spelled, fields), fields, digits)
    except RowError as error:
        binder.source.refuse(node, str(error))
    return Literal(interval_text.image(found), INTERVAL)


def is_interval(node: exp.Expr) -> bool:
    """Whether a cast's type is an interval."""
    return spelled_as(node).lower().split(" ")[0] == "interval"


def to_interval(binder: Binder, node: exp.Expr) -> Expr:
    """CAST(… AS interval …). Raises ViewError."""
    to = node.args["to"].this
    fields, digits = fields_of(binder, node, to.args.get("unit") if isinstance(to, exp.Interval) else None)
    digits = digits_of(node.args["to"], INTERVAL) if digits is None else digits
    if isinstance(node.this, exp.Literal) and node.this.is_string:
        return interval_constant(binder, node, str(node.this.this), fields, digits)
    value = binder.bind(node.this)
    if value.type == coerce.UNKNOWN:
        return Literal(None, INTERVAL)
    if value.type != INTERVAL:
        if value.type.kind not in (Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR, Kind.TIME):
            binder.source.refuse(node, f"cannot cast type {value.type} to interval")
        is_clock = value.type.kind is Kind.TIME
        value = coerce.called("$interval", [value]) if is_clock else coerce.cast(value, INTERVAL)
    return value if not fields and digits is None else restricted(value, fields, 6 if digits is None else digits)


@binds(exp.Overlaps)
def _overlaps(binder: Binder, node: exp.Expr) -> Expr:
    """(a, b) OVERLAPS (c, d); an end that is an interval is so long after its start."""
    bounds: list[Expr] = []
    for side in (node.this, node.expression):
        if not isinstance(side, exp.Tuple) or len(side.expressions) != 2:
            return unsupported(binder, node)
        start, end = (binder.bind(cell) for cell in side.expressions)
        bounds += [start, coerce.called("+", [start, end]) if end.type == INTERVAL else end]
    kinds = {b.type.kind for b in bounds if b.type != coerce.UNKNOWN}
    if Kind.DATE in kinds and Kind.TIMESTAMPTZ not in kinds:
        target = DataType(Kind.TIMESTAMP)
        bounds = [coerce.cast(b, target) if b.type != coerce.UNKNOWN else coerce.coerced(b, target) for b in bounds]
    return coerce.called("overlaps", bounds)
