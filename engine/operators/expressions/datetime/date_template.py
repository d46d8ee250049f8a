"""Templates of dates and times: the patterns of to_char, to_date and to_timestamp, and to_char itself.

Always: the locale is C and the session's zone UTC, so TM names are the English ones. A value that is infinite, and an
empty template, give NULL. Pure functions, called by `formats` and `to_timestamp`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.template import Piece, ordinal_suffix, pattern_of, pieces_of
from headrace.engine.operators.expressions.datetime import calendar_text as text
from headrace.engine.operators.expressions.datetime.interval_text import DAY, Interval, is_finite
from headrace.engine.operators.expressions.datetime.intervals import is_endless
from headrace.engine.operators.expressions.datetime.julian import iso_day, iso_week, iso_year, julian, weekday, wrapped

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
ROMAN_MONTHS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
_BOTH = """A.D. A.M. AD AM B.C. BC CC DAY DDD DD DY D FF1 FF2 FF3 FF4 FF5 FF6 FX HH24 HH12 HH IDDD ID IW IYYY IYY IY I J
    MI MM MONTH MON MS OF P.M. PM Q RM SSSSS SSSS SS TZH TZM TZ US WW W Y,YYY YYYY YYY YY Y""".split()  # noqa: SIM905
_PATTERN = pattern_of((*_BOTH, *(w.lower() for w in _BOTH), "Day", "Dy", "Month", "Mon"), affixed=True)


@functools.lru_cache(maxsize=512)
def date_template(template: str) -> tuple[Piece, ...]:
    """The template's pieces."""
    return pieces_of(template, _PATTERN, affixed=True)


@dataclass(frozen=True)
class Fields:
    """What a template shows of a moment or an interval; `year` astronomical, `hour` not bounded for intervals.

    `zone`: the zone's name, "" where the type has none.
    """

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    micros: int
    of_year: int
    is_interval: bool = False
    zone: str = ""

    @property
    def date(self) -> tuple[int, int, int]:
        """(year, month, day)"""
        return self.year, self.month, self.day

    def shown_year(self, year: int) -> int:
        """A year as it is written: there is none before the first but the first BC."""
        return year if self.is_interval or year > 0 else 1 - year


def _left(value: int, size: int) -> int:
    """value % size with the sign of the value."""
    return value % size if value >= 0 else -(-value % size)


def _padded(piece: Piece, value: int, width: int) -> str:
    """A number of so many digits, and its sign beside them."""
    return str(value) if piece.fills else f"{value:0{width + (value < 0)}d}"


def _cased(piece: Piece, name: str) -> str:
    return name.upper() if piece.key[:2].isupper() else name.lower() if piece.key.islower() else name


def _name(piece: Piece, name: str) -> str:
    """A name padded to the longest of its kind; not so where it is translated."""
    return _cased(piece, name) if piece.prefix else _cased(piece, name).ljust(9)


def _century(f: Fields, piece: Piece) -> str:
    if f.is_interval:
        century = f.year // 100 if f.year >= 0 else -(-f.year // 100)
    else:
        century = (f.year - 1) // 100 + 1 if f.year > 0 else -(-f.year // 100) - 1
    return _padded(piece, century, 2) if -99 <= century <= 99 else str(century)


def _grouped(f: Fields, _piece: Piece) -> str:
    year = f.shown_year(f.year)
    thousands = year // 1000 if year >= 0 else -(-year // 1000)
    return f"{thousands},{year - thousands * 1000:03d}"


def _year(width: int, *, iso: bool) -> Callable[[Fields, Piece], str]:
    def write(f: Fields, piece: Piece) -> str:
        year = f.shown_year(iso_year(*f.date) if iso else f.year)
        if width < 4:
            year = _left(year, 10**width)
        # The place for a sign is the calendar's year's, not the ISO year's.
        places = width + (f.shown_year(f.year) < 0 and width > 1)
        return str(year) if piece.fills else f"{year:0{places}d}"

    return write


def _half(f: Fields, piece: Piece) -> str:
    dots = "." in piece.key
    shown = ("P.M." if dots else "PM") if math.fmod(f.hour, 24) >= 12 else ("A.M." if dots else "AM")
    return _cased(piece, shown)


def _era(f: Fields, piece: Piece) -> str:
    dots = "." in piece.key
    return _cased(piece, ("B.C." if dots else "BC") if f.year <= 0 else ("A.D." if dots else "AD"))


def _roman(f: Fields, piece: Piece) -> str:
    if not f.month and not f.year:
        return ""
    # A whole number of years is its twelfth month, or the first of a negative one.
    place = (11 if f.year >= 0 else 0) if f.month == 0 else 12 + f.month if f.month < 0 else f.month - 1
    shown = _cased(Piece(piece.key, ""), ROMAN_MONTHS[place])
    return shown if piece.fills else shown.ljust(4)


def _hour(f: Fields, piece: Piece) -> str:
    hour = _left(f.hour, 12) or 12
    return str(hour) if piece.fills else f"{hour:0{2 if f.hour >= 0 else 3}d}"


def _fraction(digits: int) -> Callable[[Fields, Piece], str]:
    def write(f: Fields, _piece: Piece) -> str:
        micros, size = f.micros, 10 ** (6 - digits)
        return f"{micros // size if micros >= 0 else -(-micros // size):0{digits}d}"

    return write


def _zone(f: Fields, piece: Piece) -> str:
    return _cased(piece, f.zone)


_WRITERS: dict[str, Callable[[Fields, Piece], str]] = {
    **dict.fromkeys(("A.M.", "P.M.", "AM", "PM"), _half),
    **dict.fromkeys(("A.D.", "B.C.", "AD", "BC"), _era),
    **dict.fromkeys(("HH", "HH12"), _hour),
    "HH24": lambda f, p: _padded(p, f.hour, 2),
    "MI": lambda f, p: _padded(p, f.minute, 2),
    "SS": lambda f, p: _padded(p, f.second, 2),
    **dict.fromkeys(("SSSS", "SSSSS"), lambda f, _: str(f.hour * 3600 + f.minute * 60 + f.second)),
    **{f"FF{n}": _fraction(n) for n in range(1, 7)},
    "MS": _fraction(3),
    "US": _fraction(6),
    "TZ": _zone,
    "TZH": lambda _f, _p: "+00",
    "TZM": lambda _f, _p: "00",
    "OF": lambda _f, p: "+0" if p.fills else "+00",
    "MONTH": lambda f, p: _name(p, MONTHS[f.month - 1]),
    "MON": lambda f, p: _cased(p, MONTHS[f.month - 1][:3]),
    "MM": lambda f, p: _padded(p, f.month, 2),
    "DAY": lambda f, p: _name(p, DAYS[weekday(julian(*f.date))]),
    "DY": lambda f, p: _cased(p, DAYS[weekday(julian(*f.date))][:3]),
    "D": lambda f, _: str(weekday(julian(*f.date)) + 1),
    "ID": lambda f, _: str(weekday(julian(*f.date)) or 7),
    "DDD": lambda f, p: str(f.of_year) if p.fills else f"{f.of_year:03d}",
    "IDDD": lambda f, p: str(iso_day(*f.date)) if p.fills else f"{iso_day(*f.date):03d}",
    "DD": lambda f, p: str(f.day) if p.fills else f"{f.day:02d}",
    "WW": lambda f, p: _week(p, f.of_year),
    "IW": lambda f, p: str(iso_week(*f.date)) if p.fills else f"{iso_week(*f.date):02d}",
    "W": lambda f, _: _week(Piece("", "", "FM"), f.day),
    "Q": lambda f, _: str((f.month - 1) // 3 + 1 if f.month > 0 else 1 - (1 - f.month) // 3) if f.month else "",
    "CC": _century,
    "Y,YYY": _grouped,
    **{"Y" * n: _year(n, iso=False) for n in range(1, 5)},
    **{"I" + "Y" * (n - 1): _year(n, iso=True) for n in range(1, 5)},
    "RM": _roman,
    "J": lambda f, _: str(julian(*f.date)),
}
_COUNTED = {"HH", "HH12", "HH24", "MI", "SS", "SSSS", "SSSSS", "MS", "US", "MM", "DDD", "IDDD", "DD", "D", "ID", "WW", "IW",
            "W", "Q", "CC", "Y,YYY", "J", *(f"FF{n}" for n in range(1, 7)), *("Y" * n for n in range(1, 5)),
            *("I" + "Y" * n for n in range(4))}  # fmt: skip
"""The patterns that TH goes with."""
_OF_MOMENTS = {"TZ", "TZH", "TZM", "OF", "A.D.", "B.C.", "AD", "BC", "MONTH", "MON", "DAY", "DY", "D", "ID"}
"""The patterns that no interval has."""


def _week(piece: Piece, day: int) -> str:
    week = (day - 1) // 7 + 1 if day > 0 else 1 - (1 - day) // 7
    return str(week) if piece.fills else f"{week:02d}"


def _written(fields: Fields, template: str) -> str | None:
    out: list[str] = []
    for piece in date_template(template):
        key = piece.key.upper()
        if not key or key == "FX":
            out.append("" if key else piece.text)
            continue
        if fields.is_interval and key in _OF_MOMENTS:
            raise RowError("invalid format specification for an interval value")
        shown = _WRITERS[key](fields, piece)
        ordinal = ordinal_suffix(shown, piece.ordinal) if piece.ordinal and shown and key in _COUNTED else ""
        out.append(shown + ordinal)
    return "".join(out) if template else None


def write_stamp(zone: str) -> Callable[[int, str], str | None]:
    """to_char(timestamp, template); `zone`: the name that TZ shows."""

    def write(micros: int, template: str) -> str | None:
        if is_endless(micros):
            return None
        days, clock = divmod(micros, DAY)
        year, month, day = text.civil(days)
        seconds, rest = divmod(clock, 1_000_000)
        of_year = days - text.day_number(year, 1, 1) + 1
        shown = Fields(year, month, day, seconds // 3600, seconds // 60 % 60, seconds % 60, rest, of_year, zone=zone)
        return _written(shown, template)

    return write


def write_interval(value: Interval, template: str) -> str | None:
    """to_char(interval, template)."""
    if not is_finite(value):
        return None
    months, days, micros = value
    year = months // 12 if months >= 0 else -(-months // 12)
    sign, clock = (-1 if micros < 0 else 1), abs(micros)
    seconds, rest = divmod(clock, 1_000_000)
    shown = Fields(
        year, months - year * 12, days, sign * (seconds // 3600), sign * (seconds // 60 % 60), sign * (seconds % 60),
        sign * rest, wrapped(months * 30 + days), is_interval=True,
    )  # fmt: skip
    return _written(shown, template)
