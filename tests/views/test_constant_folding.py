"""What constants alone make fail: refused as Postgres does, where Postgres computes them before it reads a row."""

from __future__ import annotations

import pytest

from headrace.views.compile import compile_views
from headrace.views.errors import ViewError
from headrace.views.plan import Filter, Plan
from headrace.views.rewrite import fenced, is_fence, without_fences
from headrace.views.spec import ViewSpec
from headrace.views.traversal import walk
from tests.views.shop import catalog

REFUSED = {
    "alone": "select 1 / 0 as x from visits",
    "in_a_branch_that_a_row_may_take": "select case when page = 'a' then 1 / 0 end as x from visits",
    "of_a_subquery": "select 1 / zero as x from (select 0 as zero from visits) q",
    "of_two_subqueries": "select a / b as x from (select b, 1 as a from (select 0 as b from visits) p) q",
    "of_a_lateral_subquery": "select 1 / zero as x from visits, lateral (select 0 as zero) q",
    "in_the_condition_of_an_outer_join": "select v.page from visits v left join (select 0 as zero) q on 1 / zero > 1",
    "in_a_filter": "select count(*) filter (where 1 / 0 > customer_id) as n from visits",
    "behind_nothing_that_decides": "select 1 as x from visits where page = 'a' and 1 / 0 = 1",
    "behind_null": "select coalesce(customer_id + null, 1 / 0) as x from visits",
    "in_a_grouped_subquery": "select x from (select page, max(1 / 0) as x from visits group by page) q",
}
TAKEN = {
    "of_a_query_with_an_order": "select 1 / zero as x from (select 0 as zero from visits order by page) q",
    "of_a_query_of_different_rows": "select 1 / zero as x from (select distinct 0 as zero from visits) q",
    "of_rows_that_may_be_missing": "select 1 / zero as x from visits left join (select 0 as zero from visits) q on true",
    "not_read": "select page from (select page, 1 / 0 as x from visits) q",
    "not_read_of_a_group": "select page from (select page, max(1 / 0) as x from visits group by page) q",
    "left_out_by_a_constant_of_a_subquery":
        "select case when no then x end as x from (select false as no, 1 / 0 as x from visits) q",
    "behind_what_decides": "select 1 as x from visits where false and 1 / 0 = 1",
    "with_a_column": "select customer_id / 0 as x from visits",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(ViewError, match="division by zero"):
        compile_views([ViewSpec("v", REFUSED[name])], catalog())


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("select page,\n  customer_id + 7 / 0 as x from visits", (2, 17)),
        ("select page from visits\nwhere page = 'a' and\n (2 + 3) / (1 - 1) > 1", (3, 3)),
        ("select 1 / zero as x from (select 0 as zero from visits) q", (None, None)),
    ],
)
def test_placed(sql: str, place: tuple[int | None, int | None]) -> None:
    """The refusal points at the constant, as far as it is written as one."""
    with pytest.raises(ViewError) as refused:
        compile_views([ViewSpec("v", sql)], catalog())
    assert (refused.value.where.get("line"), refused.value.where.get("column")) == place


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    [view] = compile_views([ViewSpec("v", TAKEN[name])], catalog())
    assert not any(is_fence(node) for node in walk(view.plan))


def test_fences_are_taken_away_and_nothing_else() -> None:
    [view] = compile_views([ViewSpec("v", "select page from visits where page > 'a'")], catalog())
    plan: Plan = view.plan
    assert without_fences(fenced(plan)) == plan
    assert any(isinstance(node, Filter) for node in walk(without_fences(plan)))
