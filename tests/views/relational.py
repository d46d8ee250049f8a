"""The corpus of views: outer joins of every kind, set operations, tops, VALUES, grouping sets and subqueries."""

from __future__ import annotations

from tests.views.features import Supported, supported

RELATIONAL: tuple[Supported, ...] = (
    *supported(
        ("RIGHT JOIN", "right_joined", "select o.id, c.name from orders o right join customers c on c.id = o.customer_id"),
        ("FULL JOIN", "full_joined",
         "select o.id, c.id as customer, c.name from orders o full join customers c on c.id = o.customer_id"),
        ("LEFT JOIN without an equality", "left_of_every",
         "select a.id, b.id as other from orders a left join customers b on b.vip"),
        ("LEFT JOIN by more than equalities between its sides", "left_residual",
         "select a.id, b.id as other from orders a left join customers b on a.customer_id = b.id and a.total < b.credit"),
        ("LEFT JOIN of duplicate rows by more than equalities", "left_residual_bag",
         "select v.page, w.page as other from visits v left join visits w on v.customer_id = w.customer_id and v.page"
         " < w.page"),
        ("FULL JOIN by any condition", "full_residual",
         "select a.page, b.id from visits a full join customers b on a.customer_id = b.id and b.region = 'north' and"
         " a.page <> b.name"),
        ("FULL JOIN with conditions on one side", "full_conditions",
         "select a.id, b.id as other from orders a full join customers b on a.customer_id = b.id and a.status = 'open'"
         " and b.vip"),
        ("RIGHT and FULL JOIN with USING: a column of both sides", "full_using",
         "select * from (select id, region from customers) a full join (select id, sku from products) b using (id)"
         " right join (select id, status from orders) c using (id)"),
        ("NATURAL LEFT, RIGHT and FULL JOIN", "natural_full",
         "select * from (select id, sku from products) a natural left join (select id, region from customers) b natural"
         " full join (select id, status from orders) c"),
        ("Outer joins within each other", "outer_chain",
         "select a.id, b.id as b, p.id as p from orders a left join customers b on a.customer_id = b.id right join"
         " payments p on p.order_id = a.id and coalesce(b.vip, true)"),
        ("CROSS JOIN", "cross_joined", "select a.id, b.id as other from orders a cross join products b"),
        ("Joins by an inequality alone", "by_inequality",
         "select a.id, b.id as other from orders a join customers b on a.id < b.id"),
        ("Outer joins by an inequality alone", "left_inequality",
         "select a.id, b.id as other from products a left join customers b on a.id < b.id"),
        ("INTERSECT, binding more tightly than UNION", "intersected",
         "select id from orders union select id from customers intersect select id from products"),
        ("INTERSECT ALL", "intersected_all",
         "select page, customer_id from visits intersect all select page, id::integer from visits join customers on"
         " customers.id = visits.customer_id"),
        ("EXCEPT, NULLs being equal", "excepted", "select region from customers except select page from visits"),
        ("EXCEPT ALL", "excepted_all",
         "select region from customers except all select region from customers where vip"),
        ("ORDER BY … LIMIT", "first_orders", "select id, total from orders order by total desc nulls last, id limit 3"),
        ("ORDER BY … OFFSET", "later_orders", "select id, total from orders order by total, 1 offset 2"),
        ("FETCH FIRST … ROWS WITH TIES", "with_ties",
         "select id, status from orders order by status fetch first 2 rows with ties"),
        ("ORDER BY an expression that is not shown", "hidden_order",
         "select name from customers order by coalesce(credit, 0) desc, id limit 2"),
        ("ORDER BY and LIMIT of groups", "first_group",
         "select status, count(*) as n from orders group by status order by count(*) desc, status limit 1"),
        ("ORDER BY and LIMIT of a UNION", "first_of_union",
         "select id from orders union all select id from customers order by id limit 4"),
        ("LIMIT and OFFSET by subqueries", "asked_limits",
         "select id, status from orders order by status, id desc limit 1 + (select count(*) from customers) offset (select"
         " coalesce(min(id), 1) - 1 from products)"),
        ("FETCH … WITH TIES by a subquery", "asked_ties",
         "select id, status from orders order by status fetch first (1 + (select count(*) from customers where id > 1))"
         " rows with ties"),
        ("LIMIT by a subquery that may be NULL, of a UNION", "asked_limit_of_union",
         "select id from orders union all select id from customers order by id limit (select max(customer_id) from visits)"),
        ("LIMIT by the query around", "lateral_limits",
         "select c.id, t.id as o from customers c left join lateral (select o.id from orders o order by o.total, o.id limit c.id"
         " offset (select count(*) from payments p where p.order_id = c.id)) t on true"),
        ("LIMIT without ORDER BY of one row at most", "limit_of_one",
         "select count(*) as n, (select max(c.credit) from customers c limit 1) as m from orders limit 10"),
        ("ORDER BY alone, for a view has no order", "ordered", "select id, status from orders order by status, 1 desc"),
        ("DISTINCT ON", "firsts",
         "select distinct on (status) status, id, total from orders order by status, total desc, id"),
        ("VALUES", "constants", "values (1, 2.5, 'a'), (3, null, 'b')"),
        ("VALUES in FROM", "constants_joined",
         "select v.a, v.b, count(o.id) as n from (values (1, 'one'), (2, null), (3, 'three')) v(a, b) left join orders o"
         " on o.customer_id = v.a group by v.a, v.b"),
        ("Subqueries in VALUES", "constants_asked",
         "select o.id, v.x from orders o, lateral (values ((select sum(p.amount) from payments p where p.order_id = o.id)),"
         " (o.total), ((select min(total) from orders))) v(x)"),
        ("An alias for a parenthesised join", "joined_under_a_name",
         "select j.o, j.who, j.status from (orders o left join customers c on c.id = o.customer_id) as j(o, who) where j.o > 2"),
        ("RIGHT and FULL JOIN of what reads the items of FROM before it", "lateral_full",
         "select c.id, t.o, p.id as payment, q.id as product from customers c, lateral (select o.id as o from orders o where"
         " o.customer_id = c.id) t full join payments p on p.order_id = t.o right join products q on q.id = p.id"),
        ("FULL JOIN in a correlated subquery", "correlated_full",
         "select c.id, (select count(*) from (select id from orders o where o.customer_id = c.id) a full join payments p on"
         " p.order_id = a.id and p.id > c.id) as n from customers c"),
        ("WITH in a correlated subquery, which reads the query around it", "correlated_ctes",
         "select c.id, (with mine as (select o.id, o.total from orders o where o.customer_id = c.id) select count(*) from mine m"
         " where m.total >= (select max(total) from mine)) as n from customers c"),
        ("LATERAL in a join reads the items of FROM before it", "lateral_between_items",
         "select a.id, b.id as other, x.t, g from customers a, orders b left join lateral (select b.total + a.id as t) x on"
         " b.id > 2 join generate_series(1, a.id) g on g < b.id"),
        ("ORDER BY … USING", "sorted_using",
         "select distinct on (status) status, id from orders order by status using <, id using >"),
        ("SELECT without FROM", "one_row", "select 1 as one, upper('x') as two"),
        ("ROLLUP, grouping()", "rolled_up",
         "select status, customer_id, count(*) as n, grouping(status, customer_id) as g from orders group by rollup"
         " (status, customer_id)"),
        ("CUBE", "cubed", "select region, id % 2 as half, count(*) as n from customers group by cube (region, id % 2), vip"),
        ("GROUPING SETS of rows", "sets_of_rows",
         "select status, discount, parts, count(*) as n from orders group by grouping sets ((status, (discount, parts)),"
         " ((discount)), rollup ((status, parts)))"),
        ("GROUPING SETS", "sets_grouped",
         "select status, customer_id, sum(total) as t from orders group by grouping sets ((status), (customer_id), (),"
         " (status, customer_id)) having count(*) > 1"),
        ("variance, var_pop, stddev, stddev_pop and their like", "spreads",
         "select status, variance(total) as a, stddev(discount) as b, var_pop(id) as c, stddev_pop(parts) as d,"
         " stddev_samp(total * 1.5) filter (where discount > 1) as e, stddev(distinct discount) as f from orders group by"
         " status"),
        ("bit_and, bit_or, bit_xor", "bits",
         "select status, bit_and(discount) as a, bit_or(parts) as b, bit_xor(id) as c,"
         " bit_xor(distinct parts) as d from orders group by status"),
        ("string_agg, with DISTINCT and ORDER BY inside", "texts_joined",
         "select region, string_agg(name, ', ' order by name) as a, string_agg(name, '-' order by id desc) as b,"
         " string_agg(distinct name, '/' order by name) as c, string_agg(name, '+' order by credit desc nulls last, id)"
         " filter (where vip) as d from customers group by region"),
        ("percentile_cont, percentile_disc, mode", "percentiles",
         "select status, percentile_cont(0.5) within group (order by total) as a, percentile_disc(0.25) within group"
         " (order by total desc) as b, mode() within group (order by discount) as c from orders group by status"),
        ("percentile_cont of intervals", "percentiles_between",
         "select status, percentile_cont(0.3) within group (order by placed - timestamp '2024-01-01') as a,"
         " percentile_cont(array[0, 0.5, 1]) within group (order by discount * interval '31 days 01:00' desc) filter (where id"
         " > 2) as b from orders group by status"),
        ("percentiles by several fractions at once", "percentiles_at_once",
         "select status, percentile_cont(array[0, 0.5, 0.9]) within group (order by total) as a, percentile_disc(array[0.25,"
         " 1]) within group (order by placed desc) filter (where discount > 1) as b from orders group by status"),
        ("rank, dense_rank, percent_rank and cume_dist of a value, WITHIN GROUP", "places",
         "select status, rank(50, 3) within group (order by total desc, id) as a, dense_rank(2) within group (order by discount)"
         " as b, percent_rank(40) within group (order by total nulls first) as c, cume_dist(3) within group (order by parts)"
         " filter (where id > 2) as d, dense_rank(4) within group (order by parts desc) as e, rank(null) within group (order by"
         " total) as f from orders group by status"),
        ("JOIN … USING (…) AS alias", "using_as",
         "select j.id, j.id + o.discount as d, t.paid from orders o left join order_payment_totals t using (id) as j where j.id"
         " > 1"),
        ("row_number, rank, dense_rank", "ranked",
         "select id, row_number() over (order by total desc nulls last, id) as n, rank() over (partition by status order by"
         " total) as r, dense_rank() over (partition by status order by total) as d from orders"),
        ("percent_rank, cume_dist, ntile", "shares",
         "select id, percent_rank() over (partition by status order by total) as a, cume_dist() over (order by total) as b,"
         " ntile(3) over (order by id) as c from orders"),
        ("lag, lead, first_value, last_value, nth_value; WINDOW", "neighbours",
         "select id, lag(total) over w as a, lead(total, 2, 0.00) over w as b, first_value(id) over w as c, last_value(id)"
         " over w as d, nth_value(id, 2) over w as e from orders window w as (partition by status order by id)"),
        ("Aggregates over a whole partition", "over_partitions",
         "select id, sum(discount) over (partition by status) as a, avg(total) over (partition by customer_id) as b,"
         " count(*) filter (where discount > 1) over () as c, max(total) over (partition by status, customer_id) as d from"
         " orders"),
        ("Running aggregates", "running",
         "select id, sum(discount) over (order by id) as a, count(total) over (order by parts) as b, min(total) over (order"
         " by id) as c, max(total) over (partition by status order by id desc) as d, bool_and(discount > 1) over (order by"
         " id) as e from orders"),
        ("Frames of ROWS, RANGE and GROUPS", "framed",
         "select id, sum(total) over (partition by status order by id rows between 1 preceding and 1 following) as a,"
         " max(total) over (order by id rows between current row and unbounded following) as b, sum(id) over (order by"
         " status groups between 1 preceding and current row) as c, avg(total) over (order by id rows 2 preceding) as d"
         " from orders"),
        ("Windows over groups", "over_groups",
         "select status, count(*) as n, sum(count(*)) over () as t, rank() over (order by count(*) desc, status) as r from"
         " orders group by status"),
        ("Windows over duplicate rows", "over_bags",
         "select page, row_number() over (partition by page order by customer_id) as n, sum(customer_id) over (order by"
         " page) as s from visits"),
        ("The first rows of each by row_number", "first_of_each",
         "select id, status from (select id, status, row_number() over (partition by status order by id desc) as n from"
         " orders) s where n <= 2"),
        ("Windows in correlated subqueries and LATERAL", "lateral_ranks",
         "select c.id, t.o, t.r, (select max(s.n) from (select row_number() over (order by p.id) as n from payments p where"
         " p.order_id = c.id) s) as m from customers c cross join lateral (select o.id as o, rank() over (order by o.total,"
         " o.id) as r from orders o where o.customer_id = c.id) t"),
        ("Intervals as constants", "moved",
         "select id, placed + interval '1 month 2 days' as a, placed - interval '90' minute as b, placed::date + '1 year'"
         "::interval as c from orders where placed < timestamp '2024-02-01' +"
         " interval '1' year"),
        ("What every branch of an OR asks becomes a join's key", "factored",
         "select o.id, p.id as payment from orders o, payments p where (o.id = p.order_id and o.status = 'open' and p.amount"
         " > 1) or (o.id = p.order_id and o.total < 50)"),
        ("LEFT JOIN whose partners WHERE asks for", "inner_after_all",
         "select o.id, c.name from orders o left join customers c on c.id = o.customer_id where c.region <> 'north'"),
        ("EXISTS", "paid_for", "select id from orders o where exists (select 1 from payments p where p.order_id = o.id)"),
        ("NOT EXISTS", "not_paid_for",
         "select id from orders o where not exists (select * from payments p where p.order_id = o.id and p.amount > 1)"),
        ("EXISTS and IN in any expression", "marks",
         "select id, case when exists (select 1 from payments p where p.order_id = o.id) then 'paid' else 'no' end as s,"
         " o.customer_id in (select c.id from customers c where c.vip) as v, exists (select 1 from visits) as e from"
         " orders o where total > 50 or status in (select method from payments)"),
        ("EXISTS by any condition, at any depth", "deep",
         "select id from orders o where exists (select 1 from order_lines l where l.order_id = o.id and exists (select 1"
         " from products p where p.id = l.product_id and p.price < o.total))"),
        ("NOT IN (SELECT …) with NULLs", "not_in_nulls",
         "select id, id not in (select order_id from payments) as a, customer_id not in (select v.customer_id from visits"
         " v where v.page = o.status or v.page > '/b') as b from orders o"),
        ("IN and NOT IN of rows with NULLs", "rows_in_nulls",
         "select id, (region, vip) in (select region, not vip from customers) as a, (region, vip, name) not in (select"
         " d.region, d.vip, 'Ab' from customers d where d.born = c.born) as b from customers c where (region, vip) not in"
         " (select status, discount > 3 from orders)"),
        ("Subqueries in the condition of an outer join", "outer_asks",
         "select o.id, c.id as c, l.line_no as l from orders o left join customers c on c.id = o.customer_id and (exists"
         " (select 1 from payments p where p.order_id = o.id) or c.vip in (select true from visits v where v.customer_id ="
         " c.id)) right join order_lines l on l.order_id = o.id and l.qty = (select max(qty) from order_lines)"),
        ("Subqueries in the condition of LEFT and RIGHT JOIN that read both sides", "in_outer_joins_of_both",
         "select o.id, c.id as c, p.id as p from orders o left join customers c on c.id <= o.customer_id and (select count(*)"
         " from payments p where p.order_id = o.id and p.amount > c.credit) < 2 right join payments p on exists (select 1 from"
         " visits v where v.customer_id = o.id and v.customer_id <= p.id) and (c.vip or p.id = 2)"),
        ("Comparisons with ANY and ALL of a query", "quantified",
         "select id, discount <= any (select qty from order_lines) as x, discount > all (select qty from order_lines l"
         " where l.order_id = o.id) as y, parts = all (select qty from order_lines) as z, parts <> any (select product_id"
         " from order_lines) as w from orders o"),
        ("Scalar subqueries", "above_average",
         "select id, total - (select avg(total) from orders) as above from orders where total > (select min(amount) from"
         " payments)"),
        ("Correlated scalar subqueries", "counted",
         "select id, (select name from customers c where c.id = o.customer_id) as name, (select count(*) from payments p"
         " where p.order_id = o.id) as n, (select sum(amount) from payments p where p.order_id = o.id) as s from orders o"),
        ("Scalar subqueries correlated by any condition", "counted_any",
         "select id, (select max(p.amount) from payments p where p.order_id = o.id and p.amount < o.total) as m, (select"
         " count(*) from customers c where c.region = o.status or c.id < o.id) as n from orders o"),
        ("Correlated subqueries with ORDER BY and LIMIT", "latest",
         "select c.id, (select o.total from orders o where o.customer_id = c.id order by o.placed desc nulls last, o.id"
         " limit 1) as last from customers c"),
        ("Subqueries beside groups, in HAVING and in aggregates", "grouped_queries",
         "select status, (select count(*) from visits v where v.page = o.status) as v, sum((select count(*) from payments"
         " p where p.order_id = o.id)) as n from orders o group by status having count(*) < (select count(*) from"
         " payments)"),
        ("Subqueries in join conditions", "joined_queries",
         "select o.id from orders o join customers c on c.id = o.customer_id and exists (select 1 from payments p where"
         " p.order_id = o.id)"),
        ("Subqueries with UNION, GROUP BY and DISTINCT, correlated", "composed",
         "select c.id, (select count(*) from (select o.status from orders o where o.customer_id = c.id union select v.page"
         " from visits v where v.customer_id = c.id) u) as n from customers c where c.id in (select max(o.customer_id)"
         " from orders o where o.status <> c.region group by o.status)"),
        ("LATERAL: the first rows of each", "lateral_firsts",
         "select c.id, t.id as o, t.total from customers c, lateral (select o.id, o.total from orders o where"
         " o.customer_id = c.id order by o.total desc nulls last, o.id limit 2) t"),
        ("LEFT JOIN LATERAL", "lateral_left",
         "select o.id, t.*, u.n from orders o left join lateral (select p.id as payment, p.amount from payments p where"
         " p.order_id = o.id and p.amount > o.total) t on true left join lateral (select count(*) as n from visits v where"
         " v.customer_id > o.customer_id) u on u.n > 1"),
        ("LATERAL without FROM", "lateral_expression",
         "select c.id, t.x, t.x * 2 as y from customers c cross join lateral (select c.id + 1 as x) t"),
        ("Rows compared by an order", "rows_ordered",
         "select id, (discount, parts) < (2, 3) as a, (status, total) >= row('open', 50) as b, (discount, customer_id) <>"
         " (1, 2) as c, row(total, id) <= (total, 3) as d from orders"),
        ("(a, b) = (SELECT x, y …), and <, <=, >, >=, <>", "rows_asked",
         "select id, (id, status) < (select id, 'open' from customers order by id limit 1) as a, (parts, discount) = (select"
         " count(*), sum(qty) from order_lines l where l.order_id = o.id) as b, row(id, total) <> (select id, credit from"
         " customers c where c.id = o.customer_id) as c, ('1', null, discount) >= (select 1, 2, 3) as d from orders o where not"
         " ((id, status) = (select 3, 'void' from visits order by page, at, customer_id limit 1))"),
        ("Rows compared with ANY and ALL of a query by an order", "rows_any_all",
         "select id, (discount, parts) < any (select qty, line_no from order_lines) as a, (discount, parts) >= all (select qty,"
         " line_no from order_lines l where l.order_id = o.id) as b, (discount, parts) = all (select qty, line_no from"
         " order_lines l where l.order_id = o.id) as c, (id, total) <> any (select 1, null::numeric union all select 2, 3) as d,"
         " (id, '3') <= some (select id, discount from orders where id > 2) as e from orders o where (id, id)"
         " > all (select 0, 5)"),
        ("Rows compared with subqueries in HAVING and outer joins", "rows_asked_of_groups",
         "select g.status, (g.n, g.least) > (select count(*), min(id) from payments) as a, c.id as c from (select status,"
         " count(*) as n, min(id) as least from orders group by status having (min(id), max(id)) < (select 4, 10)) g left join"
         " customers c on (g.n, g.status) >= (select 2, 'open') and c.id = g.least"),
        ("IN of rows", "rows_in", "select id from orders where (id, status) in ((1, 'open'), (2, 'paid'), (3, 'void'))"),
    ),
    Supported(
        "LEFT JOIN by a condition that may fail", "left_fallible",
        "select a.id, b.id as other from orders a left join customers b on a.customer_id = b.id and 100 / a.discount > 1",
        fails=True,
    ),
    Supported(
        "A scalar subquery of several rows is an error", "several",
        "select id, (select vip from customers c where c.region = v.page or c.credit > 50) as c from orders o join visits v"
        " on v.customer_id = o.id",
        fails=True,
    ),
)  # fmt: skip
