"""Times of day with a zone (timetz): how they are read, sorted, cast and moved, and their parts.

Always: the image is the local time and its offset as Postgres prints them; two are equal where both are. Over the images, once
for each value. Registered with the families, the conversions and the catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headrace.engine.operators.expressions.core.conversions import conversion
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import entry
from headrace.engine.operators.expressions.core.order_keys import number_key
from headrace.engine.operators.expressions.core.text_types import Family, family
from headrace.engine.operators.expressions.datetime.calendar_text import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    DAY,
    STAMP_INFINITY,
    STAMP_MINUS_INFINITY,
    stamp_fault,
    time_image,
)
from headrace.engine.operators.expressions.datetime.date_parts import CLOCKFIELDS, clock_field, field_of
from headrace.engine.operators.expressions.datetime.input_parse import SECOND, read_timestamptz, read_timetz
from headrace.engine.operators.expressions.datetime.interval_text import image as interval_image
from headrace.engine.operators.expressions.datetime.interval_text import is_finite
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL, decimal_image, on_numbers, stamp
from headrace.engine.operators.expressions.datetime.intervals import read as read_interval
from headrace.engine.operators.expressions.datetime.zone_names import offset_at, zone_of
from headrace.engine.operators.expressions.text.strings import STRING, per_value
from headrace.engine.schema import TIME, TIMESTAMPTZ, TIMETZ, DataType, Kind

NAME = "time with time zone"
UNDATED = "of a time without a date is not supported: its offset depends on the time of the query"


def spelled(micros: int, offset: int) -> str:
    """The image of a local time and the seconds east of Greenwich.

    >>> spelled(*read_timetz("04:05:06.70 -8:30"))
    '04:05:06.7-08:30'
    """
    minutes, seconds = divmod(abs(offset), 60)
    zone = f"{'-' if offset < 0 else '+'}{minutes // 60:02d}"
    zone += f":{minutes % 60:02d}" if minutes % 60 or seconds else ""
    return f"{time_image(micros)}{zone}{f':{seconds:02d}' if seconds else ''}"


def _key(image: str) -> str:
    micros, offset = read_timetz(image)
    return f"{number_key(str(micros - offset * SECOND))}\0{number_key(str(-offset))}"


def _of_moment(image: str, _target: DataType) -> str | None:
    micros = read_timestamptz(image)
    return None if "infinity" in image else spelled(micros % DAY, 0)


def _moved(sign: int) -> Callable[[str, str], str]:
    def moved(image: str, by: str) -> str:
        micros, offset = read_timetz(image)
        span = read_interval(by)
        if not is_finite(span):
            verb = "add infinite interval to" if sign > 0 else "subtract infinite interval from"
            raise RowError(f"cannot {verb} time")
        return spelled((micros + sign * span[2]) % DAY, offset)

    return moved


def _shown_at(image: str, offset: int) -> str:
    micros, own = read_timetz(image)
    return spelled((micros + (offset - own) * SECOND) % DAY, offset)


def _in_zone(name: str, image: str) -> str:
    zone = zone_of(name)
    if not isinstance(zone, int):
        raise RowError(f'time zone "{name}" {UNDATED}')
    return _shown_at(image, offset_at(zone, 0) // SECOND)


def _at_offset(by: str, image: str) -> str:
    span = read_interval(by)
    if not is_finite(span) or span[0] or span[1]:
        fault = "must not include months or days" if is_finite(span) else "must be finite"
        raise RowError(f'interval time zone "{interval_image(span)}" {fault}')
    return _shown_at(image, abs(span[2]) // SECOND * (1 if span[2] >= 0 else -1))


def _on(days: int, image: str) -> int:
    """The moment of a time on a day."""
    micros, offset = read_timetz(image)
    if days in (DATE_INFINITY, DATE_MINUS_INFINITY):
        return STAMP_INFINITY if days > 0 else STAMP_MINUS_INFINITY
    moment = days * DAY + micros - offset * SECOND
    try:
        return stamp(moment)
    except RowError:
        raise RowError(stamp_fault(moment, "date out of range for timestamp")) from None


def _part(name: str, image: str) -> str:
    micros, offset = read_timetz(image)
    field = field_of(name)
    if field is None:
        raise RowError(f'unit "{name.lower()}" not recognized for type {NAME}')
    if field == "epoch":
        return decimal_image(micros - offset * SECOND, 6)
    if field.startswith("timezone"):
        hours, minutes = divmod(abs(offset) // 60, 60)
        found = {"timezone": abs(offset), "timezone_hour": hours, "timezone_minute": minutes}[field]
        return str(-found if offset < 0 else found)
    if field not in CLOCKFIELDS:
        raise RowError(f'unit "{name.lower()}" not supported for type {NAME}')
    return clock_field(field, micros)


def _double(name: str, image: str) -> float:
    if field_of(name) == "epoch":
        micros, offset = read_timetz(image)
        return micros / 1_000_000 - offset
    return float(_part(name, image))


def _rounded(image: str, digits: int) -> str:
    micros, offset = read_timetz(image)
    size = 10 ** (6 - digits)
    return spelled((micros + size // 2) // size * size, offset)


def _register() -> None:
    family(NAME, Family(lambda text: spelled(*read_timetz(text)), _key))
    conversion(TIME, TIMETZ, "implicit", lambda image, _: f"{image}+00")
    conversion(TIMETZ, TIME, "assignment", lambda image, _: time_image(read_timetz(image)[0]))
    conversion(TIMESTAMPTZ, TIMETZ, "assignment", _of_moment)
    zoned = lambda _: TIMETZ  # noqa: E731
    entry("+", (TIMETZ, INTERVAL), zoned, per_value(_moved(1), STRING), fallback=True)
    entry("+", (INTERVAL, TIMETZ), zoned, per_value(lambda by, v: _moved(1)(v, by), STRING), fallback=True)
    entry("-", (TIMETZ, INTERVAL), zoned, per_value(_moved(-1), STRING), fallback=True)
    for params, on in (((Kind.DATE, TIMETZ), _on), ((TIMETZ, Kind.DATE), lambda v, days: _on(days, v))):
        entry("+", params, Kind.TIMESTAMPTZ, on_numbers(on), fallback=True)
    entry("timezone", (Kind.TEXT, TIMETZ), zoned, per_value(_in_zone, STRING), fallback=True)
    entry("timezone", (INTERVAL, TIMETZ), zoned, per_value(_at_offset, STRING), fallback=True)
    entry("extract", (Kind.TEXT, TIMETZ), Kind.NUMERIC, per_value(_part, STRING), fallback=True)
    entry("$rounded", (TIMETZ, Kind.INTEGER), zoned, per_value(_rounded, STRING), fallback=True)
    entry("date_part", (Kind.TEXT, TIMETZ), Kind.DOUBLE, per_value(_double, pa.float64()), fallback=True)


_register()
