"""The corpus of views: aggregates that collect values and pairs, and JSON."""

from __future__ import annotations

from tests.views.features import Refused, Supported, supported

COLLECTING: tuple[Supported, ...] = (
    *supported(
        ("array_agg, with DISTINCT, ORDER BY and FILTER inside", "agg_arrays",
         "select status, array_agg(id order by id) as a, array_agg(total order by total desc nulls last, id) as b,"
         " array_agg(distinct discount) as c, array_agg(distinct discount order by discount desc) as d, array_agg(placed"
         " order by placed, id) filter (where discount > 1) as e, array_agg(customer_id order by parts nulls first, id)"
         " as f from orders group by status"),
        ("array_agg of texts, without GROUP BY", "agg_array",
         "select array_agg(name order by name, id) as a, array_agg(distinct region) as b, array_agg(vip order by id) as c"
         " from customers"),
        ("string_agg in any order", "agg_texts",
         "select region, string_agg(name, ',' order by born, id) as a, string_agg(distinct name, ',' order by name desc)"
         " as b, string_agg(name, ',' order by vip desc, id) as c from customers group by region"),
        ("string_agg by what each row says", "agg_separators",
         "select status, string_agg(status || id, id::text order by id desc) as a, string_agg(placed::text, case when id > 3 then"
         " ',' when id > 1 then ' ' end order by parts, id) filter (where discount > 1) as b, string_agg(id::text::bytea,"
         " discount::text::bytea order by id) as c from orders group by status"),
        ("string_agg by what each row says, over a window", "agg_separators_over",
         "select id, string_agg(id::text, status) over (order by id rows 2 preceding) as a from orders"),
        ("json_agg, jsonb_agg", "agg_json",
         "select status, json_agg(id order by id) as a, json_agg(total order by total, id) as b, jsonb_agg(placed order by"
         " placed, id) as c, jsonb_agg(status order by id) as d, json_agg(array[id, discount] order by id) as e,"
         " jsonb_agg(distinct discount) as f from orders group by status"),
        ("json_object_agg, jsonb_object_agg", "agg_objects",
         "select customer_id, json_object_agg(id, total order by id) as a, jsonb_object_agg(status, id order by id) as b"
         " from orders group by customer_id"),
        ("json_agg_strict, jsonb_agg_strict", "agg_json_strict",
         "select status, json_agg_strict(total order by id) as a, jsonb_agg_strict(total order by id) as b, json_agg_strict(o"
         " order by id) filter (where id > 2) as c, jsonb_agg_strict(distinct discount) as d, json_agg_strict(null::int) as e,"
         " jsonb_agg_strict('null'::jsonb) as f from orders o group by status"),
        ("json_object_agg_strict, _unique, _unique_strict, and those of jsonb", "agg_objects_strict",
         "select status, json_object_agg_strict(id, total order by id) as a, jsonb_object_agg_strict(discount is null, case"
         " when id > 3 then 'null' when id > 1 then to_json(id) end order by id) as b, json_object_agg_unique(id, total order by"
         " id) as c, jsonb_object_agg_unique(id, total) as d, json_object_agg_unique_strict(id, total order by id) as e,"
         " jsonb_object_agg_unique_strict(id, case when id > 3 then 'null'::json end) as f from orders group by status"),
        ("array_agg of arrays", "agg_of_arrays",
         "select status, array_agg(array[id, discount] order by id) as a, array_agg(array[[total], [1.5]] order by id desc) as b,"
         " array_agg('[3:4]={5,6}'::int[]) as c, array_agg(distinct array[discount, 1]) as d from orders group by status"),
        ("array_agg of arrays and JSON without NULLs, over windows", "agg_windows",
         "select id, json_agg_strict(total) over (order by id rows 2 preceding) as a, array_agg(array[id, discount]) over (order"
         " by id rows 1 preceding) as b from orders"),
        ("sum(DISTINCT) and avg(DISTINCT) of intervals", "agg_intervals_once",
         "select status, sum(distinct placed - timestamp '2024-01-01') as a, avg(distinct placed - timestamp '2024-01-01') as b,"
         " sum(distinct case discount when 1 then interval 'infinity' when 2 then interval '1 mon 2 days' else '3 hours' end)"
         " filter (where parts > 1) as c from orders group by status"),
        ("JSON made of groups", "agg_nested",
         "select c.id, jsonb_build_object('name', c.name, 'orders', (select jsonb_agg(jsonb_build_object('id', o.id,"
         " 'total', o.total) order by o.id) from orders o where o.customer_id = c.id)) as doc from customers c"),
        ("corr, covar_pop, covar_samp", "correlations",
         "select status, round(corr(discount, parts)::numeric, 9) as a, round(covar_pop(total, discount)::numeric, 6) as b,"
         " round(covar_samp(id, parts)::numeric, 6) as c from orders group by status"),
        ("regr_count, regr_avgx, regr_slope and their like", "regressions",
         "select status, regr_count(total, discount) as a, round(regr_avgx(total, discount)::numeric, 6) as b,"
         " round(regr_avgy(total, discount)::numeric, 6) as c, round(regr_slope(total, discount)::numeric, 6) as d,"
         " round(regr_intercept(total, discount)::numeric, 6) as e, round(regr_r2(parts, discount)::numeric, 9) as f,"
         " round(regr_sxx(total, discount)::numeric, 6) as g, round(regr_sxy(total, discount)::numeric, 6) as h,"
         " round(regr_syy(total, discount)::numeric, 6) as i from orders group by status"),
        ("Whole rows as JSON: row_to_json, to_jsonb, json_agg, jsonb_agg", "rows_as_json",
         "select c.id, row_to_json(c) as a, to_jsonb(c) - 'born' as b, jsonb_agg(o order by o.id) filter (where o.id is not null)"
         " as c, json_agg(o order by o.id) as d, jsonb_agg((o.id, o.total) order by o.id) as e from customers c left join orders"
         " o on o.customer_id = c.id group by c.id"),
        ("JSON operators", "json_operators",
         "select p.id, p.details->'a' as a, p.details->>'a' as b, p.details->0 as c, p.details#>'{a}' as d,"
         " p.details#>>'{a,b}' as e, p.details::jsonb || '{\"z\": [1, 2]}' as f, p.details::jsonb @> '{\"a\": 1}' as g,"
         " p.details::jsonb ? 'a' as h, p.details::jsonb ?| array['x', 'a'] as i, p.details::jsonb - 'a' as j from"
         " payments p"),
        ("JSON functions", "json_functions",
         "select o.id, to_json(o.status) as a, to_jsonb(o.placed) as b, json_build_object('x', o.total, 'y', o.discount)"
         " as c, jsonb_build_array(o.id, o.status, null) as d, jsonb_typeof(to_jsonb(o.total)) as e,"
         " jsonb_array_length(jsonb_build_array(o.id, 1)) as f, jsonb_pretty(jsonb_build_object('k', o.id)) as g,"
         " (jsonb_build_object('k', o.total)->'k')::numeric as h, jsonb_strip_nulls(jsonb_build_object('k', o.total, 'l',"
         " 1)) as i, to_json(array[o.discount, 2]) as j, jsonb_extract_path_text(jsonb_build_object('k', o.id), 'k') as k"
         " from orders o"),
        ("jsonb_array_elements, jsonb_each, jsonb_object_keys", "json_sets",
         "select o.id, e.value as v, t.key, t.value as w, k from orders o, jsonb_array_elements(jsonb_build_array(o.id,"
         " o.status)) e, jsonb_each_text(jsonb_build_object('n', o.discount, 's', o.status)) t,"
         " jsonb_object_keys('{\"q\": 1}') k"),
        ("json_to_record, json_to_recordset", "json_records",
         "select p.id, r.a, r.b, s.k, s.v from payments p, json_to_record(case when p.details::text like '{%' then"
         " p.details when p.id < 3 then '{\"b\": [1, 2]}' end) as r(a"
         " integer, b integer[]), jsonb_to_recordset('[{\"k\": 1, \"v\": \"x\"}, {\"k\": \"2\"}]') as s(k smallint, v text)"),
        ("json_populate_record of a table's rows", "json_populated",
         "select o.id, x.id as other, x.status, x.placed, x.total from orders o, jsonb_populate_record(null::orders,"
         " jsonb_build_object('id', o.id, 'placed', o.placed, 'total', o.total)) x"),
        ("GROUP BY and DISTINCT of jsonb and of intervals", "json_groups",
         "select count(*) as n, count(distinct p.details::jsonb) as d, sum(p.id) as s, count(distinct p.id * interval '8"
         " hours') as i from payments p group by p.details::jsonb -> 'a', (p.id % 2) * interval '24 hours'"),
        ("UNION, INTERSECT and joins by equal values", "json_equals",
         "select count(*) as n from (select jsonb_build_array(id, 1.0) as j from orders intersect select"
         " jsonb_build_array(id, 1) from customers) s join orders o on jsonb_build_array(o.id, 1.00) = s.j join customers"
         " c on c.id * interval '1 day' = o.id * interval '24 hours'"),
        ("Whole rows: their fields, NULL, =, IN, count", "whole_rows",
         "select (o).id as id, (row(o.status, o.total)).f2 as t, o = p as same, count(o) as n, (o.id, o.parts) in ((1, 2), (3,"
         " null)) as i, row(o.parts, o.discount) is null as e, row(o.parts, o.discount) is distinct from row(p.parts, 2) as d"
         " from orders o join orders p on p.customer_id = o.customer_id group by o.id, p.id"),
        ("Whole rows as t.*, also of an outer join", "whole_rows_starred",
         "select o.id, to_jsonb(p.*) as a, p.* is null as e, (select jsonb_agg(v.* order by v.at, v.page) from visits v where"
         " v.customer_id = o.customer_id) as v, count(p.*) as n, count(p) filter (where o.parts > 1) as m from orders o left"
         " join payments p on p.order_id = o.id group by o.id, p.id"),
        ("Whole rows as text", "whole_rows_text",
         "select o.id, o::text as a, p::text as b, row(o.status, p, array[o.id])::text as c from orders o left join payments p"
         " on p.order_id = o.id"),
        ("VARIADIC", "variadics",
         "select id, concat(variadic string_to_array(status, 'e')) as a, concat_ws('-', variadic array[discount, parts]) as b,"
         " format('%s of %s', variadic array[status, total::text]) as c, jsonb_build_object(variadic array['s', status]) as d,"
         " json_build_array(variadic '{1,NULL}'::integer[]) as e, num_nulls(variadic array[discount, parts, null]) as f,"
         " jsonb_extract_path_text('{\"open\": {\"a\": [7]}}', variadic array[status, 'a', (id % 2)::text]) as g from orders"),
        ("json_strip_nulls, and JSON of nothing", "json_stripped",
         "select id, json_strip_nulls(json_build_object('a', discount, 'é\\n', json_build_array(null, total))) as a,"
         " json_strip_nulls('{ \"x\" : \"\\u00e9 \\/\" , \"y\": [ null , 1.50e1, {\"z\": null} ] }') as b,"
         " json_build_object() as c, jsonb_build_array() as d from orders"),
        ("Bit strings", "bit_strings",
         "select id, B'101' || id::bit(8) as a, ~ discount::bit(4) & '1010' as b, substring(id::bit(32) from 25 for 4) as c,"
         " get_bit(parts::integer::bit(8), 7) as d, bit_count(id::bit(64)) as e, X'1f'::bit varying(3) as f from orders"),
        ("bit_and, bit_or, bit_xor of bit strings", "bits_folded",
         "select status, bit_and(id::bit(6)) as a, bit_or(discount::bit(40)) as b, bit_xor(distinct parts::integer::bit(3)) as"
         " c, bit '101' || '1'::bit as d from orders group by status"),
        ("string_agg of bytes", "bytes_joined",
         "select region, string_agg(name::bytea, '\\x2c' order by born, id) as a, string_agg(distinct name::bytea,"
         " ''::bytea) filter (where vip) as b from customers group by region"),
        ("Times with a zone, and precisions of times", "zoned_times",
         "select id, timetz '10:00+02' + discount * interval '1 hour' as a, placed::timestamp(0) as b, placed::time(1)::timetz"
         " at time zone '-03' as c, timetz '12:00+02' = timetz '10:00+00' as d, extract(timezone from timetz '1:00-03:30') as e"
         " from orders"),
        ("Zones by abbreviations and by POSIX's rules", "zone_rules",
         "select id, placed at time zone 'MSK' as a, date_trunc('day', placed at time zone 'VET', 'PST8PDT,M3.2.0,M11.1.0') as b,"
         " timestamptz '2024-07-04 12:00 MSK' at time zone 'FOO8BAR' as c from orders"),
        ("Intervals of any spelling, and digits of their seconds", "interval_spellings",
         "select id, placed + interval '1 2' day to hour as a, interval '12:34.5678' minute to second(2) * id as b,"
         " ('P0002-10-15T10:30:' || id)::interval(0) as c, (id || ' mils ago')::interval as d from orders"),
        ("IS JSON", "is_json",
         "select id, status is json as a, (status || '{}') is not json object as b, details::jsonb is json scalar as c,"
         " ('{\"a\": 1, \"a' || id || '\": 2}') is json with unique keys as d from"
         " (select o.id, o.status, p.details from orders o join payments p using (id)) s"),
        ("array_fill, array_sort, array_reverse", "arrays_made",
         "select id, array_fill(total, array[2, 2]) as a, array_sort(array[discount, parts, 3], true) as b,"
         " array_reverse(array[[id, 1], [2, discount]]) as c from orders where discount > 0"),
        ("Arguments by name", "named_arguments",
         "select o.id, make_date(2024, day => 3, month := 2) + discount as a, jsonb_set_lax(jsonb_build_object('a', o.id), '{a}',"
         " to_jsonb(o.total), null_value_treatment => 'delete_key') as b, regexp_replace(string => status, pattern => 'o',"
         " replacement => 'x', start => 1, \"N\" => 0) as c, x from orders o cross join lateral regexp_split_to_table(string =>"
         " o.status, pattern => 'i') x"),
        ("range_agg, range_intersect_agg", "range_aggs",
         "select status, range_agg(int4range(discount, discount + 2)) as a, range_intersect_agg(int8range(id, null)) as b,"
         " range_agg(numrange(total, total + 5)) filter (where discount > 1) as c from orders group by status"),
        ("JSON constants and casts", "json_casts",
         "select id, '{\"b\": 1.50, \"a\": [1e2, null]}'::jsonb as a, '{\"b\":1,  \"a\":2}'::json as b, ('[' || id ||"
         " ']')::jsonb as c, details::jsonb as d, details::text as e from payments"),
    ),
    Supported(
        "Keys of json_object_agg_unique that come again are errors", "agg_objects_unique",
        "select status, json_object_agg_unique(coalesce(discount, 0), total order by id) as a from orders group by status having"
        " count(*) > 1", fails=True,
    ),
    Supported(
        "Keys of jsonb_object_agg_unique_strict that come again, or are NULL, are errors", "agg_objects_unique_binary",
        "select status, jsonb_object_agg_unique_strict(parts, total) as a from orders group by status", fails=True,
    ),
    Supported(
        "array_agg of arrays of several shapes is an error", "agg_of_shapes",
        "select status, array_agg(case when discount > 3 then array[id, 1] when discount is not null then array[id] end order by"
        " id) filter (where id <> 5) as a from orders group by status", fails=True,
    ),
    Supported(
        "Keys that come again in a frame are errors", "unique_in_frames",
        "select id, json_object_agg_unique(coalesce(discount, 0), 1) over (order by id rows 2 preceding) as a from orders",
        fails=True,
    ),
    Supported(
        "Text that is no JSON is an error", "json_failing", "select id, ('[' || sku)::jsonb as a from products where id < 3",
        fails=True,
    ),
)  # fmt: skip

COLLECTING_REFUSED: tuple[Refused, ...] = (
    Refused("bit_and and similar ones of bit strings of any length", "select bit_or(~ id::bit(8)) as a from orders",
            "bit_or of bit strings of no declared length is not supported", "bit_or"),
    Refused("dense_rank of several columns WITHIN GROUP",
            "select dense_rank(1, 2) within group (order by id, parts) as a from orders",
            "dense_rank of several columns is not supported", "dense_rank"),
    Refused("Records of a row that is not NULL",
            "select x.a from payments, json_populate_record(row(1)::record, details) as x(a integer)",
            "json_populate_record of a row of no type of its own is not supported", "json_populate_record"),
)  # fmt: skip
