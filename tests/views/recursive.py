"""The corpus of views: recursive queries, and what of them is refused, in Postgres's words."""

from __future__ import annotations

from tests.views.features import Refused, Supported, supported

RECURSIVE: tuple[Supported, ...] = (
    *supported(
        ("WITH RECURSIVE … UNION", "reached",
         "with recursive t(n) as (select 1::bigint union select o.id from t join orders o on o.customer_id = t.n) select n"
         " from t"),
        ("WITH RECURSIVE … UNION ALL", "depths",
         "with recursive t as (select id, 0 as depth from customers where vip union all select o.id, t.depth + 1 from t join"
         " orders o on o.customer_id = t.id where t.depth < 3) select id, depth, count(*) as n from t group by id, depth"),
        ("WITH RECURSIVE: paths in arrays, without cycles", "paths",
         "with recursive t as (select id, array[id] as path from customers where vip union all select o.id, t.path || o.id"
         " from t join orders o on o.customer_id = t.id where o.id <> all (t.path)) select id, path from t"),
        ("WITH RECURSIVE: LATERAL and set-returning functions in the recursive term", "recursive_sets",
         "with recursive t(n) as (select id from customers union select x from t, generate_series(t.n + 1, least(t.n + 2, 9)) x"
         " where t.n < 7) select n from t"),
        ("WITH RECURSIVE: the outer side of an outer join", "recursive_outer",
         "with recursive t(n, d) as (select id, 0 from customers union select p.order_id, t.d + 1 from t left join payments p on"
         " p.id = t.n where t.d < 3) select n, d from t"),
        ("WITH RECURSIVE: terms over the rows of the last round alone (DISTINCT, groups, windows, LIMIT, EXCEPT, …)",
         "last_round",
         "with recursive t(n, d) as (select id, 0 from customers union all (select max(o.id), t.d + 1 from (select * from t) t"
         " join orders o on o.customer_id = t.n where t.d < 4 group by t.d order by 1 limit 1)) select n, d from t"),
        ("WITH RECURSIVE: aggregates over a derived table", "recursive_aggregate",
         "with recursive t(n, m) as (select 1, 0::bigint union all select s.n + 1, s.m from (select max(n) as n, count(*) +"
         " max(m) as m from (select * from t) x) s where s.n < (select count(*) from orders)) select n, m from t"),
        ("WITH RECURSIVE: several items, forward references, items that nothing reads, VALUES, MATERIALIZED", "several_items",
         "with recursive counts as (select count(*) as c from t), idle(x) as (select 1 union all select x + 1 from idle), t(n) as"
         " not materialized (values (1), (2) union all select n + 2 from t where n < (select count(*) from v)), v as materialized"
         " (select id from orders where total > 5) select t.n, counts.c from t, counts"),
        ("WITH RECURSIVE: a recursion in a recursion", "recursive_nested",
         "with recursive t(n) as (select 1::bigint union (with recursive s(k) as (select n from t union select o.id from s join"
         " orders o on o.customer_id = s.k) select s.k + p.id from s join payments p on p.order_id = s.k where s.k < 9)) select n"
         " from t"),
        ("WITH RECURSIVE that reads the query around it", "recursive_correlated",
         "select c.id, (with recursive t(n) as (select c.id union select o.id from t join orders o on o.customer_id = t.n) select"
         " count(*) from t) as reached from customers c"),
        ("Views on recursive views", "on_recursive",
         "select r.n, o.total from reached r left join orders o on o.id = r.n"),
        ("CYCLE", "cycles",
         "with recursive t(n, d) as (select id, 0 from customers where vip union all select o.id, t.d + 1 from t join orders o on"
         " o.customer_id = t.n) cycle n set closed using path select n, d, closed, path::text as path from t"),
        ("SEARCH DEPTH FIRST", "depth_first",
         "with recursive t(n, d) as (select id, 0 from customers union all select o.id, t.d + 1 from t join orders o on"
         " o.customer_id = t.n where o.id > t.n) search depth first by n set way select n, d, rank() over (order by way) as"
         " place, way::text as way from t"),
        ("SEARCH BREADTH FIRST, and CYCLE", "breadth_first",
         "with recursive t(n, r) as (select id, region from customers union all select o.id, o.status from t join orders o on"
         " o.customer_id = t.n) search breadth first by r, n set level cycle n set closed using way select n, r, closed,"
         " rank() over (order by level desc, way) as place from t"),
        ("CYCLE by several columns, with values", "cycles_marked",
         "with recursive t as (select id, region from customers union select o.id, o.status from t, orders o where o.customer_id"
         " = t.id or o.id = t.id + 1) cycle id, region set mark to 'Y' default 'N' using path select id, region,"
         " cardinality(path) as n from t where mark = 'N'"),
        ("WITH RECURSIVE in a subquery", "recursive_inside",
         "select id, status from orders where customer_id in (with recursive t(n) as (select 1::bigint union select p.order_id"
         " from t join payments p on p.id = t.n) select n from t)"),
    ),
    Supported(
        "WITH RECURSIVE: a row that fails in any round", "recursive_failing",
        "with recursive t(n) as (select id from customers union select 6 / o.discount from t join orders o on o.id = t.n) select"
        " n from t",
        fails=True,
    ),
)  # fmt: skip

_START = "with recursive t(n) as (select id from customers union all "

RECURSIVE_REFUSED: tuple[Refused, ...] = (
    Refused("Mutual recursion between WITH items",
            "with recursive a as (select id from orders union all select id from b), b as (select id from a) select id from a",
            "mutual recursion between WITH items is not implemented", "a as"),
    Refused("More than one self-reference", f"{_START}select x.n from t x, t y) select n from t",
            'recursive reference to query "t" must not appear more than once', "t y"),
    Refused("A recursive query that is no UNION", "with recursive t as (select id from t) select id from t",
            'recursive query "t" does not have the form non-recursive-term UNION [ALL] recursive-term', "t as"),
    Refused("The self-reference in the non-recursive term",
            "with recursive t(n) as (select n from t union all select id from orders) select n from t",
            'recursive reference to query "t" must not appear within its non-recursive term', "t union"),
    Refused("The self-reference where an outer join may miss it",
            f"{_START}select o.id from orders o left join t on t.n = o.id) select n from t",
            'recursive reference to query "t" must not appear within an outer join', "t on"),
    Refused("The self-reference in a subquery of an expression",
            f"{_START}select id from orders where id in (select n from t)) select n from t",
            'recursive reference to query "t" must not appear within a subquery', "t))"),
    Refused("The self-reference in INTERSECT ALL",
            f"{_START}(select n from t intersect all select id from orders)) select n from t",
            'recursive reference to query "t" must not appear within INTERSECT', "t intersect"),
    Refused("The self-reference in EXCEPT ALL", f"{_START}(select n from t except all select id from orders)) select n from t",
            'recursive reference to query "t" must not appear within EXCEPT', "t except"),
    Refused("The self-reference on the right of EXCEPT",
            f"{_START}(select id from orders except select n from t)) select n from t",
            'recursive reference to query "t" must not appear within EXCEPT', "t))"),
    Refused("Aggregates of the recursive term's own rows", f"{_START}select max(n) from t) select n from t",
            "aggregate functions are not allowed in a recursive query's recursive term", "max"),
    Refused("ORDER BY of a recursive query", f"{_START}select n from t order by 1) select n from t",
            "ORDER BY in a recursive query is not implemented", "order by"),
    Refused("LIMIT of a recursive query", f"{_START}select n from t limit 3) select n from t",
            "LIMIT in a recursive query is not implemented", "limit"),
    Refused("OFFSET of a recursive query", f"{_START}select n from t offset 3) select n from t",
            "OFFSET in a recursive query is not implemented", "offset"),
    Refused("FOR UPDATE in a recursive query", f"{_START}select n from t for update) select n from t",
            "FOR UPDATE/SHARE in a recursive query is not implemented", "for update"),
    Refused("Terms of a recursive query of several types",
            "with recursive t(n) as (select parts from orders union all select n + 1.5 from t) select n from t",
            'recursive query "t" column 1 has type smallint in non-recursive term but type numeric overall', "parts"),
    Refused("UNION in a recursive query of a type without equality",
            "with recursive t(d) as (select details from payments union select d from t) select d from t",
            "UNION cannot compare values of type json", "details"),
    Refused("More names than columns behind a name of WITH", "with t(a, b) as (select id from orders) select a from t",
            'WITH query "t" has 1 columns available but 2 columns specified', "t(a, b)"),
    Refused("A self-reference without RECURSIVE",
            "with t(n) as (select id from orders union all select n from t) select n from t",
            'there is no table or view "t"', "t) select n"),
    Refused("CYCLE of what is not recursive",
            "with recursive t(n) as (select id from orders) cycle n set c using p select n from t",
            "WITH query is not recursive", "t(n)"),
    Refused("CYCLE by a column that is not there", f"{_START}select n from t) cycle m set c using p select n from t",
            'cycle column "m" not in WITH query column list', "m set"),
    Refused("CYCLE whose path and mark are one", f"{_START}select n from t) cycle n set c using c select n from t",
            "cycle mark column name and cycle path column name are the same", "c select"),
    Refused("CYCLE where the first term is no SELECT",
            "with recursive t(n) as ((select id from orders union select 3) union all select n from t) cycle n set c using p"
            " select n from t", "with a SEARCH or CYCLE clause, the left side of the UNION must be a SELECT", "select id"),
    Refused("CYCLE where the self-reference stands in a subquery in FROM",
            f"{_START}select s.n from (select n from t) s) cycle n set c using p select n from t",
            'with a SEARCH or CYCLE clause, the recursive reference to WITH query "t" must be at the top level of its'
            " right-hand SELECT", "select s.n"),
    Refused("Views that put out the path of a CYCLE", f"{_START}select n from t) cycle n set c using p select n, p from t",
            'column "p" has pseudo-type record[]', "p from t"),
    Refused("CYCLE by values of which equal ones look different",
            "with recursive t(n) as (select weight from products union all select n from t) cycle n set c using p select c from"
            " t", "CYCLE by a double precision is not supported: its equal values may look different", "n set"),
    Refused("SEARCH by a column that is not there", f"{_START}select n from t) search depth first by m set s select n from t",
            'search column "m" not in WITH query column list', "m set"),
    Refused("Views that put out the column of a SEARCH",
            f"{_START}select n from t) search breadth first by n set s select n, s from t",
            'column "s" has pseudo-type record', "s from t"),
    Refused("Recursions three deep, each of which reads the one around it",
            "with recursive t(a) as (select 1 union (with recursive u(b) as (select a from t union (with recursive v(c) as"
            " (select b from u union select c + 1 from v where c < 5) select c from v)) select b from u)) select a from t",
            "recursions that read the one around them are nested 3 deep", "t(a)"),
    Refused("An outer LIMIT that would stop a recursion", f"{_START}select n + 1 from t) select n from t limit 5",
            "LIMIT without ORDER BY keeps any rows", "limit"),
)  # fmt: skip
