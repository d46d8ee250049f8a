"""Dates, times and timestamps as Postgres writes them (DateStyle ISO, session zone UTC), and the days of the calendar.

Always: a date is days and a timestamp microseconds since 1970-01-01, proleptic Gregorian, any year that fits; the
extreme integers of a lane are -infinity and infinity.
"""

from __future__ import annotations

import numpy as np

DAY = 86_400_000_000
DATE_INFINITY, DATE_MINUS_INFINITY = 2**31 - 1, -(2**31)
STAMP_INFINITY, STAMP_MINUS_INFINITY = 2**63 - 1, -(2**63)
PLAIN_DAYS = (int(np.datetime64("0001-01-01", "D").astype(int)), int(np.datetime64("10000-01-01", "D").astype(int)))
PLAIN_MICROS = (PLAIN_DAYS[0] * DAY, PLAIN_DAYS[1] * DAY)
STAMP_LIMIT = STAMP_INFINITY - 1
"""The first timestamp that is not held: above all that are, and below infinity."""
LATE = "timestamps from 294247-01-10 04:00:54.775806 on are not supported"
MIN_DAY = int(np.datetime64("-4713-11-24", "D").astype(int))
MAX_DAY = int(np.datetime64("5874898-01-01", "D").astype(int))
STAMP_MAX_DAY = int(np.datetime64("294277-01-01", "D").astype(int))
"""The first day of which Postgres has no timestamp."""


def stamp_fault(micros: int, message: str) -> str:
    """Why a timestamp is none of ours: Postgres's `message`, unless Postgres has it."""
    return LATE if STAMP_LIMIT <= micros < STAMP_MAX_DAY * DAY else message


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
