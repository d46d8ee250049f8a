"""`headrace replay script.sql`: scripts on a real Postgres, each SELECT beside a view; and that a wrong answer is seen."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headrace.engine.batch.keys import fingerprint
from headrace.engine.schema import INTEGER, Column, Schema
from headrace.sidecar.cli.app import app
from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay import maintained_views, select_checks
from headrace.sidecar.offline.sql_replay.runner import Note
from headrace.sidecar.offline.sql_replay.select_checks import Answer
from headrace.sidecar.offline.sql_replay.session import Row
from headrace.sidecar.offline.sql_replay.statement_splitter import statements

_NUMBERS = itertools.count()


def answers(postgres: EmbeddedPostgres, text: str) -> list[Answer | Note]:
    return list(run_script(postgres, f"replay_sql_{next(_NUMBERS)}", text))


def statuses(postgres: EmbeddedPostgres, text: str) -> list[tuple[int, str]]:
    return [(a.line, a.status) for a in answers(postgres, text) if isinstance(a, Answer)]


def test_statements_are_cut_as_psql_cuts_them() -> None:
    text = r"""-- first; comment
select 1 /* a /* nested; */ b; */, ';', $$;$$, $tag$ ; $b$ $tag$, E'\';', "a;b";
\set x 1
(select 1) union (select 2);
with x as (insert into t values (1) returning *) select * from x;
with x as (select 1) insert into t select * from x;
copy t from stdin;
1;	2
\.
select 2 \gset
create function f() returns int begin atomic select case when true then 1 end; select 2; end;
create rule r as on insert to t do (select 1; select 2);
values (1)"""
    found = list(statements(text))
    assert [s.line for s in found] == [2, 4, 5, 6, 7, 10, 11, 12, 13]
    assert [s.is_query for s in found] == [True, True, True, False, False, True, False, False, True]
    assert found[4].data == "1;\t2\n"


def test_answers_are_equal_inside_and_outside_of_transactions(postgres: EmbeddedPostgres) -> None:
    found = answers(
        postgres,
        """
create table t (a int primary key, b text);
insert into t values (1, 'x'), (2, null);
select * from t;
select a + 1, a * 2, a as "A" from t;
begin;
insert into t values (3, 'z');
delete from t where a = 1;
select count(*), min(a) from t;
rollback;
select count(*), min(a) from t;
begin;
update t set b = 'q';
savepoint s;
delete from t;
select * from t;
rollback to s;
select b, count(*) from t group by b;
commit;
table t;
values (1, 'a'), (2, null);
(select a from t) union all select 5;
with w as (select * from t) select w.a, w.a from w;
""",
    )
    told = [(a.line, a.status, a.rows) for a in found if isinstance(a, Answer)]
    assert told == [(line, "equal", rows) for line, rows in
                    [(4, 2), (5, 2), (9, 1), (11, 1), (16, 0), (18, 1), (20, 2), (21, 2), (22, 3), (23, 2)]]  # fmt: skip
    assert not [n for n in found if isinstance(n, Note)]


def test_any_kind_of_table_is_followed(postgres: EmbeddedPostgres) -> None:
    found = answers(
        postgres,
        """
create domain amount as numeric(7,2);
create type mood as enum ('sad', 'happy');
create schema s;
create table s.t (a serial, b amount default 1.5, c mood, d int generated always as (a * 2) stored, unique (b));
insert into s.t (b, c) values (2, 'sad'), (3, 'happy');
select * from s.t;
set search_path = s, public;
select a, b from t;
create temp table t as select 7 as x;
select x from t;
drop table pg_temp.t;
select sum(b) from t;
create table parts (a int, b text) partition by range (a);
create table parts_1 partition of parts for values from (0) to (10);
create table parts_2 partition of parts for values from (10) to (20);
insert into parts values (3, 'x'), (13, 'y');
update parts set a = a + 10 where a = 3;
select * from parts;
select * from parts_2;
create table child (extra int) inherits (t);
insert into child (a, extra) values (9, 1);
select a from t;
copy parts from stdin;
4\tfour
5\t\\N
\\.
select count(*), count(b) from parts;
truncate parts_1;
select count(*) from parts;
alter table parts add column c int default 4;
select * from parts;
alter table parts rename to pieces;
select c from pieces;
create materialized view m as select count(*) as n from pieces;
select n from m;
insert into pieces values (1, 'again', 5);
refresh materialized view m;
select n from m;
create unlogged table u (x int);
insert into u select generate_series(1, 5);
vacuum full u;
update u set x = 6 where x = 1;
select sum(x) from u;
""".replace("\\t", "\t").replace("\\\\", "\\"),
    )
    assert [n for n in found if isinstance(n, Note)] == []
    assert {a.status for a in found if isinstance(a, Answer)} == {"equal"}
    assert len(found) == 14


def test_tables_are_followed_whatever_else_cannot_be_read_or_looks_different(postgres: EmbeddedPostgres) -> None:
    found = statuses(
        postgres,
        """create table v (i int, j int);
create materialized view never as select i, j from v with no data;
alter table v rename column i to x;
insert into v values (1, 2);
select * from v;
select * from never;
refresh materialized view never;
select * from never;
create table whole (a text, b text);
create table people (id int primary key, who whole);
insert into people values (1, '(Joe,Blow)'), (2, '(An,)');
select * from people;
alter table whole add column suffix text;
select * from people""",
    )
    assert found == [(5, "equal"), (6, "refused"), (8, "equal"), (12, "equal"), (14, "equal")]


def test_views_of_the_script_are_read(postgres: EmbeddedPostgres) -> None:
    assert statuses(postgres, """
create table t (a int, b int);
create view v as select a, count(*) as n from t group by a;
create view w (x, y) as select n, a from v where n > 1;
insert into t values (1, 1), (1, 2), (2, 1);
select * from w;
create or replace view v as select a, sum(b) as n from t group by a;
create or replace temp view z as select * from v with local check option;
alter table t rename column b to c;
select x, y from w;
drop view w;
select * from w;
""") == [(6, "equal"), (10, "equal"), (12, "refused")]  # fmt: skip


def test_a_view_that_fails_in_itself_is_read_where_what_fails_is_not(postgres: EmbeddedPostgres) -> None:
    text = """create table t (a int);
insert into t values (1), (2);
create view v as select a, 1 / 0 as bad, 0 as zero from t;
create view w as select a + 1 as b, bad from v where a > 1;
create view sorted as select a, 1 / 0 as bad from t order by a limit 1;
select a from v;
select sum(b) from w;
select a from sorted;
insert into t values (3);
select v.a, w.b from v join w on w.b = v.a;
select count(*) from v;
select * from v;
select bad from w;
select a / zero from v;
"""
    assert statuses(postgres, text) == [(n, "equal") for n in (6, 7, 8, 10, 11, 12, 13, 14)]


def test_what_fails_on_postgres(postgres: EmbeddedPostgres) -> None:
    found = answers(
        postgres,
        """
create table t (a int primary key);
insert into t values (0), (1);
select 1 / a from t;
insert into t values (1);
select nothing from t;
set timezone = 'Europe/Berlin';
begin;
select 1 / 0;
select * from t;
commit;
delete from t where a = 0;
select 1 / a from t;
select (select a from t, (values (1), (2)) v);
this is no sql;
select a from t
""",
    )
    told = [(a.line, a.status) for a in found if isinstance(a, Answer)]
    assert told == [
        (4, "equal"),
        (6, "equal"),
        (9, "equal"),
        (10, "refused"),
        (13, "equal"),
        (14, "equal"),
        (16, "equal"),
    ]
    assert [n.line for n in found if isinstance(n, Note)] == [5, 7, 15]


def test_an_answer_that_depends_on_the_order_of_rows_is_refused_or_equal(postgres: EmbeddedPostgres) -> None:
    rows = ", ".join(f"({i}, {i % 2})" for i in range(40))
    [(_, status)] = statuses(postgres, f"""
create table t (a int, b int);
insert into t values {rows};
select a from t order by b limit 5;
""")  # fmt: skip
    assert status in ("refused", "equal")


def test_a_wrong_answer_is_told_at_once_later_and_while_rows_come_and_go(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is given a row less: at first, in a later transaction, and while rows are inserted again."""
    push, calls = maintained_views.Maintained.transaction, Counter[str]()

    def losing(
        self: maintained_views.Maintained, changes: Sequence[tuple[str, Sequence[Row], Sequence[Row]]], at: int
    ) -> None:
        calls["all"] += 1
        push(self, [(n, r, a[1:] if calls["all"] == at else a) for n, r, a in changes])

    script = "create table t (a int);\ninsert into t values (1), (2);\nselect * from t;\ninsert into t values (3);\nselect 1;"
    expected = {1: "1 rows are missing", 2: "after a later change: 1 rows", 5: "after its tables' rows were deleted"}
    for at, reason in expected.items():
        calls.clear()
        monkeypatch.setattr(
            maintained_views.Maintained, "transaction", lambda self, c, at=at: losing(self, list(c), at)
        )
        first, second = answers(postgres, script)
        assert isinstance(first, Answer)
        assert isinstance(second, Answer)
        assert (first.status, second.status) == ("different", "equal"), at
        assert first.reason.startswith(reason), at
        assert len(first.postgres) == len(first.headrace) + 1, at


def test_a_mistake_of_ours_is_told_of_its_query_alone(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = maintained_views.Maintained.install

    def failing(self: maintained_views.Maintained, view: object, views: object) -> maintained_views.MaintainedView:
        if view.name == "line_4":  # type: ignore[attr-defined]
            raise KeyError("lost")
        return install(self, view, views)  # type: ignore[arg-type]

    monkeypatch.setattr(maintained_views.Maintained, "install", failing)
    text = "create table t (a int);\ninsert into t values (1);\nselect a from t;\nselect a + 1 from t;\nselect a + 2 from t;"
    assert [s for _, s in statuses(postgres, text)] == ["equal", "different", "equal"]


def test_an_answer_that_takes_too_long_is_refused(postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_self: maintained_views.Maintained, _view: object, _views: object) -> None:
        rows = pa.record_batch({"a": pa.array(range(1000))})
        while True:  # mostly inside of a kernel
            fingerprint(rows)

    monkeypatch.setattr(maintained_views.Maintained, "install", endless)
    monkeypatch.setattr(select_checks, "SECONDS", 0.05)
    [answer] = answers(postgres, "select 1")
    assert isinstance(answer, Answer)
    assert (answer.status, answer.reason) == ("refused", "not answered within 0.05 seconds")


def test_random_changes_between_queries_that_stay(postgres: EmbeddedPostgres) -> None:
    chance = random.Random(5)
    lines = ["create table t (a int primary key, b int, c text);", "create table u (a int, d numeric(6,2));"]
    queries = ["select b, count(*), sum(a) from t group by b", "select t.a, d from t join u using (a)",
               "select a, (select max(d) from u where u.a = t.a) from t", "select c from t except select c from t where b > 2",
               "select a, rank() over (partition by b order by a desc) from t"]  # fmt: skip
    for _ in range(25):
        a, b = chance.randint(1, 9), chance.randint(0, 4)
        lines.append(chance.choice([
            f"insert into t values ({a}, {b}, 'c{b}') on conflict (a) do update set b = excluded.b;",
            f"delete from t where a = {a};", f"update t set a = a + 10 where b = {b} and a < 10;",
            f"insert into u values ({a}, {b}.25), ({b}, null);", f"delete from u where d < {b};",
        ]))  # fmt: skip
        lines.append(chance.choice(queries) + ";")
    found = [a for a in answers(postgres, "\n".join(lines)) if isinstance(a, Answer)]
    assert len(found) == 25
    assert {a.status for a in found} == {"equal"}


def test_the_command_prints_one_object_a_select(tmp_path: Path) -> None:
    script = tmp_path / "shop.sql"
    script.write_text("create table t (a int);\ninsert into t values (1);\nselect a from t;\nselect random();\n")
    done = CliRunner().invoke(app, ["replay", "--json", str(script)])
    assert done.exit_code == 0, done.output
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [set(t) for t in told] == [{"line", "sql", "status", "reason", "rows"}] * 2
    assert [(t["line"], t["status"], t["rows"]) for t in told] == [(3, "equal", 1), (4, "refused", 1)]
    assert CliRunner().invoke(app, ["replay", str(script), str(tmp_path / "recording.jsonl")]).exit_code == 2
    assert CliRunner().invoke(app, ["replay", str(tmp_path / "none.sql")]).exit_code == 8


def test_rows_that_go_and_come_are_all_there_when_a_step_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = maintained_views.Maintained()
    ours.declare("public.crate", Schema((Column("id", INTEGER), Column("load", INTEGER)), (0,)))
    rows = [(str(i), str(i * i)) for i in range(9)]
    ours.transaction([("public.crate", (), rows)])
    ours.step()
    steps = iter([maintained_views.Maintained.step])

    def break_off(self: maintained_views.Maintained) -> frozenset[str]:
        return next(steps)(self)  # StopIteration at the second step

    monkeypatch.setattr(maintained_views.Maintained, "step", break_off)
    with pytest.raises(StopIteration):
        ours.churn(["public.crate"], random.Random(4))
    monkeypatch.undo()
    assert sorted(ours.again().rows("public.crate")) == rows
