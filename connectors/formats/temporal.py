"""Dates and times between the ways Debezium writes them and the integers of the lanes.

Days and microseconds count from 1970-01-01 UTC in the proleptic Gregorian calendar, as Postgres does. Infinity is the
greatest integer of a lane, minus infinity the least. Pure functions; called by the column decoders and text images.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.connectors.formats.table_specs import CannotDecode

DATE_INFINITY: Final = 2**31 - 1
DATE_MINUS_INFINITY: Final = -(2**31)
INFINITY: Final = 2**63 - 1
MINUS_INFINITY: Final = -(2**63)

FIRST_DAY: Final = -2440588
LAST_DAY: Final = 2145031948
"""Postgres's range of dates, 4714-11-24 BC to 5874897-12-31, in days from 1970."""

DAY_US: Final = 86_400_000_000
FIRST_STAMP: Final = FIRST_DAY * DAY_US

_INFINITE_DAYS: Final = {
    **dict.fromkeys((-622191235, -622191234, -622191233, -2147472692), DATE_INFINITY),
    **dict.fromkeys((-625821273, -625821272, -625821271, -2147472691), DATE_MINUS_INFINITY),
}
"""Debezium pushes infinite dates through 32-bit days and Julian days: what comes out lies outside Postgres's range.
The first three of each line come from snapshots (a day either way for the connector's zone), the last from streams."""

# An infinite timestamp comes as 294247-01-10 04:00:25.2, or as one of before Postgres's first.
_INFINITE_US: Final = {9223372036825200000: INFINITY, -9223372036832400000: MINUS_INFINITY}
_INFINITE_MS: Final = {9223372036825200: INFINITY, -9223372036832400: MINUS_INFINITY}
_INFINITE_NS: Final = {2**63 - 1: INFINITY, -(2**63): MINUS_INFINITY}

_STAMP: Final = re.compile(
    r"([+-]?\d{4,})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_DATE: Final = re.compile(r"([+-]?\d{4,})-(\d\d)-(\d\d)Z?", re.ASCII)
_TIME: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)


def days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date; year 0 is 1 BC."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def civil(day: int) -> tuple[int, int, int]:
    """(year, month, day) of days from 1970-01-01; the inverse of `days`."""
    shifted = day + 719468
    era = shifted // 146097
    of_era = shifted - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    part = (5 * of_year + 2) // 153
    month = part + 3 if part < 10 else part - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * part + 2) // 5 + 1


def date_from_days(value: int) -> int:
    """A day count as sent → the lane's. Raises CannotDecode for days that Postgres has not."""
    if FIRST_DAY <= value <= LAST_DAY:
        return value
    if value in _INFINITE_DAYS:
        return _INFINITE_DAYS[value]
    raise CannotDecode(f"{value} days from 1970 is no date of Postgres")


def date_from_iso(text: str) -> int:
    """`2016-11-04Z` → days. Years beyond Postgres's are Debezium's images of infinity."""
    match = _DATE.fullmatch(text)
    if not match:
        raise CannotDecode("not an ISO date")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if year > 292_270_000 or text == "-5877611-06-21Z":
        return DATE_INFINITY
    if year > 292_260_000 or text == "-5877611-06-22Z":
        return DATE_MINUS_INFINITY
    return date_from_days(days(year, month, day))


def micros_from_ms(value: int) -> int:
    """Milliseconds as sent → µs, infinities kept."""
    return _INFINITE_MS[value] if value in _INFINITE_MS else _stamp(value * 1000)


def micros_from_us(value: int) -> int:
    """Microseconds as sent → µs, infinities kept."""
    return _INFINITE_US[value] if value in _INFINITE_US else _stamp(value)


def micros_from_ns(value: int) -> int:
    """Nanoseconds as sent → µs. Postgres has whole microseconds only; anything finer cannot be from it."""
    if value in _INFINITE_NS:
        return _INFINITE_NS[value]
    return _whole_micros(value)


def time_from_us(value: int) -> int:
    """Microseconds of a day; 24:00:00 is a time of Postgres, nothing beyond it is."""
    if 0 <= value <= DAY_US:
        return value
    raise CannotDecode("not a time of day")


def time_from_ms(value: int) -> int:
    """Milliseconds of a day → µs."""
    return time_from_us(value * 1000)


def time_from_ns(value: int) -> int:
    """Nanoseconds of a day → µs."""
    return time_from_us(_whole_micros(value))


def _stamp(micros: int) -> int:
    """A timestamp that is held; the greatest integer but one stands above them all.

    Debezium sends later ones as the greatest integer, or wrapped around to the least.
    """
    if FIRST_STAMP <= micros < INFINITY - 1:
        return micros
    raise CannotDecode(
        f"{micros} µs from 1970 is no timestamp of Postgres, or one after 294247-01-10 04:00:54.775805",
        "keep such times in a column of text",
    )


def _whole_micros(value: int) -> int:
    whole, rest = divmod(value, 1000)
    if rest:
        raise CannotDecode("nanoseconds below a microsecond")
    return whole


def _fraction(digits: str | None) -> int:
    if not digits:
        return 0
    return _whole_micros(int(digits.ljust(9, "0")))


def _offset(text: str | None) -> int:
    if not text or text == "Z":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return (-seconds if text[0] == "-" else seconds) * 1_000_000


def micros_from_iso(text: str) -> int:
    """`2016-11-04T13:51:30.123456Z`, with any year and offset, `infinity`, `-infinity` → µs at UTC.

    Inside an array minus infinity comes as a year of 292 million.
    """
    match = _STAMP.fullmatch(text)
    if not match:
        if text in ("infinity", "-infinity"):
            return INFINITY if text == "infinity" else MINUS_INFINITY
        raise CannotDecode("not an ISO timestamp")
    year = int(match[1])
    if year > 292_260_000:
        return MINUS_INFINITY
    day = days(year, int(match[2]), int(match[3]))
    value = day * DAY_US + _clock(match[4], match[5], match[6], match[7]) - _offset(match[8])
    return micros_from_us(value)


def time_from_iso(text: str) -> int:
    """`13:51:30.123Z` → µs of the day."""
    match = _TIME.fullmatch(text)
    if not match:
        raise CannotDecode("not an ISO time")
    return _clock(match[1], match[2], match[3], match[4])


def _clock(hours: str, minutes: str, seconds: str | None, fraction: str | None) -> int:
    return (int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)) * 1_000_000 + _fraction(fraction)


def date_text(day: int) -> str:
    """Postgres's ISO output of a date."""
    if day in (DATE_INFINITY, DATE_MINUS_INFINITY):
        return "infinity" if day == DATE_INFINITY else "-infinity"
    year, month, of_month = civil(day)
    return f"{year:04d}-{month:02d}-{of_month:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{of_month:02d} BC"


def time_text(micros: int) -> str:
    """Postgres's output of a time of day; 24:00:00 is one."""
    seconds, fraction = divmod(micros, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{clock}.{fraction:06d}".rstrip("0") if fraction else clock


def timestamp_text(micros: int, zone: str = "") -> str:
    """Postgres's ISO output of a timestamp; `zone` (`+00`) is put behind the clock of a timestamptz."""
    if micros in (INFINITY, MINUS_INFINITY):
        return "infinity" if micros == INFINITY else "-infinity"
    day, of_day = divmod(micros, DAY_US)
    date = date_text(day)
    era = " BC" if date.endswith(" BC") else ""
    return f"{date.removesuffix(' BC')} {time_text(of_day)}{zone}{era}"


def timetz_text(text: str) -> str:
    """`11:51:30.123789Z` → Postgres's output. Debezium moves these to UTC: the original offset is not known."""
    match = _TIME.fullmatch(text)
    if not match:
        raise CannotDecode("not an ISO time")
    zone = match[5] or "Z"
    return time_text(time_from_iso(text)) + ("+00" if zone == "Z" else zone.removesuffix(":00"))
