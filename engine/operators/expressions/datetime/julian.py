"""Days by their Julian number, and the ISO weeks in them, for any year, month and day, also ones that no calendar has.

Always: counts as Postgres does with 32 bits, toward zero, so that an interval's parts may stand for a date. Pure.
"""

from __future__ import annotations

JULIAN_1970 = 2_440_588
"""The Julian number of 1970-01-01."""


def _toward_zero(value: int, size: int) -> int:
    return value // size if value >= 0 else -(-value // size)


def wrapped(value: int) -> int:
    """A value as 32 bits hold it."""
    return (value + 2**31) % 2**32 - 2**31


def julian(year: int, month: int, day: int) -> int:
    """The Julian number of an astronomical date.

    >>> julian(1970, 1, 1) == JULIAN_1970
    True
    """
    year, month = (year + 4800, month + 1) if month > 2 else (year + 4799, month + 13)
    century = _toward_zero(year, 100)
    days = year * 365 - 32167 + _toward_zero(year, 4) - century + _toward_zero(century, 4)
    return wrapped(days + _toward_zero(7834 * month, 256) + day)


def weekday(day: int) -> int:
    """The day of the week of a Julian number, Sunday being 0."""
    return (day + 1) % 7


def week_start(year: int) -> int:
    """The Julian number of the Monday of the year's first ISO week."""
    fourth = julian(year, 1, 4)
    return fourth - weekday(fourth - 1)


def iso_year(year: int, month: int, day: int) -> int:
    """The ISO year that a date's week belongs to."""
    at = julian(year, month, day)
    if at < week_start(year):
        year -= 1
    return year + 1 if at >= week_start(year + 1) else year


def iso_week(year: int, month: int, day: int) -> int:
    """The ISO week of a date."""
    at = julian(year, month, day)
    start = week_start(year if at >= week_start(year) else year - 1)
    week = _toward_zero(at - start, 7) + 1
    if week >= 52 and at >= week_start(year + 1):
        week = _toward_zero(at - week_start(year + 1), 7) + 1
    return week


def iso_day(year: int, month: int, day: int) -> int:
    """The day of the ISO year of a date."""
    return julian(year, month, day) - week_start(iso_year(year, month, day)) + 1
