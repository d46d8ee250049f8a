"""What public suites found, each as a script of our own: every SELECT equal to Postgres's, or refused with this reason."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.maintained_views import MaintainedView
from headrace.sidecar.offline.sql_replay.runner import Note
from headrace.sidecar.offline.sql_replay.select_checks import SEVERAL, Answer
from tests.views.decided import DECIDED, ROWS, Decided
from tests.views.shop import TABLES as TABLES_OF_THE_SHOP
from tests.views.shop import ddl

REACH = "first_value(id) over w, last_value(id) over w from probe window w as (order by"
TABLES = """
create table probe (id int, f float8, r real, n numeric, t timestamp);
insert into probe values (1, '-infinity', '-infinity', '-infinity', '-infinity'), (2, -7.5, -7.5, -7.5, '2011-06-01'),
  (3, 40, 40, 40, '2012-01-31'), (4, 'infinity', 'infinity', 'infinity', 'infinity'), (5, 'nan', 'nan', 'nan', null);
create table wait (id int, span interval, doc jsonb);
insert into wait values (1, '-2147483648 mons 5 days', '[8, "x"]'), (2, '-2147483648 days', '["x", 8]'), (3, '1 week', '[]');
create table shelf (id int primary key, parts int, name text, since timestamp, size numeric);
create table edge (id int primary key, t timestamp, d date);
insert into edge values (1, '294247-01-10 04:00:54.775805', '294247-01-10'), (2, '4714-11-24 BC', '4714-11-24 BC'),
  (3, '294247-01-10 03:00', '294270-01-01');
create table tag (id int primary key, v varchar(3), c char(4));
insert into tag values (1, 'abc', 'ab'), (2, null, null), (3, 'a', 'abcd');
create table np (n numeric, k int);
insert into np values (1.0, 1), (1.00, 1), (10, 2), (9, 2);
create table pair (id int primary key, k text, y float8, x float8, n numeric, j jsonb, b bytea, s bytea, c char(3), t json);
insert into pair values (1, 'a', 1, 2, 1.0, '1', '\\x01', '\\x00', 'x', '1'), (2, 'a', 1, 2, 1.00, '1.0', '\\x01', '\\x00', 'x ',
  '1'),
  (3, 'b', -0.0, 0, 2, '[]', '\\x01', null, 'y', '2'), (4, 'b', 0, -0.0, 2, '[]', '\\x01', '', null, '3'),
  (5, 'b', 3, 7, null, null, null, null, 'y', null), (6, 'c', null, 1, 3, '"z"', '\\x05', null, 'z', '{}'),
  (7, 'c', 5, 4, 3, '"z"', '\\x05', '\\x07', 'z', '{}');
insert into shelf values (1, 2, 'oak', '2020-08-11 10:00:01.5', 1), (2, null, 'elm', null, 2.50), (0, 7, 'a#b', '1969-12-31', 0);
"""
EQUAL = {
    "arrays_of_empty_arrays":
        "select array[[], []]::int[], array_cat(array[[]]::int[], array[[[]]]::int[]), array[array[id], array[]::int[] || 1],"
        " array[array[]::int[], null::int[]], array[[id, 1.5], [size, size]], array[array[id], '{7}'] from shelf",
    "arrays_of_arrays_that_do_not_match": "select array[array[id], array[]::int[]] from shelf",
    "any_of_an_array_written_out":
        "select c = any(array['ab ', 'x ']), c = any(array[v, 'a']), v = any(array[c]), '1' = any(array[id, 2]),"
        " id = any(array['1', id]), null = any(array[1]) from tag",
    "flags_of_a_range_that_are_none": "select int4range(null, null, '(] ')",
    "floats_of_so_many_bits":
        "select id::float(24), size::float(25), array[id]::float(3)[], float(53) '1', cast(size as float) from shelf",
    "an_array_of_values_is_in_their_order":
        "select array(values (id), (7), (parts), (1)), array(values (2), (1), (2)) from shelf",
    "positions_of_null_without_a_start": "select array_position(array[name], null, null), id from shelf where name <> 'a'",
    "bytes_in_unknown_texts":
        "select string_agg('\\x41', b order by id), string_agg('a', cast((select null) as bytea)) from pair",
    "arrays_of_bits": "select array[b'101', b'1'], pg_typeof(array[b'101']), pg_typeof(b'1') from shelf",
    "a_constant_truth_has_no_name": "select true, (false), (select true), true::bool from shelf",
    "columns_by_star_with_a_name": "select s.* as x, (t.*), ((t).*) as y from shelf s join tag t using (id)",
    "clauses_behind_parentheses_are_the_querys":
        "with few(n) as (select 2) ((select id, name as x from shelf)) order by parts nulls first limit (select n from few)",
    "a_limit_in_parentheses_sees_the_with_inside":
        "((with two(n) as (select 2) select id from shelf order by 1) limit (select n from two))",
    "a_named_window_groups_too": "select parts from shelf group by parts window w as (order by parts)",
    "a_scalar_subquery_names_its_column": "select (select max(parts) from shelf), (select 1 as up), (values (1)) from shelf",
    "exists_names_its_column": "select exists (select 1 from shelf), (exists (select 1))::text",
    "a_value_with_a_plus_has_no_name": "select +id, + + sum(parts) over (), -(+parts), +1 from shelf",
    "an_interval_constant_is_named_interval": "select interval '90' minute, interval '1 day'",
    "all_quantities_of_an_interval_count": "select interval '-1 days +02:03', since + interval '1 mon 00:00:01' from shelf",
    "date_part_is_a_double": "select date_part('second', since), date_part('year', since) from shelf",
    "julian_days": "select extract(julian from since), extract(julian from since::date), date_part('julian', since) from shelf",
    "like_with_an_escape": "select name like 'a#%' escape '#', name not like 'a##%' escape '' from shelf",
    "a_function_of_one_value_in_from_has_its_name":
        "select t.*, upper, abs.abs, f, jsonb_build_array from tag t, upper(t.v), abs(-t.id), regexp_match('abc', 'b') f,"
        " jsonb_build_array(t.id, null) where upper(t.v) = upper",
    "ceil_and_initcap_are_functions": "select ceil(size), floor(size), initcap(name), chr(id + 65) from shelf",
    "variance_of_more_digits_than_a_numeric_has":
        "select trim_scale(variance(v) * 1e1000), trim_scale(var_pop(v) * 1e1000) from (select v::numeric from (values (0),"
        " (3e-500), (-3e-500), (4e-500 - 1e-16383), (-4e-500 + 1e-16383)) x(v)) y",
    "whole_rows_as_text":
        "select s::text, cast(s.* as text), t::text as t, row(t, s.id)::text from shelf s left join tag t on t.id = s.id",
    "rows_written_out_as_text":
        "select row(id, name)::text, (id, 'x y')::text, (row('', null))::text, row(row(c, row('\"\\')), v is null)::varchar,"
        " row(t.*, array['a b', null])::text, row()::text, row(true, e'\\t', '(', ')', ',', 'oe')::varchar(9) from tag t"
        " join shelf using (id)",
    "whole_rows_of_a_group_by_the_primary_key_or_by_themselves":
        "select s::text as a, count(*), max((t).v) from shelf s left join tag t on t.id <> s.id group by s.id having to_jsonb(s)"
        " is not null union all select t::text, 1, row(t.*)::text from tag t group by t::text, t.id, t.v, t.c",
    "a_missing_row_is_null_and_one_of_nulls_is_not":
        "select id, q::text, q::text is null from shelf left join (values (1, null), (0, 'x')) q(k, v) on k = id",
    "a_missing_row_or_array_in_json_begins_no_line":
        "select json_agg(t order by s.id), json_agg(case when s.id > 0 then array[s.id] end order by s.id desc),"
        " json_agg(t order by s.id desc) from shelf s left join tag t on t.id = s.id",
    "dates_and_timestamps_at_the_end_of_what_is_held":
        "select t - interval '29 days', t + interval '40 days - 3456000 s', d > t, d < timestamp 'infinity', t::date, t < d,"
        " d = t from edge union all select null, d + interval '4 hours', null, null, null, null, null from edge where id < 3",
    "regressions_of_distinct_pairs":
        "select k, corr(distinct y, x), covar_pop(distinct y, x), covar_samp(distinct y, x), regr_avgx(distinct y, x),"
        " regr_avgy(distinct y, x), regr_count(distinct y, x), regr_intercept(distinct y, x), "
        "regr_r2(distinct y, x), regr_slope(distinct y, x),"
        " regr_sxx(distinct y, x), regr_sxy(distinct y, x), regr_syy(distinct y, x) filter (where id > 1) from pair"
        " group by rollup (k)",
    "regressions_of_distinct_pairs_without_a_number":
        "select regr_avgx(distinct y, f), regr_avgy(distinct f, y), covar_pop(distinct y, f), regr_count(distinct f, y) from"
        " pair, probe",
    "objects_of_distinct_pairs":
        "select json_object_agg(distinct k, n::int order by k desc), jsonb_object_agg(distinct k, y order by y desc nulls last),"
        " json_object_agg(distinct k, j) filter (where id <> 4), json_object_agg_strict(distinct k, n::int),"
        " jsonb_object_agg_strict(distinct k, n::int order by n::int),"
        " json_object_agg(distinct n::int, k) filter (where n > 0) from pair",
    "objects_of_distinct_pairs_whose_keys_come_again": "select json_object_agg_unique(distinct k, n::int) from pair",
    "objects_of_distinct_pairs_with_unique_keys": "select json_object_agg_unique(distinct k, n::int) from pair where k <> 'b'",
    "texts_and_bytes_of_distinct_pairs":
        "select string_agg(distinct k, c), string_agg(distinct k, c order by k desc), string_agg(distinct k, c order by c, k),"
        " string_agg(distinct b, s), string_agg(distinct b, '\\x00'), string_agg(distinct b, null), string_agg(b, s order by id)"
        " from pair",
    "whole_rows_that_a_key_tells_apart": "select distinct s, count(*) from shelf s left join np on k = parts group by s.id, 1",
    "signs_behind_operators":
        "select -1 * -2, id*-1, id=-1, id<-1, id<=+1, id+-1, -+-id, 2 ^ -1, '[1]'::jsonb->>-1, '[1]'::jsonb #-'{0}' from shelf",
    "names_with_escapes":
        r"""select id as U&"\0078y", "s".u&"!+000069d" uescape '!', U&"i""\0064" & 1 from U&"sh\0065lf" as s,
        (select 1 as "i""d") t""",
    "a_name_before_and": """select u& "id", u&2 from (select 3 as u, 1 as id) q""",
    "timestamps_out_of_postgres_range": "select t + interval '30 years' from edge where id < 3",
    "zones_in_any_case":
        "select since at time zone 'us/pacific', since at time zone 'aMERICA/port-au-prince', since at time zone 'nz-chat',"
        " timestamptz '2020-06-01 12:00 EUROPE/berlin' at time zone 'utc' from shelf",
    "units_are_told_by_their_first_ten_letters":
        "select extract(millenniums from interval '3000 years'), date_part('microsecondly', time '10:00:01.5'),"
        " date_trunc('millenniums', since), extract('timezone_ho' from timestamptz '2020-01-01 00:00+00') from shelf",
    "unknown_arrays_are_of_what_stands_beside_them":
        "select array_append('{1,2}', id), array_prepend(id, '{2}'), array_cat('{1}', '{2}'), array_position('{1,2}', parts),"
        " array_position('{a,b}', 'b'), array_positions('{1,2}', parts), array_remove('{1,2}', '1'), '{1}' || name from shelf",
    "unknown_times_at_time_zones":
        "select timezone('UTC', '2020-01-01'), '2020-01-01' at time zone 'Asia/Tokyo', id from shelf",
    "names_of_array_types":
        "select '{1,null}'::_int4, array_agg(id order by id)::_text, '{a}'::_varchar, '{t}'::_bool from shelf",
    "percentiles_of_no_fraction_are_of_one_group":
        "select percentile_cont(null) within group (order by parts), percentile_disc(null) within group (order by size),"
        " percentile_disc(null::float8) within group (order by name) from shelf",
    "an_interval_below_zero_is_before_noon":
        "select to_char(interval '-1 hours', 'PM am HH12'), to_char('-13 h'::interval, 'PM')",
    "the_names_of_types":
        "select pg_typeof(id), pg_typeof(size)::text, pg_typeof(c), pg_typeof(v), pg_typeof(array[parts]), pg_typeof(null), "
        "pg_typeof(since - since) from shelf join tag using (id)",
    "the_name_of_a_type_of_what_fails": "select pg_typeof(1 / id) from shelf",
    "dollars_around_a_constant": "select date $$1999-01-01$$, $a$it's $$b$$$a$, interval $$1 day$$ + since from shelf",
    "trim_of_lists":
        "select trim(both from name, 'ao'), trim(from name), trim(leading name, 'e'), trim('o' from name) from shelf",
    "a_time_is_an_interval_where_one_is_asked_for": "select since::time * 2, -(since::time), since::time / 2 from shelf",
    "subscripts_backwards": "select id, generate_subscripts(array[id, parts], 1, id > 0) from shelf",
    "checksums": "select crc32(name::bytea), crc32c(name::bytea), crc32c('123456789'), crc32c('') from shelf",
    "parts_of_a_json_with_escapes":
        r"""select '{"k\u0062": [1,"\u0041"]}'::json -> 'kb', json_array_elements('["\u0000"]') from shelf""",
    "a_part_of_a_json_that_no_text_can_hold":
        r"""select id, ('{"a": {"b": "\u0000' || left(name, 1) || '"}}')::json ->> 'a' from shelf where id < 2""",
    "keys_of_a_json_that_no_text_can_hold": r"""select k from shelf, json_object_keys('{"a": ["\ud83d"]}') k""",
    "words_of_other_databases_are_names": "select id as long, x.string from (select id, name as string from shelf) x",
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
    "a_filter_makes_an_aggregate_that_of_the_query_around":
        "select (select count(*) filter (where o.id <> 0) from (values (1)) v) from shelf o",
    "a_subquery_makes_an_aggregate_that_of_the_query_around":
        "select (select max((select min(i.parts) from shelf i where i.id = o.id))) from shelf o",
    "aggregates_of_the_query_around":
        "select o.parts, (select sum(o.size) + count(*) from shelf i where i.id < count(o.id)), (select (select max(o.name)))"
        " from shelf o group by o.parts having exists (select 1 from shelf c where c.id = max(o.id))"
        " order by (select min(o.id) + 1)",
    "an_aggregate_of_two_queries_is_that_of_the_inner": "select id, (select sum(o.id + i.id) from shelf i) from shelf o",
    "ordered_aggregates_of_the_query_around":
        "select (select percentile_disc(0.5) within group (order by o.id)), (select string_agg(o.name, ',' order by o.id)),"
        " (select stddev(o.size)) from shelf o",
    "an_infinite_reach_from_an_infinity": f"select id, {REACH} f range between 'inf' preceding and 'inf' following)",
    "an_infinite_reach_back": f"select id, {REACH} n range between 'inf' preceding and 'inf' preceding)",
    "an_infinite_reach_ahead": f"select id, {REACH} r range between 'inf' following and 'inf' following)",
    "an_infinite_reach_downwards": f"select id, {REACH} f desc range between 'inf' preceding and 'inf' preceding)",
    "an_infinite_reach_in_time":
        f"select id, {REACH} t desc range between '2 days' preceding and 'infinity' following)",
    "intervals_of_the_least_months_and_days": "select o.id, i.id, o.span from wait o, wait i where o.span > i.span",
    "the_least_interval_is_an_infinity":
        "select '-2147483648 mons -2147483648 days -9223372036854775808 us'::interval, interval '-2147483648 days'",
    "an_interval_at_its_least_has_no_opposite": "select -span from wait",
    "units_of_an_interval_that_share_nothing": "select interval '7 sec 30 ms', interval '2 decades 1-3', interval '4 0:30'",
    "elements_read_as_their_type": "select '{90 min,@ 2 days}'::interval[], '{10.9/16,::1}'::cidr[]",
    "a_path_stops_at_the_first_item_that_is_there":
        "select id, doc @? '$[*].ceiling()', doc @? '-$', doc @? 'strict $[*].abs()' from wait",
    "a_path_misses_a_variable": "select id from wait where doc @? '$[*] ? (@ > $least)'",
    "an_escape_of_eight_digits": r"select unistr('\U000000e9t\00e9\u00C9')",
    "a_back_reference": r"select name ~ '(.)\1', regexp_replace('abba' || name, '(.)\1', '<\1>') from shelf",
    "what_is_not_said_of_parentheses_ahead": "select regexp_match(name, '(?=(a))a(.)') from shelf",
    "nothing_to_delete_from": "select id, '[]'::jsonb #- '{k}', '{}'::jsonb #- '{k,0}' from wait",
    "a_zone_that_make_timestamptz_is_told":
        "select z, make_timestamptz(2001, 7, 8, 9, 10, 11.5, z) from (values ('+3'), ('-0930'), ('+4:05:06'), ('EST')) v(z)",
    "a_zone_without_a_sign": "select make_timestamptz(2001, 7, 8, 9, 10, 11.5, parts || '') from shelf",
    "a_zone_too_far": "select make_timestamptz(2001, 7, 8, 9, 10, 11.5, '-' || id + 16) from shelf",
    "a_constant_in_pieces_with_a_comment_between": "select 'one' -- and\n 'two'\n -- and\n'three' from shelf",
    "a_constant_beside_a_name_is_cut_off":
        "select n = '{0}' as a, n < '{0}' as b, n <> '{0}' and n >= '{0}' as c from (select repeat('ab', 40)::name as n"
        " from shelf) s".format("ab" * 40),
    "numbers_in_every_spelling":
        "select 0x1F, 0X_ff_FF, 0o17, 0b1_01, 1_000, 1_0.5_0, .2_5, 1.e1, 1_0e-1, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFFFF, shelf.id,"
        " (array[1, 2])[0x1] from shelf",
    "networks_compared_and_held":
        "select i, c, i < c, i = c, c <= i, c > '10.1/16'::cidr, i << c, i <<= c, c >> i, c >>= i, i <<= '::/0' from (values"
        " ('10.1.2.3'::inet, '10.1/16'::cidr), ('10.1.0.0/16', '10.1/16'), ('::1', '::/8'), (null, '10/8')) v(i, c)",
    "neighbours_at_any_distance":
        "select id, lag(name, parts) over w, lead(id, id - 1, -1) over w, lag(name, -1, 'none') over w, lead(name, null)"
        " over w, lag(id, (select 1)) over w from shelf window w as (order by id)",
    "a_null_behind_rows_that_have_none":
        "select label, id from (values (1, 'a'), (null, 'b')) b(hi, label) left join shelf on id < coalesce(hi, 9)",
    "ties_of_nulls_behind_rows_that_have_none":
        "select id from (select id from shelf union all select parts from shelf union all select parts from shelf) u"
        " order by id desc nulls first fetch first row with ties",
    "a_covariance_of_one_pair": "select covar_samp(f, 1), covar_pop(f, 1), covar_samp(1, f) from probe group by id",
    "unknown_literals_in_aggregates":
        "select min('b'), max(distinct 'a') filter (where id > 0), min(null), count('x'), bool_or('t'), every('no'),"
        " stddev('1'), var_pop('2.5'), max(min('c')) over () from shelf group by parts",
    "the_least_integers_are_constants":
        "select -2147483648, -9223372036854775808, -(2147483648), -(-2147483648), -2147483649, -0x80000000, -0.0, - 1_000,"
        " id - -2147483648 from shelf where id = 0",
    "the_least_integer_has_no_number_before_it": "select -2147483648 - id from shelf",
    "a_frame_farther_off_than_any_row":
        "select id, sum(id) over (order by id rows between 9223372036854775807 following and 1 following), sum(id) over (order"
        " by parts groups between current row and 9223372036854775807 following), last_value(id) over (order by id rows"
        " between 9223372036854775806 preceding and 9223372036854775807 following exclude current row) from shelf",
    "a_bin_wider_than_any_time": "select date_bin('200000000 days', since, '2024-01-01') from shelf where id = 1",
    "times_without_end_chosen_of_a_group":
        "select mode() within group (order by t), percentile_disc(0.4) within group (order by t desc), percentile_disc(array[0,"
        " 1]) within group (order by t::date), rank('infinity') within group (order by t) from probe",
    "rows_that_are_not_there":
        "select parts, rank(1, 'elm') within group (order by id, name desc), dense_rank(2.5) within group (order by size nulls"
        " first), percent_rank(null) within group (order by since), cume_dist('nan') within group (order by size) filter (where"
        " id > 0), rank(7) within group (order by parts desc) from shelf group by rollup (parts)",
    "a_percentile_of_no_rows":
        "select percentile_cont(array[0.5]) within group (order by id), percentile_cont(null) within group (order by id),"
        " percent_rank(1) within group (order by id), cume_dist(1) within group (order by id) from shelf where id > 9",
    "what_unfolds_is_grouped":
        "select unnest(array[name, 'oak', null]) as word, count(*), sum(id), max(since) from shelf group by 1 having count(*) >"
        " 0 order by 2 desc, 1 limit 3",
    "what_unfolds_is_grouped_beside_more_that_unfolds":
        "select upper(unnest(string_to_array(name, 'a'))) as w, generate_series(1, 2) as g, count(distinct id) from shelf group"
        " by unnest(string_to_array(name, 'a'))",
    "a_constant_is_longer_than_the_column_beside_it":
        "select coalesce(v, 'long one'), coalesce(c, 'zz'), case when id = 1 then c else 'qqqqqq' end, v in ('long text', 'abc'),"
        " nullif(v, 'long text'), c between 'a' and 'longer', greatest(v, 'zzzz'), array[v, 'long'], array[c, 'longer'], lag(v,"
        " 1, 'long one') over (order by id), lag(c, 1, 'zz') over (order by id) from tag",
    "a_constant_is_longer_than_the_column_above_it":
        "select v, c from tag where v = any (array['long text', 'abc']) or c in ('ab', 'longer') union select 'longer', null",
    "a_quoted_number_keeps_its_scale":
        "select coalesce(n, '1.239'), case when id = 1 then n else '0' end, greatest(n, '1.2345'), least(n, ' 1e1 '), array[n,"
        " '7'], n in ('1.504'), n in ('1.50', '2'), lag(n, 1, '1.239') over (order by id), coalesce(n, 'NaN'), coalesce(n, null)"
        " from (select id, size::numeric(6,2) as n from shelf) s union select '0.125', 1, 2, 3, null, null, true, '5',"
        " '-Infinity', '1.5'",
    "arrays_of_characters": "select array_agg(c order by id), array[c], '{a,b}'::char(1)[] from tag group by id",
    "distinct_rows_are_counted":
        "select count(distinct (parts, size)), count(distinct row(since, null::text)), count(distinct (name, size * 1.0)) filter"
        " (where id > 0) from shelf group by rollup (parts)",
    "texts_compared_by_their_bytes":
        "select id, name collate \"C\" < 'b', (name collate \"POSIX\") = 'oak', rank() over (order by name collate \"C\" desc)"
        " from shelf order by name collate \"C\" limit 2",
    "rows_as_json":
        "select s.id, row_to_json(s), to_jsonb(row(s.id, s.name)), to_json((s.since, null::int)), json_agg(t order by t.id),"
        " to_jsonb(t) from shelf s full join tag t on t.id = s.parts group by s.id, t.id",
    "rows_of_a_query_as_json":
        "select json_agg(x order by id), jsonb_agg(x order by n) from (select id, max(v) as n from tag group by 1) x",
    "nothing_has_no_place_in_no_bits": "select position(B'' in B''), position(B'' in id::bit(2)), position(B'1' in B'') from tag",
    "constants_of_bits": "select bit '101' || bit '', '101'::bit, bit 'x1F' & B'00010001', bit(5) '101', id::bit from shelf",
    "an_arrow_in_a_call_is_of_json":
        "select jsonb_array_length(doc->'a'), coalesce(doc->0, doc->'x'), jsonb_typeof(doc->0) from (select doc from wait) w",
    "signs_and_parentheses_make_an_ordinal":
        "select id from shelf group by grouping sets ((name, -(-1), id), ()) order by -(-(1))",
    "a_plus_makes_none": "select id, name from shelf group by id, name, +1, (+2)",
    "exists_of_no_columns":
        "select id from shelf s where exists (select from tag where id = s.id) and not exists (select from wait where false)",
    "arrays_of_queries": """
        select id, array(select v from tag t where t.id >= s.id order by c desc nulls last, 1), array(select null),
          array(select distinct parts from shelf order by parts), array(select id from tag where id > 9), array(values (1), (2)),
          array(select * from (select v from tag) x order by v desc), array(select 1 union all select s.parts order by 1),
          array(select count(*) from tag group by c order by max(id)), array((select name from shelf order by size limit 2)),
          array_length(array(with w as (select id from tag) select id from w order by -id), 1), (array(select 7))[1]
        from shelf s where 2 = any(array(select id from tag))""",
    "a_constant_of_a_query_that_postgres_plans_by_itself":
        "select (q.c::text || '')::int from (select true as c from shelf where id > 9 offset 0) q",
    "a_constant_of_a_query_that_is_read_twice":
        "with q as (select true as c from shelf where id > 9) select (a.c::text || '')::int from q a, q b",
    "a_constant_of_a_query_that_is_kept":
        "with q as materialized (select true as c from shelf where id > 9) select (c::text || '')::int from q",
    "a_constant_beside_rows_that_may_be_missing":
        "select (c::text || '')::int from shelf left join (select true as c from tag) q on true where shelf.id > 9",
    "failing_constants_that_nothing_asks_for":
        "select case when false then 1 / 0 end, coalesce(1, 1 / 0), false and 1 / 0 > 1, true or 1 / 0 > 1, "
        "case 1 when 2 then 1 / 0 else id end, case q.b when 2 then 1 / 0 else n end "
        "from (select 1 as b, parts as n, id, 1 / 0 as unread from shelf) q",
    "a_network_beside_an_address":
        "select c = i, c < i, c is distinct from i, nullif(c, i), coalesce(c, i), c::inet, c::inet::text, c::text, i::cidr from "
        "(values ('10.1.2.3/32'::cidr, '10.1.2.3'::inet), ('10.0.0.0/8', '10.0.0.0/8'), ('::1/128', '::1')) v(c, i)",
    "networks_joined_with_addresses":
        "select c, i from (values ('10.1.2.3/32'::cidr), ('::1')) a(c) join (values ('10.1.2.3'::inet), ('::2')) b(i) on c = i",
    "numerics_rounded_before_their_first_digit":
        "select round(5.5e131071 + parts, -131073), round(-4.5e131071, -131072), round(size, -1000000) from shelf",
    "a_renamed_table_has_rows_of_its_own_type":
        "select row_to_json(s), to_jsonb(s), row_to_json(t) from shelf s(a, b) left join tag t(x) on x = a",
    "a_renamed_query_has_rows_of_the_new_names": "select row_to_json(s) from (select id, name from shelf) s(a, b)",
    "constants_that_wait_for_rows": "select to_date('abc', 'YYYY'), to_number('abc', '9') from shelf where id > 9",
    "constants_in_a_list_with_one_that_is_null": "select id from shelf where 5 in (id, nullif(12.5, 12.5))",
    "zones_where_arrow_knows_no_rule":
        "select z, t at time zone z, (t at time zone 'UTC') at time zone z, date_trunc('day', t at time zone 'UTC', z) from "
        "(values (timestamp '2037-03-29 02:30'), ('2050-07-01 18:00'), ('9999-12-31 23:00'), ('250000-10-30 06:30'), "
        "('0044-03-15 BC'), ('4700-01-01 BC')) a(t), "
        "(values ('America/New_York'), ('Europe/Paris'), ('Asia/Kolkata'), ('Pacific/Chatham')) b(z)",
    "the_scale_of_a_power_near_a_power_of_ten":
        "select x ^ 0.5, (x - 0.0001) ^ 0.5, (x - 0.000001) ^ -1.25, (x + 0.00001) ^ 2.5 from "
        "(select 10::numeric ^ g as x from generate_series(-3, 20) g) q union all select 99999999.99 ^ 0.5, 0.5 ^ 1e3, 1, 2",
    "a_scalar_of_jsonb_is_an_array_of_one_for_a_number":
        "select d->0, d->>0, d->-1, d->1, d::json->0 from (select doc->0 as d from wait union all select doc from wait) q",
    "some_is_any": "select 2 = some (array[id, parts]), 2 > some(array[parts]), id = some (select parts from shelf) from shelf",
    "between_in_either_order": "select id between symmetric 2 and parts, id not between symmetric 7 and 1 from shelf",
    "a_filter_that_keeps_a_row_from_a_function":
        "select id, e.key, e.value from (select id, doc from wait union all select 9, '{\"a\": 1}') w, jsonb_each(doc) e "
        "where jsonb_typeof(doc) = 'object'",
    "a_function_of_single_values_is_a_value_by_its_name":
        "select id, e, e->>0, to_jsonb(e), e is null, count(e) over (partition by id) from wait, jsonb_array_elements(doc) e "
        "union all select id, e, e->>0, e.value, x.v = e, 1 from wait left join jsonb_array_elements(doc) e on true, "
        "jsonb_array_elements('[8]') x(v)",
    "collected_in_the_order_of_a_function":
        "select id, (select string_agg(e #>> '{}', ',') from jsonb_array_elements(doc) e), array(select e || e from "
        "jsonb_array_elements(doc) e), array(select jsonb_array_elements_text(doc) || '!'), (select json_agg(x) from "
        "unnest('{3,1,2}'::int[]) x where x <> id), array(select * from unnest(array[id, 0])), array(select x from "
        "unnest(array[4, id]) with ordinality u(x, o) where o < 3), array(select count(*) from unnest(array[1, 2])) from wait",
    "collected_of_each_row_in_the_order_of_a_function":
        "select id, array_agg(x), string_agg(x, '+') from shelf, regexp_split_to_table(name, '') x group by id",
    "a_sign_behind_a_power_of_ten_is_an_operator":
        "select 1e3+1, 1e3-1e2 as a, 2.5e-3-1e+2, 1e308+1e308, 1e3+id as \"1e3+1\", 1e1+1e1+1e1 from shelf",
    "a_cast_behind_a_typed_constant_is_of_the_constant":
        "select pg_typeof(timestamp '2020-01-01'::varchar), date '2020-01-01'::text || 'x', timestamp '2020-01-01 10:00'::date,"
        " numeric '1.5'::int, double precision '1.5'::int as x, timestamp with time zone '2020-01-01 00:00+02'::date,"
        " bool 'true'::int, char(3) 'ab'::text, time '10:00'::interval, json '[1]'::jsonb, bit '101'::int as b from shelf",
    "a_subquery_of_a_star_has_its_name":
        "select (select * from (select max(id) from shelf) x(a)), (select x.* from (select 4) x(y))",
    "a_time_is_an_interval_where_one_is_wanted":
        "select d - x, at - x, at + x, x + at, x < i, i = x, justify_hours(x), x * 2 from (select since as at, since::date as d,"
        " since::time as x, since - '2020-08-11'::timestamp as i from shelf) q",
    "a_function_may_have_its_name_in_quotes":
        'select "abs"(id), "count"(*) over (), "coalesce"."id" from shelf as "coalesce" where "length"(name) > 1',
    "a_constant_that_is_grouped_by_is_that_item_alone":
        "select 1 as a, count(*) + 1, coalesce(1, 5), sum(1) from shelf group by rollup (1) having count(*) > 1 or 1 = 1",
    "correlation_out_of_range": "select corr(x, y) from (values (1e301, 0), (-1e301, 0)) v(x, y)",
    "covariance_out_of_range": "select covar_pop(x, y) from (values (1e301::float8, 1e301::float8), (-1e301, 0)) v(x, y)",
    "deviation_out_of_range": "select stddev(x) from (values (1e301::float8), (-1e301)) v(x)",
    "a_join_within_lateral_whose_side_and_condition_read_around":
        "select o.id, q.* from shelf o left join lateral (select t.id, r.parts from tag t left join"
        " (select * from shelf where shelf.id = o.id) r on exists (select from wait w where w.id = t.id and w.id = r.id)) q"
        " on true",
    "any_value_has_its_type_and_heeds_its_order":
        "select any_value(v order by id desc), any_value(id order by v nulls first) filter (where id < 3) from tag where id > 1",
    "integral_parts_take_a_digit_more":
        "select ceil(x), round(x), floor(-x), trunc(x) from (select (repeat('9', 37) || '.9')::numeric(38,1) as x) y",
    "is_unknown": "select id is null, (parts > 2) is unknown, (parts > 2) is not unknown from shelf",
    "the_right_of_the_least_integer": "select right(name, -2147483648), left(name, -2147483648) from shelf",
    "the_longest_span_taken_away":
        "select interval '-1 mons' - span, interval '-1 day' - interval '-2147483648 days' from wait where id = 1",
    "names_of_more_than_63_bytes":
        f"select {'a' * 70}, \"{'é' * 40}\" as {'B' * 64} from"
        f" (select id as {'a' * 66}, id as \"{'é' * 33}\" from shelf) x",
    "what_is_valid_input_of_a_type_with_a_length":
        "select pg_input_is_valid(x, 'bit(3)'), pg_input_is_valid(x, 'varbit(3)'), pg_input_is_valid('{' || x || '}', 'bit(3)[]')"
        " from (values ('101'), ('10'), ('1011'), ('x'), ('x5')) v(x)",
    "bounds_before_an_array": "select '[2] = {1,2}'::int[], '[-1:0]  [1:1]={{1},{2}}'::int[], '[1:2]={\"a=b\",c}'::text[]",
    "arrays_within_arrays": "select ARRAY[[1, 2], [3, id]], (ARRAY[[1, 2], [3, id]])[2][1] from shelf",
    "conditions_in_the_order_that_postgres_takes":
        "select id from shelf where 10 / parts > 1 and name <> 'oak' and parts <> 0 union all"
        " select id from tag where v::int > 3 and c = 'zz' union all"
        " select s.id from shelf s join pair p on 10 / p.y > 1 and p.y <> 0 where 1 / (p.x - 2) < 9 and p.x <> 2 and p.id > s.id",
    "conditions_of_groups_in_the_order_that_postgres_takes":
        "select k from pair group by k having 1 / (max(id) - 7) < 0 and max(id) <> 7",
    "conditions_under_not":
        "select id from tag where not (c = 'ab' or v::int <= 3) and not (v::int > 3 or id < 9)",
    "conditions_of_a_left_join_in_the_order_that_postgres_takes":
        "select s.id, p.id from shelf s left join pair p on 10 / p.y > s.id and p.y <> 0",
    "conditions_under_a_query_in_from":
        "select id from (select * from tag where v::int > 3) q where c = 'zz'",
    "a_null_in_a_path_counts_where_it_is_reached":
        "select jsonb_set('{\"a\":1}', '{foo,null}', '2'), jsonb_set(doc, '{9,null}', '2'), doc #- '{7,null}',"
        " jsonb_insert('{\"a\":[1]}', '{foo,null}', '2'), '{}'::jsonb #- array[null], '{\"a\":1}'::jsonb #- '{b,null}' from wait",
    **{
        f"a_null_in_a_path_that_is_reached_{i}": f"select {asked} from shelf"
        for i, asked in enumerate((
            "jsonb_set('{\"a\":1}', array['a', name || null], '2')", "jsonb_insert('[1]', array[name || null], '2')",
            "'{\"a\":{\"b\":1}}'::jsonb #- array['a', name || null]",
        ))
    },
    **{
        f"whole_rows_as_keys_{i}": asked
        for i, asked in enumerate((
            "select n, np::text from np group by np, n", "select max(k) from np group by np order by max(k)",
            "select distinct np from np where k > 1", "select np, count(*) from np where k > 1 group by np",
            "select count(*), count(distinct np) from np group by np", "select s from shelf s order by 1 limit 1",
            "select s from shelf s order by s offset 1", "select k from np order by row(n, k) limit 3",
        ))
    },
    **{
        f"distinct_on_a_row_{i}": f"select distinct on ({on}) n, k from np order by {order}"
        for i, (on, order) in enumerate((
            ("np", "np, k"), ("row(n, k)", "row(n, k)"), ("(n, k)", "(n, k) desc"), ("k, np", "np, k"),
        ))
    },
    "capitals_behind_symbols":
        "select initcap(s || name) from shelf, (values ('€uro™a '), ('→b∑d 🎉party x☃'), ('°a ±b ¨c ℃d ㊗')) v(s)",
    "bits_beside_null":
        "select x'0A' || null, pg_typeof(x'0A' || null), pg_typeof(null || b'1'), b'1' || '01', '1' || b'01'::varbit from shelf",
    "variance_of_wide_numerics":
        "select stddev(n), variance(n), var_pop(n), stddev_pop(n) filter (where n > 0), stddev(distinct n) from (select"
        " (size + 99999999999999999999999999.123456789012)::numeric(38,12) as n from shelf union all select -1) q",
    "variance_of_wide_numerics_over_windows":
        "select stddev(n) over (order by n), var_pop(n) over () from (select"
        " (size + 12345678901234567890.123456789012)::numeric(38,12) as n from shelf) q",
    "elements_longer_than_their_type":
        "select '{hello}'::varchar(2)[], '{hello,null,\"a  b\"}'::char(3)[], '{1.234,7}'::numeric(3,1)[],"
        " '{{abc,d},{e,fgh}}'::varchar(2)[], '{101,1}'::bit(2)[], '{10111,1}'::varbit(2)[], cast('{hello,b}' as varchar(3)[]),"
        " ('{' || name || 'hello}')::varchar(4)[] from shelf",
    "escapes_beyond_ascii":
        "select name similar to '%k€%' escape 'é', name similar to 'ѦÄ_%' escape 'Ѧ', 'a€b' similar to 'a€€b' escape '€', 'a%'"
        " similar to 'aé%' escape 'é', name || '%' similar to 'oak🎉%' escape '🎉', substring(name similar '%é\"aé\"%' escape"
        " 'é'), 'Ä' || name ~ '\\Äo' from shelf",
    "set_operations_of_values_in_from":
        "select s.id, b.*, c.* from shelf s join (values (1) union values (2)) b on b.column1 = s.id, (values (1, 'a') union all"
        " values (2, 'b') except values (3, 'c')) c(x) union all select * from (select 1, 2, 3, 'z' from (values (1) intersect"
        " values (1)) v, (values (3), (4)) w) q",
    **{
        f"a_condition_that_is_false_keeps_a_series_of_millions_away_{i}": asked
        for i, asked in enumerate((
            "select count(*) from generate_series(1, 5000000) g where false",
            "select id, g from shelf left join generate_series(1, 5000000) g on 1 = 2",
            "select id, generate_series(1, 5000000) from shelf where id < 0",
            "select id from shelf, generate_series(1, id * 3000000) g where false",
        ))
    },
    "joins_within_joins":
        "select count(*) from shelf a join tag b join wait c on b.id = c.id on a.id = b.id, tag d cross join tag e",
}  # fmt: skip
LATE = "timestamps from 294247-01-10 04:00:54.775806 on are not supported"
REFUSED = {
    **{
        f"a_column_of_a_whole_row_that_is_grouped_by_{i}": (asked, 'column "k" must appear in GROUP BY or be used in an')
        for i, asked in enumerate((
            "select k from np group by np", "select count(*) from np group by np having k > 1",
            "select k + 1 from np group by np, n", "select np.* from (select k from np) np group by np",
        ))
    },
    "a_whole_row_grouped_by_its_columns": (
        "select q::text from (select id, name from shelf) q group by q.id, q.name",
        'column "q.*" must appear in GROUP BY or be used in an aggregate',
    ),
    **{
        f"rows_in_the_order_of_a_query_below_{i}": (query, f'the order of the rows of "{name}" is not kept')
        for i, (query, name) in enumerate((
            ("with c as (select k from np order by k desc) select array_agg(k) from c", "c"),
            ("select string_agg(k::text, ',') from (with c as (select k from np order by k desc) select k from c) q", "c"),
            ("with c as (select k from np order by k) select json_agg(k) from (select k from c where k > 1) q", "c"),
            ("select array_agg(k) from (select k from (select k from np order by k desc) inside) q", "inside"),
        ))
    },
    "a_late_timestamp": ("select timestamp '294276-12-31 23:59:59.999999', id from edge", LATE),
    **{
        f"a_timestamp_that_gets_late_{i}": (f"select {late} from edge where id <> 2", f"the view is in error: {LATE}")
        for i, late in enumerate((
            "t + interval '1 year'", "t + interval '1 us'", "d::timestamp", "d + time '10:00'", "d + timetz '10:00+01'",
            "d - interval '1 day'", "to_timestamp(9224000000000.0 + id)", "make_timestamptz(294250 + id, 1, 1, 0, 0, 0)",
            "d::text::timestamptz", "t at time zone 'PST'",
        ))
    },
    "a_type_of_another_database": ("select id::tinyint from shelf", "type tinyint is not supported in expressions"),
    "a_parameter": ("select id from shelf where id = $1", "parameter is not supported: $1"),
    **{
        f"an_operator_of_no_ours_{i}": (f"select {asked} from shelf", f"operator {sign} is not supported")
        for i, (asked, sign) in enumerate((
            ("id *= 2", "*="), ("id =* 2", "=*"), ("id == 2", "=="), ("id <=> 2", "<=>"), ("id !=- 2", "!=-"),
            ("!!(id > 1)", "!!"),
            ("!(id > 1)", "!"), ("id ** 2", "**"), ("name ~<~ 'b'", "~<~"), ("name||-id", "||-"), ("id %-2", "%-"),
            ("@-id", "@-"),
        ))
    },
    **{
        f"whole_rows_that_are_compared_by_{i}": (asked, reason)
        for i, (asked, reason) in enumerate((
            ("select distinct on (1) np from np", "DISTINCT ON of whole rows is not supported"),
            ("select jsonb_agg(distinct np) from np", "jsonb_agg(DISTINCT …) of rows is not supported"),
            ("select json_agg(distinct row(k, n)) from np", "json_agg(DISTINCT …) of rows is not supported"),
            ("select array_agg(row(n, k)) from np", "a row value is not supported: ROW(n, k)"),
        ))
    },
    "only_a_table": ("select id from only (shelf) s", "ONLY is not supported"),
    "no_column": ("select from shelf", "a SELECT without columns is not supported"),
    "an_aggregate_of_the_query_around_in_its_where":
        ("select id from shelf o where (select sum(o.parts)) > 1", "sum is of columns of the query around alone"),
    "a_word_that_depends_on_the_clock":
        ("select id, pg_input_is_valid('today', 'date') from shelf", "the view is in error: spelling of date not supported"),
    "a_zone_whose_summer_lasts_for_days":
        ("select id, since at time zone 'X5Y,0/0,J365/25' from shelf", 'time zone "X5Y,0/0,J365/25" is not supported'),
    "an_abbreviated_network_of_ipv6": ("select abbrev('2001:db8::/40'::cidr)", "the view is in error: abbrev of a network"),
    "an_expression_of_another_flavour": ("select name ~ '(?b)a' from shelf", "regular expression not supported: option"),
    "grouping_sets_by_equal_items":
        ("select id as a, id as b from shelf group by a, rollup(b)", "grouping sets by one of two equal items"),
    "the_fields_of_a_value": ("select (coalesce(name, 'x')).* from shelf", "the fields of a value by * are not supported"),
    "another_collation": ("select name collate \"und-x-icu\" < 'b' from shelf", "collation und-x-icu is not supported"),
    "a_collation_of_a_function": ("select upper(name collate \"C\") from shelf", "COLLATE is supported only of what is"),
    "a_row_that_may_be_missing":
        ("select row_to_json(m) from shelf s left join (select v from tag) m on m.v = s.name",
         "a whole row that may be missing is not supported here"),
    "the_place_of_a_row_of_a_query_around":
        ("select (select rank(o.id) within group (order by i.id) from shelf i) from shelf o", "the value of rank must be a"),
    "a_row_as_a_value": ("select id, array[shelf] from shelf", "a whole row as a value is not supported"),
    "a_whole_row_of_a_group_as_json":
        ("select to_jsonb(s) from shelf s group by parts, name, since, size", 'column "s.*" must appear in GROUP BY'),
    "a_whole_row_of_a_group_in_having":
        ("select name from shelf s group by name having s is null", 'column "s.*" must appear in GROUP BY'),
    "a_whole_row_of_grouping_sets":
        ("select id, s::text from shelf s group by grouping sets ((id), ())", 'column "s.*" must appear in GROUP BY'),
    "an_order_of_nothing_that_fails_before_any_row": ("select id from shelf order by 1 / 0", "Postgres computes constants"),
    "a_function_of_capitals": ('select "Abs"(id) from shelf', 'function "abs"(integer) does not exist'),
}  # fmt: skip
ALIKE = {
    "select s.* except (id) from shelf s": 'syntax error at or near "id"',
    "select U&'wrong: +0061' UESCAPE '+'": "invalid Unicode escape character at or near \"'+'\"",
    "select id in [1, 2] from shelf": 'syntax error at or near "["',
    "select interval 2 days": 'syntax error at or near "2"',
    "select count(*) from shelf join tag t": "syntax error at end of input",
    "select count(*) from shelf positional join tag t": "syntax error at end of input",
    "select * from values (1), (2) as v(x)": 'syntax error at or near "("',
    "select sum(id) filter (id > 1) from shelf": 'syntax error at or near "id"',
    "select sum(id) from shelf group by all": "syntax error at end of input",
    "select distinct row(n, k) from np order by k": "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
    "select [1, 2]": 'syntax error at or near "["',
    "select interval(10000000000) '1'": 'syntax error at or near "10000000000"',
    **{
        f"select {spelled} from shelf": f'syntax error at or near "{stop}"'
        for spelled, stop in (
            ("array[array[1], [2]]", "["),
            ("array[1, [2]]", "["),
            ("array[[1], array[2]]", "array"),
            ("array[[1], null]", "null"),
            ("array[[1] || 1, [2]]", "||"),
            ("array[([1])]", "["),
            ("array(select 1)[1]", "["),
            ("array(values (1), (2))[2]", "["),
            ("id = any array[2, 4]", "array"),
            ("name like all array['a']", "array"),
            ("id from shelf order by 1 where id = 1 --", "where"),
            ("id from shelf where id = 1, tag --", ","),
            ("id from shelf order by id union select 1 --", "union"),
            ("count(*) over w from shelf order by 1 window w as (order by id) --", "window"),
        )
    },
    **{
        f"select null::{spelled}": reason
        for spelled, reason in (
            ("varchar(0)", "length for type varchar must be at least 1"),
            ("char(10485761)[]", "length for type char cannot exceed 10485760"),
            ("bit varying(0)", "length for type varbit must be at least 1"),
            ("numeric(1001)", "NUMERIC precision 1001 must be between 1 and 1000"),
            ("numeric(5,1001)", "NUMERIC scale 1001 must be between -1000 and 1000"),
            ("float(54)", "precision for type float must be less than 54 bits"),
            ("timestamp(9223372036854775808)", 'syntax error at or near "9223372036854775808"'),
            ("timestamptz(2147483648)", 'value "2147483648" is out of range for type integer'),
            ("numeric(10000000000)", 'value "10000000000" is out of range for type integer'),
        )
    },
    "select * from shelf@tag": 'syntax error at or near "@"',
    "select * from shelf 'x'": "syntax error at or near \"'x'\"",
    "with a as (select 1) with b as (select 2) select * from a, b": 'syntax error at or near "with"',
    "with a as (select 1 as x) (with b as (select 2 as y) table b)": "multiple WITH clauses not allowed",
    "((select id from shelf order by id)) order by id": "multiple ORDER BY clauses not allowed",
    "((select id from shelf order by id limit 2) offset 1) limit 1": "multiple LIMIT clauses not allowed",
    "select array[[]]": "cannot determine type of empty array",
    "select id = any(array[]) from shelf": "cannot determine type of empty array",
    "select id = any(array[null, '1']) from shelf": "operator does not exist: integer = text",
    "select since = any(array['2020-08-11']) from shelf": "operator does not exist: timestamp without time zone = text",
    "select array[array[1, 2], array['3', '4']]": "ARRAY could not convert type text[] to integer[]",
    "select array(values (1, 2))": "subquery must return only one column",
    "select case 'x' when id > 1 then 1 end from shelf": "operator does not exist: text = boolean",
    "select * from shelf join tag using (id, id)": 'column name "id" appears more than once in USING clause',
    **{
        f"select row_number() over (rows {frame}) from shelf": reason
        for frame, reason in (
            ("unbounded following", "frame start cannot be UNBOUNDED FOLLOWING"),
            ("1 following", "frame starting from following row cannot end with current row"),
            ("between current row and unbounded preceding", "frame end cannot be UNBOUNDED PRECEDING"),
            ("between current row and 1 preceding", "frame starting from current row cannot have preceding rows"),
            ("between 1 following and current row", "frame starting from following row cannot have preceding rows"),
        )
    },
    "select 1 from shelf window w as (rows unbounded following)": "frame start cannot be UNBOUNDED FOLLOWING",
    "select id from shelf window w as (order by nothing)": 'column "nothing" does not exist',
    r'select U&"\006" from shelf': "invalid Unicode escape",
    **{
        f"select {aggregate} from pair": "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list"
        for aggregate in (
            "sum(distinct id order by k)",
            "corr(distinct y, x order by id)",
            "count(distinct id order by 1)",
            "max(distinct id order by id, k)",
            "json_object_agg(distinct k, n order by id)",
            "string_agg(distinct k, c order by b)",
            "string_agg(distinct k, '-' order by '-')",
        )
    },
    "select percentile_cont(distinct 0.5) within group (order by id) from pair": "cannot use DISTINCT with WITHIN GROUP",
    "select timestamp '294277-01-01' from edge": 'timestamp out of range: "294277-01-01"',
    "select percentile_disc('0') within group (order by v||v) from tag": "function percentile_disc(unknown, text) is not unique",
    "select id::double from shelf": 'type "double" does not exist',
    "select string '1', 1::serial": 'type "string" does not exist',
    "select array[id][1] from shelf": 'syntax error at or near "["',
    "select string_to_array(name, 'a')[1] from shelf": 'syntax error at or near "["',
    "select case when id > 100 then 1 / 0 else 0 end from shelf": "division by zero",
    "select (c::text || '')::int from (select true as c from tag where false) q": 'invalid input syntax for type integer: "true"',
    "with q as (select 'x' as c from tag) select c::int from q": 'invalid input syntax for type integer: "x"',
    r"select unistr('\dc01')": "invalid Unicode surrogate pair",
    "select coalesce(parts + null, 1 / 0) from shelf": "division by zero",
    "select id, x from shelf left join (select id as k, 1 % 0 as x from tag) q on k > 100": "division by zero",
    "select parts > 0 or not ('x'::text::boolean) from shelf": 'invalid input syntax for type boolean: "x"',
    "select + name from shelf": "operator does not exist: + text",
    "select sum('1') from shelf": "function sum(unknown) is not unique",
    "select 'one'\n/* and */ 'two'": """syntax error at or near "'two'\"""",
    "select b'1' || '2' from shelf": '"2" is not a valid binary digit',
    "select bit '12'": '"2" is not a valid binary digit',
    "select percentile_disc(array[0, 1.5]) within group (order by id) from shelf": "percentile value 1.5 is not between 0 and 1",
    **{
        f"select '{spelled}'::{kind}": f'value "{spelled}" is out of range for type {kind}'
        for kind, spelled in (
            ("integer", "93585797569d208d"),
            ("integer", "2147483650x"),
            ("smallint", "99999.5"),
            ("smallint", "999999__1"),
            ("integer", "0xFFFFFFFFFz"),
            ("integer", "0o7777777777777777z"),
            ("bigint", "9223372036854775810 e"),
        )
    },
    **{
        f"select '{spelled}'::integer": f'invalid input syntax for type integer: "{spelled}"'
        for spelled in ("2147483648x", "_999999999999", "0xz", "-214748364.8")
    },
    "select array(select * from tag) from shelf": "subquery must return only one column",
    "select id from shelf group by -1": "GROUP BY position -1 is not in select list",
    "select id from shelf order by 2147483648": "non-integer constant in ORDER BY",
    "select 1 from shelf where id in ()": 'syntax error at or near ")"',
    **{
        f"select interval '{spelled}'": f'invalid input syntax for type interval: "{spelled}"'
        for spelled in ("7.25 sec 30 ms", "0:30:00 8 us", "4-1 2 mons", "P.DT3H")
    },
    "select (array[1, 2])[1:2:1] from shelf": 'syntax error at or near ":"',
    "select x + x from (select since::time as x from shelf) q": "operator is not unique: time without time zone + time"
    " without time zone",
    "select 1.5::decimal()": 'syntax error at or near ")"',
    "select id is unknown from shelf": "argument of IS UNKNOWN must be type boolean, not type integer",
    **{
        f"select '{image}'::int[]": f'malformed array literal: "{image}"'
        for image in (
            "[2:4]={1,2,3,4}",
            "[1:2][1:3]={{1,2},{3,4}}",
            "[0:1]={}",
            "[3]={1,2}",
            "[1:2]{1,2}",
            "[1 :2]={1,2}",
            "[1:]={1}",
            "[a:b]={1,2}",
            "[]={1,2}",
            "[1:2]={{1,2}}",
            "[1:2]=[1:2]={1,2}",
            "[1:2]={1,2} x",
        )
    },
    "select 1 as": "syntax error at end of input",
    **{
        f"select jsonb '{text}'": "invalid input syntax for type json"
        for text in (r'{"a": "\ud83dx"}', r'["\ud83d\ud83d"]', r'{"\ude04": 1}', r'"\uZZZZ"')
    },
    "select '[4:2]={1,2}'::int[]": "upper bound cannot be less than lower bound",
    "select '[2147483647:2147483647]={1}'::int[]": "array upper bound is too large: 2147483647",
    "select '[2147483648:2147483648]={1}'::int[]": "array bound is out of integer range",
    **{
        f"select {spelled}": f'syntax error at or near "{stop}"'
        for spelled, stop in (
            ("extract('year', date '2020-01-01')", ","),
            ("position('b', 'abc')", ","),
            ("trim(both, 'x')", ","),
            ("1 as, 2", ","),
            ("(select 1 as)", ")"),
        )
    },
    "select lag(null) over (order by id) from shelf": "could not determine polymorphic type because input has type unknown",
    "select grouping() from shelf group by cube(id)": 'syntax error at or near ")"',
}
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


@pytest.mark.parametrize("decided", DECIDED)
def test_where_postgres_fails_a_condition_decides(postgres: EmbeddedPostgres, decided: Decided) -> None:
    script = ";".join([*map(ddl, TABLES_OF_THE_SHOP), ROWS, decided.sql])
    [answer] = run_script(postgres, f"found_{next(_NUMBERS)}", script)
    assert isinstance(answer, Answer)
    assert answer.reason == f"Postgres fails: {decided.error}; the view has rows"
    assert answer.headrace


@pytest.mark.parametrize("name", REFUSED)
def test_refused(postgres: EmbeddedPostgres, name: str) -> None:
    query, reason = REFUSED[name]
    answer = ask(postgres, query)
    assert answer.status == "refused"
    assert answer.reason.startswith(reason)


@pytest.mark.parametrize("query", ALIKE)
def test_what_both_refuse_in_the_same_words_is_equal(postgres: EmbeddedPostgres, query: str) -> None:
    answer = ask(postgres, query)
    assert (answer.status, answer.reason) == ("equal", ALIKE[query])


def test_numerics_of_more_digits_than_python_reads_by_default(postgres: EmbeddedPostgres) -> None:
    text = "create table n (a numeric);\ninsert into n values (10.0 ^ 9000), (1);\nselect a, a + 1 from n;"
    [answer] = run_script(postgres, f"found_{next(_NUMBERS)}", text)
    assert isinstance(answer, Answer)
    assert answer.status == "equal", answer.reason


SCHEMAS = """
create schema one; create schema two;
create table one.users (id int, name text); create table two.users (id int, name text);
insert into one.users values (1, 'a'), (2, 'b'), (3, 'c'); insert into two.users values (2, 'b'), (4, 'd');
"""


@pytest.mark.parametrize("query", [
    "select count(*) from one.users where exists (select from two.users where two.users.id = one.users.id)",
    "select one.users.name from one.users where not exists (select from two.users where two.users.id = one.users.id)",
    "select one.users.*, two.users.name from one.users left join two.users on one.users.id = two.users.id",
    "select name, (select count(*) from two.users where two.users.id > one.users.id) from one.users",
    "select one.users.name, count(*) from one.users, two.users group by one.users.name having min(two.users.id) > 1",
])  # fmt: skip
def test_tables_of_one_name_in_two_schemas_are_told_apart(postgres: EmbeddedPostgres, query: str) -> None:
    [answer] = run_script(postgres, f"found_{next(_NUMBERS)}", f"{SCHEMAS}{query};")
    assert isinstance(answer, Answer)
    assert (answer.status, answer.reason) == ("equal", "")


def test_a_name_of_two_tables_is_ambiguous(postgres: EmbeddedPostgres) -> None:
    [answer] = run_script(postgres, f"found_{next(_NUMBERS)}", f"{SCHEMAS}select users.name from one.users, two.users;")
    assert isinstance(answer, Answer)
    assert (answer.status, answer.reason) == ("equal", 'table reference "users" is ambiguous')


def test_a_star_of_a_view_does_not_grow_with_the_view_it_reads(postgres: EmbeddedPostgres) -> None:
    text = (
        "create view a as select id from shelf;\ncreate view b as select *, to_json(a) as j from a;\nselect * from b;\n"
    )
    more = "create or replace view a as select id, parts from shelf;\nselect * from b;\nselect * from a;"
    told = list(run_script(postgres, f"found_{next(_NUMBERS)}", f"{TABLES};\n{text}{more}"))
    assert [t.status for t in told if isinstance(t, Answer)] == ["equal"] * 3


VIEWS = """
create view public.some as select id, parts from shelf;
create view more as select m.id, s.name from public.some m join public.shelf s using (id);
select * from public.some; select public.some.id, more.name from public.some, more where public.some.id = more.id;
select * from public.more order by 1;
"""


def test_views_are_read_by_the_name_of_their_schema_too(postgres: EmbeddedPostgres) -> None:
    told = list(run_script(postgres, f"found_{next(_NUMBERS)}", f"{TABLES};{VIEWS}"))
    assert [(t.status, t.reason) for t in told if isinstance(t, Answer)] == [("equal", "")] * 3


MOODS = """
create type mood as enum ('sad', 'ok', 'happy'); create table felt (id int primary key, m mood);
insert into felt values (1, 'happy'), (2, 'sad'), (3, 'ok'), (4, null);
alter type mood add value 'meh' before 'ok'; alter type mood add value 'angry' before 'sad';
insert into felt values (5, 'meh'), (6, 'angry');
"""


@pytest.mark.parametrize("query", [
    "select max(m), min(m), array_agg(m order by m), percentile_disc(0.5) within group (order by m) from felt",
    "select id, m > 'meh', greatest(m, 'meh'), m between 'angry' and 'ok' from felt where m >= 'angry' order by m desc limit 4",
    "select a.id, b.id, max(a.m) over (order by a.id), lag(a.m) over (order by b.m, a.m) from felt a join felt b on a.m < b.m",
    "select m, count(*) from felt group by m having m <> 'ok' order by m",
])  # fmt: skip
def test_enums_keep_their_order(postgres: EmbeddedPostgres, query: str) -> None:
    [answer] = run_script(postgres, f"found_{next(_NUMBERS)}", f"{MOODS}{query};")
    assert isinstance(answer, Answer)
    assert (answer.status, answer.reason) == ("equal", "")


HIDDEN = """
create table heap (id int primary key, k int); insert into heap values (3, 1), (1, 1), (2, 1), (5, 2), (4, 2);
create view listed as select k, array_agg(id) as ids from heap group by k;
create view "One More" as select k, ids[1] as first from listed;
select * from listed; select first + 1 as next from "One More"; select k from "One More";
"""


def test_the_order_of_rows_behind_views_is_no_difference(postgres: EmbeddedPostgres) -> None:
    told = list(run_script(postgres, f"found_{next(_NUMBERS)}", HIDDEN))
    *open_, settled = [(t.status, t.reason) for t in told if isinstance(t, Answer)]
    # where ours happens to meet the rows as Postgres did, the two are equal
    assert [found in (("refused", SEVERAL), ("equal", "")) for found in open_] == [True, True]
    assert settled == ("equal", "")


def test_rows_that_are_missing_are_no_question_of_the_order(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select row_number() over (), name from shelf"
    assert ask(postgres, query).status in ("equal", "refused")
    add = MaintainedView.add

    def lacking(self: MaintainedView, taken: Any) -> None:
        add(self, taken)
        self.rows.pop(next(iter(self.rows)), None)

    monkeypatch.setattr(MaintainedView, "add", lacking)
    assert ask(postgres, query).status == "different"
