"""What is refused, and where the refusal points: in plain SQL and in the lines of a YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.views.compile import check_views, compile_views
from headrace.views.errors import ViewError
from headrace.views.spec import ViewSpec, line_and_column
from headrace.views.view_files import load
from tests.views.corpus import REFUSED
from tests.views.features import Refused
from tests.views.shop import catalog


def refuse(sql: str) -> ViewError:
    with pytest.raises(ViewError) as caught:
        compile_views([ViewSpec("v", sql)], catalog())
    return caught.value


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.feature)
def test_refused_at_its_place(case: Refused) -> None:
    error = refuse(case.sql)
    assert error.what == case.reason
    assert error.where["view"] == "v"
    place = line_and_column(case.sql, case.sql.index(case.at))
    assert (error.where["line"], error.where["column"]) == place


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.feature)
def test_the_same_in_a_file(case: Refused, tmp_path: Path) -> None:
    """Broken into lines inside a block scalar, the refusal names the line and column of the file."""
    broken = case.sql.replace(" from ", "\n  from ").replace(" where ", "\n\n  where ")
    indented = "\n".join(f"      {line}" if line else "" for line in broken.split("\n"))
    path = tmp_path / "v.yaml"
    path.write_text(f"version: 1\nviews:\n  - name: v  # a comment\n    sql: |\n{indented}\n")
    with pytest.raises(ViewError) as caught:
        compile_views(load(path), catalog())
    text = path.read_text()
    before = "".join(case.sql[: case.sql.index(case.at)].split())
    start = text.index("sql: |") + len("sql: |")
    offset = next(i for i in range(start, len(text)) if "".join(text[start:i].split()) == before and text[i].strip())
    expected = line_and_column(text, offset)
    assert (caught.value.where["line"], caught.value.where["column"]) == expected
    assert caught.value.where["file"] == str(path)


@pytest.mark.parametrize(
    ("sql", "what", "at", "hint"),
    [
        ("select id from ordrs", 'there is no table or view "ordrs"', "ordrs", "did you mean orders?"),
        ("select id from shop.orders", 'there is no table or view "shop.orders"', "shop", "public.orders"),
        ("select id, totl from orders", 'column "totl" does not exist', "totl", "did you mean total?"),
        ("select id, total == 2 from orders", "operator == is not supported: write =", "== 2", ""),
        ("select id from orders where total <=-1 and id |-1>2", "operator |- is not supported: put a space behind |", "|-1", ""),
        ("select id from only (orders) o", "ONLY is not supported: a partitioned table is one table; leave ONLY out", "only", ""),
        ("select o.totl from orders o", "column o.totl does not exist", "o.totl", "did you mean total?"),
        ("select orders.id from orders o", 'there is no table or alias "orders"', "orders.id", "known: o"),
        ('select "ID" from orders', 'column "ID" does not exist', '"ID"', ""),
        ("select id from orders o join customers c on o.id = c.id", 'column reference "id" is ambiguous', "id from",
         "o.id"),
        ("select a.id from orders a join orders a on a.id = a.id", 'table name "a" is used twice', "orders a on",
         "alias"),
        ("select o.id from orders o join customers c using (region)",
         'column "region" specified in USING clause does not exist in left table', "customers", ""),
        ("select o.id from orders o, customers c join products p on p.id = o.id",
         'there is no table or alias "o"', "o.id\n", ""),
        ("select status, total from orders group by status", 'column "total" must appear in GROUP BY', "total",
         "min(total)"),
        ("select count(*) as n from orders having total > 1", 'column "total" must appear in GROUP BY', "total", ""),
        ("select id from orders where count(*) > 1", "aggregate count is not allowed in WHERE", "count", "subquery"),
        ("select sum(count(*)) as s from orders", "aggregate count is not allowed in another aggregate", "count", ""),
        ("select 'x' as a from orders group by -(2.5)", "non-integer constant in GROUP BY", "v", ""),
        ("select id from orders order by (null)", "non-integer constant in ORDER BY", "v", ""),
        ("select status from orders group by 2", "GROUP BY position 2 is not in select list", "2", ""),
        ("select id from orders where total", "argument of WHERE must be type boolean", "total", ""),
        ("select id from orders where status > 5", "operator does not exist", "status > 5",
         "You might need to add explicit type casts."),
        ("select - status as a from orders", "operator does not exist: - text", "status", "add an explicit type cast."),
        ("select sum(status) as a from orders", "function sum(text) does not exist", "sum", "No function matches"),
        ("select coalesce(id, status) as a from orders", "COALESCE types bigint and text cannot be matched", "coalesce",
         "cast one of them"),
        ("select id from orders where id in (status, 'a')", "operator does not exist: bigint = text", "id in", "type casts"),
        ("select to_tsvector(name) as a from customers", "function to_tsvector is not supported", "to_tsvector",
         "when reading the view"),
        ("select upper(name) over () as a from customers",
         "OVER specified, but upper is not a window function nor an aggregate function", "upper", "leave OVER out"),
        ("select frobnicate(id) over () as a from orders", "function frobnicate(bigint) does not exist", "frobnicate", "casts"),
        ("select count(*) over (w partition by id) as a from orders window w as (partition by status)",
         'cannot override PARTITION BY clause of window "w"', "count", ""),
        ("select count(*) over (w order by id) as a from orders window w as (order by status)",
         'cannot override ORDER BY clause of window "w"', "count", ""),
        ("select count(*) over (w order by id) as a from orders window w as (rows 1 preceding)",
         'cannot copy window "w" because it has a frame clause', "count", "write its clauses out"),
        ("select greatest() as a", 'syntax error at or near ")"', ") as", "a value at least"),
        ("select percentile_disc((select max(0.5) from orders)) within group (order by id) as a from orders",
         "the fraction of percentile_disc must be a constant", "select max", ""),
        ("select make_date(yaer => 2024, month => 2, day => 3) as a", "make_date() has no argument yaer here", "2024",
         "one of day, month, year"),
        ("select id[1] as a from orders", "cannot subscript type bigint because it does not support subscripting", "id", ""),
        ("select id from orders where (id, status) = (1, 'a', 2)", "unequal number of entries in row expressions", "id, status",
         "as many on each side"),
        ("select o.id from orders o natural join customers c using (id)", 'syntax error at or near "using"', "using",
         "NATURAL JOIN"),
        ("select id from orders where placed = 'yesterdaz'", "invalid input syntax for type timestamp", "placed =", ""),
        ("select born::integer as b from customers", "cannot cast type date to integer", "born", ""),
        ("select id from orders where id = 1 = true", 'syntax error at or near "="', "= true", "parentheses"),
        ("select frobnicate(id) as f from orders", "function frobnicate(bigint) does not exist", "frobnicate", ""),
        ("select id, 1_0a as n from orders", 'trailing junk after numeric literal at or near "1_0a"', "1_0a", ""),
        ("select id from orders where (id = 1", "syntax error", "1", ""),
        ("select 'x from orders", "unterminated quoted string", "'x", "quote"),
        ("select id from customers union select id, name from customers", "each UNION query must have", "select id, name",
         "this one has 2, the first 1"),
        ("select id from orders union select placed from orders", "UNION types bigint and timestamp", "placed", "cast column 1"),
        ("select distinct details from payments", "DISTINCT cannot compare values of type json", "details", "text"),
        ("select count(*) as n from payments group by details", "GROUP BY cannot compare values of type json",
         "details", "text"),
        ("select details from payments union select details from payments", "UNION cannot compare values of type json",
         "v", ""),
        ("select id from v", "view v reads itself", "v", "RECURSIVE"),
    ],
)  # fmt: skip
def test_mistakes(sql: str, what: str, at: str, hint: str) -> None:
    error = refuse(sql)
    assert what in error.what
    assert hint in error.hint
    if at.strip() in sql and at not in ("s", "1", "v"):
        assert (error.where["line"], error.where["column"]) == line_and_column(sql, sql.rindex(at.strip()))


def test_a_cycle_is_refused() -> None:
    specs = [ViewSpec("a", "select id from b"), ViewSpec("b", "select id from c"), ViewSpec("c", "select id from a")]
    with pytest.raises(ViewError, match="views read each other in a circle: a -> b -> c -> a"):
        compile_views(specs, catalog())


def test_a_name_that_is_both_is_refused_unless_qualified() -> None:
    specs = [ViewSpec("orders", "select id from public.orders"), ViewSpec("w", "select id from orders")]
    with pytest.raises(ViewError, match='"orders" is both a table and a view'):
        compile_views(specs, catalog())


def test_every_mistake_is_found_once() -> None:
    specs = [
        ViewSpec("a", "select nope from orders"),
        ViewSpec("b", "select id from a"),
        ViewSpec("c", "select id from orders limit 1"),
        ViewSpec("d", "select ("),
        ViewSpec("e", "select id from orders"),
    ]
    assert sorted(str(e.where["view"]) for e in check_views(specs, catalog()).errors) == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("key", "sql", "what"),
    [
        (("nope",), "select id from orders", 'key column "nope" is not a column of the view'),
        (("id", "id"), "select id from orders", 'key column "id" is listed twice'),
        (("customer_id",), "select customer_id from orders", 'key column "customer_id" can be NULL'),
    ],
)
def test_declared_keys(key: tuple[str, ...], sql: str, what: str) -> None:
    with pytest.raises(ViewError) as caught:
        compile_views([ViewSpec("v", sql, key=key, line=7)], catalog())
    assert caught.value.what == what
    assert caught.value.where["line"] == 7
