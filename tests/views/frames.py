"""The corpus of views: frames of window functions."""

from __future__ import annotations

from tests.views.features import Refused, Supported, supported

FRAMES: tuple[Supported, ...] = (
    *supported(
        ("RANGE frames with offsets", "range_offsets",
         "select id, sum(total) over (order by id range between 1 preceding and 2 following) as a, count(*) over (partition"
         " by status order by discount desc range between 2 preceding and current row) as b, max(id) over (order by total"
         " nulls first range between unbounded preceding and 10.5 following) as c, array_agg(parts) over (order by id range"
         " between 2 following and 3 following) as d from orders"),
        ("RANGE frames over times", "range_times",
         "select id, count(*) over (order by placed range between '1 month' preceding and interval '1 day' following) as a,"
         " sum(discount) over (partition by status order by placed desc nulls last range between interval '1 hour' preceding"
         " and current row) as b from orders"),
        ("RANGE frames over dates and floats", "range_dates",
         "select c.id, count(*) over (order by c.born range between '100 days' preceding and '2 years' following) as a,"
         " p.weight, count(p.id) over (order by p.weight range between 1 preceding and 0.5 following) as b from customers c"
         " join products p on p.id = c.id"),
        ("RANGE frames over numerics, with offsets of other scales", "range_scales",
         "select id, count(*) over (order by id * 0.01 range between 0.01 preceding and 0.015 following) as a, sum(id) over"
         " (order by total range between current row and 0.0051 following) as b, sum(id) over (order by total desc range"
         " between 'infinity' preceding and 0.015 preceding) as c, count(*) over (order by total range between 2 preceding and"
         " (select 0.0051) following) as d from orders"),
        ("RANGE frames over times of day", "range_clocks",
         "select id, count(*) over (order by placed::time range between '1 hour' preceding and '12 hours' following) as a,"
         " sum(id) over (partition by status order by placed::time desc nulls first range between '1 hour' following and"
         " '1 month 20 hours' following) as b, count(*) over (order by placed::time range between 'infinity' preceding and"
         " '3 hours' preceding) as c from orders"),
        ("RANGE frames over intervals", "range_intervals",
         "select id, count(*) over (order by placed - timestamp '2024-01-01' desc nulls last range between '1 day' preceding"
         " and '20 days' following) as a, sum(id) over (order by case discount when 1 then interval 'infinity' when 2 then"
         " interval '-infinity' when 3 then interval '1 mon' when 4 then interval '30 days' end range between '1 day'"
         " preceding and 'infinity' following) as b from orders"),
        ("RANGE frames over times of day with a zone", "range_zoned",
         "select id, t, count(*) over (order by (t || case when id > 3 then '+02' else '-01' end)::timetz range between"
         " '90 minutes' preceding and '1 hour' following) as a from orders, (values ('10:00'), ('11:30'), ('09:00')) v(t)"),
        ("Offsets of frames that subqueries say", "asked_offsets",
         "select id, count(*) over (order by id rows between (select count(*) from customers) preceding and 1 following) as a,"
         " sum(id) over (order by status groups between coalesce((select min(id) from products), 1) preceding and 1 preceding"
         " exclude ties) as b, count(*) over (order by total range between 1 + (select count(*) from payments) preceding and"
         " (select 0.5) following) as c, sum(id) over (order by placed desc range between current row and (select"
         " coalesce(max(make_interval(days => qty)), '0') from order_lines) following) as d, sum(discount) over (order by"
         " placed::time range (select coalesce(max(make_interval(hours => qty)), '1 day') from order_lines) preceding) as e"
         " from orders"),
        ("Offsets of frames that the query around says", "lateral_offsets",
         "select c.id, t.o, t.a, t.b from customers c cross join lateral (select o.id as o, count(*) over (order by o.id rows"
         " c.id preceding) as a, sum(o.id) over (order by o.discount range between c.id preceding and c.id + 1 following) as b"
         " from orders o) t"),
        ("ntile and nth_value of what a column or a subquery says", "asked_places",
         "select id, ntile(discount) over (order by id) as a, ntile(id::int) over (partition by status order by id) as b,"
         " nth_value(id, discount) over (order by id rows 2 preceding) as c, nth_value(status, (select max(line_no) from"
         " order_lines)) over (order by id rows between unbounded preceding and unbounded following exclude current row) as d,"
         " ntile((select max(line_no) from order_lines)) over (order by id desc) as e from orders where discount > 0 or discount"
         " is null"),
        ("EXCLUDE", "excluded",
         "select id, sum(discount) over (order by id rows between 2 preceding and 2 following exclude current row) as a,"
         " count(*) over (order by status groups between 1 preceding and 1 following exclude group) as b, sum(parts) over"
         " (order by status range between unbounded preceding and current row exclude ties) as c, max(total) over (order by"
         " status rows between unbounded preceding and unbounded following exclude ties) as d, first_value(id) over (order"
         " by id rows between unbounded preceding and 1 following exclude current row) as e, last_value(id) over (order by"
         " id rows between unbounded preceding and current row exclude current row) as f, nth_value(id, 2) over (order by"
         " id rows between 1 preceding and 2 following exclude group) as g, min(id) over (partition by status order by id"
         " rows between 3 preceding and 1 preceding exclude group) as h from orders"),
        ("min and max over frames that slide", "sliding_extremes",
         "select id, min(total) over (order by id rows between 1 preceding and 1 following) as a, max(status) over (order by"
         " id rows between 2 preceding and 1 preceding) as b, max(placed) over (partition by status order by id groups"
         " between 1 preceding and current row) as c from orders"),
        ("Sums of floats over frames", "sliding_floats",
         "select p.id, c.id as c, round((sum(p.weight) over (order by p.id, c.id rows between 1 preceding and current"
         " row))::numeric, 9) as a, round((avg(p.weight) over (order by p.id, c.id))::numeric, 9) as b, sum(p.id::real) over"
         " (order by p.id, c.id rows 2 preceding) as s from products p, customers c"),
        ("Sums of numerics of any scale over frames", "sliding_numerics",
         "select id, sum(total / 3) over (order by id rows between 2 preceding and 1 preceding) as a, avg(total * id) over"
         " (partition by status order by id) as b, sum(case discount when 1 then 'NaN' when 2 then '-inf' when 3 then '1.250'"
         " else '7' end::numeric) over (order by id rows between 1 preceding and 1 following exclude current row) as c"
         " from orders"),
        ("Variance and sums of intervals over windows", "sliding_spreads",
         "select id, variance(discount) over (order by id rows 3 preceding) as a, stddev_pop(total) over (partition by"
         " status order by id) as b, var_pop(parts::bigint) filter (where id > 2) over (order by id rows between current row"
         " and unbounded following) as c, stddev(total / 7) over () as d, sum(placed - timestamp '2024-01-01') over (order"
         " by id rows 2 preceding) as e, avg(make_interval(days => parts)) over (partition by status) as f from orders"),
        ("Other aggregates over frames", "sliding_others",
         "select id, array_agg(id) over (order by id rows 2 preceding) as a, string_agg(status, ',') over (order by id) as b,"
         " round((stddev_pop(discount::double precision) over (order by id rows between 1 preceding and 1"
         " following))::numeric, 6) as c, bit_or(parts)"
         " over (order by id rows 1 preceding) as d, jsonb_agg(total) filter (where discount > 1) over (partition by status"
         " order by id) as e, array_agg(status) over (order by id desc rows between unbounded preceding and unbounded"
         " following) as f from orders"),
    ),
)  # fmt: skip

SIZES: tuple[Supported, ...] = (
    Supported("ntile and nth_value of numbers that are not positive", "wrong_places",
              "select id, ntile(discount) over (partition by status order by id) as a, nth_value(id, discount) over (order by id)"
              " as b from orders", fails=True),
    Supported("Offsets of frames that may be NULL", "null_offsets",
              "select id, count(*) over (order by id rows between (select min(credit)::bigint from customers) preceding and"
              " current row) as a from orders", fails=True),
    Supported("Offsets of a RANGE that may be negative", "negative_offsets",
              "select id, count(*) over (order by total range between (select coalesce(min(credit), 0) from customers) preceding"
              " and current row) as a, count(*) over (order by total range between 1 preceding and (select coalesce(min(placed -"
              " '2024-01-01'), '0') < '0' from orders)::int following) as b from orders", fails=True),
)  # fmt: skip

FRAMES_REFUSED: tuple[Refused, ...] = (
    Refused("RANGE with an offset by several columns",
            "select id, sum(total) over (order by id, total range between 1 preceding and current row) as s from orders",
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column", "sum(total)"),
    Refused("RANGE with an offset over text",
            "select id, sum(total) over (order by status range between 1 preceding and current row) as s from orders",
            "RANGE with offset PRECEDING/FOLLOWING is not supported for column type text", "sum(total)"),
    Refused("Offsets of a frame that are columns",
            "select id, sum(total) over (order by id rows between discount preceding and current row) as s from orders",
            "argument of ROWS must not contain variables", "discount"),
)  # fmt: skip
