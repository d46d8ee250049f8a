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

FRAMES_REFUSED: tuple[Refused, ...] = (
    Refused("RANGE with an offset by several columns",
            "select id, sum(total) over (order by id, total range between 1 preceding and current row) as s from orders",
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column", "sum(total)"),
    Refused("RANGE with an offset over text",
            "select id, sum(total) over (order by status range between 1 preceding and current row) as s from orders",
            "RANGE with offset PRECEDING/FOLLOWING is not supported for column type text", "sum(total)"),
    Refused("Offsets of a frame that are columns",
            "select id, sum(total) over (order by id rows between discount preceding and current row) as s from orders",
            "a frame's offset must be a constant", "sum(total)"),
)  # fmt: skip
