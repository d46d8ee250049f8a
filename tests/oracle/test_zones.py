"""Zones by abbreviation and by POSIX's rules against Postgres: moments moved, cut, made and read in each, and wrong names."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.datetime.calendar_text import stamp_image
from headrace.engine.operators.expressions.datetime.input_parse import read_timestamp
from headrace.engine.operators.expressions.datetime.zone_names import CHANGING, NO_NAME, zone_of
from headrace.engine.operators.expressions.datetime.zones import to_local, to_moment
from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.select_checks import Answer

RULES = (
    "PST8PDT,M3.2.0,M11.1.0", "FOO8BAR", "<+03>-3", "<>5", "<>5<a>", "-3", "+3:30", "5", "foo5bar6", "X166:59:60", "X5:60",
    "foo5bar4:30,J60/2,J300", "foo-5bar,59/26,299/-3", "A1B2,M4.5.6/0,M10.5.0/167", "A1B2,M4.5.6/0,M10.5.0/168", "X167",
    "X168", "x5,M3.2.0,M11.1.0", "X5Y;M3.2.0,M11.1.0", "X5Y,M3.2.0;M11.1.0", "X5Y,M3.2.0", "X5Y,", "X5Y3,", "X5Y,J0,J90",
    "X5Y6,M13.1.0,M1.1.1", "X5Y,M11.1.0,M3.2.0", "AEST-10AEDT,M10.1.0,M4.1.0/3", "<a>5<", "<a>5<>", "<a", "5Y", "X 5",
    "-02:30", "+02:30",
    "X5 Y", "X5-Y", "X5<b>7", "EST5EDT", "PST8PDT", "CET-1CEST", ":UTC", ":X5", "Etc/GMT-3", "Etc/GMT+16", "GMT-0300", "", "X",
    "X5Y,366,J90", "X+5", "X+-5", "UTC+3", "utc-3:15:20", "America/New_York5", "msk", "Vet",
)  # fmt: skip
STAMPS = (
    "1880-01-01", "1915-10-25 08:31:58", "1930-06-16 23:29:49", "1991-04-01", "2011-03-27 00:00", "2011-03-27 01:59:59",
    "2011-03-27 02:00", "2011-03-27 03:00", "2014-10-25 22:00", "2014-10-26 00:00", "2014-10-26 01:00", "2014-10-26 02:00",
    "2007-12-09 02:59:59", "2007-12-09 03:00", "2007-12-09 07:00", "2021-03-14 02:30", "2021-11-07 01:30", "2021-03-14 10:30",
    "2021-11-07 08:59", "2024-12-31 23:59:59", "2024-03-01 12:00", "2900-07-01", "0044-03-15 12:00 BC",
)  # fmt: skip
MOVES: dict[str, Callable[[int, str], str]] = {
    "timestamptz": lambda micros, name: stamp_image(to_local(micros, zone_of(name)), ""),
    "timestamp": lambda micros, name: stamp_image(to_moment(micros, zone_of(name)), "+00"),
}


@pytest.mark.parametrize("kind", MOVES)
def test_every_zone_moves_a_time_as_postgres_moves_it(postgres: EmbeddedPostgres, kind: str) -> None:
    names = [*CHANGING, *RULES]
    sql = (
        "create function pg_temp.moved(at text, zone text) returns text language plpgsql as $$ begin"
        f" return (at::{kind} at time zone zone)::text; exception when others then return sqlerrm; end $$"
    )
    with psycopg.connect(postgres.url(), autocommit=True) as link:
        link.execute("set timezone = 'UTC'; set datestyle = 'ISO, MDY'")
        link.execute(sql)
        asked = (
            "select pg_temp.moved(s, z) from unnest(%s::text[]) with ordinality as z(z, m),"
            " unnest(%s::text[]) with ordinality as s(s, n) order by m, n"
        )
        theirs = [a for (a,) in link.execute(asked, [names, list(STAMPS)]).fetchall()]
    wrong = []
    for place, (name, spelled) in enumerate((z, s) for z in names for s in STAMPS):
        try:
            mine = MOVES[kind](read_timestamp(spelled), name)
        except RowError as error:
            mine = str(error)
        if mine != theirs[place]:
            wrong.append(f"{spelled} in {name}: ours {mine}, Postgres {theirs[place]}")
    assert not wrong, "\n".join(wrong)


SCRIPT = """
create table seen (id int primary key, at timestamptz, local timestamp, zone text, said text);
insert into seen values
  (1, '2011-03-26 23:00:00+00', '2011-03-27 02:30', 'MSK', '2011-03-27 02:30 MSK'),
  (2, '2014-10-25 22:00:00+00', '2014-10-26 01:30', 'FOO8BAR', '2014-07-04 01:02 PST8PDT'),
  (3, '2007-12-09 07:00:00+00', '2007-12-09 02:45', 'VET', '2007-12-09 02:45 VET'),
  (4, 'infinity', '-infinity', '<+03>-3', 'Jan 5 2001 04:05 lhdt'),
  (5, null, null, null, null), (6, '2020-02-29', '2020-02-29', 'CET-1CEST,M3.5.0,M10.5.0/3', '2001-02-03 04:05 MSK BC');
select id, at at time zone zone, local at time zone zone from seen;
select id, said::timestamptz, said::timestamp from seen;
select id, date_trunc('day', at, zone), date_trunc('month', at, 'MSK'), date_trunc('year', at, 'VET') from seen;
select date_trunc('hour', at, 'PST8PDT,M3.2.0,M11.1.0') as h, count(*) from seen group by 1;
select id, make_timestamptz(2011, 3, id, 2, 30, 1.5, zone) from seen;
select id, to_timestamp(to_char(local, 'YYYY-MM-DD HH24:MI') || ' msk', 'YYYY-MM-DD HH24:MI TZ') from seen where id <> 4;
update seen set zone = 'X5Y,M11.1.0,M3.2.0', at = at + interval '2 hours' where id in (1, 2);
delete from seen where id = 3;
insert into seen values (7, '2021-11-07 06:00', '2021-11-07 01:30', 'EST5EDT', '2021-11-07 01:30 EST5EDT');
select v, make_timestamptz(2010, 2, 27, 3, 45, 0, v) from (values
  ('+1'), ('+1:'), ('-10:0'), ('+100'), ('+10:00:1'), ('+10:00:')) z(v);
select make_timestamptz(2010, 2, 27, 3, 45, 0, '+16') from seen;
select make_timestamptz(2010, 2, 27, 3, 45, 0, '+10:00:1x') from seen;
select timestamp '2024-01-01' at time zone 'X5Y;M3.2.0,M11.1.0' from seen;
select timestamp '2024-01-01' at time zone 'X168' from seen;
select timestamptz '2024-01-01 X168' from seen;
select make_timestamptz(2024, 1, 1, 0, 0, 0, 'A1B2,M4.5.6/0,M10.5.0/168') from seen;
update seen set zone = 'no such' where id = 6;
select id, at at time zone zone from seen;
"""


def test_zones_in_views_through_changes(postgres: EmbeddedPostgres) -> None:
    found = [a for a in run_script(postgres, "zones", SCRIPT) if isinstance(a, Answer)]
    assert len(found) == 14
    assert not [(a.sql, a.status, a.reason) for a in found if a.status != "equal"]


@pytest.mark.parametrize("name", ["X5Y,0/0,J365/25", "X5Y,365,J1", "X5<b>-7,M3.1.1,M3.1.2"])
def test_a_summer_or_winter_of_days_is_refused(name: str) -> None:
    with pytest.raises(RowError, match=NO_NAME):
        zone_of(name)
