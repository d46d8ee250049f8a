"""Time zones as POSIX writes them: an offset, and a summer time that two rules begin and end each year.

Always: west of Greenwich is positive in the text and negative in what comes back; a rule holds in every year. Pure, called by
`zone_names`.

>>> hour = 3_600_000_000
>>> read_rule("FOO8BAR").offset_at(0) // hour, read_rule("<+03>-3").offset_at(0) // hour, read_rule("FOO")
(-8, 3, None)
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from headrace.engine.operators.expressions.datetime import calendar_text as text

_SECOND = 1_000_000
_TIME = r"[+-]?\d+(?::\d+(?::\d+)?)?"
_DAY = rf"(?:J\d+|\d+|M\d+\.\d+\.\d+)(?:/{_TIME})?"
_RULE = re.compile(
    rf"(?:<[^>]*>|(?!:)[^\d,+-]*)(?P<standard>{_TIME})"
    rf"(?:(?:<[^>]+>|[^\d,+<-][^\d,+-]*?)(?P<summer>{_TIME})?(?:,(?P<begin>{_DAY}),(?P<end>{_DAY}))?)?",
    re.ASCII,
)
_APART = 3 * text.DAY
_LIMITS = (167, 59, 60)
_USUAL = ("M3.2.0", "M11.1.0")
"""When summer time begins and ends where a zone does not say: Postgres takes the rule of the United States."""


class Turn(NamedTuple):
    """When the clocks are moved. `kind`: J (day of the year without leap days), D (with them, from 0) or M (month, week, day)."""

    kind: str
    day: tuple[int, ...]
    seconds: int

    def in_year(self, year: int) -> int:
        """Microseconds from 1970 to the turn in a year, by the clocks before it."""
        first = text.day_number(year, 1, 1)
        if self.kind == "M":
            month, week, weekday = self.day
            begin, length = text.day_number(year, month, 1), text.month_days(year, month)
            # The first of January 1970 was a Thursday.
            day = (weekday - begin - 4) % 7 + (week - 1) * 7
            number = begin + (day if day < length else day - 7)
        else:
            leap = self.kind == "J" and self.day[0] >= 60 and text.month_days(year, 2) == 29
            number = first + self.day[0] - (self.kind == "J") + leap
        return number * text.DAY + self.seconds * _SECOND


class Rule(NamedTuple):
    """A zone by its rule: offsets in microseconds. `summer` None: the clocks are never moved."""

    standard: int
    summer: int | None = None
    begin: Turn | None = None
    end: Turn | None = None

    def offset_at(self, micros: int) -> int:
        """The offset at a moment of UTC."""
        if self.summer is None or self.begin is None or self.end is None:
            return self.standard
        year = text.civil(micros // text.DAY)[0]
        # The last turn of the year before holds until the first of this one.
        turns = [(self.begin.in_year(y) - self.standard, self.summer) for y in (year - 1, year, year + 1)]
        turns += [(self.end.in_year(y) - self.summer, self.standard) for y in (year - 1, year, year + 1)]
        return max((at, offset) for at, offset in turns if at <= micros)[1]

    def is_close(self) -> bool:
        """Whether one turn follows another within days: Postgres then looks at one of them alone for a time between them."""
        if self.begin is None or self.end is None:
            return False
        turns = sorted(turn.in_year(year) for turn in (self.begin, self.end) for year in range(2023, 2027))
        return any(after - before < _APART for before, after in itertools.pairwise(turns))


def _seconds(spelled: str) -> int | None:
    parts = [int(p) for p in spelled.lstrip("+-").split(":")]
    if any(part > most for part, most in zip(parts, _LIMITS, strict=False)):
        return None
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return (-1 if spelled.startswith("-") else 1) * ((hours * 60 + minutes) * 60 + seconds)


def _turn(spelled: str) -> Turn | None:
    day, _, time = spelled.partition("/")
    seconds = _seconds(time or "2")
    kind = day[0] if day[0] in "JM" else "D"
    numbers = tuple(int(n) for n in day.lstrip("JM").split("."))
    ranges = {"J": ((1, 365),), "D": ((0, 365),), "M": ((1, 12), (1, 5), (0, 6))}[kind]
    fits = all(least <= n <= most for n, (least, most) in zip(numbers, ranges, strict=True))
    return Turn(kind, numbers, seconds) if fits and seconds is not None else None


def read_rule(spelled: str) -> Rule | None:
    """The zone that a text of POSIX's form means; None for another text."""
    found = _RULE.fullmatch(spelled)
    west = _seconds(found["standard"]) if found else None
    if found is None or west is None:
        return None
    standard = -west * _SECOND
    if found.end("standard") == len(spelled):
        return Rule(standard)
    east = _seconds(found["summer"]) if found["summer"] else west - 3600
    begin, end = _turn(found["begin"] or _USUAL[0]), _turn(found["end"] or _USUAL[1])
    return None if east is None or begin is None or end is None else Rule(standard, -east * _SECOND, begin, end)
