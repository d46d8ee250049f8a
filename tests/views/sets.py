"""The corpus of views: functions that return sets, and arrays."""

from __future__ import annotations

from tests.views.features import Refused, Supported, supported

SETS: tuple[Supported, ...] = (
    *supported(
        ("generate_series in FROM", "series",
         "select n, n * 2 as d from generate_series(1, 10, 3) as n"),
        ("generate_series of columns before it", "series_of",
         "select o.id, n from orders o, generate_series(1, o.discount) n"),
        ("generate_series joined to groups", "series_joined",
         "select g.n, count(o.id) as orders from generate_series(0, 6) g(n) left join orders o on o.customer_id = g.n"
         " group by g.n"),
        ("LATERAL functions WITH ORDINALITY", "series_numbered",
         "select o.id, t.x, t.ordinality from orders o cross join lateral generate_series(o.parts, 0, -2) with ordinality"
         " t(x)"),
        ("LEFT JOIN LATERAL of a function", "series_left",
         "select o.id, x from orders o left join lateral generate_series(2, o.discount) x on true"),
        ("LEFT JOIN LATERAL of a function by a condition", "set_left_by_condition",
         "select o.id, x, t.key, t.v, e.y, e.ordinality as n from orders o left join lateral generate_series(1, o.discount) x on"
         " x > o.parts left join lateral jsonb_each_text(jsonb_build_object('n', o.discount, 's', o.status)) t(key, v) on t.v <>"
         " 'open' and x is not null left join unnest(array[o.id, x, 3]) with ordinality e(y) on e.y = o.customer_id or (e.y = 3"
         " and o.status in (select p.method from payments p))"),
        ("JOIN of a function by a condition", "series_on",
         "select o.id, x from orders o join lateral generate_series(1, o.discount) x on x <> o.parts"),
        ("Functions of one value in FROM", "values_in_from",
         "select o.id, a, u.c, least, x, n from orders o, abs(o.discount - 3) a, lateral upper(o.status) u(c), least(o.id, 2)"
         " left join rows from (length('ab'), generate_series(1, 3)) with ordinality as s(x, y, n) on n <> x"),
        ("LEFT JOIN LATERAL of a function of one value", "value_left",
         "select o.id, s from orders o left join lateral nullif(o.status, 'open') s on s <> 'late' and o.discount is not null"),
        ("generate_series of bigint and numeric", "series_numbers",
         "select a, b from generate_series(1::bigint, 3) a, generate_series(1.5, 3, 0.25) b"),
        ("generate_series of timestamps", "series_times",
         "select g, h from generate_series(timestamp '2024-01-31', '2024-05-01', '1 month') g, generate_series(timestamptz"
         " '2024-03-01 00:00+00', '2024-03-01 12:00+00', interval '5 hours') h"),
        ("Days between dates", "series_days",
         "select c.id, d::date as day from customers c, generate_series(c.born, date '2000-03-03', '1 day') d where c.vip"),
        ("Set-returning functions in a SELECT list, in step", "series_listed",
         "select id, generate_series(1, discount) + 1 as a, generate_series(1, 2) as b from orders"),
        ("Set-returning functions over groups", "series_grouped",
         "select status, generate_series(1, count(*)) as n, count(*) as c from orders group by status"),
        ("unnest", "unnested",
         "select o.id, t.word, t.n from orders o, unnest(string_to_array(o.status, 'e')) with ordinality as t(word, n)"),
        ("unnest of several arrays, and ROWS FROM", "unnested_together",
         "select t.a, t.b, u.x, u.y from unnest(array[1, 2, null], array['x', 'y']) as t(a, b), rows from"
         " (generate_series(1, 2), unnest(array[true])) as u(x, y)"),
        ("Arrays of several dimensions", "arrays_deep",
         "select id, array[[discount, 2], [3, parts]] as a, (array[[id, 2], [3.5, 4]])[2][1] as b, array[array[status],"
         " array['x']] as c, (array[[1, 2], [3, 4]])[2:2] as d, array[[1, 2]] || array[discount, 3] as e,"
         " array_dims(array[[[id]]]) as f, array[['1', '2'], ['3', null]]::integer[] as g from orders"),
        ("Slices of several dimensions", "arrays_sliced",
         "select id, (array[[1, discount], [parts, 4]])[1:2][2:2] as a, (array[[id, 2], [3, 4]])[2:][1] as b,"
         " (array[[discount, 2]])[:discount][1:parts] as c from orders"),
        ("GROUP BY what an array or a series unfolds to", "grouped_words",
         "select unnest(string_to_array(status, 'e')) as word, count(*) as n, sum(total) as t, count(distinct customer_id) as"
         " c from orders group by 1"),
        ("GROUP BY several sets in step, and beside columns", "grouped_series",
         "select customer_id, generate_series(1, discount) as g, unnest(array['a', status]) as w, max(id) as m from orders"
         " group by rollup (customer_id, 2), 3 having count(*) > 1"),
        ("unnest in subqueries", "unnested_inside",
         "select id, (select count(*) from unnest(array[discount, parts, 2]) x where x > 1) as n, exists (select 1 from"
         " unnest(string_to_array(status, 'i')) w where w like 'v%') as e from orders"),
        ("string_to_table, generate_subscripts", "parts_of_text",
         "select o.id, w, i from orders o, string_to_table(o.status, 'p') w, generate_subscripts(array[1, 2], 1) i"),
        ("DISTINCT and GROUP BY of unnested values", "unnested_counted",
         "select w, count(*) as n, count(distinct o.customer_id) as c from orders o, unnest(string_to_array(o.status, null))"
         " w group by w"),
        ("ARRAY[…], subscripts and slices", "arrays",
         "select id, array[discount, parts, 7] as a, (array[status, 'x'])[2] as b, (array[id, 5, 6])[2:3] as c,"
         " array['1', null]::integer[] as d, '{a,\"b c\",NULL}'::text[] as e, array[total, 1.5] as f from orders"),
        ("ARRAY(query)", "arrays_of_queries",
         "select c.id, array(select o.total from orders o where o.customer_id = c.id order by o.total desc, o.id) as t,"
         " array(select distinct o.status from orders o where o.customer_id = c.id order by 1) as s,"
         " array(select o.id from orders o where o.customer_id = c.id order by o.discount, id limit 2) as f from customers c"),
        ("Comparisons with ANY and ALL of an array", "array_members",
         "select id, status = any (string_to_array('open,paid', ',')) as a, discount <> all ('{1,2,NULL}') as b, total >"
         " any (array[5, discount]) as c, parts <= all (array[]::integer[]) as d, status like any (array['o%', null]) as e"
         " from orders"),
        ("Array operators", "array_operators",
         "select id, array[discount] || parts::integer as a, 7 || array[discount] as b, array[id] || array[2] as c,"
         " array[status] @> array['open'] as d, array[discount] <@ array[1, 2, 3] as e, array[parts] && array[4::smallint]"
         " as f, array[discount, 1] = array[1, 1] as g from orders"),
        ("Array functions", "array_functions",
         "select id, array_length(array[id, 1], 1) as a, cardinality(array[status]) as b, array_to_string(array[status,"
         " null, 'x'], '-', '?') as c, array_append(array[discount], 9) as d, array_prepend(9, array[discount]) as e,"
         " array_cat(array[1], array[discount]) as f, array_position(array[total, 5.0, 60.50], 60.5) as g,"
         " array_positions(array[discount, 1, discount], 1) as h, array_remove(array[discount, 2], 2) as i,"
         " array_replace(array[discount, 2], 2, 0) as j, string_to_array(status, 'i', 'd') as k,"
         " trim_array(array[1, 2, discount], 1) as l, array_upper(array[1], 1) as m, array_dims(array[id]) as n from orders"),
        ("Casts of arrays", "array_casts",
         "select id, array[discount]::bigint[] as a, array[total]::integer[] as b, array[discount]::text[] as c,"
         " array[status]::text as d, '{1,2}'::text::numeric(5,1)[] as e from orders"),
        ("GROUP BY and DISTINCT of arrays", "array_groups",
         "select array[status, region] as k, count(*) as n from orders join customers on customers.id = customer_id group"
         " by array[status, region]"),
        ("Joins by arrays", "array_joined",
         "select o.id, p.id as payment from orders o join payments p on array[o.id, 1] = array[p.order_id, 1]"),
    ),
    Supported(
        "A step of zero is an error", "series_failing",
        "select o.id, n from orders o, generate_series(1, 3, o.discount % 2 + 1 - o.discount / o.discount) n", fails=True,
    ),
    Supported(
        "An element that cannot be cast is an error", "array_failing",
        "select id, string_to_array(status, 'e')::integer[] as a from orders where status <> 'open'", fails=True,
    ),
)  # fmt: skip

SETS_REFUSED: tuple[Refused, ...] = (
    Refused("Set-returning functions in WHERE", "select id from orders where generate_series(1, 3) = id",
            "set-returning functions are not allowed in WHERE", "generate_series"),
    Refused("Set-returning functions in CASE", "select case when id > 1 then generate_series(1, 3) end as n from orders",
            "set-returning functions are not allowed in CASE", "generate_series"),
    Refused("RIGHT JOIN of a function that reads columns before it",
            "select o.id from orders o right join lateral generate_series(1, o.discount) x on x > 2",
            "RIGHT JOIN of what reads columns before it is not Postgres's", "generate_series"),
)  # fmt: skip
