"""Intervals: how Postgres shows one, and the arithmetic of months, days and microseconds.

Always: an interval is (months, days, microseconds), each of its own sign; infinity is all three at their greatest, its
negative at their least. The three never turn into each other but where a function says so. Pure functions; whatever
Postgres refuses raises `RowError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headrace.engine.operators.expressions.core.fallback import RowError

DAY = 86_400_000_000
Interval = tuple[int, int, int]
"""(months, days, microseconds)"""
INFINITE: Interval = (2**31 - 1, 2**31 - 1, 2**63 - 1)
MINUS_INFINITE: Interval = (-(2**31), -(2**31), -(2**63))
OUT_OF_RANGE = "interval out of range"


def _fits(value: Interval) -> bool:
    return all(least <= part <= most for least, part, most in zip(MINUS_INFINITE, value, INFINITE, strict=True))


def checked(months: int, days: int, micros: int) -> Interval:
    """The interval, if each part fits and it is none of the infinities. Raises RowError."""
    value = months, days, micros
    if not _fits(value) or not is_finite(value):
        raise RowError(OUT_OF_RANGE)
    return value


def rounded(value: float) -> int:
    """Half of a microsecond and above away from zero, but for half itself."""
    whole = int(value)
    rest = value - whole
    return whole + (rest > 0.5) - (rest < -0.5)


def image(value: Interval) -> str:
    """An interval as Postgres shows it.

    >>> image((14, -3, 4_500_000)), image((0, 0, 0)), image((-1, 2, 0))
    ('1 year 2 mons -3 days +00:00:04.5', '00:00:00', '-1 mons +2 days')
    """
    if value in (INFINITE, MINUS_INFINITE):
        return "infinity" if value == INFINITE else "-infinity"
    months, days, micros = value
    parts: list[str] = []
    negative = False
    years = abs(months) // 12 * (1 if months > 0 else -1)
    for count, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if count:
            sign = "+" if negative and count > 0 else ""
            parts.append(f"{sign}{count} {unit}{'' if count == 1 else 's'}")
            negative = count < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        seconds, rest = divmod(abs(micros), 1_000_000)
        fraction = f".{rest:06}".rstrip("0") if rest else ""
        parts.append(f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}")
    return " ".join(parts)


def span(value: Interval) -> int:
    """What intervals are compared by: microseconds, a month being 30 days."""
    return (value[0] * 30 + value[1]) * DAY + value[2]


def is_finite(value: Interval) -> bool:
    """isfinite(value)."""
    return value not in (INFINITE, MINUS_INFINITE)


def negated(value: Interval) -> Interval:
    """-value."""
    if not is_finite(value):
        return MINUS_INFINITE if value == INFINITE else INFINITE
    return checked(-value[0], -value[1], -value[2])


def added(one: Interval, other: Interval) -> Interval:
    """one + other."""
    if not (is_finite(one) and is_finite(other)):
        if not is_finite(one) and not is_finite(other) and one != other:
            raise RowError(OUT_OF_RANGE)
        return other if is_finite(one) else one
    return checked(*(a + b for a, b in zip(one, other, strict=True)))


def subtracted(one: Interval, other: Interval) -> Interval:
    """one - other."""
    if not (is_finite(one) and is_finite(other)):
        return added(one, negated(other))
    return checked(*(a - b for a, b in zip(one, other, strict=True)))


def _to_micros(value: float) -> float:
    return float(round(value * 1e6)) / 1e6


def scaled(value: Interval, factor: float, *, divide: bool = False) -> Interval:
    """value * factor, or value / factor: fractions go down to days and microseconds, as Postgres rounds them."""
    if divide and factor == 0:
        raise RowError("division by zero")
    if factor != factor:
        raise RowError(OUT_OF_RANGE)
    if not is_finite(value):
        if divide and math.isinf(factor):
            raise RowError(OUT_OF_RANGE)
        if factor == 0:
            raise RowError(OUT_OF_RANGE)
        return value if factor > 0 else negated(value)
    if math.isinf(factor):
        if divide:
            return 0, 0, 0
        size = (span(value) > 0) - (span(value) < 0)
        if not size:
            raise RowError(OUT_OF_RANGE)
        return INFINITE if (size > 0) == (factor > 0) else MINUS_INFINITE
    months, days, micros = (v / factor if divide else v * factor for v in value)
    if abs(months) >= 2**31 or abs(days) >= 2**31:
        raise RowError(OUT_OF_RANGE)
    extra = _to_micros((months - int(months)) * 30)
    seconds = _to_micros((days - int(days) + extra - int(extra)) * 86400)
    whole = int(days)
    if abs(seconds) >= 86400:
        whole += int(seconds / 86400)
        seconds -= int(seconds / 86400) * 86400
    clock = micros + seconds * 1e6
    if abs(clock) >= 2.0**63:
        raise RowError(OUT_OF_RANGE)
    return checked(int(months), whole + int(extra), round(clock))


def _toward_zero(value: int, size: int) -> int:
    return abs(value) // size * (1 if value >= 0 else -1)


def justify_hours(value: Interval) -> Interval:
    """justify_hours(value): 24 hours become a day."""
    if not is_finite(value):
        return value
    months, days, micros = value
    whole = _toward_zero(micros, DAY)
    return checked(months, *_same_sign(days + whole, micros - whole * DAY, DAY))


def _same_sign(larger: int, smaller: int, size: int) -> tuple[int, int]:
    if larger > 0 and smaller < 0:
        return larger - 1, smaller + size
    if larger < 0 and smaller > 0:
        return larger + 1, smaller - size
    return larger, smaller


def justify_days(value: Interval) -> Interval:
    """justify_days(value): 30 days become a month."""
    if not is_finite(value):
        return value
    months, days, micros = value
    whole = _toward_zero(days, 30)
    return checked(*_same_sign(months + whole, days - whole * 30, 30), micros)


def justify_interval(value: Interval) -> Interval:
    """justify_interval(value): both, and one sign for all."""
    if not is_finite(value):
        return value
    months, days, micros = value
    whole = _toward_zero(micros, DAY)
    days, micros = days + whole, micros - whole * DAY
    whole = _toward_zero(days, 30)
    months, days = months + whole, days - whole * 30
    if months > 0 and (days < 0 or (days == 0 and micros < 0)):
        months, days = months - 1, days + 30
    elif months < 0 and (days > 0 or (days == 0 and micros > 0)):
        months, days = months + 1, days - 30
    return checked(months, *_same_sign(days, micros, DAY))


_KEPT = {"year": 12, "month": 1}


def restricted(value: Interval, fields: Sequence[str], digits: int | None = None) -> Interval:
    """The interval as a type of these fields holds it, its seconds rounded to `digits`. Raises RowError."""
    if not is_finite(value):
        return value
    months, days, micros = value
    last = fields[-1] if fields else "second"
    if last in _KEPT:
        return _toward_zero(months, _KEPT[last]) * _KEPT[last], 0, 0
    if last != "second":
        size = {"day": 0, "hour": 36 * 10**8, "minute": 6 * 10**7}[last]
        micros = _toward_zero(micros, size) * size if size else 0
    elif digits is not None and digits < 6:
        size = 10 ** (6 - digits)
        sign = 1 if micros >= 0 else -1
        micros += size // 2 * sign
        if not -(2**63) <= micros < 2**63:
            raise RowError(OUT_OF_RANGE)
        micros = abs(micros) // size * size * sign
    return months, days, micros
