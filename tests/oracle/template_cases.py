"""Calls of to_char and its inverses: every pattern of a template alone, and templates drawn at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

SEED = 5
_NUMBERS = """9 999 0999 9990 9.99 0.0 .99 FM9 FM999.99 FM990.99 FM999.009 FM9,999,999.99 99G999D99 L999.99 FML999 S999 999S
    FM999S MI999 9.9MI FM9.9MI PL999 999PL FMPL9.99 SG999 FM9SG99 999PR FM9.9PR 0999PR 99V99 FM9V999 999th FM999TH 99.9th
    RN rn FMRN RNth 9EEEE 9.99EEEE B999 99C99 999SP "x="999 FM"q\\"r"99 FM9999999999999999999.99999999999999
    9.9.9 9V9.9 9.9V9 S9S 9SMI PR9 9PR0 PL9S 9PRS 9PRMI EEEE9 9EEEEEEEE S9EEEE 9RN RNRN FM,9 FM0009.99 V99""".split()  # noqa: SIM905
_NUMBER_PARTS = (
    "9",
    "9",
    "99",
    "0",
    "0",
    ".",
    ",",
    "FM",
    "S",
    "MI",
    "PL",
    "SG",
    "PR",
    "V9",
    "G",
    "D",
    "L",
    "th",
    "B",
    "x",
)
_DATES = """A.D. AM BC CC DAY DDD DD DY D FF1 FF3 FF6 HH24 HH12 HH IDDD ID IW IYYY IYY IY I J MI MM MONTH MON MS OF P.M. Q
    RM SSSSS SSSS SS TZH TZM TZ US WW W Y,YYY YYYY YYY YY Y Day Dy Month Mon day month rm tz""".split()  # noqa: SIM905
_DATE_TEMPLATES = ("YYYY-MM-DD HH24:MI:SS.US", "FMMonth FMDDth, YYYY", "Day, DD  HH12:MI:SS p.m.", '"a\\"DD" \\"DD DDx', "FMTM",
                   'FXYYYY "of" MM', "TMMonth FMTM", '"unclosed DD', "", "FMFMDD", "DDTHth", "IYYY-IW-ID IDDD")  # fmt: skip


def numbers() -> Iterator[str]:
    """to_char of numbers."""
    chance = random.Random(SEED)
    drawn = ["".join(chance.choices(_NUMBER_PARTS, k=chance.randint(2, 7))) for _ in range(120)]
    columns = itertools.cycle(("i", "b", "n", "m", "s", "d", "e", "k::smallint", "d::real"))
    for template in _NUMBERS:
        yield from (f"to_char(r.{column}, '{template}')" for column in ("n", next(columns)))
    yield from (f"to_char(r.{next(columns)}, '{template}')" for template in (*drawn, ""))
    yield from (f"to_char(r.i, '{t}')" for t in ("9V99999999", "999999999999.99", "9EEEE"))
    yield "to_char(r.n, r.c)"


def dates() -> Iterator[str]:
    """to_char of dates, times and intervals."""
    chance = random.Random(SEED)
    columns = itertools.cycle(("ts", "tz", "da", "iv", "iw", "tm"))
    for word in _DATES:
        for spelled in (word, f"FM{word}th", f"{word}TH", f"TM{word}"):
            yield f"to_char(r.{next(columns)}, '{spelled}')"
        yield f"to_char(r.iv, '{word}')"
    for _ in range(60):
        parts = [chance.choice(("", "FM", "")) + chance.choice((*_DATES, "-", ":", " ")) for _ in range(4)]
        yield f"to_char(r.{next(columns)}, '{''.join(parts)}')"
    yield from (f"to_char(r.ts, '{template}')" for template in _DATE_TEMPLATES)
    yield "to_char(r.ts, r.c)"
