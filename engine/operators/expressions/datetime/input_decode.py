"""What the fields of a date's or time's text mean, field by field, as Postgres decides it (DateStyle ISO, MDY).

Always: a field may say what no other has said; what is found is checked at the end, the whole of it. Pure, called by
`input_parse`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.datetime.calendar_text import civil, day_number, month_days
from headrace.engine.operators.expressions.datetime.input_words import VOLATILE, Cut, Field, word_of
from headrace.engine.operators.expressions.datetime.zone_names import ABBREVIATIONS, CHANGING, NO_NAME, Zone, zone_of

DATE = frozenset({"year", "month", "day"})
TIME = frozenset({"hour", "minute", "second"})
JULIAN = 2440588
_MOST = 2**31


class BadFormat(Exception):
    """The text is none of its type."""


class OutOfRange(Exception):
    """A field of the text is out of range."""


class ZoneOutOfRange(Exception):
    """An offset of a zone is out of range."""


@dataclass
class Moment:
    """What was found. `special`: epoch, infinity, -infinity or a word of `VOLATILE`, in the place of all else.
    `undated`: the offset of its zone depends on a date that it does not have.
    """

    year: int = 0
    month: int = 0
    day: int = 0
    hour: int = 0
    minute: int = 0
    second: int = 0
    micros: int = 0
    offset: int | None = None
    zone: Zone | None = None
    special: str = ""
    seen: frozenset[str] = frozenset()
    half: str = ""
    era: str = ""
    prefix: str = ""
    day_of_year: int = 0
    is_julian: bool = False
    two_digits: bool = False
    month_by_name: bool = False
    only_time: bool = field(default=False)
    undated: bool = False

    @property
    def time_of_day(self) -> int:
        """Microseconds since midnight."""
        return ((self.hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.micros

    def take(self, fields: list[Field]) -> None:
        """All fields in order, then the checks of the whole. Raises BadFormat, OutOfRange, ZoneOutOfRange or RowError."""
        for place, part in enumerate(fields):
            said = self._field(fields, place, part)
            if said & self.seen:
                raise BadFormat
            self.seen |= said
        if self.prefix:
            raise BadFormat
        if not self.special:
            self._check()

    def _field(self, fields: list[Field], place: int, part: Field) -> frozenset[str]:
        if part.cut is Cut.DATE:
            return self._dated(fields, place, part.text)
        if part.cut is Cut.TIME:
            self._after("time")
            return self._clock(part.text)
        if part.cut is Cut.ZONE:
            self.offset = offset_of(part.text)
            return frozenset({"zone"})
        if part.cut is Cut.NUMBER:
            return self._labelled(part.text) if self.prefix else self._number(fields, place, part.text)
        return self._word(part.text)

    def _after(self, *allowed: str) -> None:
        """What a word before this field said that it is."""
        if self.prefix and self.prefix not in allowed:
            raise BadFormat
        self.prefix = ""

    def _dated(self, fields: list[Field], place: int, text: str) -> frozenset[str]:
        """A field with marks in it: a date, the name of a zone, or a time run together with its zone."""
        if self.prefix == "julian" and not self.only_time:
            match = re.match(r"\d+", text)
            if match is None:
                raise BadFormat
            self._julian_day(match.group())
            self.offset = offset_of(text[match.end() :])
            self.prefix = ""
            return DATE | TIME | {"zone"}
        if self.only_time:
            last = fields[-1].cut is Cut.DATE or (len(fields) > 1 and fields[1].cut is Cut.TIME)
            is_date = place == 0 and len(fields) >= 2 and last
        else:
            is_date = not self.prefix and not {"month", "day"} <= self.seen
        if is_date:
            return self._date(text)
        if text[0].isdigit() or (self.prefix and not self.only_time):
            self._after("time")
            if self.seen >= TIME or "-" not in text:
                raise BadFormat
            at = text.index("-")
            self.offset = offset_of(text[at:])
            return self._run_together(text[:at], self.seen | DATE if self.only_time else self.seen) | {"zone"}
        self.zone = zone_of(text)
        return frozenset({"zone"})

    def _date(self, text: str) -> frozenset[str]:
        """Three parts with marks between: first the month's name, then numbers in their order."""
        parts = re.findall(r"\d+|[a-z]+", _without_joints(text))
        # One mark may end it.
        if not parts or not text[-2:].strip(text[-1] if not text[-1].isalnum() else ""):
            raise BadFormat
        said: frozenset[str] = frozenset()
        for name in (p for p in parts if p[0].isalpha()):
            found = word_of(name)
            if found is not None and found[0] == "nothing":
                continue
            if found is None or found[0] != "month" or "month" in self.seen | said:
                raise BadFormat
            self.month, self.month_by_name, said = int(found[1]), True, said | {"month"}
        by_name = bool(said)
        for number in (p for p in parts if p[0].isdigit()):
            one = self._part(number, self.seen | said, by_name=by_name)
            if one & (self.seen | said):
                raise BadFormat
            said |= one
        if (self.seen | said) - {"day of year", "zone"} != DATE:
            raise BadFormat
        self.month_by_name = self.month_by_name and not by_name
        return said

    def _part(self, text: str, seen: frozenset[str], *, by_name: bool) -> frozenset[str]:
        """A number of a date, by what is known of it."""
        value, known = _whole(text), seen & DATE
        if len(text) == 3 and known == {"year"} and 1 <= value <= 366:
            self.day_of_year = value
            return frozenset({"day of year", "month", "day"})
        if known == DATE:
            return self._run_together(text, seen)
        if not known:
            name = "year" if len(text) >= 3 else "month"
        elif known == {"month"} and by_name:
            name = "year" if len(text) >= 3 else "day"
        elif known == {"year", "month"} and by_name and len(text) >= 3 and self.two_digits:
            # The first number was the day.
            self.day, self.year, self.two_digits = self.year, value, False
            return frozenset({"day"})
        else:
            name = {frozenset({"year"}): "month", frozenset({"month"}): "day", frozenset({"year", "month"}): "day",
                    frozenset({"day"}): "month", frozenset({"month", "day"}): "year"}.get(known, "")  # fmt: skip
        if not name:
            raise BadFormat
        setattr(self, name, value)
        if name == "year":
            self.two_digits = len(text) <= 2
        return frozenset({name})

    def _run_together(self, text: str, seen: frozenset[str]) -> frozenset[str]:
        """Digits without marks: year, month and day, or hour, minute and second."""
        body, point, fraction = text.partition(".")
        if point:
            self.micros = _fraction(fraction)
        elif not seen >= DATE and len(body) >= 6:
            self.year, self.month, self.day = _whole(body[:-4]), int(body[-4:-2]), int(body[-2:])
            self.two_digits = self.two_digits or len(body) == 6
            return DATE
        if not seen >= TIME and len(body) in (4, 6):
            self.hour, self.minute, self.second = int(body[:2]), int(body[2:4]), int(body[4:] or 0)
            return TIME
        raise BadFormat

    def _number(self, fields: list[Field], place: int, text: str) -> frozenset[str]:
        """A number that nothing before it names."""
        whole, point, _ = text.partition(".")
        if self.only_time:
            if point and place == 0 and len(fields) >= 2 and fields[-1].cut is Cut.DATE:
                return self._date(text)
            if (point and len(whole) > 2) or (not point and len(text) > 4):
                return self._run_together(text, self.seen | DATE)
            if point:
                raise BadFormat
            return self._part(text, self.seen | DATE, by_name=False)
        if point and not self.seen & DATE:
            return self._date(text)
        if (point and len(whole) > 2) or (len(text) >= 6 and not (self.seen & DATE and self.seen & TIME)):
            return self._run_together(text, self.seen)
        if point:
            self.micros = _fraction(text.partition(".")[2])
            text = whole
            if not text:
                raise BadFormat
        return self._part(text, self.seen, by_name=self.month_by_name)

    def _labelled(self, text: str) -> frozenset[str]:
        """A number behind the word that names it."""
        prefix, self.prefix = self.prefix, ""
        if prefix == "time":
            said = self._run_together(text, self.seen | DATE)
            if said != TIME:
                raise BadFormat
            return said
        if prefix != "julian" or not text[0].isdigit():
            raise BadFormat
        whole, point, fraction = text.partition(".")
        self._julian_day(whole)
        if not point:
            return DATE
        micros = round(float(f"0.{fraction or 0}") * 86_400_000_000)
        seconds, self.micros = divmod(micros, 1_000_000)
        self.hour, self.minute, self.second = seconds // 3600, seconds // 60 % 60, seconds % 60
        return DATE | TIME

    def _julian_day(self, digits: str) -> None:
        self.year, self.month, self.day = civil(_whole(digits) - JULIAN)
        self.is_julian = True

    def _clock(self, text: str) -> frozenset[str]:
        """Hours, minutes and seconds with colons between; of two numbers with a fraction, minutes and seconds."""
        match = re.fullmatch(r"(\d+):(\d*)(?:(:)(\d*))?(?:\.(\d*))?", text, re.ASCII)
        if match is None:
            raise BadFormat
        hour, minute, second = _whole(match[1]), _whole(match[2] or "0"), _whole(match[4] or "0")
        if match[5] is not None and not match[3]:
            hour, minute, second = 0, hour, minute
        self.hour, self.minute, self.second = hour, minute, second
        self.micros = _fraction(match[5] or "")
        if minute > 59 or second > 60 or (not self.only_time and self._is_past_midnight()):
            raise OutOfRange
        return TIME

    def _is_past_midnight(self) -> bool:
        return self.hour > 24 or self.minute > 59 or self.second > 60 or self.time_of_day > 86_400_000_000

    def _word(self, text: str) -> frozenset[str]:
        """A word: the abbreviation of a zone goes first."""
        if text in ABBREVIATIONS:
            self.offset = ABBREVIATIONS[text]
            return frozenset({"zone"})
        if text in CHANGING:
            self.zone = CHANGING[text]
            return frozenset({"zone"})
        found = word_of(text)
        if found is None:
            try:
                self.zone = zone_of(text)
            except RowError as error:
                raise (error if NO_NAME in str(error) else BadFormat) from None
            return frozenset({"zone"})
        kind, value = found
        if kind == "nothing":
            return frozenset()
        if kind == "word":
            return self._special(str(value))
        if kind == "month":
            return self._month(int(value))
        if kind in ("unit", "iso time"):
            if self.prefix or (kind == "iso time" and not self.only_time and not self.seen >= DATE):
                raise BadFormat
            self.prefix = str(value)
            return frozenset()
        if kind == "summer":
            self.offset = (self.offset or 0) + 3600
        elif kind in ("half", "era"):
            setattr(self, kind, str(value))
        elif self.only_time:
            raise BadFormat
        return frozenset({kind})

    def _special(self, word: str) -> frozenset[str]:
        if word == "midnight":
            self.hour = self.minute = self.second = self.micros = 0
            self.offset = 0
            return TIME | {"zone"}
        if self.only_time and word != "now":
            raise BadFormat
        self.special = word
        return DATE | {"zone"} if word in VOLATILE and word != "now" else DATE | TIME | {"zone"}

    def _month(self, value: int) -> frozenset[str]:
        if self.only_time:
            raise BadFormat
        said = frozenset({"month"})
        if "month" in self.seen and not self.month_by_name and "day" not in self.seen and 1 <= self.month <= 31:
            # The number before it was the day.
            self.day, said = self.month, frozenset({"day"})
        self.month, self.month_by_name = value, True
        return said

    def _check(self) -> None:
        """The year, the day and the hour as they are meant."""
        self._check_year()
        if "day of year" in self.seen:
            self.year, self.month, self.day = civil(day_number(self.year, 1, 1) + self.day_of_year - 1)
        if "month" in self.seen and not 1 <= self.month <= 12:
            raise OutOfRange
        if "day" in self.seen and not 1 <= self.day <= 31:
            raise OutOfRange
        if self.seen >= DATE and self.day > month_days(self.year, self.month):
            raise OutOfRange
        if self.half and self.hour > 12:
            raise OutOfRange
        if self.half:
            self.hour = self.hour % 12 + 12 * (self.half == "pm")
        if self.only_time and self._is_past_midnight():
            raise OutOfRange
        if not self.seen >= (TIME if self.only_time else DATE) or ("summer" in self.seen and "zone" not in self.seen):
            raise BadFormat

    def _check_year(self) -> None:
        if "year" not in self.seen or self.is_julian:
            return
        if self.era == "bc":
            if self.year <= 0:
                raise OutOfRange
            self.year = 1 - self.year
        elif self.two_digits:
            self.year += 2000 if self.year < 70 else 1900 if self.year < 100 else 0
        elif self.year <= 0:
            raise OutOfRange


def _without_joints(text: str) -> str:
    """The text without the letter or digit that Postgres takes for a mark where digits meet letters."""
    return re.sub(r"(?<=\d)[a-z]|(?<=[a-z])\d", " ", text)


def _whole(digits: str) -> int:
    value = int(digits)
    if value >= _MOST:
        raise OutOfRange
    return value


def _fraction(digits: str) -> int:
    return round(float(f"0.{digits}") * 1_000_000) if digits else 0


def offset_of(text: str) -> int:
    """The seconds east of Greenwich that +hh:mm:ss, +hhmm or +hh says. Raises BadFormat or ZoneOutOfRange."""
    match = re.match(r"[+-]([+-]?\d+)(?::(\d*)(?::(\d*))?)?", text, re.ASCII)
    if match is None:
        raise BadFormat
    hours, minutes, seconds = int(match[1]), int(match[2] or 0), int(match[3] or 0)
    if match[2] is None and match.end() == len(text) and len(text) > 3:
        hours, minutes = divmod(hours, 100)
    if not 0 <= hours <= 15 or minutes > 59 or seconds > 59:
        raise ZoneOutOfRange
    if match.end() != len(text):
        raise BadFormat
    return (-1 if text[0] == "-" else 1) * ((hours * 60 + minutes) * 60 + seconds)
