"""to_date and to_timestamp: a text read by a template, as leniently as Postgres reads it.

Always: fields that the text does not reach keep their defaults; two values for one field, and fields of two calendars,
are refused. Pure functions, called by `formats`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.template import Piece, is_sign
from headrace.engine.operators.expressions.datetime import calendar_text as text
from headrace.engine.operators.expressions.datetime.date_template import DAYS, MONTHS, ROMAN_MONTHS, date_template
from headrace.engine.operators.expressions.datetime.interval_text import DAY
from headrace.engine.operators.expressions.datetime.intervals import stamp
from headrace.engine.operators.expressions.datetime.julian import JULIAN_1970
from headrace.engine.operators.expressions.datetime.template_fields import BLANK, ReadFields, day_of, moment_of
from headrace.engine.operators.expressions.datetime.zone_names import abbreviated
from headrace.engine.operators.expressions.datetime.zone_names import moment_of as moment_in

_DIGITS = {"DDD", "DD", "D", "HH24", "HH12", "HH", "IDDD", "ID", "IW", "IYYY",
           "IYY", "IY", "I", "J", "MI", "MM", "MS", "Q", "SSSSS", "SSSS", "SS", "US", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY",
           "Y", "CC", "TZM", *(f"FF{n}" for n in range(1, 7))}  # fmt: skip
"""Patterns that begin with a digit."""
_GREGORIAN = {"DDD", "DD", "D", "MM", "MONTH", "MON", "RM", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y"}
_ISO = {"IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I"}
_NUMBER = re.compile(r"[ \t\n\r\v\f]*([+-]?\d+)", re.ASCII)
_PLAIN = {"MI": "minute", "SS": "second", "SSSS": "of_day", "SSSSS": "of_day", "MM": "month", "DDD": "of_year", "DD": "day",
          "D": "weekday", "WW": "week", "IW": "week", "CC": "century", "W": "month_week", "J": "julian"}  # fmt: skip
"""Patterns whose number is a field as it stands."""
_LENGTHS = {"HH": 2, "HH12": 2, "HH24": 2, "MS": 3, "US": 6, "IDDD": 3, "ID": 1, "TZH": 2, "TZM": 2,
            **{f"FF{n}": n for n in range(1, 7)}}  # fmt: skip
_TWENTY = ((70, 2000), (100, 1900), (520, 2000), (1000, 1000))


class _Reader:
    """A text being read by a template's pieces. `skipped`: blanks left out beyond what the template has."""

    def __init__(self, subject: str, pieces: Sequence[Piece]) -> None:
        self.text, self.pieces, self.at = subject, pieces, 0
        self.fields = ReadFields()
        self.fixed, self.skipped = False, 0

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip_blanks(self) -> None:
        while self._next() and self._next() in BLANK:
            self.at, self.skipped = self.at + 1, self.skipped + 1

    def read(self) -> ReadFields:
        """All fields. Raises RowError."""
        for i, piece in enumerate(self.pieces):
            if self.at >= len(self.text):
                break
            key = piece.key.upper()
            if not self.fixed and key != "FX" and (key or i == 0):
                self._skip_blanks()
            if not key:
                self._literal(piece)
                continue
            if key == "FX":
                self.fixed = True
            else:
                self._field(piece, key, self._is_open(i))
            if not self.fixed:
                self.skipped = 0
                self._skip_blanks()
        return self.fields

    def _is_open(self, i: int) -> bool:
        """Whether a number goes on as far as its digits do: by FM, or as no digit may follow."""
        if self.pieces[i].fills or self.pieces[i].ordinal or i + 1 == len(self.pieces):
            return True
        after = self.pieces[i + 1]
        return after.key.upper() not in _DIGITS if after.key else not ("0" <= after.text <= "9")

    def _literal(self, piece: Piece) -> None:
        if self.fixed:
            self.at += 1
        elif piece.is_space or piece.is_separator:
            self.skipped -= 1
            if self._next() and (self._next() in BLANK or is_sign(self._next())):
                self.at, self.skipped = self.at + 1, self.skipped + 1
        elif self.skipped > 0:
            self.skipped -= 1
        else:
            self.at += 1

    def _number(self, piece: Piece, length: int, is_open: bool) -> tuple[int, int]:
        """(the number, the characters that it took). Raises RowError."""
        begin = self.at
        while self._next() and self._next() in BLANK:
            self.at += 1
        cut = self.text[self.at : self.at + length]
        if not is_open and len(cut) < length:
            raise RowError(f'source string too short for "{piece.key}" formatting field')
        match = _NUMBER.match(self.text, begin) if is_open else _NUMBER.match(cut)
        used = match.end() if match and not is_open else 0
        if 0 < used < length and not is_open:
            raise RowError(f'invalid value "{cut}" for "{piece.key}"')
        self.at = (match.end() if match else begin) if is_open else self.at + used
        if self.at == begin or match is None:
            raise RowError(f'invalid value "{cut}" for "{piece.key}"')
        value = int(match[1])
        if not -(2**31) <= value < 2**31:
            raise RowError(f'value for "{piece.key}" in source string is out of range')
        return value, self.at - begin

    def _name(self, piece: Piece, names: Sequence[str]) -> int:
        """The place of the name that is next. Raises RowError."""
        rest = self.text[self.at :].lower()
        for i, name in enumerate(names):
            if rest.startswith(name.lower()):
                self.at += len(name)
                return i
        shown = re.split(r"[ \t\n\r\v\f]", self.text[self.at :], maxsplit=1)[0]
        raise RowError(f'invalid value "{shown}" for "{piece.key}"')

    def _field(self, piece: Piece, key: str, is_open: bool) -> None:
        fields = self.fields
        fields.use("gregorian" if key in _GREGORIAN else "iso" if key in _ISO else "")
        if key in ("TZ", "TZH", "TZM", "OF"):
            self._zone(piece, key, is_open)
            return
        if key.replace(".", "") in ("AM", "PM", "AD", "BC"):
            dots = "." in key
            pair = ("am", "pm") if key[0] in "AP" and "M" in key else ("ad", "bc")
            place = self._name(piece, [".".join(p) + "." if dots else p for p in pair])
            fields.put("afternoon" if "m" in pair[0] else "before_christ", place, piece.key)
            fields.of_twelve |= "m" in pair[0]
        elif key in ("MONTH", "MON"):
            names = MONTHS if key == "MONTH" else [m[:3] for m in MONTHS]
            fields.put("month", self._name(piece, names) + 1, piece.key)
        elif key in ("DAY", "DY"):
            place = self._name(piece, DAYS if key == "DAY" else [d[:3] for d in DAYS])
            fields.put("weekday", place, piece.key)
            fields.weekday += 1
        elif key == "RM":
            fields.put("month", 12 - self._name(piece, ROMAN_MONTHS[::-1]), piece.key)
        elif key == "Y,YYY":
            self._grouped_year(piece)
        else:
            self._counted(piece, key, is_open)
        if piece.ordinal and key in _DIGITS:
            self.at = min(self.at + 2, len(self.text))

    def _counted(self, piece: Piece, key: str, is_open: bool) -> None:
        fields = self.fields
        value, used = self._number(piece, _LENGTHS.get(key, len(key)), is_open)
        if key in _PLAIN:
            fields.put(_PLAIN[key], value, piece.key)
        elif key in ("HH", "HH12", "HH24"):
            fields.put("hour", value, piece.key)
            fields.of_twelve |= key != "HH24"
        elif key in ("MS", "US") or key.startswith("FF"):
            name, size = ("millis", 3) if key == "MS" else ("micros", 6)
            fields.put(name, value, piece.key)
            setattr(fields, name, getattr(fields, name) * 10 ** max(size - used, 0))
            fields.fraction_digits = int(key[2]) if key[:2] == "FF" else fields.fraction_digits
        elif key == "IDDD":
            fields.put("of_year", value, piece.key)
        elif key == "ID":
            fields.put("weekday", value, piece.key)
            fields.weekday = 1 if value >= 7 else value + 1
        elif key != "Q":
            fields.put("year", value, piece.key)
            if used < 4 and len(key) < 4:
                fields.year += next((more for below, more in _TWENTY if fields.year < below), 0)
            fields.year_digits = len(key)

    def _grouped_year(self, piece: Piece) -> None:
        match = re.compile(r"[ \t\n\r\v\f]*([+-]?\d+),([+-]?\d{1,3})", re.ASCII).match(self.text, self.at)
        if match is None:
            raise RowError('invalid value "' + self.text[self.at :] + '" for "Y,YYY"')
        year = int(match[1]) * 1000 + int(match[2])
        if not -(2**31) <= year < 2**31:
            raise RowError('value for "Y,YYY" in source string is out of range')
        self.fields.put("year", year, piece.key)
        self.fields.year_digits = 4
        self.at = match.end()

    def _zone(self, piece: Piece, key: str, is_open: bool) -> None:
        fields = self.fields
        if key == "TZ" and self._next().isalpha():
            word = re.match(r"[A-Za-z]+", self.text[self.at :])
            zone = abbreviated(word[0]) if word else None
            if word is None or zone is None:
                raise RowError(f'invalid value "{self.text[self.at :]}" for "{piece.key}"')
            fields.zone, fields.zone_sign = zone, 0
            self.at += len(word[0])
            return
        if key == "TZM":
            fields.zone_sign = fields.zone_sign or 1
        elif self._next() in ("+", "-", " "):
            fields.zone_sign = -1 if self._next() == "-" else 1
            self.at += 1
        else:
            fields.zone_sign = -1 if self.skipped > 0 and self.text[self.at - 1 : self.at] == "-" else 1
        if key != "TZM":
            fields.put("zone_hour", self._number(piece, 2, is_open)[0], piece.key)
        if key == "TZM" or (key != "TZH" and self._next() == ":"):
            self.at += key != "TZM"
            fields.put("zone_minute", self._number(piece, 2, is_open)[0], piece.key)


def read_stamp(subject: str, template: str) -> int:
    """to_timestamp(subject, template): microseconds of UTC. Raises RowError."""
    fields = _Reader(subject, date_template(template)).read()
    day, clock, zone = moment_of(fields, subject)
    days = day_of(*day)
    if days is None:
        raise RowError("timestamp out of range")
    moment = stamp(moment_in((days - JULIAN_1970) * DAY + clock, zone or 0))
    return _rounded(moment, 10 ** (6 - fields.fraction_digits)) if fields.fraction_digits else moment


def _rounded(moment: int, size: int) -> int:
    """A moment to a multiple of `size` microseconds; half goes away from the year 2000."""
    since = moment - _EPOCH
    whole = (abs(since) + size // 2) // size * size
    return _EPOCH + (whole if since >= 0 else -whole)


_EPOCH = text.day_number(2000, 1, 1) * DAY


def read_day(subject: str, template: str) -> int:
    """to_date(subject, template). Raises RowError."""
    fields = _Reader(subject, date_template(template)).read()
    days = day_of(*moment_of(fields, subject)[0])
    if days is None or not text.MIN_DAY <= days - JULIAN_1970 < text.MAX_DAY:
        raise RowError(f'date out of range: "{subject}"')
    return days - JULIAN_1970
