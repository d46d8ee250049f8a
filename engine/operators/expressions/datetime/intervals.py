"""Functions of intervals, and of what lies between dates and times: arithmetic, age, justify_, date_bin, make_.

Always: an interval is its image as Postgres shows it, read once per distinct value; dates and times are the integers of
their lanes. Registered in the catalogue at import.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.conversions import conversion
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.core.text_types import Family, family
from headrace.engine.operators.expressions.datetime import calendar_text as text
from headrace.engine.operators.expressions.datetime import interval_input
from headrace.engine.operators.expressions.datetime import interval_text as spans
from headrace.engine.operators.expressions.datetime.date_parts import field_of
from headrace.engine.operators.expressions.datetime.interval_text import DAY, OUT_OF_RANGE, Interval, image, is_finite
from headrace.engine.schema import DataType, Kind

INTERVAL = DataType(Kind.OTHER, name="interval")
"""Postgres's interval: an OTHER, each value the text of an interval."""
Params = tuple[DataType, ...]
PHYSICAL = {Kind.DATE: pa.int32(), Kind.TIME: pa.int64(), Kind.TIMESTAMP: pa.int64(), Kind.TIMESTAMPTZ: pa.int64()}
read = functools.lru_cache(maxsize=4096)(interval_input.read)
STAMP_RANGE = "timestamp out of range"


def on_numbers(function: Callable[..., Any], *, strict: bool = True) -> Maker:
    """A function of the lanes' integers and of intervals, that gives one of them, or another value of its lane."""

    def make(params: Params, result: DataType) -> Kernel:
        spelled = [i for i, p in enumerate(params) if p == INTERVAL]
        lane = PHYSICAL.get(result.kind, result.arrow)

        def one(*args: Any) -> Any:
            given = list(args)
            for i in spelled:
                given[i] = None if given[i] is None else read(given[i])
            found = function(*given)
            return image(found) if result == INTERVAL and found is not None else found

        def kernel(*values: Values) -> Outcome:
            given = [
                col.retyped(v, PHYSICAL[p.kind]) if p.kind in PHYSICAL else v
                for v, p in zip(values, params, strict=True)
            ]
            out, errors = fallback.map_values(one, lane, given, strict=strict)
            return (col.retyped(out, result.arrow) if result.kind in PHYSICAL else out), errors

        return kernel

    return make


def is_endless(micros: int) -> bool:
    """Whether a timestamp is infinite."""
    return micros in (text.STAMP_INFINITY, text.STAMP_MINUS_INFINITY)


def stamp(micros: int) -> int:
    """A timestamp, if it is one. Raises RowError."""
    if not text.MIN_DAY * DAY <= micros < text.STAMP_LIMIT:
        raise RowError(text.stamp_fault(micros, STAMP_RANGE))
    return micros


def _endless_difference(one: int, other: int) -> Interval:
    if one == other:
        raise RowError(OUT_OF_RANGE)
    up = one == text.STAMP_INFINITY or other == text.STAMP_MINUS_INFINITY
    return spans.INFINITE if up else spans.MINUS_INFINITE


def _between(one: int, other: int) -> Interval:
    if is_endless(one) or is_endless(other):
        return _endless_difference(one, other)
    return spans.justify_hours(spans.checked(0, 0, one - other))


def age(one: int, other: int) -> Interval:
    """age(one, other): years, months and days as a calendar counts them."""
    if is_endless(one) or is_endless(other):
        return _endless_difference(one, other)
    late, early = max(one, other), min(one, other)
    (year, month, day), (y, m, d) = text.civil(late // DAY), text.civil(early // DAY)
    micros, days = late % DAY - early % DAY, day - d
    months = (year - y) * 12 + month - m
    if micros < 0:
        micros, days = micros + DAY, days - 1
    while days < 0:
        days, months = days + text.month_days(y, m), months - 1
    found = months, days, micros
    return spans.negated(found) if one < other else found


def _time_moved(sign: int) -> Callable[[int, Interval], int]:
    def moved(clock: int, by: Interval) -> int:
        if not is_finite(by):
            raise RowError(
                f"cannot {'add' if sign > 0 else 'subtract'} infinite interval {'to' if sign > 0 else 'from'} time"
            )
        return (clock + sign * by[2]) % DAY

    return moved


def _date_at(day: int, clock: int) -> int:
    if day in (text.DATE_INFINITY, text.DATE_MINUS_INFINITY):
        return text.STAMP_INFINITY if day > 0 else text.STAMP_MINUS_INFINITY
    if day >= text.STAMP_MAX_DAY:
        raise RowError("date out of range for timestamp")
    return stamp(day * DAY + clock)


def _binned(stride: Interval, source: int, origin: int) -> int:
    if is_endless(source):
        return source
    if is_endless(origin):
        raise RowError("origin out of range")
    if not is_finite(stride):
        raise RowError("timestamps cannot be binned into infinite intervals")
    if stride[0]:
        raise RowError("timestamps cannot be binned into intervals containing months or years")
    size = stride[1] * DAY + stride[2]
    if not -(2**63) <= size < 2**63 or not -(2**63) <= stride[1] * DAY < 2**63:
        raise RowError(OUT_OF_RANGE)
    if size <= 0:
        raise RowError("stride must be greater than zero")
    if abs(source - origin) >= 2**63:
        raise RowError(OUT_OF_RANGE)
    return stamp(origin + (source - origin) // size * size)


def _toward_zero(value: int, size: int) -> int:
    return abs(value) // size * (1 if value >= 0 else -1)


def _parts(value: Interval) -> dict[str, int]:
    months, days, micros = value
    year = _toward_zero(months, 12)
    clock = {name: _toward_zero(micros, size) for name, size in (("hour", 36 * 10**8), ("minute", 6 * 10**7))}
    return {
        "millennium": _toward_zero(year, 1000),
        "century": _toward_zero(year, 100),
        "decade": _toward_zero(year, 10),
        "year": year,
        "quarter": months % 12 // 3 + 1 if months >= 0 else -(-months % 12 // 3 + 1),
        "month": months - year * 12,
        "week": _toward_zero(days, 7),
        "day": days,
        "hour": clock["hour"],
        "minute": clock["minute"] - clock["hour"] * 60,
        "microsecond": micros - clock["minute"] * 6 * 10**7,
    }


_ENDLESS = ("millennium", "century", "decade", "year", "day", "hour", "epoch")


def decimal_image(value: int, scale: int) -> str:
    """The image of value / 10 ** scale."""
    whole, rest = divmod(abs(value), 10**scale)
    return f"{'-' if value < 0 else ''}{whole}.{rest:0{scale}d}"


def _extract(spelled: str, value: Interval) -> str | None:
    name = spelled.lower()
    field = field_of(name)
    if field is None:
        raise RowError(f'unit "{name}" not recognized for type interval')
    known = _parts((0, 0, 0)).keys() | {"epoch", "second", "millisecond"}
    if field not in known:
        raise RowError(f'unit "{name}" not supported for type interval')
    if not is_finite(value):
        return ("Infinity" if value[2] > 0 else "-Infinity") if field in _ENDLESS else None
    if field == "epoch":
        years = _toward_zero(value[0], 12)
        days = 1461 * years + 4 * (30 * (value[0] - years * 12) + value[1])
        return decimal_image(days * 21600 * 10**6 + value[2], 6)
    parts = _parts(value)
    if field in ("second", "millisecond"):
        return decimal_image(parts["microsecond"], 6 if field == "second" else 3)
    return str(parts[field])


def _truncated(spelled: str, value: Interval) -> Interval:
    name = spelled.lower()
    field = field_of(name)
    sizes = {"millennium": 12000, "century": 1200, "decade": 120, "year": 12, "quarter": 3, "month": 1}
    clock = {"hour": 36 * 10**8, "minute": 6 * 10**7, "second": 10**6, "millisecond": 1000, "microsecond": 1}
    if field is None or (field not in sizes and field not in clock and field != "day"):
        verb = "supported" if field == "week" or (field or "").startswith("timezone") else "recognized"
        raise RowError(f'unit "{name}" not {verb} for type interval')
    if not is_finite(value):
        return value
    months, days, micros = value
    if field in sizes:
        return _toward_zero(months, sizes[field]) * sizes[field], 0, 0
    return months, days, _toward_zero(micros, clock[field]) * clock[field] if field in clock else 0


def _interval_of(
    years: int = 0,
    months: int = 0,
    weeks: int = 0,
    days: int = 0,
    hours: int = 0,
    minutes: int = 0,
    seconds: float = 0.0,
) -> Interval:
    if not math.isfinite(seconds) or abs(seconds) >= 2**63:
        raise RowError(OUT_OF_RANGE)
    clock = (hours * 60 + minutes) * 60_000_000 + round(seconds * 1e6)
    return spans.checked(years * 12 + months, weeks * 7 + days, clock)


def _spelled(hour: int, minute: int, second: float) -> str:
    return f"{hour}:{minute:02d}:{second:02g}".replace("inf", "Infinity").replace("nan", "NaN")


def _time_of(hour: int, minute: int, second: float) -> int:
    micros = round(second * 1e6) if math.isfinite(second) else DAY
    clock = (hour * 60 + minute) * 60_000_000 + micros
    if not (0 <= hour <= 24 and 0 <= minute < 60 and second >= 0 and micros <= 60_000_000 and clock <= DAY):
        raise RowError(f"time field value out of range: {_spelled(hour, minute, second)}")
    return clock


def stamp_of(year: int, month: int, day: int, hour: int, minute: int, second: float) -> int:
    """make_timestamp(…)."""
    shown = f"{year}-{month:02d}-{day:02d}"
    astronomical = year + 1 if year < 0 else year
    if year == 0 or not 1 <= month <= 12 or not 1 <= day <= text.month_days(astronomical, month):
        raise RowError(f"date field value out of range: {shown}")
    days = text.day_number(astronomical, month, day)
    if not text.MIN_DAY <= days < text.MAX_DAY:
        raise RowError(f"date out of range: {shown}")
    micros = days * DAY + _time_of(hour, minute, second)
    if not text.MIN_DAY * DAY <= micros < text.STAMP_LIMIT:
        raise RowError(text.stamp_fault(micros, f"timestamp out of range: {shown} {_spelled(hour, minute, second)}"))
    return micros


_EPOCH_2000 = 946_684_800


def _stamp_from_epoch(seconds: float) -> int:
    if seconds != seconds:
        raise RowError("timestamp cannot be NaN")
    if math.isinf(seconds):
        return text.STAMP_INFINITY if seconds > 0 else text.STAMP_MINUS_INFINITY
    since = (seconds - _EPOCH_2000) * 1e6
    micros = round(since) + _EPOCH_2000 * 10**6 if abs(since) < 2**63 else 2**64
    if not text.MIN_DAY * DAY <= micros < text.STAMP_LIMIT:
        raise RowError(text.stamp_fault(micros, f'timestamp out of range: "{seconds:g}"'))
    return micros


def _finite_of(kind: Kind) -> Callable[[int], bool]:
    if kind is Kind.DATE:
        return lambda day: day not in (text.DATE_INFINITY, text.DATE_MINUS_INFINITY)
    return lambda micros: not is_endless(micros)


def _clock_of(value: Interval) -> int:
    if not is_finite(value):
        raise RowError("cannot convert infinite interval to time")
    return value[2] % DAY


def overlap(a: int | None, b: int | None, c: int | None, d: int | None) -> bool | None:
    """(a, b) OVERLAPS (c, d): NULL only where that decides."""
    if a is None or (b is not None and a > b):
        a, b = b, a
    if c is None or (d is not None and c > d):
        c, d = d, c
    if a is None or c is None:
        return None
    if a == c:
        return None if b is None or d is None else True
    end = d if a > c else b
    start = max(a, c)
    if end is not None and start < end:
        return True
    if b is None or d is None:
        return None
    return False


def _finite_parts(value: Interval) -> Interval:
    if not is_finite(value):
        raise RowError("a sum of infinite intervals is not supported")
    return value


def _image(spelled: str) -> str:
    return image(interval_input.read(spelled))


def _order(held: str) -> str:
    return f"{spans.span(read(held)) + 10**30:031}"


def _register() -> None:
    family("interval", Family(_image, _order, exact=False))
    conversion(DataType(Kind.TIME), INTERVAL, "implicit", lambda written, _: _image(written))
    t, n, d, number = Kind.TEXT, Kind.INTEGER, Kind.DATE, Kind.DOUBLE
    s, z, c = Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIME
    i = INTERVAL

    def put(name: str, params: tuple[Any, ...], result: Any, function: Callable[..., Any], strict: bool = True) -> None:
        made = result if isinstance(result, Kind) else (lambda _params: INTERVAL)
        entry(name, params, made, on_numbers(function, strict=strict), strict=strict, fallback=True)

    put("+", (i, i), i, spans.added)
    put("-", (i, i), i, spans.subtracted)
    put("-", (i,), i, spans.negated)
    put("+", (i,), i, lambda a: a)
    put("*", (i, number), i, spans.scaled)
    put("*", (number, i), i, lambda by, value: spans.scaled(value, by))
    put("/", (i, number), i, lambda value, by: spans.scaled(value, by, divide=True))
    for kind in (s, z):
        put("-", (kind, kind), i, _between)
        put("age", (kind, kind), i, age)
        put("date_bin", (i, kind, kind), kind, _binned)
        put("isfinite", (kind,), Kind.BOOLEAN, _finite_of(kind))
    for kind in (s, z, c):
        put("overlaps", (kind,) * 4, Kind.BOOLEAN, overlap, strict=False)
    put("isfinite", (d,), Kind.BOOLEAN, _finite_of(d))
    put("isfinite", (i,), Kind.BOOLEAN, is_finite)
    put("-", (c, c), i, lambda a, b: (0, 0, a - b))
    put("+", (c, i), c, _time_moved(1))
    put("+", (i, c), c, lambda by, clock: _time_moved(1)(clock, by))
    put("-", (c, i), c, _time_moved(-1))
    put("+", (d, c), s, _date_at)
    put("+", (c, d), s, lambda clock, day: _date_at(day, clock))
    put("justify_hours", (i,), i, spans.justify_hours)
    put("justify_days", (i,), i, spans.justify_days)
    put("justify_interval", (i,), i, spans.justify_interval)
    put("extract", (t, i), Kind.NUMERIC, _extract)
    put("date_part", (t, i), number, lambda f, v: None if (x := _extract(f, v)) is None else float(x))
    put("date_trunc", (t, i), i, _truncated)
    for count in range(8):
        put("make_interval", (n, n, n, n, n, n, number)[:count], i, _interval_of) if count else None
    put("make_time", (n, n, number), c, _time_of)
    put("make_timestamp", (n, n, n, n, n, number), s, stamp_of)
    put("make_timestamptz", (n, n, n, n, n, number), z, stamp_of)
    put("to_timestamp", (number,), z, _stamp_from_epoch)
    put("$interval", (c,), i, lambda clock: (0, 0, clock))
    put("$time", (i,), c, _clock_of)
    for name, place in (("$months", 0), ("$days", 1), ("$micros", 2)):
        put(name, (i,), Kind.BIGINT, lambda value, at=place: _finite_parts(value)[at])
    # Postgres divides what it has added up, as an interval by a number.
    put("$summed", (Kind.NUMERIC,) * 3, i, lambda *parts: spans.checked(*(int(p) for p in parts)))
    put("$restricted", (i, t, n), i, lambda v, fields, digits: spans.restricted(v, tuple(fields.split()), digits))


_register()
