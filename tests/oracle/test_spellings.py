"""Values that are equal and look different, through random changes: what groups, joins and sorts by them answers as Postgres."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.select_checks import Answer

SEED = 3
VALUES = {
    "interval": ("1 day", "24:00", "30 days", "1 mon", "-1 day", "720:00", "0", "infinity", "1 mon -1 day", "29 days"),
    "jsonb": ("1", "1.0", '{"a": 1}', '{"a": 1.00}', "[1, 2]", "[1.0, 2]", '"a"', "null", "[]", "{}", "true"),
    "numrange": ("[1,2]", "[1.0,2.00]", "empty", "(,5]", "(,5.0]", "(1,2)", "[0,NaN)", "[-0.0,1)", "[0,1)"),
    "tstzrange": ("[2024-01-01 00:00+00,)", "[2024-01-01 01:00+01,)", "empty", "(,)", "(2024-01-01 00:00+00,infinity)"),
    "nummultirange": ("{}", "{[1,2]}", "{[1.0,2.0]}", "{(,1),(2,3)}", "{(,1.0),(2.0,3)}", "{empty}"),
    "numeric[]": (
        "{}",
        "{1,2}",
        "{1.0,2.00}",
        "{NULL}",
        "{1,NULL}",
        "{NaN}",
        "[0:1]={1,2}",
        "{{1,2}}",
        "{{1},{2}}",
        "{1}",
    ),
    "double precision[]": ("{0}", "{-0}", "{NaN}", "{1e300}", "{Infinity,1}", "{0,0}", "{NULL,0}", "{-Infinity}"),
    "interval[]": ("{}", "{1 day}", "{24:00}", "{NULL,1 mon}", "{NULL,30 days}"),
    "jsonb[]": ("{1}", "{1.0}", "{NULL}", '{"[1, 2]"}', '{"[1.0, 2]"}', "{null}"),
    "text[]": ("{}", "{a}", "{b,a}", "{NULL}", "{ab}", '{""}', '{"a "}', "{ä}", "{Z}"),
    "numeric": ("0", "1", "1.0", "1.00", "-1", "NaN", "Infinity", "100", "1e2"),
    "double precision": ("0", "-0", "1", "NaN", "Infinity", "-1"),
    "character(4)": ("a", "a ", "ab", "", "b"),
}
"""Texts of each type, several of them of equal values."""

ASKED = (
    "select count(*) from t group by v",
    "select count(*), sum(w) from t group by grouping sets ((v, w), (v), ())",
    "select count(distinct v), count(distinct v) filter (where w > 1) from t group by w",
    "select count(*) from (select distinct v, w from t) s",
    "select count(*) from (select v from t union select v from u) s",
    "select count(*) from (select v from t intersect all select v from u) s",
    "select count(*) from (select v from t except select v from u) s",
    "select count(*) from (select v from t except all select v from u) s",
    "select t.id, u.id from t join u on t.v = u.v",
    "select t.id, u.id from t left join u on t.v = u.v and t.w < u.w",
    "select t.id, u.id from t full join u on t.v = u.v",
    "select t.id, u.id from t join u using (v)",
    "select id, v < (select u.v from u where u.id = 0), v is not distinct from null from t",
    "select id, count(*) over (partition by v), rank() over (order by v) from t",
    "select id, dense_rank() over (partition by w order by v desc) from t",
    "select distinct on (v) id from t order by v, id",
    "select id from t order by v nulls first, id limit 3",
    "select id from t order by v desc fetch first 2 rows with ties",
    "select id from t where v in (select v from u)",
    "select id from t where v not in (select v from u where v is not null)",
    "select id, (select count(*) from u where u.v = t.v), (select max(u.id) from u where u.v < t.v) from t",
    "select id, (select max(t.v::text || u.id) from u where u.id < t.id) from t",
    "select id, exists (select 1 from u where u.v = t.v and u.w = t.w) from t",
    "select array_length(array_agg(distinct v::text), 1), jsonb_agg(id order by v, id) from t",
    "select percentile_disc(0.5) within group (order by v) = mode() within group (order by v) from t",
    "select w, mode() within group (order by v) is null from t group by w",
)  # fmt: skip
_NUMBERS = itertools.count()


def _script(datatype: str) -> Iterator[str]:
    """Two tables of random values, the queries, and changes among which they are asked."""
    chance = random.Random(f"{SEED} {datatype}")
    pool = (*VALUES[datatype], None)

    def value() -> str:
        text = chance.choice(pool)
        return "null" if text is None else f"'{text}'"

    for table in ("t", "u"):
        yield f"create table {table} (id int primary key, v {datatype}, w int)"
    for row in range(10):
        for table in ("t", "u"):
            yield f"insert into {table} values ({row}, {value()}, {chance.randint(0, 2)})"
    for _ in range(4):
        table = chance.choice("tu")
        yield f"update {table} set v = {value()} where id % 5 = {chance.randint(1, 4)}"
        yield f"delete from {chance.choice('tu')} where id = {chance.randint(1, 9)}"
    fixed = [q for q in ASKED if "percentile" not in q or datatype != "jsonb"]
    yield from fixed
    for _ in range(3):
        yield f"update {chance.choice('tu')} set v = {value()} where id % 4 = {chance.randint(1, 3)}"
        yield from chance.sample(fixed, 6)


@pytest.mark.parametrize("datatype", VALUES)
def test_equal_values_are_one(postgres: EmbeddedPostgres, datatype: str) -> None:
    told = [
        a
        for a in run_script(postgres, f"spelled_{next(_NUMBERS)}", ";\n".join(_script(datatype)) + ";")
        if isinstance(a, Answer)
    ]
    wrong = [f"{a.status}: {a.sql}: {a.reason}" for a in told if a.status != "equal"]
    assert len(told) > len(ASKED)
    assert not wrong, "\n".join(wrong)
