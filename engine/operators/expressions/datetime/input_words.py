"""The text of a date or time cut into fields, and the words that Postgres knows in one.

Always: fields are cut where Postgres cuts them, whatever they turn out to mean; words are lower case, and known by their
first ten letters. Pure, called by `calendar_decoding`.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple


class Cut(enum.Enum):
    """What a field looks like."""

    DATE = "date"
    TIME = "time"
    ZONE = "zone"
    NUMBER = "number"
    WORD = "word"


class Field(NamedTuple):
    """A part of a text."""

    cut: Cut
    text: str


_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_UNITS = {"d": "day", "dow": "dow", "doy": "doy", "h": "hour", "isodow": "isodow", "isoyear": "isoyear", "j": "julian",
          "jd": "julian", "julian": "julian", "m": "month", "mm": "minute", "s": "second", "y": "year"}  # fmt: skip
VOLATILE = ("now", "today", "tomorrow", "yesterday")
"""Words whose meaning is the time of the query."""

WORDS: dict[str, tuple[str, int | str]] = {
    **{m[:n]: ("month", i) for i, m in enumerate(_MONTHS, 1) for n in (3, len(m))},
    "sept": ("month", 9),
    **{d[:n]: ("weekday", i) for i, d in enumerate(_DAYS) for n in (3, len(d))},
    **{d: ("weekday", i) for d, i in (("tues", 2), ("weds", 3), ("thur", 4), ("thurs", 4))},
    **{w: ("unit", unit) for w, unit in _UNITS.items()},
    "ad": ("era", "ad"), "bc": ("era", "bc"), "am": ("half", "am"), "pm": ("half", "pm"),
    "at": ("nothing", 0), "on": ("nothing", 0), "t": ("iso time", "time"), "dst": ("summer", 3600),
    "allballs": ("word", "midnight"), "epoch": ("word", "epoch"), "infinity": ("word", "infinity"),
    "+infinity": ("word", "infinity"), "-infinity": ("word", "-infinity"),
    **{word: ("word", word) for word in VOLATILE},
}  # fmt: skip
"""What each word is, and which one of these."""

_SIGNED = re.compile(r"[+-]\s*(\d[\d:.-]*|[a-z]+)", re.IGNORECASE | re.ASCII)
_MOST = 25


def word_of(text: str) -> tuple[str, int | str] | None:
    """What a word is; None for one that is not known."""
    return WORDS.get(text[:10]) or next((w for k, w in WORDS.items() if len(k) > 10 and k[:10] == text[:10]), None)


def fields_of(text: str) -> list[Field] | None:
    """The fields of a text; None for what has none or cannot be cut.

    >>> [(f.cut.value, f.text) for f in fields_of("Sat Jan 8 04:05:06 1999 PST-8") or ()][3:]
    [('time', '04:05:06'), ('number', '1999'), ('date', 'pst-8')]
    """
    found: list[Field] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char in " \t\n\r\v\f":
            at += 1
            continue
        if len(found) >= _MOST:
            return None
        if char in "0123456789":
            field, at = _digits(text, at)
        elif char == ".":
            match = re.compile(r"\.\d*", re.ASCII).match(text, at)
            assert match is not None
            field, at = Field(Cut.NUMBER, match.group()), match.end()
        elif char.isascii() and char.isalpha():
            field, at = _letters(text, at)
        elif char in "+-":
            match = _SIGNED.match(text, at)
            if match is None:
                return None
            kind = Cut.ZONE if match[1][0].isdigit() else Cut.WORD
            field, at = Field(kind, char + match[1].lower()), match.end()
        elif char.isascii() and not char.isspace() and char.isprintable():
            at += 1
            continue
        else:
            return None
        found.append(field)
    return found


def _digits(text: str, at: int) -> tuple[Field, int]:
    """A field that begins with a digit."""
    match = re.compile(r"\d+:[\d:.]*", re.ASCII).match(text, at)
    if match is not None:
        return Field(Cut.TIME, match.group()), match.end()
    match = re.compile(r"\d+([-/.])(?:(\d+)(\1(?:\d|\1)*)?|(?:[a-z0-9]|\1)*)", re.IGNORECASE | re.ASCII).match(text, at)
    if match is None:
        match = re.compile(r"\d+", re.ASCII).match(text, at)
        assert match is not None
        return Field(Cut.NUMBER, match.group()), match.end()
    plain = match[1] == "." and match[2] is not None and match[3] is None
    return Field(Cut.NUMBER if plain else Cut.DATE, match.group().lower()), match.end()


def _letters(text: str, at: int) -> tuple[Field, int]:
    """A field that begins with a letter: a word, or a date or a zone's name with marks in it."""
    match = re.compile(r"[a-z]+", re.IGNORECASE | re.ASCII).match(text, at)
    assert match is not None
    word, end = match.group().lower(), match.end()
    after = text[end : end + 1]
    marked = bool(after) and (after in "-/." or (after in "+0123456789" and word_of(word) is None))
    if not marked:
        return Field(Cut.WORD, word), end
    whole = re.compile(r"[a-z]+.[a-z0-9+\-/_.:]*", re.IGNORECASE | re.ASCII).match(text, at)
    assert whole is not None
    return Field(Cut.DATE, whole.group().lower()), whole.end()
