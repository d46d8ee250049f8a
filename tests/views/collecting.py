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
        ("json_agg, jsonb_agg", "agg_json",
         "select status, json_agg(id order by id) as a, json_agg(total order by total, id) as b, jsonb_agg(placed order by"
         " placed, id) as c, jsonb_agg(status order by id) as d, json_agg(array[id, discount] order by id) as e,"
         " jsonb_agg(distinct discount) as f from orders group by status"),
        ("json_object_agg, jsonb_object_agg", "agg_objects",
         "select customer_id, json_object_agg(id, total order by id) as a, jsonb_object_agg(status, id order by id) as b"
         " from orders group by customer_id"),
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
        ("JSON constants and casts", "json_casts",
         "select id, '{\"b\": 1.50, \"a\": [1e2, null]}'::jsonb as a, '{\"b\":1,  \"a\":2}'::json as b, ('[' || id ||"
         " ']')::jsonb as c, details::jsonb as d, details::text as e from payments"),
    ),
    Supported(
        "Text that is no JSON is an error", "json_failing", "select id, ('[' || sku)::jsonb as a from products where id < 3",
        fails=True,
    ),
)  # fmt: skip

COLLECTING_REFUSED: tuple[Refused, ...] = (
    Refused("array_agg of arrays", "select array_agg(array[id, 1]) as a from orders",
            "array_agg of arrays is not supported: arrays have one dimension", "array_agg"),
    Refused("GROUP BY of jsonb", "select details::jsonb as d, count(*) as n from payments group by 1",
            "GROUP BY cannot compare values of type jsonb", "1"),
)  # fmt: skip
