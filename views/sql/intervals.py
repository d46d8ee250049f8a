"""Handlers of interval constants: read once, and held as Postgres shows them.

Always: what a date or timestamp is moved by is a constant's canonical image. Registered with the binder at import.
"""

from __future__ import annotations

from sqlglot import exp

from engine.operators.expressions import calendar_text
from engine.operators.expressions.fallback import RowError
from engine.operators.expressions.ir import Expr, Literal
from engine.operators.expressions.resolve import INTERVAL
from views.sql.binder import Binder, binds, unsupported


@binds(exp.Interval, reads="this unit fraction_in_string")
def _interval(binder: Binder, node: exp.Expr) -> Expr:
    value, unit = node.this, node.args.get("unit")
    if not isinstance(value, exp.Literal) or (unit is not None and not isinstance(unit, exp.Var)):
        return unsupported(binder, node)
    spelled = str(value.this) if unit is None else f"{value.this} {str(unit.this).lower()}"
    return interval_constant(binder, node, spelled)


def interval_constant(binder: Binder, node: exp.Expr, spelled: str) -> Expr:
    """The interval that a text spells. Raises ViewError."""
    try:
        months, days, micros = calendar_text.read_interval(spelled)
    except RowError as error:
        binder.source.refuse(node, str(error))
    return Literal(interval_image(months, days, micros), INTERVAL)


def interval_image(months: int, days: int, micros: int) -> str:
    """An interval as Postgres shows it.

    >>> interval_image(14, -3, 4_500_000), interval_image(0, 0, 0), interval_image(-1, 2, 0)
    ('1 year 2 mons -3 days +00:00:04.5', '00:00:00', '-1 mons +2 days')
    """
    parts: list[str] = []
    negative = False
    years = abs(months) // 12 * (1 if months > 0 else -1)
    for value, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if value:
            sign = "+" if negative and value > 0 else ""
            parts.append(f"{sign}{value} {unit}{'' if value == 1 else 's'}")
            negative = value < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        seconds, rest = divmod(abs(micros), 1_000_000)
        fraction = f".{rest:06}".rstrip("0") if rest else ""
        parts.append(f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}")
    return " ".join(parts)
