"""Rows of composite types against Postgres, through changes: every SELECT equal to Postgres's, or refused with this reason."""

from __future__ import annotations

import itertools

import pytest

from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.select_checks import Answer

TABLES = r"""
create type mood as enum ('sad', 'glad');
create domain small as int;
create type pair as (x int, y int);
create type part as (name text, n small, m mood, since date, "Size" numeric(6,2), tags text[]);
create type outer_pair as (p pair, q int);
create type tiny as (v varchar(2), n int);
create type cut as (t timestamp(0), c time(1), z timestamptz(2));
create type spell as (i interval(0));
create table item (id int primary key, name text, n int, doc jsonb);
insert into item values (1, 'a,b', 4, '{"n": 9, "tags": ["x", null]}'), (2, e'q"\\(', null, '{"name": null, "m": "glad"}'),
  (3, '', 0, '{}'), (4, null, null, null);
create table clock (t timestamp(0), c time(1), z timestamptz(2), plain timestamp);
insert into clock values ('2020-01-01 00:00:01.7', '01:01:01.77', '2020-01-01 00:00:01.777', '2020-01-01 00:00:01.7');
create table bag (id int primary key, ps pair[], parts part[]);
insert into bag values (1, array[row(1, 2)::pair, null, row(null, -1)::pair], null),
  (2, '{}', array[row('a,"b', 1, 'sad', '2020-02-29', 1.5, array['x', null])::part]), (3, null, array[null::part]);
create table lot (id int, name text, n int);
insert into lot values (1, 'a', null), (2, ' ', 2);
"""
CHANGES = r"""
insert into item values (5, e'tab\t\'', 7, '{"since": "2020-02-29", "Size": 1.005}');
update item set doc = '{"n": null, "name": ")"}', name = '\' where id = 2;
update item set n = n + 1;
delete from item where id = 1;
insert into lot values (5, null, null), (5, 'NULL', 1);
update bag set ps = ps || row(7, 8)::pair where id = 1;
insert into bag values (4, array[[row(1, 1)::pair], [row(2, 2)::pair]], array[row(null, null, 'glad', null, null, '{}')::part]);
delete from bag where id = 3;
"""
BASE = "row(i.name, i.n, 'sad', null, 12.345, array[i.name])::part"
TIMES = """'[{"t": "2020-01-01 00:00:01.7", "i": "1.5 s"}, {"c": "01:02:03.456", "z": "2020-01-01 00:00:01.7777"}]'::jsonb"""
EQUAL = {
    "records_of_a_named_type": "select i.id, q.* from item i, jsonb_populate_record(null::part, i.doc) q",
    "records_over_a_row": f"select i.id, q.* from item i, jsonb_populate_record({BASE}, i.doc) q",
    "records_over_a_row_as_json": f"select i.id, q.* from item i, json_populate_record({BASE}, i.doc::json) q",
    "records_over_a_text":
        "select i.id, q.x, q.y from item i, jsonb_populate_record(' ( 3 ,)'::pair, jsonb_build_object('y', i.n)) q",
    "records_over_a_table_s_row": "select q.* from item i, jsonb_populate_record(i, '{\"name\": \"new\", \"n\": null}') q",
    "records_over_a_row_that_may_be_missing":
        "select i.id, q.* from item i left join lot l on l.id = i.id, jsonb_populate_record(l, i.doc - 'm') q",
    "sets_of_records_over_a_row":
        "select i.id, q.* from item i left join jsonb_populate_recordset(row(i.id, i.n)::pair,"
        " case when i.n is null then '[]' else '[{\"x\": 1}, {\"y\": 2}, {}]' end::jsonb) q on true",
    "a_record_s_columns_count_though_nobody_reads_them":
        "select i.id, q.b from item i, jsonb_to_record(jsonb_build_object('a', i.name)) q(a int, b int) where i.id < 0",
    "fields_of_rows":
        f"select ({BASE}).*, ({BASE}).\"Size\" + 1 as s, (row(i.id, i.n)::pair).y, (row(i.name, 2)).*, ('(,7)'::pair).y as z"
        " from item i",
    "records_whose_times_have_few_digits":
        f"select q.*, r.* from jsonb_populate_recordset(null::cut, {TIMES}) q,"
        f" json_populate_record(null::clock, {TIMES}::json -> 0) r",
    "records_over_a_row_whose_times_have_few_digits":
        f"select q.* from clock, jsonb_populate_record(clock, ({TIMES} -> 0) - 'z') q",
    "records_of_listed_times_with_few_digits":
        f"select * from jsonb_to_recordset({TIMES}) q(t timestamp(0), c time(1), z timestamptz(3), i interval(0))",
    "rows_of_times_with_few_digits":
        "select (row('2020-01-01 00:00:01.7', '01:01:01.77', null)::cut).t, ('(,01:02:03.456,2020-01-01 00:00:01.7777)'::cut).*",
    "rows_as_columns":
        f"select i, i.id, row(i.n, i.name), (i.id, null), {BASE}, null::pair as p, '(1,)'::pair, row(i.id, i.n)::pair as q, l, s"
        " from item i left join item l on l.id = i.n cross join (select id as k, name from lot) s order by 2",
    "rows_of_groups_as_columns":
        "select row(n is null, count(*)), row(max(name), min(n))::tiny from item group by n is null",
    "rows_in_a_query":
        "select id, row(id, n) in (select id, n from lot) as a, row(n, name) not in (select n, name from lot where n > 1) as b,"
        " row(id, n) = any (select id, n from lot) as c, row(n, id) >= all (select n, id from lot) as d from item",
    "rows_as_text":
        f"select i.id, {BASE}::text as a, null::pair::text as b, row(null::pair, row(i.n, 1)::pair)::text as c,"
        " row(row(i.id, i.n), 1)::outer_pair::text as d from item i",
    "rows_as_json":
        f"select to_jsonb({BASE}), row_to_json(row(i.id, i.n)::pair), to_json(null::pair), to_jsonb(row(row(1, i.n)::pair, 2)),"
        " to_json(row(row(i.id, i.n), 1)::outer_pair) from item i",
    "rows_in_json_lists": "select n is null as e, jsonb_agg(row(id, n)::pair order by id) from item group by n is null",
    "rows_compared_as_values":
        "select a.id, b.id, row(a.n, a.id)::pair = row(b.n, b.id)::pair as e, row(a.n, a.id)::pair < row(b.n, b.id)::pair as l,"
        " row(a.n, a.id)::pair <= row(b.n, b.id)::pair as le, row(a.n, a.id)::pair > row(b.n, b.id)::pair as g,"
        " row(a.n, a.id)::pair >= row(b.n, b.id)::pair as ge, row(a.n, a.id)::pair <> row(b.n, b.id)::pair as ne,"
        " row(a.n, a.id)::pair is distinct from row(b.n, b.id)::pair as d from item a, item b",
    "arrays_of_rows_in_from":
        "select b.id, u.x, u.y + 1 as y from bag b, unnest(b.ps) u where u.x is distinct from 2",
    "arrays_of_rows_whose_fields_are_of_many_types": "select b.id, u.* from bag b left join unnest(b.parts) u on true",
    "arrays_of_rows_with_their_number":
        "select b.id, a, y, n from bag b cross join lateral unnest(b.ps) with ordinality u(a, y, n)",
    "arrays_of_rows_in_step":
        "select i.id, q.* from item i, unnest(array[row(i.id, i.n)::pair, null, row(null, 3)::pair], array[i.name]) q(a, b, c)",
    "arrays_of_rows_written_out":
        "select x, y from unnest(array[row(1, 2), row(3, null)]::pair[]) union all"
        " select x, y from unnest(array[row(5, 6)::pair]) q",
    "arrays_of_whole_rows": "select q.id, q.doc from item i, unnest(array[i, i]) q where q.n is not null",
    "aggregates_over_what_arrays_of_rows_hold":
        "select b.id, count(*), sum(u.x), array_agg(u.y) from bag b, unnest(b.ps) u group by b.id",
    "distinct_rows": "select distinct row(n, 1), row(n is null, n) from item",
    "distinct_whole_rows": "select distinct l, l.id is null as e from item i join lot l on l.id < i.id",
    "distinct_rows_that_may_be_missing":
        "select distinct j, i.n is null as e from item i left join (select id, name from item) j on j.id = i.n",
    "distinct_rows_in_an_order": "select distinct row(n, name), n from item order by row(n, name) desc limit 3",
    "groups_of_rows": "select row(n, 1) as r, count(*), max(id) from item group by 1",
    "groups_of_rows_written_twice": "select row(n is null, 1), count(*) from item group by row(n is null, 1) having count(*) > 0",
    "groups_of_whole_rows": "select l, count(*), max(i.id) from item i join lot l on l.id <= i.id group by l",
    "groups_of_rows_and_sets": "select n, count(*) from item group by grouping sets ((row(n, id), n), ())",
    "rows_in_the_order_of_their_columns": "select id from item order by row(n is null, n, id) desc limit 3",
    "rows_in_the_order_of_their_name": "select (n, name) as r, id from item order by r, id limit 3",
    "rows_in_the_order_of_their_number": "select (n, id)::pair from item order by 1 desc limit 2",
    "whole_rows_in_their_order": "select l.id, l.n from lot l order by l limit 2",
    "whole_rows_that_may_be_missing_in_their_order":
        "select i.id from item i left join (select id, name from item) j on j.id = i.n order by j nulls first, i.id limit 3",
    "distinct_rows_counted":
        "select count(distinct (n, 1)) as a, count(distinct row(n, name)) as b from item",
    "distinct_whole_rows_counted":
        "select count(distinct l) as a, count(distinct i) as b, count(distinct j) as c from item i join lot l on l.id <= i.id"
        " left join (select id, n from item) j on j.id = i.n",
    "lists_of_an_ordered_subquery":
        "select array_agg(id) as a, json_agg(name) as b, string_agg(id::text, ',') as c, jsonb_agg(n) filter (where id > 1) as d"
        " from (select id, name, n from item order by n desc nulls last, id) q",
    "lists_of_a_subquery_ordered_by_what_it_does_not_show":
        "select array_agg(id) from (select id from item order by coalesce(n, -id) desc, id) q where id > 0",
    "lists_of_a_subquery_that_is_cut": "select array_agg(id) from (select id, n from item order by 1 desc limit 2 offset 1) q",
    "lists_of_a_subquery_that_is_distinct": "select array_agg(n) from (select distinct n from item order by n desc nulls last) q",
    "lists_of_a_union_in_its_order":
        "select json_agg(id) from (select id from item union all select n from item order by 1 desc nulls last) q",
    "lists_of_groups_in_their_order":
        "select array_agg(e) from (select n is null as e from item group by n is null order by count(*), max(id) desc) q",
    "lists_by_group_of_an_ordered_subquery":
        "select e, array_agg(id), json_object_agg(id, n) from"
        " (select id, n, n is null as e from item order by id desc) q group by e",
    "rows_that_are_null":
        "select row(n, null)::pair is null as a, row(n, 1)::pair is not null as b, null::pair is null as c, '(,)'::pair is null"
        " as d from item",
}  # fmt: skip
REFUSED = {
    "a_field_of_a_composite_type":
        ("select q.q from item, jsonb_populate_record(null::outer_pair, doc) q", "jsonb_populate_record with a field of type"),
    "a_type_whose_intervals_have_no_digits":
        ("select * from jsonb_populate_record(null::spell, '{}')", 'type "spell" is no table or composite type here'),
    "a_row_as_text_whose_field_is_short":
        ("select ('(abc,)'::tiny).v", "a row as text with a field of type character varying(2)"),
    "rows_of_a_named_type_in_a_list": ("select row(1, n)::pair in (row(1, 2)::pair) from item", "IN of rows of a named type"),
    "rows_whose_columns_have_no_order": ("select row(doc::json) from item order by 1", "could not identify an ordering operator"),
    "distinct_rows_that_may_be_missing_and_nobody_tells":
        ("select distinct l from item i left join lot l on l.id = i.n", "a whole row that may be missing"),
    "an_array_of_rows_of_two_types":
        ("select * from unnest(array[row(1, 2)::pair, row('a', 2)::tiny]) q", "an array of rows and of other values"),
    "windows_over_an_ordered_subquery":
        ("select array_agg(id) over () from (select id from item order by n) q", "the order of a subquery's rows is not kept"),
    "a_row_of_a_subquery": ("select r from (select row(n, 1) as r from item) q", "a row value is not supported: ROW(n, 1)"),
    "rows_in_a_union": ("select row(n, 1) from item union select row(1, n) from item", "a row value is not supported: ROW("),
    "a_row_in_a_choice": ("select coalesce(row(n, 1), null) from item", "a row value is not supported: ROW(n, 1)"),
    "null_of_a_composite_type_compared": ("select null::pair = row(1, 2)::pair", "NULL of a composite type in a comparison"),
}  # fmt: skip
ALIKE = {
    "select * from unnest(array[row(1, 2)]) q": 'a column definition list is required for functions returning "record"',
    "select ('(1,2'::pair).x": 'malformed record literal: "(1,2"',
    "select ('(1)'::pair).x": 'malformed record literal: "(1)"',
    "select ('(1,2)x'::pair).x": 'malformed record literal: "(1,2)x"',
    "select (row(1, 2)::pair).z": 'column "z" not found in data type pair',
    "select (row(1)::pair).x": "cannot cast type record to pair",
    "select (row(row(1, 2)::pair, 2)::outer_pair::pair).x": "cannot cast type outer_pair to pair",
    "select row(1, 2)::pair = row(1, 2::bigint)":
        "cannot compare dissimilar column types integer and bigint at record column 2",
}  # fmt: skip
_NUMBERS = itertools.count()


def answers(postgres: EmbeddedPostgres, *statements: str) -> list[Answer]:
    script = ";\n".join(s.strip().removesuffix(";") for s in (TABLES, *statements))
    told = list(run_script(postgres, f"composites_{next(_NUMBERS)}", script))
    assert all(isinstance(a, Answer) for a in told), told
    return [a for a in told if isinstance(a, Answer)]


@pytest.mark.parametrize("name", EQUAL)
def test_equal(postgres: EmbeddedPostgres, name: str) -> None:
    for answer in answers(postgres, EQUAL[name], CHANGES, EQUAL[name]):
        assert (answer.status, answer.reason) == ("equal", "")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(postgres: EmbeddedPostgres, name: str) -> None:
    query, reason = REFUSED[name]
    [answer] = answers(postgres, query)
    assert answer.status == "refused"
    assert answer.reason.startswith(reason)


@pytest.mark.parametrize("query", ALIKE)
def test_what_both_refuse_in_the_same_words_is_equal(postgres: EmbeddedPostgres, query: str) -> None:
    [answer] = answers(postgres, query)
    assert (answer.status, answer.reason) == ("equal", ALIKE[query])
