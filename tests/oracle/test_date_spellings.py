"""Dates and times against Postgres: every text, drawn from what it knows and from near misses, read alike or failed alike."""

from __future__ import annotations

import random

import psycopg
import pyarrow as pa
import pytest

import headrace.engine.operators.expressions.core.functions  # noqa: F401 (the families of types)
from headrace.engine.operators.expressions.core.casts import cast_kernel
from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.operators.expressions.datetime.input_parse import UNSPELLED
from headrace.engine.schema import TEXT, DataType
from headrace.sidecar.devstack.postgres import EmbeddedPostgres

TEXTS, SEED = 900, 5
GIVEN = (
    "J2451187", "J 2451187", "julian 2451187.5", "JD2451187 EST", "J2451187-08", "J2451187.25 04:05", "2451187 J",
    "J-5", "J0", "Sat Jan 8 04:05:06 1999", "Saturday, January 8 1999", "Mon 1999-01-08", "1999-01-08 Fri",
    "allballs", "2001-02-03 allballs", "04:05 allballs", "1999-01-08 04:05:06 America/New_York",
    "1999-07-08 04:05:06 europe/paris", "1999-01-08 04:05 PST", "1999-01-08 04:05:06-8",
    "1999-01-08 04:05:06 -8:00:30", "1999-01-08 04:05:06+0530", "1999-01-08 04:05:06+053045",
    "1999-01-08 04:05:06 BST", "1999-01-08 04:05 MSK", "2011-07-08 04:05 msk BC", "04:05 MSK 2012-01-08", "04:05 vet",
    "1999-07-08 04:05 FOO8BAR", "1999-07-08 04:05 foo8bar,M3.2.0,M11.1.0", "1999-01-08 X168", "1999-01-08 04:05 vet pm",
    "1999-01-08 04:05 XYZ", "20261122T101112",
    "20261122T101112+02", "20261122T10:11:12", "20261122 t 101112", "2026-11-22T101112.5", "t040506", "T04:05",
    "1999-01-08 BC", "1999-01-08 04:05 BC", "1999-01-08 04:05:06+02 BC", "1999-01-08 BC 04:05:06+02",
    "0044-03-15 BC PST", "1/8/1999 BC", "January 8, 99 BC", "epoch", "epoch 04:05", "infinity", "-infinity",
    "+infinity", "- infinity", "infinity BC", "inf", "1999.008", "1999.008 04:05", "1999 008", "2001.366", "010203",
    "990108", "99 Jan 08", "08 Jan 99", "Jan 08 99", "Jan-08-99", "8-Jan-99", "1999-Jan-8", "Jan/8/1999",
    "8.Jan.1999", "8.1.1999", "1999.1.8", "13.1.1999", "1 8 1999", "1-8-99", "99-1-8", "12:00", "12", "1999",
    "199901", "1999-01-08 24:00:00", "1999-01-08 24:00:01", "1999-01-08 23:59:60", "1999-01-08 23:59:60.5",
    "1999-01-08 10:20.5", "1999-01-08 10:", "1999-01-08 10:20:", "1999-01-08 10:20:30:40", "1999-01-08 12:30 am",
    "1999-01-08 12:30 pm", "1999-01-08 13:30 pm", "04:05:06 1999-01-08", "04:05 Jan 8 1999", "1999-01-08 040506",
    "1999-01-08 0405", "19990108 0405", "19990108040506", "1999-01-08 04:05:06.7891234", "1999-01-08 .5",
    "1999-01-08 04:05:06 UTC+3", "1999-01-08 04:05 dst", "1999-01-08 04:05 EST dst", "1999-01-08 04:05 met dst",
    "1999-02-29", "2000-02-30", "1999-13-01", "0-1-1", "0000-01-01", "1999-01-08 at 04:05", "on 1999-01-08",
    "5874897-12-31", "5874898-01-01", "294246-12-31", "4714-11-24 BC", "4715-01-01 BC", "today", "now",
    "tomorrow 04:05", "yesterday", "today now", "now BC", "1999-01-08 now", "", " ", "x", "1999-01-08x",
    "1999-01-08 x", "1999-01-08é", "1999-01-08\t04:05", "1999-01-08, 04:05", "(1999-01-08)",
    "1999-01-08 04:05 (PST)", "1999--01-08", "1999-01-", "-1999-01-08", "1999-01-08 04-05", "040506-08",
    "1999-01-08 040506-08", "04:05:06.789-8", "04:05 PM", "04:05:06 PST", "1999-01-08 04:05:06 america/new_york",
    "04:05:06 America/New_York", "2003-04-12 04:05:06 America/New_York", "040506.789+08", "04:05-08:00",
    "1999-01-08 04:05:06 Z", "1999-01-08 04:05:06zulu", "1999-01-08T04:05:06.000Z", "h 5", "y 1999", "1999-W01-1",
    "Feb 29 2000", "Feb-30-2000", "Sept 5 2001", "Septem 5 2001", "sun mon 1999-01-08", "am 1999-01-08 04:05 pm",
    "1999-01-08 99:99", "1999-01-08 +16:00", "1999-01-08 04:05 +15:59:59", "1999-01-08 04:05 + 05",
    "1999-01-08 04:05 -", "1999-01-08 04:05 +x", "infinity +02", "99999999999-01-01", "1999-99999999999-01",
    "J99999999999", "20011227 256060", "20011227 250000", "250000",
)  # fmt: skip
PIECES = (
    "1999-01-08", "1/8/1999", "Jan", "8", "1999", "99", "13", "19990108", "990108", "04:05", "04:05:06.7", "040506",
    "0405", "24:00", "am", "pm", "BC", "AD", "+02", "-08:30", "PST", "EDT", "Europe/Paris", "UTC", "Z", "T", "t",
    "J", "2451187", "Mon", "friday", "epoch", "infinity", "allballs", ",", "-", "/", ".", ":", "at", "dst", "12:61",
    "366", "008", "5", "2026", "x", "May", "-5", "h",
)  # fmt: skip
TYPES = ("date", "timestamp", "timestamptz", "time", "timetz")
ASK = """
create or replace function pg_temp.read_as(w text, kind text) returns text language plpgsql as $$
declare v text; begin execute format('select ($1::%s)::text', kind) into v using w; return '=' || v;
exception when others then return sqlerrm; end $$
"""


def texts() -> list[str]:
    chance = random.Random(SEED)
    drawn = [
        chance.choice(("", " ")).join(chance.choices(PIECES, k=chance.randint(1, 3)))
        if chance.random() < 0.3
        else " ".join(chance.choices(PIECES, k=chance.randint(2, 5)))
        for _ in range(TEXTS)
    ]
    return [*GIVEN, *drawn]


@pytest.mark.parametrize("kind", TYPES)
def test_texts_are_read_as_postgres_reads_them(postgres: EmbeddedPostgres, kind: str) -> None:
    asked = texts()
    with psycopg.connect(postgres.url(), autocommit=True) as link:
        link.execute("set timezone = 'UTC'; set datestyle = 'ISO, MDY'")
        link.execute(ASK)
        sql = "select pg_temp.read_as(w, %s) from unnest(%s::text[]) with ordinality as t(w, n) order by n"
        theirs = [a for (a,) in link.execute(sql, [kind, asked]).fetchall()]
    datatype = DataType.parse(kind)
    cast = cast_kernel(TEXT, datatype)
    assert cast is not None
    values, errors = cast(pa.array(asked, pa.large_string()))
    mine = [e or f"={v}" for v, e in zip(to_text(values, datatype).to_pylist(), errors.to_pylist(), strict=True)]
    wrong = [
        f"{text!r}: ours {m}, Postgres {t}"
        for text, m, t in zip(asked, mine, theirs, strict=True)
        if m != t and UNSPELLED not in m
    ]
    read_alike = sum(m.startswith("=") for m in mine)
    assert read_alike > 80
    assert not wrong, f"{len(wrong)} of {len(asked)}:\n" + "\n".join(wrong)
