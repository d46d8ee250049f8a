"""The rules: their docstring examples, what each does to whole plans, and that nothing fallible moves down."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from headrace import views
from headrace.views.compile import CompiledView, compile_views
from headrace.views.explain import arrangements, explain
from headrace.views.optimize import RULES, optimize
from headrace.views.plan import DeltaJoin, Distinct, Filter, Join, LeftJoin, Plan, Project, Scan
from headrace.views.spec import ViewSpec
from headrace.views.sql.environment import Environment
from headrace.views.sql.parsing.parse import parse
from headrace.views.sql.queries import bind_view
from headrace.views.traversal import walk
from tests.views.corpus import SUPPORTED
from tests.views.shop import catalog

MODULES = [m.name for m in pkgutil.walk_packages(views.__path__, "headrace.views.")]
assert len(MODULES) > 60


def compiled(sql: str, *, key: tuple[str, ...] | None = None) -> CompiledView:
    return compile_views([ViewSpec("v", sql, key=key)], catalog())[0]


def bound(sql: str) -> Plan:
    source, query = parse(ViewSpec("v", sql), catalog())
    return bind_view(source, Environment(catalog()), query)


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples(module: str) -> None:
    found = importlib.import_module(module)
    assert doctest.testmod(found).failed == 0
    if module.startswith("headrace.views.rules."):
        assert doctest.testmod(found).attempted > 0


OTHERS = ("order_payment_totals", "open_or_paid", "from reached")
ALONE = [s for s in SUPPORTED if not any(view in s.sql for view in OTHERS)]


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_every_rule_keeps_columns_and_ends(case: object) -> None:
    plan = bound(case.sql)  # type: ignore[attr-defined]
    types = [c.type for c in plan.schema.columns]
    for rule in RULES:
        plan = rule(plan)
        assert [c.type for c in plan.schema.columns] == types, rule.__name__
    done = optimize(optimize(bound(case.sql)))  # type: ignore[attr-defined]
    assert optimize(done).digest == done.digest


def lines(sql: str) -> list[str]:
    return [line.strip() for line in explain(compiled(sql)).splitlines()[1:]]


def test_joins_by_primary_key_use_the_table_s_own_arrangement() -> None:
    view = compiled(
        "select o.id, c.name from orders o join customers c on o.customer_id = c.id"
        " where c.region = 'north' and o.status = 'open'"
    )
    own = [a for a in arrangements(view.plan) if a.own]
    assert [str(a) for a in own] == ["public.customers by (id)"]
    join = next(n for n in walk(view.plan) if isinstance(n, Join))
    assert isinstance(join.right, Filter)
    assert isinstance(join.right.input, Scan)
    assert "status = 'open'" in explain(view).split("Join")[1]


def test_composite_keys_join_in_the_key_s_order() -> None:
    view = compiled(
        "select l.qty from payments p join order_lines l on l.line_no = p.id and l.order_id = p.order_id"
        " and p.amount = l.price"
    )
    join = next(n for n in walk(view.plan) if isinstance(n, Join))
    assert join.right_key == (0, 1)
    assert join.residual is not None


def test_the_left_table_s_key_serves_too() -> None:
    view = compiled("select o.id, p.amount from orders o join payments p on p.order_id = o.id where o.status = 'open'")
    assert [str(a) for a in arrangements(view.plan) if a.own] == ["public.orders by (id)"]


def test_joins_go_where_they_are_connected() -> None:
    view = compiled(
        "select o.id from orders o, products p, order_lines l where l.order_id = o.id and l.product_id = p.id"
    )
    joins = [n for n in walk(view.plan) if isinstance(n, Join)]
    assert [n.right.table for n in joins if isinstance(n.right, Scan)] == ["public.products"]
    assert all(n.left_key for n in joins)


def test_three_tables_keep_no_join_of_two() -> None:
    view = compiled(
        "select c.name, p.amount from customers c join orders o on o.customer_id = c.id join payments p on p.order_id = o.id"
        " where c.vip"
    )
    assert [str(a) for a in arrangements(view.plan)] == [
        "part of public.orders by (customer_id)",
        "part of public.payments by (order_id)",
        "public.payments by (id)",
        "public.customers by (id)",
        "public.orders by (id)",
    ]
    assert [a.own for a in arrangements(view.plan)] == [False, False, True, True, True]
    assert "Delta join on id = customer_id AND id = order_id" in explain(view)


def test_joins_by_more_than_columns_stay_joins_of_two() -> None:
    view = compiled(
        "select c.name, p.amount from customers c join orders o on o.customer_id = c.id"
        " join payments p on p.order_id = o.id and p.amount < o.total"
    )
    assert not any(isinstance(n, DeltaJoin) for n in walk(view.plan))


def test_unread_columns_are_not_arranged() -> None:
    view = compiled(
        "select c.name, count(*) as n from visits v join customers c on v.customer_id = c.id group by c.name"
    )
    join = next(n for n in walk(view.plan) if isinstance(n, Join))
    assert len(join.left.schema.columns) == 1
    assert len(join.right.schema.columns) == 6


KINDS = {
    "select distinct id, name from customers": (0, 0),
    "select distinct customer_id, count(*) as n from orders group by customer_id": (0, 0),
    "select distinct o.id, c.name from orders o join customers c on c.id = o.customer_id": (0, 1),
    "select distinct c.name from orders o join customers c on c.id = o.customer_id": (1, 1),
    "select distinct status from (select distinct status, total from orders) s": (1, 0),
    "select distinct t from (select distinct total::text as t from (select distinct total from orders) s) u": (2, 0),
    "select o.id, o.total from orders o left join customers c on c.id = o.customer_id": (0, 0),
    "select o.id from orders o left join (select distinct order_id from payments) p on p.order_id = o.id": (0, 0),
    "select count(*) from orders o left join customers c on c.id = o.customer_id and c.vip": (0, 0),
    "select o.id from orders o left join payments p on p.order_id = o.id": (0, 1),
    "select o.id from orders o left join customers c on c.id = o.customer_id and 1 / c.credit > 0": (0, 1),
    "select o.id, c.name from orders o left join customers c on c.id = o.customer_id": (0, 1),
    "select c.id, o.id as o from orders o full join customers c on c.id = o.customer_id": (0, 1),
    "select a.id, b.name from customers a join customers b on a.id = b.id where b.vip": (0, 0),
    "select a.id, b.name from customers a join customers b on a.id = b.id where 1 / b.credit > 0": (0, 0),
    "select a.id, b.name from customers a join customers b on a.id = b.credit": (0, 1),
}
"""How many DISTINCTs and joins of a query are kept."""


@pytest.mark.parametrize("sql", KINDS)
def test_needless_distincts_and_joins_go(sql: str) -> None:
    nodes = list(walk(compiled(sql).plan))
    found = [sum(isinstance(n, kinds) for n in nodes) for kinds in ((Distinct,), (Join, LeftJoin))]
    assert tuple(found) == KINDS[sql]


def test_what_may_fail_stays_above_what_keeps_it_from_a_row() -> None:
    text = lines(
        "select o.id from orders o join customers c on c.id = o.customer_id"
        " where 100 / o.discount > 10 and c.vip and o.total > 5"
    )
    filters = [line for line in text if line.startswith("Filter")]
    assert filters == ["Filter 100 / discount > 10", "Filter total > 5", "Filter vip"]
    assert text.index("Filter 100 / discount > 10") < next(i for i, t in enumerate(text) if t.startswith("Join"))


def test_what_may_fail_is_no_key_when_something_else_is() -> None:
    text = lines("select o.id from orders o join payments p on p.order_id = o.id and 10 / o.discount = p.id")
    assert any(line.startswith("Join on id = order_id") for line in text)
    assert any(line.startswith("Filter 10 / discount = id") for line in text)
    alone = lines("select o.id from orders o join payments p on 10 / o.discount = p.id")
    assert any(line.startswith("Join on key0 = id") for line in alone)


def test_arguments_that_may_fail_are_asked_only_under_their_filter() -> None:
    text = "\n".join(lines("select sum(10 / discount) filter (where discount <> 0) as s from orders"))
    assert "CASE WHEN discount <> 0 THEN 10 / discount ELSE NULL END" in text


def test_a_left_join_keeps_its_table_bare_and_filters_of_its_left_side_go_below() -> None:
    view = compiled(
        "select o.id, c.name from orders o left join customers c on c.id = o.customer_id"
        " where o.status = 'open' and (c.region = 'north' or c.id is null)"
    )
    join = next(n for n in walk(view.plan) if isinstance(n, LeftJoin))
    assert isinstance(join.right, Scan)
    assert [str(a) for a in arrangements(view.plan) if a.own] == ["public.customers by (id)"]
    text = lines(view.spec.sql)
    joined = next(i for i, t in enumerate(text) if t.startswith("Left join on customer_id = id"))
    assert text.index("Filter (region = 'north' OR id IS NULL)") < joined < text.index("Filter status = 'open'")
    assert view.key == (0,)
    assert view.schema.columns[1].nullable


def test_a_condition_on_the_left_side_alone_leaves_rows_without_a_key() -> None:
    text = lines("select c.id, o.id as o from customers c left join orders o on o.customer_id = c.id and c.vip")
    assert any(t.startswith("Left join on key0 = customer_id") for t in text)
    assert any(t.endswith("CASE WHEN vip THEN id ELSE NULL END AS key0") for t in text)


def test_a_correlated_equality_becomes_a_key_and_costs_no_domain() -> None:
    text = lines("select id from orders o where not exists (select 1 from payments p where p.order_id = o.id)")
    assert [t for t in text if "join" in t] == ["Antijoin on id = order_id"]
    text = lines("select id, (select count(*) from payments p where p.order_id = o.id) as n from orders o")
    assert [t for t in text if "join" in t] == ["Left join on id = order_id"]
    assert not any(t.startswith("Distinct") for t in text)


def test_what_may_fail_in_a_subquery_is_asked_for_rows_around_it_alone() -> None:
    asked = "select id, (select sum(1 / p.id) from payments p where p.order_id = o.{}) as n from orders o"
    assert "Distinct" in lines(asked.format("customer_id"))
    assert "Distinct" not in lines(asked.format("id")), "an order's key tells its row from all others"


def test_joins_of_every_pair_are_warned_of() -> None:
    assert compiled("select o.id, c.name from orders o join customers c on o.id < c.id").warnings
    assert not compiled("select o.id from orders o where total > (select avg(total) from orders)").warnings


def test_a_membership_is_a_semijoin_above_what_keeps_rows_from_it() -> None:
    view = compiled(
        "select id from orders where total > 5 and customer_id in (select id from customers) and id not in"
        " (select order_id from order_lines)"
    )
    text = lines(view.spec.sql)
    assert [t for t in text if "join on" in t] == ["Antijoin on id = order_id", "Semijoin on customer_id = id"]
    assert text.index("Filter total > 5") > text.index("Semijoin on customer_id = id")
    assert view.key == (0,)


def test_filters_go_through_projections_unions_and_groups() -> None:
    view = compiled(
        "select * from (select status, count(*) as n from (select status from orders union all"
        " select region from customers) u group by status) g where status = 'open'"
    )
    below = [n for n in walk(view.plan) if isinstance(n, Filter)]
    assert len(below) == 2
    assert all(isinstance(n.input, Scan) for n in below)


def test_unread_errors_are_not_computed() -> None:
    view = compiled("select id from (select id, 1 / discount as x from orders) s")
    assert isinstance(view.plan, Project)
    assert isinstance(view.plan.input, Scan)
    assert len(view.plan.exprs) == 1
