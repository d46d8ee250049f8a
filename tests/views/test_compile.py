"""Compiled views: names, types, NULLs, keys, order, fingerprints, and what explain and render make of them."""

from __future__ import annotations

import json

import pytest

from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.errors import InvariantBroken
from headrace.views.compile import CompiledView, compile_views
from headrace.views.errors import ViewError
from headrace.views.explain import explain, explain_json
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_models import ColumnSpec
from tests.views.shop import TABLES, catalog, schema_of


def one(sql: str, key: tuple[str, ...] | None = None) -> CompiledView:
    return compile_views([ViewSpec("v", sql, key=key)], catalog())[0]


@pytest.mark.parametrize(
    ("expression", "name", "type_name", "nullable"),
    [
        ("id", "id", "bigint", False),
        ("total", "total", "numeric(12,2)", True),
        ("count(*)", "count", "bigint", False),
        ("sum(discount)", "sum", "bigint", True),
        ("sum(id)", "sum", "numeric", True),
        ("avg(discount)", "avg", "numeric", True),
        ("every(total > 1)", "every", "boolean", True),
        ("total::text", "total", "text", True),
        ("'1'::integer", "int4", "integer", False),
        ("true::boolean", "bool", "boolean", False),
        ("coalesce(total, 0)", "coalesce", "numeric", False),
        ("case when discount > 1 then 'a' end", "case", "text", True),
        ("case when discount > 1 then 1 else id end", "id", "bigint", False),
        ("nullif(status, 'x')", "nullif", "text", True),
        ("extract(year from placed)", "extract", "numeric", True),
        ("upper(status)", "upper", "text", False),
        ("trim(status)", "btrim", "text", False),
        ("(id)", "id", "bigint", False),
    ],
)
def test_names_types_and_nulls(expression: str, name: str, type_name: str, nullable: bool) -> None:
    column = one(f"select {expression} from orders").schema.columns[0]
    assert (column.name, column.type.sql(), column.nullable) == (name, type_name, nullable)


@pytest.mark.parametrize(
    ("sql", "nullable"),
    [
        ("select discount from orders where discount is not null", False),
        ("select discount from orders where discount > 1 and status = 'a'", False),
        ("select discount from orders where discount > 1 or status = 'a'", True),
        ("select customer_id from orders o join customers c on c.id = o.customer_id", False),
        ("select discount from orders where discount is distinct from 1", True),
    ],
)
def test_conditions_rule_out_nulls(sql: str, nullable: bool) -> None:
    assert one(sql).schema.columns[0].nullable is nullable


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("select total, id from orders", ("id",)),
        ("select total from orders", None),
        ("select status, count(*) from orders group by status", ("status",)),
        ("select region, count(*) from customers group by region", ("region",)),
        ("select region, vip, count(*) from customers group by 1, 2", ("region", "vip")),
        ("select count(*) as n, vip from customers group by region, vip", None),
        ("select region, max(id) as id from customers group by grouping sets ((region), ())", None),
        ("select distinct o.id, c.region from orders o left join customers c on c.id = o.customer_id", ("id",)),
        ("select c.region, o.n from customers c left join (select customer_id as k, count(*) as n from orders group by 1) o"
         " on o.k = c.id", None),
        ("select id, region from customers union select id, status from orders", None),
        ("select distinct region, vip from customers", None),
        ("select region, count(*) from customers where region is not null group by region", ("region",)),
        ("select distinct status, id from orders", ("id",)),
        ("select distinct status from orders", ("status",)),
        ("select count(*) from orders", ()),
        ("select id from orders union all select id from customers", None),
        ("select id from orders union select id from customers", ("id",)),
        ("select o.id, c.name from orders o join customers c on c.id = o.customer_id", ("id",)),
        ("select c.id, o.status from orders o join customers c on c.id = o.customer_id", None),
        ("select o.id, l.line_no from orders o join order_lines l on l.order_id = o.id", ("id", "line_no")),
        ("select l.order_id, l.line_no, p.id from order_lines l join payments p on p.order_id = l.order_id",
         ("order_id", "line_no", "id")),
        ("select o.id, o.total, count(*) as n from orders o join payments p on p.order_id = o.id group by o.id",
         ("id",)),
        ("select page from visits", None),
        ("select id + 0 as id from orders", None),
    ],
)  # fmt: skip
def test_derived_keys(sql: str, key: tuple[str, ...] | None) -> None:
    view = one(sql)
    assert (None if view.key is None else tuple(view.schema.names[i] for i in view.key)) == key
    assert view.key_proved


@pytest.mark.parametrize(
    ("sql", "key", "proved"),
    [
        ("select id, status from orders", ("id",), True),
        ("select id, status from orders", ("status", "id"), True),
        ("select id, status from orders", ("status",), False),
        ("select count(*) as n from orders", ("n",), True),
        ("select distinct status, id % 3 as part from orders", ("status",), False),
    ],
)
def test_declared_keys_are_proved_or_checked(sql: str, key: tuple[str, ...], proved: bool) -> None:
    view = one(sql, key)
    assert view.key == tuple(view.schema.names.index(k) for k in key)
    assert view.key_proved is proved
    assert view.schema.key == view.key


def test_keys_that_may_be_null_and_of_one_row_hold_for_who_reads_the_view() -> None:
    specs = [
        ViewSpec("groups", "select region, count(*) as n from customers group by region"),
        ViewSpec("total", "select count(*) as n from customers"),
        ViewSpec("shares", "select region, groups.n, total.n as of from groups, total"),
        ViewSpec("named", "select o.id, g.n from orders o left join groups g on g.region = o.status"),
        ViewSpec("pairs", "select a.region, b.n from groups a full join groups b on a.region = b.region"),
    ]
    found = {v.name: v for v in compile_views(specs, catalog())}
    assert {n: v.key for n, v in found.items()} == {
        "groups": (0,), "total": (), "shares": (0,), "named": (0,), "pairs": None
    }  # fmt: skip
    assert not found["shares"].warnings
    assert explain(found["total"]).startswith("view total  key none: one row at most")


def test_views_come_after_those_they_read() -> None:
    specs = [
        ViewSpec("c", "select id from b"),
        ViewSpec("a", "select id from orders"),
        ViewSpec("b", "select a.id from a join customers on customers.id = a.id"),
    ]
    found = compile_views(specs, catalog())
    assert [v.name for v in found] == ["a", "b", "c"]
    assert found[2].reads == ("b",)
    assert found[2].key == (0,)


def test_a_cte_hides_a_view() -> None:
    specs = [ViewSpec("a", "with b as (select id from orders) select id from b"), ViewSpec("b", "select id from a")]
    assert [v.name for v in compile_views(specs, catalog())] == ["a", "b"]


def test_fingerprints_name_the_computation() -> None:
    same = [
        "select id, total from orders where total > 1",
        "SELECT o.id,\n o.total FROM public.orders AS o WHERE o.total > 1",
    ]
    assert len({one(sql).fingerprint for sql in same}) == 1
    others = [
        "select id, total from orders where total > 2",
        "select id, total as t from orders where total > 1",
        "select total, id from orders where total > 1",
    ]
    assert len({one(sql).fingerprint for sql in (same[0], *others)}) == 4
    assert one(same[0]).fingerprint != one(same[0], ("id", "total")).fingerprint


def test_a_view_s_fingerprint_holds_those_it_reads() -> None:
    def top(condition: str) -> str:
        specs = [ViewSpec("a", f"select id from orders where {condition}"), ViewSpec("b", "select id from a")]
        return compile_views(specs, catalog())[1].fingerprint

    assert top("total > 1") != top("total > 2")
    assert top("total > 1") == top("total > 1")


def test_explain_shows_shared_arrangements() -> None:
    specs = [
        ViewSpec("a", "select o.id, c.name from orders o join customers c on c.id = o.customer_id"),
        ViewSpec("b", "select v.page, c.region from visits v join customers c on c.id = v.customer_id"),
    ]
    first, second = compile_views(specs, catalog())
    text = explain(first, [second])
    assert "arranged: public.customers by (id), the table's own, shared with b" in text
    assert text.startswith("view a  key (id), proved")
    shown = explain_json(first, [second])
    assert json.loads(json.dumps(shown)) == shown
    assert shown["arrangements"][1]["shared_with"] == ["b"]  # type: ignore[index]
    assert shown["reads"] == ["public.customers", "public.orders"]


def flow() -> Dataflow:
    made = Dataflow()
    for table in TABLES:
        made.table(f"public.{table}", schema_of(table))
    return made


def test_render_shares_nodes_between_views() -> None:
    made = flow()
    rendered: dict[str, Collection] = {}
    sql = "select c.name, o.total from orders o join customers c on c.id = o.customer_id"
    for view in compile_views([ViewSpec("a", sql), ViewSpec("b", f"{sql} where c.vip")], catalog()):
        rendered[view.name] = render(view, made, rendered)
    again = render(compile_views([ViewSpec("a", sql)], catalog())[0], made, rendered)
    assert again.fingerprint == rendered["a"].fingerprint
    assert again.node is rendered["a"].node
    assert rendered["a"].schema.names == ("name", "total")


def test_render_wants_the_views_read_first() -> None:
    specs = [ViewSpec("a", "select id from orders"), ViewSpec("b", "select id from a")]
    with pytest.raises(InvariantBroken, match="rendered before"):
        render(compile_views(specs, catalog())[1], flow(), {})


def test_long_chains_and_deep_nests() -> None:
    chain = " or ".join(f"id = {i}" for i in range(1000))
    assert one(f"select id from orders where {chain}").key == (0,)
    deep = "+".join(["id"] * 3000)
    with pytest.raises(ViewError, match="nested too deeply"):
        one(f"select {deep} as x from orders")
    with pytest.raises(ViewError, match="nested too deeply"):
        one(f"select {'(' * 3000}id{')' * 3000} as x from orders")


def test_described_columns_exist() -> None:
    spec = ViewSpec("v", "select id from orders", columns=(ColumnSpec(name="idd"),))
    with pytest.raises(ViewError, match=r'described column "idd" is not a column of the view.*did you mean id'):
        compile_views([spec], catalog())
