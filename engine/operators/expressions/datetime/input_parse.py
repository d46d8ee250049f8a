"""Dates, times and timestamps read as Postgres reads them (DateStyle ISO, MDY; session zone UTC), in every spelling it knows.

Always: ISO's spellings are read at once, others field by field (`input_decode`); a word whose meaning is the time of the
query fails its row by name. Called by `text_io`.
"""

from __future__ import annotations

import re

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.datetime.calendar_text import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    DAY,
    MAX_DAY,
    MIN_DAY,
    STAMP_INFINITY,
    STAMP_LIMIT,
    STAMP_MINUS_INFINITY,
    day_number,
    month_days,
    stamp_fault,
)
from headrace.engine.operators.expressions.datetime.input_decode import (
    BadFormat,
    Moment,
    OutOfRange,
    ZoneOutOfRange,
    offset_of,
)
from headrace.engine.operators.expressions.datetime.input_words import VOLATILE, fields_of
from headrace.engine.operators.expressions.datetime.zone_names import Abbreviated, moment_of, offset_at
from headrace.engine.operators.expressions.numeric.decimal_math import invalid
from headrace.engine.schema import Kind

UNSPELLED = "spelling of"
SECOND = 1_000_000
_ISO = re.compile(
    r"\s*(\d{4,7})-(\d{1,2})-(\d{1,2})(?:[ \t]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?([+-]\d{2}(?::\d{2}){0,2})?)?\s*",
    re.ASCII,
)
_ISO_TIME = re.compile(r"\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?\s*", re.ASCII)


def _iso(text: str) -> Moment | None:
    """What an ISO text says; None for another, and for one out of range."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    hour, minute, second = (int(match[i] or 0) for i in (4, 5, 6))
    micros = round(float(f"0.{match[7]}") * SECOND) if match[7] else 0
    if not (year and 1 <= month <= 12 and 1 <= day <= month_days(year, month)):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    offset = None
    if match[8]:
        try:
            offset = offset_of(match[8])
        except ZoneOutOfRange:
            return None
    return Moment(year, month, day, hour, minute, second, micros, offset)


def _read(text: str, name: str, *, only_time: bool = False) -> Moment:
    """What a text says. Raises RowError."""
    found = Moment(only_time=only_time)
    fields = fields_of(text)
    try:
        if not fields:
            raise BadFormat
        found.take(fields)
    except BadFormat:
        raise invalid(name, text) from None
    except OutOfRange:
        raise RowError(f'date/time field value out of range: "{text}"') from None
    except ZoneOutOfRange:
        raise RowError(f'time zone displacement out of range: "{text}"') from None
    if found.special in VOLATILE:
        raise RowError(f'{UNSPELLED} {name} not supported: "{text}": it depends on the time of the query')
    return found


def read_date(text: str) -> int:
    """The day number of a date's text."""
    found = _iso(text) or _read(text, "date")
    if found.special:
        return {"epoch": 0, "infinity": DATE_INFINITY}.get(found.special, DATE_MINUS_INFINITY)
    days = day_number(found.year, found.month, found.day)
    if not MIN_DAY <= days < MAX_DAY:
        raise RowError(f'date out of range: "{text}"')
    return days


def _read_stamp(text: str, name: str, *, zoned: bool) -> int:
    found = _iso(text) or _read(text, name)
    if found.special:
        return {"epoch": 0, "infinity": STAMP_INFINITY}.get(found.special, STAMP_MINUS_INFINITY)
    micros = day_number(found.year, found.month, found.day) * DAY + found.time_of_day
    if zoned:
        micros = micros - found.offset * SECOND if found.offset is not None else micros
        micros = moment_of(micros, found.zone) if found.zone is not None else micros
    if not MIN_DAY * DAY <= micros < STAMP_LIMIT:
        raise RowError(stamp_fault(micros, f'timestamp out of range: "{text}"'))
    return micros


def read_timestamp(text: str) -> int:
    """Microseconds of a timestamp's text; a zone in it is ignored, as Postgres does."""
    return _read_stamp(text, "timestamp", zoned=False)


def read_timestamptz(text: str) -> int:
    """Microseconds, in UTC, of a timestamptz's text; without a zone it is UTC."""
    return _read_stamp(text, "timestamp with time zone", zoned=True)


def _clock(text: str, name: str) -> Moment:
    match = _ISO_TIME.fullmatch(text)
    if match is not None and int(match[1]) < 24 and int(match[2]) < 60 and int(match[3] or 0) < 60:
        micros = round(float(f"0.{match[4]}") * SECOND) if match[4] else 0
        return Moment(hour=int(match[1]), minute=int(match[2]), second=int(match[3] or 0), micros=micros)
    found = _read(text, name, only_time=True)
    if found.zone is not None and not isinstance(found.zone, int):
        if not {"year", "month", "day"} <= found.seen:
            if isinstance(found.zone, Abbreviated):
                found.undated = True
                return found
            # The zone's offset depends on the date, unless it never changed.
            raise invalid(name, text)
        local = day_number(found.year, found.month, found.day) * DAY + found.time_of_day
        found.offset = (local - moment_of(local, found.zone)) // SECOND
    elif found.zone is not None:
        found.offset = offset_at(found.zone, 0) // SECOND
    return found


def read_time(text: str) -> int:
    """Microseconds since midnight of a time's text; a zone in it is ignored."""
    return _clock(text, "time").time_of_day


def read_timetz(text: str) -> tuple[int, int]:
    """(microseconds since midnight, seconds east of Greenwich) of a time's text with a zone; without one it is UTC."""
    found = _clock(text, "time with time zone")
    if found.undated:
        raise RowError(f'{UNSPELLED} time with time zone not supported: "{text}": it depends on the time of the query')
    return found.time_of_day, found.offset or 0


READERS = {
    Kind.DATE: read_date,
    Kind.TIME: read_time,
    Kind.TIMESTAMP: read_timestamp,
    Kind.TIMESTAMPTZ: read_timestamptz,
}
