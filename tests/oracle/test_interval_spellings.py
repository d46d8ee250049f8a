"""Intervals against Postgres: every text, given and drawn, read under every restriction of the type, or failed alike."""

from __future__ import annotations

import random

import psycopg
import pytest

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.datetime.interval_input import read
from headrace.engine.operators.expressions.datetime.interval_text import image, restricted
from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.select_checks import Answer

TEXTS, SEED = 1200, 7
GIVEN = (
    "1 2", "1 2:03", "1 2.5", "123 11", "-1 2", "1 -2", "1.5", "12:34.5678", "1 2:03:04.5678", "2:03", "1-2", "-1-2",
    "1-2 3", "1-2 3 4:05:06", "+1-2 -3 +4:05:06", "1-12", "1-15-3", "1--2", "1-", "-1-2-3", "1-2.5",
    "4 millenniums 5 centuries", "4 decades 1 year 4 months 4 days 17 minutes 31 seconds",
    "1 millennium 2 mils 3 decs", "5 microseconds 6 milliseconds", "5 useconds", "5 mseconds", "1 qtr", "1 quarter",
    "@ 1 year ago", "@ 1 minute", "1 day ago 2 hours", "ago", "1 ago", "1 day ago ago", "1 day -1 hours", "1 day at",
    "1 on 2 hours", "at 1 day", "t 1 day", "infinity", "-infinity", "+infinity", "- infinity", "infinity ago",
    "1 day infinity", "infinity 1 day", "at infinity", "inf", "INFINITY", "P1Y2M3DT4H5M6.5S", "P1Y2M3W4D", "P1.5Y",
    "P-1.5M", "P1e2D", "P10.5e4Y", "PT1.5H", "PT-1H-2M-3.5S", "P1YT", "PT", "P", "PT1HT2M", "PT5T6H", "P5T6",
    "P0002", "P0002-10", "P0002-10-15", "P0002-10-15T1S", "P0002-10T10", "P0002-10-15T10:30:20", "P0002-10-15T10:30",
    "PT10:30", "PT10", "PT10:30:20.5", "P00021015T103020", "P00021015", "PT103020", "PT103020.6", "P-00021015",
    "P00021015.5", "P1Y00021015", "PT1H103020", "P1-2-3-4", "P1-2-", "P1-", "P1-2T", "P1-x", "PT1:2:3:4", "PT1:2T3",
    "P1D2", "P2147483648", "P-2147483649", "P1-2147483647-2147483647", "P0.1-2147483647-00", "P00-0.1-2147483647",
    "P00-00-0.1T2562047788:00:54.775807", "PT2562047788.1:00:54.775807", "PT1e16S", "PT2562047788:00:54.775807",
    "PT2562047788:01.:54.775807", "PT2562047789", "PT2562047788.0152155019444", "P2147483647M0.1Y",
    "P2147483647D0.1M", "P2147483647D1W", "P-2147483648D-0.5W", "P1Y ago", " P1Y", "P1Y ", "p1y", "P+1Y", "P1.Y",
    "P.5Y", "P1Y1Y", "2562047788.1:0:54.775807", "2562047788:0.1:54.775807", "2562047788:00:54.775807",
    "2562047788:00:54.775808", "-2562047788:00:54.775808", "-2562047788:00:54.775808 ago", "2562047789:0",
    "2147483647 years", "2147483648 years", "178956970 years 7 mons", "178956970 years 8 mons",
    "2147483647 days 1 day", "2147483647 days 24 hours", "2147483648 days ago", "-2147483648 mons ago",
    "-2147483648 mons", "2147483647 mons 2147483647 days 9223372036854775807 us", "9223372036854775808 us",
    "9223372036854775807 us 1 ms", "0.5 us", "0.6 us", "1.4999999 us", "0.1 mons 0.1 days", "1e3 s", "1.5e3 days",
    ".5 days", "-.5 days", "1:2:3:4", "1:", "1:2:", "1:.5", "1:2:.5", "1:60", "1:2:60", "1:2:61", "-1:2:3", "+1:2:3",
    "- 1:2:3", "-1:99", "1 2 3", "1 2 3 hours", "1 day 2 day", "1 second 2 ms", "1.5 second 2 ms", "1.0 second 2 ms",
    "1 hour 2:03", "1 week 1 day", "", " ", "x", "1 x", "1x", "1d2h3m4s", "1day2h", "1 day, 2 hours", "1 day;2",
    "1 day\t2", "1.999999999999999999 days", "-0.99999999999999999 day", "1.999999999999999999 weeks", "P1.99999999999999999D",
    "1.999999999999999999 months", "P0.99999999999999999W", "\u00e9", "1\u00a0day", "January", "epoch", "1 timezone", "today",
)  # fmt: skip
PIECES = (
    "1", "-2", "+3", "1.5", "-0.25", "12", "100", "4:05", "-4:05:06", "1:02.5", "1-2", "-1-2", "day", "days",
    "hours", "mins", "sec", "s", "us", "ms", "mon", "months", "years", "y", "week", "century", "decades", "mil",
    "ago", "@", "at", "P1Y", "T", "infinity", "h", "d", "2d",
)  # fmt: skip
KINDS = (
    "", "year", "month", "day", "hour", "minute", "second", "year to month", "day to hour", "day to minute",
    "day to second", "hour to minute", "hour to second", "minute to second", "second(0)", "day to second(2)",
    "minute to second(3)", "hour to second(6)",
)  # fmt: skip


def texts() -> list[str]:
    chance = random.Random(SEED)
    return [*GIVEN, *(" ".join(chance.choices(PIECES, k=chance.randint(1, 6))) for _ in range(TEXTS))]


def ours(text: str, kind: str) -> str:
    named, _, digits = kind.partition("(")
    fields = tuple(f for f in named.split() if f != "to")
    ends = fields[:1] + fields[1:][-1:]
    try:
        return "=" + image(restricted(read(text, ends), ends, int(digits[:-1]) if digits else None))
    except RowError as error:
        return str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_read_as_postgres_reads_them(postgres: EmbeddedPostgres, kind: str) -> None:
    asked = texts()
    with psycopg.connect(postgres.url(), autocommit=True) as link:
        link.execute(
            "create function pg_temp.spelled(w text) returns text language plpgsql as $$ declare v text; begin"
            f" execute format('select (interval %L {kind})::text', w) into v; return '=' || v;"
            " exception when others then return sqlerrm; end $$"
        )
        sql = "select pg_temp.spelled(w) from unnest(%s::text[]) with ordinality as t(w, n) order by n"
        theirs = [a for (a,) in link.execute(sql, [asked]).fetchall()]
    mine = [ours(text, kind) for text in asked]
    assert sum(m.startswith("=") for m in mine) > 200
    wrong = [f"{t!r}: ours {m}, Postgres {p}" for t, m, p in zip(asked, mine, theirs, strict=True) if m != p]
    assert not wrong, f"{len(wrong)} of {len(asked)}:\n" + "\n".join(wrong)


SCRIPT = """
create table wait (id int primary key, said text, span interval, days interval day to second(2));
insert into wait values (1, '1 2:03:04.5678', '1 day 01:23:45.6789', '1 day 2.345'),
  (2, 'P0002-10-15T10:30:20', '-0.005 s', '1:2'),
  (3, null, null, null), (4, '@ 4 mils 3 days ago', 'infinity', '-infinity'),
  (5, 'PT103020', '1 mon -1 day 23:59:59.999999', '0');
select id, said::interval, said::interval(2), cast(said as interval day to second(1)), said::interval hour to minute from wait;
select id, span::interval second(0), span::interval(3), days, days::interval day to hour from wait;
select interval '1 2' day to hour, interval '12:34.5678' minute to second(2), interval(2) '1.239',
  interval (0) '0.5', interval '1.234' second (2) as s from wait;
select id, span::interval d, span::interval as s from wait;
select second from (select id as second from wait) s where (second) > (2);
update wait set said = '1 2 hours', span = span + interval '1.5' minute to second(0) where id in (1, 2);
delete from wait where id = 5;
insert into wait values (6, 'P00021015T103020', '178956970 years 7 mons 2147483646 days', '1 day ago');
select cast('1' as interval second(9)), cast('1:02' as interval minute to second(2)) from wait;
select interval '1 day' hour to day from wait;
select interval '1 x' day to second(2) from wait;
select interval '2147483647 years' from wait;
update wait set said = '1 2 3' where id = 6;
select id, said::interval from wait;
"""


def test_intervals_in_views_through_changes(postgres: EmbeddedPostgres) -> None:
    found = [a for a in run_script(postgres, "intervals", SCRIPT) if isinstance(a, Answer)]
    assert len(found) == 10
    assert not [(a.sql, a.status, a.reason) for a in found if a.status != "equal"]
