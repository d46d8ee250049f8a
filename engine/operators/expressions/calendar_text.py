"""Dates, times and timestamps as Postgres writes and reads them (DateStyle ISO, session zone UTC).

Always: a date is days and a timestamp microseconds since 1970-01-01, proleptic Gregorian, any year that fits; the
extreme integers of a lane are -infinity and infinity. Only ISO spellings are read; others fail their row by name.
"""

from __future__ import annotations

import re

import numpy as np

from engine.operators.expressions.fallback import RowError
from engine.operators.expressions.numerals import BLANKS, invalid
from engine.schema import Kind

DAY = 86_400_000_000
DATE_INFINITY, DATE_MINUS_INFINITY = 2**31 - 1, -(2**31)
STAMP_INFINITY, STAMP_MINUS_INFINITY = 2**63 - 1, -(2**63)
PLAIN_DAYS = (int(np.datetime64("0001-01-01", "D").astype(int)), int(np.datetime64("10000-01-01", "D").astype(int)))
PLAIN_MICROS = (PLAIN_DAYS[0] * DAY, PLAIN_DAYS[1] * DAY)
STAMP_LIMIT = STAMP_INFINITY
"""The first timestamp that the lane does not hold; Postgres's are a month longer."""
MIN_DAY = int(np.datetime64("-4713-11-24", "D").astype(int))
MAX_DAY = int(np.datetime64("5874898-01-01", "D").astype(int))


def civil(days: int) -> tuple[int, int, int]:
    """(astronomical year, month, day) of a day number."""
    shifted = days + 719468
    era, of_era = divmod(shifted, 146097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * of_year + 2) // 153
    month = month_index + 3 if month_index < 10 else month_index - 9
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * month_index + 2) // 5 + 1


def day_number(year: int, month: int, day: int) -> int:
    """The day number of an astronomical date."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719468


def month_days(year: int, month: int) -> int:
    """The days of a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def date_image(days: int) -> str:
    """A date as Postgres prints it."""
    if days in (DATE_INFINITY, DATE_MINUS_INFINITY):
        return "infinity" if days > 0 else "-infinity"
    year, month, day = civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{day:02d} BC"


def time_image(micros: int) -> str:
    """A time of day as Postgres prints it."""
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def stamp_image(micros: int, zone: str) -> str:
    """A timestamp as Postgres prints it; `zone` is appended (before BC)."""
    if micros in (STAMP_INFINITY, STAMP_MINUS_INFINITY):
        return "infinity" if micros > 0 else "-infinity"
    days, rest = divmod(micros, DAY)
    date, _, era = date_image(days).partition(" ")
    text = f"{date} {time_image(rest)}{zone}"
    return f"{text} {era}" if era else text


_DATE = r"(?P<year>\d{4,7})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d+))?)?"
_ZONE = r"(?P<zone>\s*(?:[zZ]|UTC|[+-]\d{2}(?::?\d{2})?(?::?\d{2})?))?"
UNSPELLED = "spelling of"
_STAMP = re.compile(rf"{_DATE}(?:(?:[ \t]+|[tT]){_TIME}{_ZONE})?(?P<era>\s+(?:BC|AD))?", re.ASCII | re.IGNORECASE)
_CLOCK = re.compile(rf"{_TIME}{_ZONE}", re.ASCII | re.IGNORECASE)
_INFINITIES = {"infinity": 1, "+infinity": 1, "inf": 0, "-infinity": -1}


def _overflow(text: str) -> RowError:
    return RowError(f'date/time field value out of range: "{text}"')


def _day(match: re.Match[str], text: str) -> int:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if (match["era"] or "").strip().upper() == "BC":
        if year == 0:
            raise _overflow(text)
        year = 1 - year
    elif year == 0:
        raise _overflow(text)
    if not 1 <= month <= 12 or not 1 <= day <= month_days(year, month):
        raise _overflow(text)
    return day_number(year, month, day)


def _micros(match: re.Match[str], text: str) -> int:
    if match["hour"] is None:
        return 0
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    fraction = round(float(f"0.{match['fraction'] or 0}") * 1_000_000)
    if minute > 59 or second > 60 or hour > 24 or (hour == 24 and (minute or second or fraction)):
        raise _overflow(text)
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction


def _zone_micros(match: re.Match[str], text: str) -> int:
    zone = (match["zone"] or "").strip()
    if zone[:1] not in ("+", "-"):
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4] or 0), int(digits[4:6] or 0)
    if hours > 15 or minutes > 59 or seconds > 59:
        raise RowError(f'time zone displacement out of range: "{text}"')
    return (1 if zone[0] == "+" else -1) * ((hours * 60 + minutes) * 60 + seconds) * 1_000_000


def _match(text: str, type_name: str) -> re.Match[str]:
    body = text.strip(BLANKS)
    match = _STAMP.fullmatch(body)
    if match:
        return match
    if body.lower() in ("now", "today", "tomorrow", "yesterday"):
        raise RowError(f'{UNSPELLED} {type_name} not supported: "{text}": it depends on the time of the query')
    if not re.search(r"\d", body) or not re.fullmatch(r"[\w\s:./+,-]*", body):
        raise invalid(type_name, text)
    raise RowError(f'{UNSPELLED} {type_name} not supported: "{text}": write it as ISO 8601')


def read_date(text: str) -> int:
    """The day number of a date's text."""
    sign = _INFINITIES.get(text.strip(BLANKS).lower())
    if sign:
        return DATE_INFINITY if sign > 0 else DATE_MINUS_INFINITY
    match = _match(text, "date")
    _micros(match, text)
    days = _day(match, text)
    if not MIN_DAY <= days < MAX_DAY:
        raise RowError(f'date out of range: "{text}"')
    return days


def _read_stamp(text: str, type_name: str, zoned: bool) -> int:
    sign = _INFINITIES.get(text.strip(BLANKS).lower())
    if sign:
        return STAMP_INFINITY if sign > 0 else STAMP_MINUS_INFINITY
    match = _match(text, type_name)
    micros = _day(match, text) * DAY + _micros(match, text)
    offset = _zone_micros(match, text)
    if zoned:
        micros -= offset
    if not (MIN_DAY * DAY <= micros < STAMP_INFINITY):
        raise RowError(f'timestamp out of range: "{text}"')
    return micros


def read_timestamp(text: str) -> int:
    """Microseconds of a timestamp's text; a zone in it is ignored, as Postgres does."""
    return _read_stamp(text, "timestamp", False)


def read_timestamptz(text: str) -> int:
    """Microseconds, in UTC, of a timestamptz's text; without a zone it is UTC."""
    return _read_stamp(text, "timestamp with time zone", True)


def read_time(text: str) -> int:
    """Microseconds since midnight of a time's text."""
    match = _CLOCK.fullmatch(text.strip(BLANKS))
    if not match:
        raise invalid("time", text)
    return _micros(match, text)


READERS = {
    Kind.DATE: read_date,
    Kind.TIME: read_time,
    Kind.TIMESTAMP: read_timestamp,
    Kind.TIMESTAMPTZ: read_timestamptz,
}
