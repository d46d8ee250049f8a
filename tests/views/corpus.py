"""What views can say, and what is refused: one entry a feature, compared with Postgres in tests/oracle and listed in
docs/sql.md, which is written from here.
"""

from __future__ import annotations

from tests.views.collecting import COLLECTING, COLLECTING_REFUSED
from tests.views.features import Refused, Supported, supported
from tests.views.frames import FRAMES, FRAMES_REFUSED, SIZES
from tests.views.recursive import RECURSIVE, RECURSIVE_REFUSED
from tests.views.relational import RELATIONAL
from tests.views.sets import SETS, SETS_REFUSED

SUPPORTED: tuple[Supported, ...] = (
    *supported(
        ("SELECT *", "star", "select * from orders"),
        ("SELECT t.*", "star_of", "select c.*, o.id as order_id from orders o join customers c on c.id ="
         " o.customer_id"),
        ("Column aliases", "aliases", "select id as number, total t from orders as o"),
        ("Column names of a table alias", "renamed", "select a, b from customers as c(a, b)"),
        ("Quoted identifiers", "quoted", 'select "id" as "Order Id", total as "TOTAL" from public."orders"'),
        ("WHERE", "open_orders", "select id, total from orders where status = 'open' and total > 10"),
        ("Types called as functions", "called_types",
         "select id, float8(discount) / 2 as a, int4(total) as b, text(total) as c, date(placed) as d, bool(discount) as e,"
         " int8('7') as f from orders where total < 2000000000"),
        ("Three-valued logic", "logic",
         "select id from orders where not (total > 50 and discount < 3) or customer_id is null"),
        ("IS [NOT] NULL, TRUE, FALSE", "nulls",
         "select id, vip is true as t, vip is not false as f, credit is null as n from customers where region"
         " is not null"),
        ("IS [NOT] DISTINCT FROM", "distinct_from",
         "select id from customers where region is distinct from 'north' and vip is not distinct from null"),
        ("IN and NOT IN lists", "in_list",
         "select id, discount in (1, 2, null) as i from orders where status not in ('void', 'lost')"),
        ("= ANY (ARRAY[…])", "any_array", "select id from orders where status = any (array['open', 'paid'])"),
        ("BETWEEN", "between_", "select id from orders where total between 5 and 60.5 and discount not between"
         " 2 and 3"),
        ("LIKE, ILIKE", "likes", "select id, name like 'A%' as a, name not like '%b' as b, name ilike '%A_' as"
         " c from customers"),
        ("CASE", "cases",
         "select id, case status when 'open' then 1 when 'paid' then 2 else 0 end as n,"
         " case when total > 50 then 'big' when total is null then 'none' end as size from orders"),
        ("COALESCE, NULLIF, GREATEST, LEAST", "choices",
         "select id, coalesce(total, 0.00) as t, nullif(status, 'open') as s, greatest(discount, 2) as g,"
         " least(discount, parts) as l from orders"),
        ("CAST and ::", "casts",
         "select id, total::text as t, discount::bigint as b, cast(id as text) || '!' as x, parts::numeric(6,1) as n,"
         " vip::text as v, born::timestamp as s from orders join customers using (id)"),
        ("Integer arithmetic and division", "integers",
         "select id, discount + parts as a, discount - 7 as b, discount * 3 as c, -discount / 2 as d, discount"
         " % 2 as e"
         " from orders"),
        ("Numeric arithmetic", "numerics",
         "select id, total * 2 as a, total + 0.125 as b, total - discount as c, total / 3 as d, round(total, 1) as e,"
         " total * 0.1 as f from orders"),
        ("Text functions and ||", "texts",
         "select id, upper(name) || '-' || coalesce(region, '?') as a, length(name) as b, substring(name from 2"
         " for 2) as c,"
         " lower(name) as d, trim(both 'A' from name) as e, position('b' in name) as f, replace(name, 'b',"
         " 'xx') as g,"
         " left(name, 2) as h from customers"),
        ("Dates and timestamps", "dates",
         "select id, extract(year from placed) as y, date_trunc('month', placed) as m, placed::date as d,"
         " placed >= timestamp '2024-03-01' as r from orders"),
        ("Inner JOIN … ON", "joined", "select o.id, c.name from orders o join customers c on o.customer_id = c.id"),
        ("JOIN … USING", "using_", "select * from orders join order_payment_totals using (id)"),
        ("NATURAL JOIN", "natural_",
         "select * from (select id, name from customers) a natural join (select id, region from customers) b"),
        ("Comma join with WHERE", "comma",
         "select o.id, l.line_no, p.name, c.name as customer from orders o, order_lines l, products p, customers c"
         " where l.order_id = o.id and p.id = l.product_id and c.id = o.customer_id"),
        ("CROSS JOIN with an equality in WHERE", "crossed",
         "select o.id, p.id as payment from orders o cross join payments p where o.id = p.order_id"),
        ("Join conditions besides equalities", "residual",
         "select o.id, p.id as payment from orders o join payments p on p.order_id = o.id and p.amount < o.total"),
        ("Join by expressions", "by_expression",
         "select a.id, b.id as other from orders a join customers b on coalesce(a.customer_id, 0) = b.id + 0"
         " where a.id > 2"),
        ("Join of different key types", "mixed_keys",
         "select v.page, c.name from visits v join customers c on v.customer_id = c.id"),
        ("Join of numerics of several scales, and of integers", "mixed_scales",
         "select p.id, o.id as order_id, c.id as customer_id from payments p join orders o on p.amount = o.total"
         " join customers c on c.credit = o.id"),
        ("Join of dates and timestamps", "mixed_times",
         "select c.id, o.id as order_id, p.id as payment from customers c join orders o on c.born = o.placed"
         " left join payments p on p.paid = o.placed"),
        ("Self join", "pairs",
         "select a.id, b.id as other from customers a join customers b on a.region = b.region and a.id < b.id"),
        ("Join by a composite key", "composite",
         "select l.order_id, l.line_no, m.qty from order_lines l join order_lines m"
         " on m.order_id = l.order_id and m.line_no = l.line_no where l.qty > 1"),
        ("Parenthesised joins", "nested",
         "select o.id, l.qty, p.sku from orders o join (order_lines l join products p on p.id = l.product_id)"
         " on l.order_id = o.id"),
        ("LEFT JOIN", "left_joined",
         "select o.id, o.total, c.name, c.id is null as gone from orders o left join customers c on c.id ="
         " o.customer_id where o.status <> 'void'"),
        ("LEFT JOIN with USING", "left_using",
         "select order_id, l.qty, p.amount from order_lines l left outer join payments p using (order_id)"),
        ("LEFT JOIN with conditions on one side", "left_conditions",
         "select c.id, o.id as order_id, o.total from customers c left join orders o on o.customer_id = c.id"
         " and o.status = 'open' and c.vip and o.total > 5"),
        ("LEFT JOIN by expressions", "left_expression",
         "select v.page, c.id, c.region from visits v left join customers c on coalesce(c.credit, 1) ="
         " coalesce(v.customer_id, 0)"),
        ("LEFT JOINs in a row, and among inner joins", "left_chain",
         "select o.id, c.name, y.amount, l.line_no, p.sku from orders o left join customers c on c.id = o.customer_id"
         " left join payments y on y.order_id = o.id and y.method = 'card' join order_lines l on l.order_id = o.id"
         " left join products p on p.id = l.product_id"),
        ("Rows without a partner: LEFT JOIN … WHERE … IS NULL", "unpaid",
         "select o.id, o.status from orders o left join payments p on p.order_id = o.id where p.id is null"),
        ("LEFT JOIN of a subquery, grouped", "left_grouped",
         "select c.region, count(*) as n, count(s.customer_id) as some, sum(s.total) as total from customers c left join"
         " (select customer_id, sum(total) as total from orders group by customer_id) s on s.customer_id = c.id"
         " group by c.region"),
        ("LEFT JOIN of joins in parentheses", "left_nested",
         "select o.id, l.qty, p.sku from orders o left join (order_lines l join products p on p.id = l.product_id)"
         " on l.order_id = o.id"),
        ("WHERE … IN (SELECT …)", "in_query",
         "select id, total from orders where customer_id in (select id from customers where vip) and total > 5"),
        ("IN (SELECT …) of values that can be NULL, with repetitions", "in_repeated",
         "select c.id, c.name from customers c where c.region is not null and (c.id in (select customer_id from visits)"
         " and c.credit in (select total from orders union all select amount from payments))"),
        ("(…, …) IN (SELECT …)", "in_pairs",
         "select id, amount from payments where (order_id, amount) in (select id, total from orders)"),
        ("IN (SELECT …) of an expression, grouped", "in_grouped",
         "select status, count(*) as n from orders o where coalesce(customer_id, 1) + 0 in (select customer_id from orders"
         " group by customer_id having count(*) > 1) group by status"),
        ("NOT IN (SELECT …) where nothing is NULL", "not_in_query",
         "select c.id, o.status from customers c join orders o on o.customer_id = c.id where not c.id in (select"
         " order_id from order_lines where qty > 1) and o.id not in (select order_id from order_lines)"),
        ("GROUP BY columns", "by_status", "select status, count(*) from orders group by status"),
        ("GROUP BY expressions", "by_month",
         "select date_trunc('month', placed) as month, count(*) as n, sum(total) as t from orders"
         " group by date_trunc('month', placed)"),
        ("GROUP BY ordinals", "by_ordinal", "select region, vip, count(*) as n from customers group by 1, 2"),
        ("GROUP BY output names", "by_alias",
         "select case when total > 50 then 'big' else 'small' end as size, count(*) as n from orders group by size"),
        ("GROUP BY a primary key, other columns of its table", "by_key",
         "select o.id, o.status, o.total, sum(l.qty) as pieces from orders o join order_lines l on l.order_id ="
         " o.id group by o.id"),
        ("HAVING", "having_",
         "select customer_id, sum(total) as t from orders group by customer_id having count(*) > 1 and"
         " sum(total) > 20"),
        ("count, count(*), count(DISTINCT)", "counts",
         "select status, count(*) as n, count(total) as t, count(distinct customer_id) as c from orders group"
         " by status"),
        ("count(DISTINCT (a, b)) of rows", "distinct_rows",
         "select status, count(distinct (customer_id, total)) as a, count(distinct row(placed, discount)) filter (where id >"
         " 2) as b from orders group by status"),
        ("GROUP BY and ORDER BY of rows", "rows_as_keys",
         "select max(id) as id, count(*) as n from orders group by row(status, discount) order by row(count(*), max(id)) desc"
         " limit 3"),
        ("array_agg, string_agg and json_agg over a subquery, in its order", "ordered_lists",
         "select array_agg(id) as a, string_agg(status, ',') as b, json_agg(total) filter (where id > 2) as c from (select id,"
         " status, total from orders order by total desc nulls last, id) q"),
        ('COLLATE "C" of what is compared or sorted', "collated",
         "select id, name from customers where region collate \"C\" >= 'n' order by name collate \"C\" desc, id limit 3"),
        ("sum, avg", "sums",
         "select status, sum(discount) as a, sum(parts) as b, sum(id) as c, sum(total) as d, avg(discount) as"
         " e, avg(total) as f"
         " from orders group by status"),
        ("sum(DISTINCT), avg(DISTINCT)", "distinct_sums",
         "select status, sum(distinct discount) as a, avg(distinct total) as b from orders group by status"),
        ("min, max", "extremes",
         "select region, min(name) as a, max(credit) as b, min(born) as c, max(id) as d from customers group by"
         " region"),
        ("bool_and, bool_or, every", "bools",
         "select region, bool_and(vip) as a, bool_or(vip) as b, every(credit > 0) as c from customers group by"
         " region"),
        ("FILTER", "filters",
         "select customer_id, count(*) filter (where status = 'open') as a, sum(total) filter (where discount >"
         " 1) as b,"
         " sum(100 / discount) filter (where discount <> 0) as c from orders group by customer_id"),
        ("Expressions over aggregates", "over_aggregates",
         "select status || '!' as s, sum(total) / count(*) as mean, max(total) - min(total) as spread from"
         " orders group by status"),
        ("Aggregates without GROUP BY: one row, also of nothing", "overall",
         "select count(*), sum(total), avg(discount), max(placed), bool_and(discount > 0) from orders where"
         " status = 'open'"),
        ("HAVING without GROUP BY", "having_overall", "select count(*) as n from orders having count(*) > 5"),
        ("GROUP BY without aggregates", "groups", "select region, vip from customers group by region, vip"),
        ("SELECT DISTINCT", "distinct_", "select distinct status, customer_id from orders"),
        ("DISTINCT of rows that differ by a key, which costs nothing", "distinct_needless",
         "select distinct o.id, c.region, s.n from orders o join customers c on c.id = o.customer_id left join (select distinct"
         " order_id, count(*) as n from payments group by order_id) s on s.order_id = o.id"),
        ("Joins that add nothing: a table with itself by its key, a LEFT JOIN of which nothing is read", "joins_needless",
         "select a.id, b.name, count(*) as n from customers a join customers b on a.id = b.id and b.vip is not false left join"
         " orders o on o.id = a.id left join (select distinct order_id from payments) p on p.order_id = a.credit where a.id > 1"
         " group by a.id, b.name"),
        ("DISTINCT of numerics of several scales", "distinct_scales",
         "select distinct amount from payments"),
        ("WITH", "ctes",
         "with big as (select * from orders where total > 20), per as (select customer_id, count(*) as n from big"
         " group by customer_id) select c.name, per.n from per join customers c on c.id = per.customer_id"),
        ("Column names of a CTE", "cte_names", "with t(a, b) as (select id, total from orders) select a, b from t"),
        ("Aggregates of the query around, in a subquery", "aggregated_around",
         "select customer_id, (select sum(o.total) + count(*) from products p where p.id < count(o.id)) as s from orders o"
         " group by customer_id having exists (select 1 from customers c where c.id = max(o.customer_id))"),
        ("Back references in regular expressions", "referring",
         r"select id, regexp_replace(name, '(.)\1', '<\1>') as name from customers where name !~ '^(.*)x\1$'"),
        ("Subquery in FROM", "subqueries",
         "select s.status, s.n, o.id from (select status, count(*) as n from orders group by status) s join orders o"
         " on o.status = s.status where s.n > 2"),
        ("Aggregates of aggregates", "twice",
         "select n, count(*) as customers from (select customer_id, count(*) as n from orders group by"
         " customer_id) s group by n"),
        ("UNION ALL", "union_all_", "select id, name from customers union all select id, name from products"),
        ("UNION", "union_", "select region as place from customers union select status from orders union select"
         " null from orders"),
        ("UNION of different types", "union_types",
         "select id, total as x from orders union all select id, discount from orders union all select 0, 1.5"
         " from orders"),
        ("Filter above UNION and DISTINCT", "union_filtered",
         "select * from (select id, status as word from orders union select id, region from customers) u"
         " where word is not null and id > 3"),
        ("Keyless tables", "pages", "select page, count(*) as n, count(distinct customer_id) as c from visits"
         " group by page"),
        ("Duplicate rows kept", "bag", "select page from visits"),
        ("Views over views", "order_payment_totals",
         "select o.id, sum(p.amount) as paid from open_or_paid o join payments p on p.order_id = o.id group by o.id"),
        ("Views over views, in any order of declaration", "open_or_paid",
         "select id, total from orders where status in ('open', 'paid')"),
        ("Five tables", "everything",
         "select c.region, p.sku, sum(l.qty * l.price) as worth, count(distinct o.id) as orders, max(y.paid) as last"
         " from customers c join orders o on o.customer_id = c.id join order_lines l on l.order_id = o.id"
         " join products p on p.id = l.product_id join payments y on y.order_id = o.id"
         " where p.price > 1 and o.status <> 'void' group by c.region, p.sku"),
    ),
    Supported("Errors, as in Postgres", "ratios", "select id, 100 / discount as r from orders", fails=True),
    Supported(
        "Errors are avoided by WHERE", "safe_ratios",
        "select id, 100 / discount as r from orders where discount <> 0",
    ),
    Supported(
        "Errors behind a join", "joined_ratios",
        "select o.id from orders o join customers c on c.id = o.customer_id where c.vip and 100 / o.discount > 10",
        fails=True,
        fenced="with j as materialized (select o.id, o.discount from orders o join customers c on c.id = o.customer_id"
        " where c.vip) select id from j where 100 / discount > 10",
    ),
    *RELATIONAL,
    *RECURSIVE,
    *SETS,
    *COLLECTING,
    *FRAMES,
    *SIZES,
)  # fmt: skip

REFUSED: tuple[Refused, ...] = (
    Refused("IN (SELECT …) of another width", "select id from orders where id in (select id, region from customers)",
            "subquery has too many columns", "select id, region"),
    Refused("Window functions in WHERE", "select id from orders where row_number() over (order by id) < 3",
            "window functions are not allowed in WHERE", "row_number"),
    Refused("Window functions without OVER", "select row_number() as n from orders",
            "window function row_number requires an OVER clause", "row_number"),
    Refused("LIMIT without ORDER BY", "select id from orders limit 3", "LIMIT without ORDER BY keeps any rows", "limit"),
    Refused("OFFSET without ORDER BY", "select id from orders offset 3", "LIMIT without ORDER BY keeps any rows",
            "offset"),
    Refused("LIMIT by a column", "select id from orders order by id limit discount",
            "argument of LIMIT must not contain variables", "discount"),
    Refused("ORDER BY of DISTINCT by what it does not show", "select distinct status from orders order by id",
            "for SELECT DISTINCT, ORDER BY expressions must appear in select list", "id"),
    Refused("ORDER BY of a UNION by an expression", "select id from orders union select id from customers order by id + 1",
            "ORDER BY of a UNION, INTERSECT or EXCEPT names one of its columns", "id + 1"),
    Refused("NOT IN of rows of more than three columns that can be NULL on either side",
            "select id from orders where (placed, total, discount, parts) not in (select placed, total, discount, parts from"
            " orders)", "a row is looked for among rows in which much can be NULL", "select placed"),
    Refused("Rows of aggregates compared with ANY or ALL by an order",
            "select status from orders group by status having (count(*), max(id)) > all (select id, id from payments)",
            "a row of aggregates or subqueries compared with ANY or ALL by an order", "count"),
    Refused("Subqueries that read both sides of a FULL JOIN in its condition",
            "select o.id from orders o full join customers c on c.id = o.id and exists (select 1 from payments p where"
            " p.order_id = o.id and p.id = c.id)", "a subquery that reads both sides of an outer join", "select 1"),
    Refused("Aggregates of a query around in its WHERE", "select id from orders o where (select sum(o.total)) > 1",
            "sum is of columns of the query around alone, which does not aggregate there", "sum"),
    Refused("Constants that Postgres reads and Headrace does not",
            "select id from customers where name ~ '(?b)a'",
            'regular expression not supported: option "b", of other expressions than advanced ones', "name ~"),
    *RECURSIVE_REFUSED,
    Refused("Volatile functions", "select id from orders where placed < now()",
            "now() is not supported: its answer is not a function of the tables", "now"),
    Refused("Constants that mean the time of the query", "select id from customers where born < date 'yesterday'",
            'spelling of date not supported: "yesterday": it depends on the time of the query', "'yesterday'"),
    Refused("CURRENT_DATE and its like", "select id from customers where born = current_date",
            "CURRENT_DATE is not supported: its answer is not a function of the tables", "current_date"),
    Refused("Other aggregates", "select xmlagg(details) as ids from payments", "aggregate xmlagg is not supported yet",
            "xmlagg"),
    Refused("TABLESAMPLE", "select id from orders tablesample system (10)",
            "TABLESAMPLE is not supported: its answer is random", "tablesample"),
    Refused("Unnamed columns", "select id + 1 from orders", "column 1 has no name", "id + 1"),
    Refused("Two columns of one name", "select id, total as id from orders", 'two columns are named "id"',
            "total as id"),
    Refused("Statements that are not SELECT", "delete from orders", "DELETE is not a SELECT", "delete"),
    Refused("Several statements", "select id from orders; select id from customers", "more than one statement",
            "select id from customers"),
    *SETS_REFUSED,
    *COLLECTING_REFUSED,
    *FRAMES_REFUSED,
)  # fmt: skip
