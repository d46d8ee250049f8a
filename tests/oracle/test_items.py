"""FROM against Postgres: items that read what stands before them beside joins of their own, and SELECTs without FROM."""

from __future__ import annotations

import itertools

import pytest

from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.select_checks import Answer
from tests.oracle.from_cases import script

TABLES = """
create table t1 (a int primary key, b text, arr int[]);
create table t2 (c int primary key, d text);
create table t3 (k int primary key, a int, e int);
insert into t1 values (1, 'a', '{1,2}'), (2, 'b', '{2,3}'), (4, 'c', null), (0, null, '{5}');
insert into t2 values (1, 'a'), (3, 'c'), (2, 'x');
insert into t3 values (1, 1, 2), (2, 2, 3), (3, 5, 5);
"""
CHANGES = """
insert into t1 values (3, 'x', '{3}'); update t2 set c = 4 where c = 2; delete from t3 where k = 1;
update t1 set arr = '{1,5}' where a = 4
"""
NEXT = "lateral (select generate_series + 1 as c) n"
EQUAL = (
    f"select * from generate_series(1, 2), {NEXT} natural join t2",
    f"select * from generate_series(1, 2), {NEXT} natural left join t2",
    f"select * from generate_series(1, 2), {NEXT} join t2 using (c)",
    "select * from t1, lateral (select t1.a + 1 as k) l join t3 on t3.k = l.k",
    "select * from t1, lateral (select t1.a + 1 as k) l natural join t3",
    "select * from t1, lateral (select t1.a + 1 as k, b as q) l natural left join t3",
    "select * from t1, unnest(t1.arr) as a join t3 using (a)",
    "select * from t1, unnest(t1.arr) as a natural join t3",
    "select * from t1, unnest(t1.arr) as x left join t3 on t3.k = x",
    "select * from t1, lateral (select 7 as c) l right join t2 using (c)",
    "select * from t1, lateral (select 2 as c) l full join t2 using (c)",
    "select * from t1, generate_series(2, 5) as c full join t2 using (c)",
    "select * from t1, generate_series(2, 5) as c right join t2 using (c), t3",
    "select * from t1 join lateral (select t1.a + 1 as c) l on true join t2 using (c)",
    "select * from t2, t1 cross join lateral (select t1.a + t2.c as x) l join t3 using (a)",
    "select * from t2, t1 cross join lateral (select t1.a + t2.c as x) l natural join t3",
    "select t1.a, (select count(*) from t2, lateral (select t1.a as k) l natural join t3) from t1",
    "select t1.a, (select count(*) from t2, lateral (select t2.c as k) l natural join t3 where t3.e > t1.a) from t1",
    "select * from t1 natural left join lateral (select 2 as a) l",
    "select * from t1 right join lateral (select t2.c from t2) l on l.c = t1.a",
    "select j.* from t2, t1 join t3 using (a) as j",
    "select j.* from t2, lateral (select t2.c as a) z join t3 using (a) as j",
    "select * from t1, lateral (values (1), (t1.a)) v(x) join t3 on t3.k = x",
    "select x.r from lateral (select 1 as q) as x(r)",
    f"select * from generate_series(1, 2), {NEXT} natural right join t2",
    f"select * from generate_series(1, 2), {NEXT} natural full join t2",
    "select * from t1, lateral (select t1.a + 1 as c, t1.b as q where t1.a < 4) l right join t2 using (c)",
    "select * from t1, lateral (select k from t3 where t3.k > t1.a) l full join t2 on l.k = t2.c left join t3 on t3.k = t2.c",
    "select * from t1, unnest(t1.arr) as x right join t2 on x = c",
    "select * from t1, unnest(t1.arr) as x join t3 on t3.k = x full join t2 on x = c, t3 z",
    "select * from t2, t1 cross join lateral (select t1.a + t2.c as x) l right join t3 on t3.k = x",
    "select t1.a, (select count(*) from t2, lateral (select t2.c + t1.a as k) l right join t3 using (k)) from t1",
    "select * from t1, t3, lateral (select t1.a + 1 as c) l right join t2 using (c), lateral (select l.c + 1 as z) y",
    # WITH that reads the query around it
    "select * from t1 where exists (with w as (select * from t3 where t3.a = t1.a) select * from w where w.e > 1)",
    "select t1.a, l.* from t1, lateral (with w as (select t3.e + t1.a as s from t3) select max(s), min(s) from w) l",
    "select t1.a, (with w as (select t1.a as i), v as (select i + 1 as j from w) select j from v) from t1",
    "select t1.a, (with w as (select e + t1.a as s from t3) select count(*) from w where s > (select min(s) from w)) from t1",
    "select t1.a, (with w as (select e + t1.a as s from t3) select count(*) from t3 where exists (select from w where s = e))"
    " from t1",
    "select t1.a, (with w as (select e, t1.a as s from t3) select sum((select count(*) from w v where v.e < w.e)) from w)"
    " from t1",
    "select t1.a, (with w as (select e + t1.a as s from t3) select sum(l.s) from t3, lateral (select s from w where w.s > e) l)"
    " from t1",
    "select t1.a, (with w as materialized (select e + t1.a as s from t3) select sum(s) from (table w union all table w) u)"
    " from t1",
    "with o as (select 7 as k) select a, (with w as (select e + t1.a + o.k as s from t3, o) select max(s) from w, o where s > k)"
    " from t1",
    "select t1.a, (select (with w as (select t1.a + t3.e as s) select s from w) from t3 order by e limit 1) from t1",
    "select t1.a, t.* from t1 left join lateral (with w(p) as (values (t1.a), (t1.a - 2)) select * from w) t on t.p > 1",
    "select sum(t1.a), (with w as (select sum(t1.a) as s) select s from w) from t1",
    # SELECTs without FROM
    "select case when true then 1 else (select 1/0) end, coalesce(1, (select 1/0))",
    "select a, case when a <> 0 then (select 100 / t1.a) else -1 end from t1",
    "select (select a + 1), count(*) from t1 group by (select a + 1)",
    "select (select sum(t1.a) + 1) from t1",
    "select (select (select max(u.k) from t3 u where u.a = t1.a)) from t1",
    "select (select a where a > 1), (select a limit 0), (values (a)), (select distinct a), (select row_number() over ()) from t1",
    "select sum((select a)) filter (where (select a > 1)), pg_typeof((select null)), pg_typeof((select 'a')) from t1",
    "select percentile_disc((select 0.5)) within group (order by a), string_agg(b, (select ',') order by a) from t1",
    "select a, sum(a) over (order by a rows (select 1) preceding), lag(a, (select 1)) over (order by a) from t1",
    "select a from t1 order by a limit (select 2) offset (select 1)",
    "select t1.a from t1 left join t3 on (select t1.a = t3.a)",
)  # fmt: skip
REFUSED = {
    "select * from t1, lateral (select t1.a + 1 as c) l join t2 on t2.c = t1.a": 'there is no table or alias "t1"',
    "select * from t1, unnest(t1.arr) as x left join t3 on t3.k = t1.a": 'there is no table or alias "t1"',
    "select * from t2, t1 cross join lateral (select t1.a + t2.c as x) l join t3 on t3.k = t2.c":
        'there is no table or alias "t2"',
}  # fmt: skip
QUERIES, SEED = 400, 7
STRICTER = "only Postgres refuses it: invalid reference to FROM-clause entry"
"""Where LATERAL in the parentheses of a RIGHT or FULL JOIN has a name that stands before them too."""
_NUMBERS = itertools.count()


def answers(postgres: EmbeddedPostgres, *statements: str) -> list[Answer]:
    script = ";\n".join(s.strip().removesuffix(";") for s in (TABLES, *statements))
    told = list(run_script(postgres, f"items_{next(_NUMBERS)}", script))
    assert all(isinstance(a, Answer) for a in told), told
    return [a for a in told if isinstance(a, Answer)]


@pytest.mark.parametrize("query", EQUAL)
def test_equal(postgres: EmbeddedPostgres, query: str) -> None:
    for answer in answers(postgres, query, CHANGES, query):
        assert (answer.status, answer.reason) == ("equal", "")


@pytest.mark.parametrize("query", REFUSED)
def test_refused(postgres: EmbeddedPostgres, query: str) -> None:
    [answer] = answers(postgres, query)
    assert answer.status == "refused"
    assert answer.reason.startswith(REFUSED[query])


def test_drawn_from_clauses_mean_what_they_do_in_postgres(postgres: EmbeddedPostgres) -> None:
    told = [a for a in run_script(postgres, f"items_{next(_NUMBERS)}", script(SEED, QUERIES)) if isinstance(a, Answer)]
    assert len(told) == QUERIES
    wrong = [f"{a.sql}: {a.reason}" for a in told if a.status == "different" and not a.reason.startswith(STRICTER)]
    assert not wrong, "\n".join(wrong)
    alone = [f"{a.sql}: {a.reason}" for a in told if a.status == "refused" and a.rows is not None]
    assert not alone, "\n".join(alone)
