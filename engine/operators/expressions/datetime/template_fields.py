"""The fields that a template reads of a text, and the moment that they make together.

Always: a field is given once; a date's parts are checked as far as they were given, as Postgres does. Called by
`to_timestamp`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.datetime import calendar_text as text
from headrace.engine.operators.expressions.datetime.julian import JULIAN_1970, julian, week_start
from headrace.engine.operators.expressions.datetime.zone_names import Zone

BLANK = " \t\n\r\v\f"
"""What separates fields."""
Date = tuple[int, int, int]
"""(astronomical year, month, day)"""


@dataclass
class ReadFields:
    """What was read; 0 where nothing was. Its reader is its only writer. `zone`: None where unknown."""

    calendar: str = ""
    hour: int = 0
    afternoon: int = 0
    of_twelve: bool = False
    minute: int = 0
    second: int = 0
    of_day: int = 0
    weekday: int = 0
    day: int = 0
    of_year: int = 0
    month: int = 0
    millis: int = 0
    micros: int = 0
    fraction_digits: int = 0
    year: int = 0
    year_digits: int = 0
    before_christ: int = 0
    week: int = 0
    month_week: int = 0
    century: int = 0
    julian: int = 0
    zone: Zone | None = None
    zone_sign: int = 0
    zone_hour: int = 0
    zone_minute: int = 0

    def put(self, name: str, value: int, spelled: str) -> None:
        """Gives a field its value. Raises RowError for a second one."""
        if getattr(self, name) not in (0, value):
            raise RowError(f'conflicting values for "{spelled}" field in formatting string')
        setattr(self, name, value)

    def use(self, calendar: str) -> None:
        """A field of one calendar. Raises RowError where another's came before."""
        if calendar and self.calendar and calendar != self.calendar:
            raise RowError("invalid combination of date conventions")
        self.calendar = self.calendar or calendar


def day_of(year: int, month: int, day: int) -> int | None:
    """The Julian number of a date; None beyond the dates that Postgres has."""
    if (-4713, 11) <= (year, month) < (5874898, 6):
        return julian(year, month, day)
    return None


def _date_of(number: int) -> Date:
    return text.civil(number - JULIAN_1970)


def _year_of(f: ReadFields) -> int | None:
    """The astronomical year; None where none was read."""
    century = -f.century if f.before_christ else f.century
    if not f.year:
        if not f.century:
            return None
        return (century - 1) * 100 + 1 if century >= 0 else century * 100 + 1
    if f.century and f.year_digits <= 2:
        year = f.year % 100
        if not year:
            return century * 100 + (century < 0)
        return year + (century - 1) * 100 if century >= 0 else (century + 1) * 100 - year + 1
    year = -f.year if f.before_christ else f.year
    return year + 1 if year < 0 else year


def _date(f: ReadFields, subject: str) -> Date:
    """The date that the fields make. Raises RowError."""
    found = _year_of(f)
    if found is not None and not -(2**31) <= found < 2**31:
        raise _overflow(subject)
    year, month, day = found or 0, 1, 1
    given = {"year"} if found is not None else set()
    whole = {"year", "month", "day"}
    of_year, of_month = f.of_year, f.day
    if f.julian:
        (year, month, day), given = _date_of(f.julian), whole
    if f.week and f.calendar == "iso":
        # Sunday, which counts as the first, is the last of an ISO week.
        after = 0 if not f.weekday else f.weekday - 2 if f.weekday > 1 else 6
        (year, month, day), given = _date_of(week_start(year) + (f.week - 1) * 7 + after), whole
    elif f.week:
        of_year = (f.week - 1) * 7 + 1
    if f.month_week:
        of_month = (f.month_week - 1) * 7 + 1
    if of_month:
        day, given = of_month, given | {"day"}
    if f.month:
        month, given = f.month, given | {"month"}
    if of_year and (month <= 1 or day <= 1):
        if not year and not f.before_christ:
            raise RowError("cannot calculate day of year without year information")
        if f.calendar == "iso":
            year, month, day = _date_of(week_start(year) + of_year - 1)
        else:
            month, day = _by_day_of_year(year, month, day, of_year)
        given = whole
    _check(year, month, day, given, subject)
    return year, month, day


def _by_day_of_year(year: int, month: int, day: int, of_year: int) -> tuple[int, int]:
    found, before = 1, 0
    while found <= 12 and of_year > before + text.month_days(year, found):
        before += text.month_days(year, found)
        found += 1
    return found if month <= 1 else month, of_year - before if day <= 1 else day


def _check(year: int, month: int, day: int, given: set[str], subject: str) -> None:
    wrong = "month" in given and not 1 <= month <= 12
    wrong |= "day" in given and not 1 <= day <= 31
    if wrong or (len(given) == 3 and day > text.month_days(year, month)):
        raise _overflow(subject)


def _overflow(subject: str) -> RowError:
    return RowError(f'date/time field value out of range: "{subject}"')


def _clock(f: ReadFields, subject: str) -> int:
    """Microseconds of the day. Raises RowError."""
    hour, rest = divmod(f.of_day, 3600) if f.of_day >= 0 else (-(-f.of_day // 3600), -(-f.of_day % 3600))
    minute, second = divmod(rest, 60) if rest >= 0 else (-(-rest // 60), -(-rest % 60))
    hour, minute, second = f.hour or hour, f.minute or minute, f.second or second
    if f.of_twelve:
        if not 1 <= hour <= 12:
            raise RowError(f'hour "{hour}" is invalid for the 12-hour clock')
        hour = hour % 12 + 12 * f.afternoon
    micros = f.millis * 1000 + f.micros
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= micros < 1_000_000):
        raise _overflow(subject)
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros


def moment_of(f: ReadFields, subject: str) -> tuple[Date, int, Zone | None]:
    """(date, microseconds of the day, the zone if any). Raises RowError."""
    date, clock = _date(f, subject), _clock(f, subject)
    if f.zone_sign:
        if not (0 <= f.zone_hour <= 15 and 0 <= f.zone_minute < 60):
            raise RowError(f'time zone displacement out of range: "{subject}"')
        return date, clock, f.zone_sign * (f.zone_hour * 60 + f.zone_minute) * 60_000_000
    return date, clock, f.zone
