"""Intervals read as Postgres reads them: quantities with their units from right to left, else ISO 8601's forms.

Always: years and months, days, and microseconds add up apart, each in its own range; what a quantity lacks a unit for is told
by the unit to its right, and the last by the fields of the type. Pure; what Postgres refuses raises `RowError`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.datetime.input_words import Cut, Field, fields_of, word_of
from headrace.engine.operators.expressions.datetime.interval_text import (
    DAY,
    INFINITE,
    MINUS_INFINITE,
    OUT_OF_RANGE,
    Interval,
    rounded,
)
from headrace.engine.operators.expressions.numeric.decimal_math import invalid

_MONTHS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
"""Units by their years."""
_MICROS = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 6 * 10**7, "hour": 36 * 10**8}
_UNITS: dict[str, str] = {}
for _unit, _names in {
    "microsecond": "microsecon us usec usecs useconds usecond",
    "millisecond": "millisecon ms msec msecs msecond mseconds",
    "second": "second seconds s sec secs",
    "minute": "minute minutes m min mins",
    "hour": "hour hours h hr hrs",
    "day": "day days d",
    "week": "week weeks w",
    "month": "month months mon mons",
    "year": "year years y yr yrs",
    "decade": "decade decades decs dec",
    "century": "century centuries cent c",
    "millennium": "millennium millennia mil mils",
}.items():
    for _name in _names.split():
        _UNITS[_name] = _unit
_WORD = 10
"""The letters of a word that count."""
_INT32, _INT64 = 2**31, 2**63
_CLOCK = frozenset({"hour", "minute", "second", "millisecond", "microsecond"})
_SECONDS = frozenset({"second", "millisecond", "microsecond"})
_ALL = _CLOCK | {*_MONTHS, "month", "week", "day"}
_ENDLESS = (("word", "infinity"), ("word", "-infinity"))
_MOST_ISO = 1e15
_ISO_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_ISO_DATE = {"Y": "year", "M": "month", "W": "week", "D": "day"}


class _Plain(NamedTuple):
    """Quantities without designators: their units, the mark between them, and how many digits they have without it."""

    units: tuple[str, str, str]
    mark: str
    width: int


_DATE, _TIME = _Plain(("year", "month", "day"), "-", 8), _Plain(("hour", "minute", "second"), ":", 6)
_ISO_CLOCK = {"H": "hour", "M": "minute", "S": "second"}


class _BadFormat(Exception):
    """The text is no interval."""


class _Overflow(Exception):
    """A field of the text is out of range."""


def _held(value: int, size: int) -> int:
    if not -size <= value < size:
        raise _Overflow
    return value


class _Sum:
    """What was read so far; its reader is its only writer."""

    def __init__(self) -> None:
        self.years = self.months = self.days = self.micros = 0

    def add_days(self, count: int, rest: float) -> None:
        """Whole days, and microseconds of the day that is left."""
        whole = _held(int(rest), _INT32)
        self.days = _held(_held(self.days + _held(count, _INT32), _INT32) + whole, _INT32)
        self.add_micros(rounded((rest - whole) * DAY))

    def add_micros(self, count: int) -> None:
        """Microseconds."""
        self.micros = _held(self.micros + _held(count, _INT64), _INT64)

    def add(self, unit: str, count: int, rest: float) -> None:
        """A quantity of a unit: its whole part, and its fraction. Raises _Overflow."""
        if unit in _MONTHS:
            self.years = _held(self.years + _held(_held(count, _INT32) * _MONTHS[unit], _INT32), _INT32)
            self.months = _held(self.months + round(rest * _MONTHS[unit] * 12), _INT32)
        elif unit == "month":
            self.months = _held(self.months + _held(count, _INT32), _INT32)
            self.add_days(0, rest * 30)
        elif unit == "week":
            self.add_days(_held(count, _INT32) * 7, rest * 7)
        elif unit == "day":
            self.add_days(count, 0.0)
            self.add_micros(rounded(rest * DAY))
        else:
            self.add_micros(count * _MICROS[unit])
            self.add_micros(rounded(rest * _MICROS[unit]))

    def value(self) -> Interval:
        """The interval. Raises RowError."""
        months = self.years * 12 + self.months
        if not -_INT32 <= months < _INT32:
            raise RowError(OUT_OF_RANGE)
        return months, self.days, self.micros

    def negate(self) -> None:
        """All of it backwards. Raises _Overflow."""
        self.years, self.months, self.days = (_held(-v, _INT32) for v in (self.years, self.months, self.days))
        self.micros = _held(-self.micros, _INT64)


def read(text: str, fields: Sequence[str] = ()) -> Interval:
    """The interval that a text spells; `fields`: those that its type names. Raises RowError."""
    try:
        try:
            return _postgres(text, fields)
        except _BadFormat:
            return _iso(text)
    except _BadFormat:
        raise invalid("interval", text) from None
    except _Overflow:
        raise RowError(f'interval field value out of range: "{text}"') from None


def _postgres(text: str, fields: Sequence[str]) -> Interval:
    parts = fields_of(text)
    if not parts:
        raise _BadFormat
    total, seen, unit, waits, ago = _Sum(), frozenset[str](), "", False, False
    endless: Interval | None = None
    last = fields[-1] if fields else "second"
    for part in reversed(parts):
        if part.cut is Cut.WORD:
            if waits:
                raise _BadFormat
            word = part.text[:_WORD]
            if word in _UNITS:
                unit, waits = _UNITS[word], True
            elif word == "ago" and part is parts[-1]:
                unit, ago = "ago", True
            elif word_of(word) in _ENDLESS and part is parts[-1]:
                endless, seen = (MINUS_INFINITE if word[0] == "-" else INFINITE), _ALL
            elif word_of(word) != ("nothing", 0):
                raise _BadFormat
            else:
                unit = ""
            continue
        said, unit = _quantity(total, part, unit or last, fields)
        if said & seen:
            raise _BadFormat
        seen, waits = seen | said, False
    if waits or not seen:
        raise _BadFormat
    if ago:
        total.negate()
    return endless or total.value()


def _quantity(total: _Sum, part: Field, unit: str, fields: Sequence[str]) -> tuple[frozenset[str], str]:
    """Adds a field to the sum: (what it says, the unit of what stands to its left). Raises _BadFormat or _Overflow."""
    body = part.text
    if part.cut is Cut.TIME or (part.cut is Cut.ZONE and ":" in body):
        try:
            micros = _clock(body.lstrip("+-"), fields)
        except (_BadFormat, _Overflow):
            if part.cut is Cut.TIME:
                raise
        else:
            # As in Postgres, the fractions of days to its right are lost.
            total.micros = -micros if body[0] == "-" else micros
            return _CLOCK, "day"
    found = re.fullmatch(r"([+-]?\d+|(?=\.))(?:-([+-]?\d*)(.*)|\.(\d*))?", body, re.ASCII)
    if found is None:
        raise _BadFormat
    negative = body[0] == "-"
    count = _held(int(found[1]) if found[1].strip("+-") else 0, _INT64)
    if found[2] is not None:
        months = int(found[2]) if found[2].strip("+-") else 0
        if not 0 <= months < 12:
            raise _Overflow
        if found[3]:
            raise _BadFormat
        total.add("month", _held(count * 12 + (-months if negative else months), _INT64), 0.0)
        return frozenset({"month"}), "month"
    rest = float(f"0.{found[4] or 0}") * (-1 if negative else 1)
    if unit not in _ALL:
        raise _BadFormat
    total.add(unit, count, rest)
    said = _SECONDS if unit == "second" and rest else frozenset({unit})
    return said, "day" if unit == "hour" else unit


def _clock(body: str, fields: Sequence[str]) -> int:
    """Microseconds of hours, minutes and seconds; two of them with a fraction are minutes and seconds."""
    found = re.fullmatch(r"(\d+):(\d*)(?::(\d*))?(?:(\.)(\d*))?", body, re.ASCII)
    if found is None:
        raise _BadFormat
    hours, minutes, seconds = (_held(int(found[i] or 0), _INT64 if i == 1 else _INT32) for i in (1, 2, 3))
    if found[3] is None and (found[4] or tuple(fields) == ("minute", "second")):
        hours, minutes, seconds = 0, _held(hours, _INT32), minutes
    if minutes > 59 or seconds > 60:
        raise _Overflow
    micros = ((hours * 60 + minutes) * 60 + seconds) * 10**6 + round(float(f"0.{found[5] or 0}") * 1e6)
    return _held(micros, _INT64)


def _iso(text: str) -> Interval:
    """ISO 8601: designated quantities, or its alternative forms with and without marks."""
    if len(text) < 2 or text[0] != "P":
        raise _BadFormat
    total = _Sum()
    date, *clocks = text[1:].split("T")
    _iso_part(total, date, _ISO_DATE, _DATE, is_last=True)
    for place, clock in enumerate(clocks):
        _iso_part(total, clock, _ISO_CLOCK, _TIME, is_last=place + 1 == len(clocks))
    return total.value()


def _iso_part(total: _Sum, body: str, units: dict[str, str], plain: _Plain, *, is_last: bool) -> None:
    """The date, or the time of day; without designators only where it `is_last`. Raises _BadFormat or _Overflow."""
    at, mark = 0, plain.mark
    while at < len(body):
        first = at == 0
        digits = re.compile(r"-?(\d*)", re.ASCII).match(body, at)
        count, rest, at = _iso_number(body, at)
        unit = body[at : at + 1]
        if unit in units and unit:
            total.add(units[unit], count, rest)
            at += 1
        elif not first or unit not in ("", mark) or not is_last:
            raise _BadFormat
        elif not unit and digits is not None and len(digits[1]) == plain.width:
            _packed(total, count, rest, plain)
        else:
            total.add(plain.units[0], count, rest)
            for place in (1, 2):
                if at < len(body):
                    if body[at] != mark:
                        raise _BadFormat
                    count, rest, at = _iso_number(body, at + 1)
                    total.add(plain.units[place], count, rest)
            if at < len(body):
                raise _BadFormat
            return


def _packed(total: _Sum, count: int, rest: float, plain: _Plain) -> None:
    """Digits without marks: three quantities, of two digits but the first."""
    high, low = abs(count) // 10_000, abs(count) % 10_000
    sign = -1 if count < 0 else 1
    for unit, value in zip(plain.units, (high, low // 100, low % 100), strict=True):
        total.add(unit, sign * value, 0.0)
    if plain is _DATE:
        total.add("day", 0, rest)
    else:
        total.add_micros(rounded(rest))


def _iso_number(body: str, at: int) -> tuple[int, float, int]:
    """(whole part, fraction, where it ends). Raises _BadFormat or _Overflow."""
    found = _ISO_NUMBER.match(body, at)
    if found is None:
        raise _BadFormat
    value = float(found.group())
    if abs(value) > _MOST_ISO:
        raise _Overflow
    return int(value), value - int(value), found.end()
