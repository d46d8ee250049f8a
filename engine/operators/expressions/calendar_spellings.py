"""Spellings of dates and times beyond ISO's, in the order month, day, year: `January 8, 1999`, `1/8/1999`, `20011227 040506`.

Always: what is understood is given back as the ISO text of the same moment; anything else is left to the caller, which
refuses it by name. Pure, called by `calendar_text`.
"""

from __future__ import annotations

import re

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FULL = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
         "december")  # fmt: skip
_MONTHS = {name: i for names in (_NAMES, _FULL) for i, name in enumerate(names, 1)} | {"sept": 9}
_WORD = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY, _YEAR = r"(?P<day>\d{1,2})", r"(?P<year>\d{4,7})"
_SHORT = r"(?P<year>\d{4,7}|\d{2})"
_DATES = tuple(
    rf"(?:{date})(?![\d-])"
    for date in (
        rf"(?P<name>{_WORD})[ ]+{_DAY}(?:,[ ]*|[ ]+){_YEAR}",
        rf"(?P<name>{_WORD})-{_DAY}-{_YEAR}",
        rf"{_DAY}(?:-|[ ]+)(?P<name>{_WORD})(?:-|[ ]+){_YEAR}",
        rf"{_YEAR}-(?P<name>{_WORD})-{_DAY}",
        rf"(?P<month>\d{{1,2}})/{_DAY}/{_SHORT}",
        rf"(?P<year>\d{{4}})/(?P<month>\d{{1,2}})/{_DAY}",
        r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})",
        r"(?P<year>\d{4,7})-(?P<month>\d{1,2})-(?P<day>\d{1,2})",
    )
)
_CLOCK = (
    r"(?:(?:[ \t]+|T)(?P<hour>\d{1,2})(?:(?P<colon>:)(?P<minute>\d{2})(?::(?P<second>\d{2}(?:\.\d+)?))?"
    r"|(?P<minutes>\d{2})(?P<seconds>\d{2}(?:\.\d+)?))"
    r"(?:[ ]*(?P<half>am|pm))?(?P<zone>[ ]*(?:Z|UTC|[+-]\d{2}(?::?\d{2})?))?)?(?P<era>[ ]+(?:BC|AD))?"
)
_SPELLINGS = tuple(re.compile(date + _CLOCK, re.ASCII | re.IGNORECASE) for date in _DATES)


def iso_spelling(body: str) -> str | None:
    """The ISO text of a date or timestamp that is spelled otherwise; None for what is not known.

    >>> iso_spelling("January 8, 1999 04:05 PM"), iso_spelling("20011227 040506+08"), iso_spelling("1/8/99")
    ('1999-01-08 16:05:00', '2001-12-27 04:05:06+08', '1999-01-08')
    """
    if body.lower() == "epoch":
        return "1970-01-01"
    match = next((m for m in (s.fullmatch(body) for s in _SPELLINGS) if m), None)
    if match is None:
        return None
    found = match.groupdict()
    year = int(found["year"])
    if len(found["year"]) == 2 and not found["era"]:
        year += 2000 if year < 70 else 1900
    month = _MONTHS[found["name"].lower()] if found.get("name") else int(found["month"])
    clock = ""
    if found["hour"]:
        hour = int(found["hour"])
        if found["half"]:
            # An hour that no such clock has is one that no day has either.
            hour = 99 if hour > 12 else hour % 12 + 12 * (found["half"].lower() == "pm")
        minute, second = found["minute"] or found["minutes"], found["second"] or found["seconds"] or "00"
        clock = f" {hour:02d}:{minute}:{second}{(found['zone'] or '').strip()}"
    return f"{year:04d}-{month:02d}-{int(found['day']):02d}{clock}{found['era'] or ''}"
