"""What public suites found, each as a script of our own: every SELECT equal to Postgres's, or refused with this reason."""

from __future__ import annotations

import itertools

import pytest

from sidecar.console.script import run_script
from sidecar.devstack.postgres import EmbeddedPostgres
from sidecar.script.asked import Answer
from sidecar.script.run import Note

TABLES = """
create table shelf (id int primary key, parts int, name text, since timestamp, size numeric);
insert into shelf values (1, 2, 'oak', '2020-08-11 10:00:01.5', 1), (2, null, 'elm', null, 2.50), (0, 7, 'a#b', '1969-12-31', 0);
"""
EQUAL = {
    "a_scalar_subquery_names_its_column": "select (select max(parts) from shelf), (select 1 as up), (values (1)) from shelf",
    "exists_names_its_column": "select exists (select 1 from shelf), (exists (select 1))::text",
    "a_value_with_a_plus_has_no_name": "select +id, + + sum(parts) over (), -(+parts), +1 from shelf",
    "an_interval_constant_is_named_interval": "select interval '90' minute, interval '1 day'",
    "all_quantities_of_an_interval_count": "select interval '-1 days +02:03', since + interval '1 mon 00:00:01' from shelf",
    "date_part_is_a_double": "select date_part('second', since), date_part('year', since) from shelf",
    "julian_days": "select extract(julian from since), extract(julian from since::date), date_part('julian', since) from shelf",
    "like_with_an_escape": "select name like 'a#%' escape '#', name not like 'a##%' escape '' from shelf",
    "ceil_and_initcap_are_functions": "select ceil(size), floor(size), initcap(name), chr(id + 65) from shelf",
    "having_alone_looks_at_no_row": "select 1 as one from shelf where 1 / id = 1 having 1 < 2",
    "having_alone_keeps_nothing": "select 1 as one from shelf having 1 > 2",
    "an_empty_grouping_set_without_aggregates": "select id from shelf group by grouping sets ((id), ())",
    "lateral_inside_of_a_correlated_subquery":
        "select id, (select r from (select parts as q) x, lateral (select q as r) y) from shelf",
    "lateral_and_its_query_read_the_same_row_around":
        "select *, (select sum(y.m) from shelf i cross join lateral (select max(j.parts) as m from shelf j"
        " where j.id < i.parts + o.id) y where i.id = o.id or i.parts < o.parts) from shelf o",
    "a_filter_that_reads_rows_of_its_own":
        "select (select count(*) filter (where o.id <> v.x) from (values (1)) v(x)) from shelf o",
}  # fmt: skip
AROUND = "of a column of the query around is not supported"
REFUSED = {
    "a_filter_makes_an_aggregate_that_of_the_query_around":
        ("select (select count(*) filter (where o.id <> 0) from (values (1)) v) from shelf o", f"count {AROUND}"),
    "a_subquery_makes_an_aggregate_that_of_the_query_around":
        ("select (select max((select min(i.parts) from shelf i where i.id = o.id))) from shelf o", f"max {AROUND}"),
    "an_unreadable_unicode_string": ("select U&'wrong: +0061' UESCAPE '+'", "invalid Unicode escape character"),
    "a_constant_that_fails_before_any_row":
        ("select case when id > 100 then 1 / 0 else 0 end from shelf", "Postgres computes constants"),
}  # fmt: skip
_NUMBERS = itertools.count()


def ask(postgres: EmbeddedPostgres, query: str) -> Answer:
    told: list[Answer | Note] = list(run_script(postgres, f"found_{next(_NUMBERS)}", f"{TABLES};\n{query}"))
    [answer] = told
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize("name", EQUAL)
def test_equal(postgres: EmbeddedPostgres, name: str) -> None:
    answer = ask(postgres, EQUAL[name])
    assert (answer.status, answer.reason) == ("equal", "")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(postgres: EmbeddedPostgres, name: str) -> None:
    query, reason = REFUSED[name]
    answer = ask(postgres, query)
    assert answer.status == "refused"
    assert answer.reason.startswith(reason)


def test_what_both_refuse_in_the_same_words_is_equal(postgres: EmbeddedPostgres) -> None:
    answer = ask(postgres, "select 1 from shelf where id in ()")
    assert (answer.status, answer.reason) == ("equal", 'syntax error at or near ")"')


def test_numerics_of_more_digits_than_python_reads_by_default(postgres: EmbeddedPostgres) -> None:
    text = "create table n (a numeric);\ninsert into n values (10.0 ^ 9000), (1);\nselect a, a + 1 from n;"
    [answer] = run_script(postgres, f"found_{next(_NUMBERS)}", text)
    assert isinstance(answer, Answer)
    assert answer.status == "equal", answer.reason
