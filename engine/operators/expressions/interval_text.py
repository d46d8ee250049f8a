"""Intervals: what Postgres reads as one, how it shows one, and the arithmetic of months, days and microseconds.

Always: an interval is (months, days, microseconds), each of its own sign; infinity is all three at their greatest, its
negative at their least. The three never turn into each other but where a function says so. Pure functions; whatever
Postgres refuses raises `RowError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from engine.operators.expressions.fallback import RowError
from engine.operators.expressions.numerals import BLANKS, invalid

DAY = 86_400_000_000
Interval = tuple[int, int, int]
"""(months, days, microseconds)"""
INFINITE: Interval = (2**31 - 1, 2**31 - 1, 2**63 - 1)
MINUS_INFINITE: Interval = (-(2**31), -(2**31), -(2**63))
OUT_OF_RANGE = "interval out of range"

_MONTHS = {"year": 12, "decade": 120, "century": 1200, "millennium": 12000}
_MICROS = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 6 * 10**7, "hour": 36 * 10**8}
_UNITS: dict[str, str] = {}
for _unit, _names in {
    "microsecond": "microsecond microseconds us usec usecs microsecon",
    "millisecond": "millisecond milliseconds ms msec msecs millisecon",
    "second": "second seconds s sec secs",
    "minute": "minute minutes m min mins",
    "hour": "hour hours h hr hrs",
    "day": "day days d",
    "week": "week weeks w",
    "month": "month months mon mons",
    "year": "year years y yr yrs",
    "decade": "decade decades decs dec",
    "century": "century centuries cent c",
    "millennium": "millennium millennia mil mils",
}.items():
    for _name in _names.split():
        _UNITS[_name] = _unit
_TOKEN = re.compile(
    r"\s*(?:(?P<clock>[+-]?\d+:\d+(?::\d+)?(?:\.\d*)?)|(?P<years>[+-]?\d+-\d+)(?![\d.-])"
    r"|(?P<number>(?:[+-]\s*)?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)|(?P<word>[a-z]+)|(?P<at>@))",
    re.ASCII | re.IGNORECASE,
)
_ISO = re.compile(
    r"P(?=.)(?:(?P<Y>#)Y)?(?:(?P<M>#)M)?(?:(?P<W>#)W)?(?:(?P<D>#)D)?"
    r"(?:T(?=.)(?:(?P<h>#)H)?(?:(?P<m>#)M)?(?:(?P<s>#)S)?)?".replace("#", r"-?(?:\d+\.?\d*|\.\d+)"),
    re.ASCII,
)
_SECONDS = {"second", "millisecond", "microsecond"}
_COVERS = {"clock": {"hour", "minute"} | _SECONDS}
"""What else may not be given beside; neither may milliseconds beside seconds that have a fraction."""
_ISO_UNITS = {"Y": "year", "M": "month", "W": "week", "D": "day", "h": "hour", "m": "minute", "s": "second"}
_ALTERNATIVE = re.compile(r"P(\d{4})-(\d{2})-(\d{2})(?:T(\d{2}):(\d{2}):(\d{2}(?:\.\d+)?))?", re.ASCII)


def _fits(value: Interval) -> bool:
    return all(least <= part <= most for least, part, most in zip(MINUS_INFINITE, value, INFINITE, strict=True))


def checked(months: int, days: int, micros: int) -> Interval:
    """The interval, if each part fits and it is none of the infinities. Raises RowError."""
    value = months, days, micros
    if not _fits(value) or not is_finite(value):
        raise RowError(OUT_OF_RANGE)
    return value


def _rounded(value: float) -> int:
    """Half of a microsecond and above away from zero, but for half itself."""
    whole = int(value)
    rest = value - whole
    return whole + (rest > 0.5) - (rest < -0.5)


def _quantity(number: str, unit: str) -> Interval:
    whole, point, part = number.partition(".")
    if "e" in number.lower():
        value = float(number)
        count, rest = int(value), value - int(value)
    else:
        count = int(whole or "0") if whole not in ("+", "-", "") else 0
        rest = float(f"{'-' if number.startswith('-') else ''}0.{part or 0}") if point else 0.0
    if unit in _MONTHS:
        size = _MONTHS[unit]
        return count * size + round(rest * size), 0, 0
    if unit == "month":
        return count, *_days(0, rest * 30)
    if unit == "week":
        return 0, *_days(count * 7, rest * 7)
    if unit == "day":
        return 0, *_days(count, rest)
    return 0, 0, count * _MICROS[unit] + _rounded(rest * _MICROS[unit])


def _days(count: int, rest: float) -> tuple[int, int]:
    """Whole days, and microseconds of the day that is left."""
    return count + int(rest), _rounded((rest - int(rest)) * DAY)


def _clock(text: str, fields: Sequence[str]) -> int:
    negative, body = text.startswith("-"), text.lstrip("+-")
    parts = body.split(":")
    if len(parts) == 2 and ("." in parts[1] or (fields and fields[-1] == "second" and fields[0] == "minute")):
        parts.insert(0, "0")
    seconds = float(f"0.{parts[2].partition('.')[2] or 0}") if len(parts) > 2 else 0.0
    hours, minutes, whole = int(parts[0]), int(parts[1]), int(parts[2].partition(".")[0]) if len(parts) > 2 else 0
    if minutes > 59 or whole > 60:
        raise RowError("")
    micros = (hours * 60 + minutes) * 60_000_000 + whole * 1_000_000 + round(seconds * 1e6)
    return -micros if negative else micros


def read(text: str, fields: Sequence[str] = ()) -> Interval:
    """The interval that a text spells; `fields`: those that its type names. Raises RowError."""
    body = text.strip(BLANKS)
    if body.lower() in ("infinity", "+infinity", "-infinity"):
        return MINUS_INFINITE if body.startswith("-") else INFINITE
    try:
        found = _iso(body) if body.startswith("P") else _postgres(body, fields)
    except RowError as error:
        if str(error):
            raise
        raise RowError(f'interval field value out of range: "{text}"') from None
    if found is None:
        raise invalid("interval", text)
    if not _fits(found):
        raise RowError(f'interval field value out of range: "{text}"')
    return found


def _iso(body: str) -> Interval | None:
    plain = _ALTERNATIVE.fullmatch(body)
    if plain:
        seconds = round(float(plain[6] or 0) * 1e6)
        clock = (int(plain[4] or 0) * 60 + int(plain[5] or 0)) * 60_000_000 + seconds
        return int(plain[1]) * 12 + int(plain[2]), int(plain[3]), clock
    match = _ISO.fullmatch(body)
    if match is None:
        return None
    parts = [_quantity(v, _ISO_UNITS[k]) for k, v in match.groupdict().items() if v is not None]
    return _sum(parts)


def _sum(parts: Sequence[Interval]) -> Interval:
    return sum(p[0] for p in parts), sum(p[1] for p in parts), sum(p[2] for p in parts)


def _postgres(body: str, fields: Sequence[str]) -> Interval | None:
    parts: list[Interval] = []
    seen: set[str] = set()
    number: str | None = None
    at, ago = 0, False

    def take(unit: str, part: Interval, number: str = "") -> bool:
        covered = _COVERS.get(unit, {unit})
        if unit == "second" and float("0." + (re.sub("e.*", "", number.lower()).partition(".")[2] or "0")):
            covered = _SECONDS
        if seen & covered:
            return False
        seen.update(covered)
        parts.append(part)
        return True

    while at < len(body):
        match = _TOKEN.match(body, at)
        if match is None or ago:
            return None
        at = match.end()
        if match["at"]:
            continue
        if word := match["word"]:
            if word.lower() == "ago" and number is None and parts:
                ago = True
                continue
            unit = _UNITS.get(word.lower())
            if number is None or unit is None or not take(unit, _quantity(number, unit), number):
                return None
            number = None
            continue
        if number is not None and not (match["clock"] and take("day", _quantity(number, "day"))):
            return None
        number = match["number"] and re.sub(r"\s", "", match["number"])
        if match["clock"] and not take("clock", (0, 0, _clock(match["clock"], fields))):
            return None
        if match["years"]:
            sign = -1 if match["years"].startswith("-") else 1
            years, months = match["years"].lstrip("+-").split("-")
            if int(months) > 11:
                raise RowError("")
            if not take("month", (sign * (int(years) * 12 + int(months)), 0, 0)):
                return None
    last = fields[-1] if fields else "second"
    if number is not None and not take(last, _quantity(number, last), number):
        return None
    if not parts:
        return None
    total = _sum(parts)
    return (-total[0], -total[1], -total[2]) if ago else total


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
    """The interval as a type of these fields holds it, its seconds rounded to `digits`."""
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
        micros = (abs(micros) + size // 2) // size * size * (1 if micros >= 0 else -1)
    return months, days, micros
