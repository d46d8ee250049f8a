"""One answer from a running sidecar: the rows that SQL gives, in its order, at an epoch, and nothing left of it after."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.live.query import QueryError, answer, values
from tests.sidecar.little import ORDERS, Little
from tests.sidecar.live.busy import meanwhile
from views.errors import ViewError


def ask(little: Little, sql: str) -> list[Any]:
    assert little.running is not None
    running = little.running
    found = meanwhile(little, lambda: answer(running, sql), busy=False)
    assert found.epoch == running.runtime.epoch
    return values(found.columns, found.rows, as_json=False)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select id, v from public.orders order by id desc", [["3", "2"], ["2", "1"], ["1", "1"]]),
        ("select v as w, count(*) as n from public.orders group by v order by 2, w;", [["2", "1"], ["1", "2"]]),
        ("select distinct v from public.orders order by v desc", [["2"], ["1"]]),
        ("select id from public.orders order by v desc, id desc limit 2", [["3"], ["2"]]),
        (
            "select id from public.orders where v = 1 union all select id from public.visits order by id",
            [["1"], ["1"], ["1"], ["2"]],
        ),
        ("select v, n from by_city order by n desc", [["1", "2"], ["2", "1"]]),
        ("select max(n) as most from by_city b join public.customers c on c.id = b.v", [["2"]]),
        ("select id, v from public.visits", [["1", "1"], ["1", "1"]]),
        ("select null::text as none, 1.50 as x", [[None, "1.50"]]),
    ],
)
def test_answers_are_those_of_sql(shop: Little, sql: str, rows: list[Any]) -> None:
    assert ask(shop, sql) == rows


def test_a_query_leaves_nothing_behind(shop: Little) -> None:
    assert shop.running is not None
    parts = shop.running.runtime.parts
    before = set(parts.flow.facts())
    ask(shop, "select v, max(id) as id from public.orders group by v")
    assert set(parts.flow.facts()) == before
    assert not shop.running.runtime.feeds


def test_an_answer_is_of_one_epoch_though_transactions_go_on(shop: Little) -> None:
    assert shop.running is not None
    running = shop.running
    for _ in range(5):
        found = meanwhile(shop, lambda: answer(running, "select id, v from public.orders"))
        rows = sorted((int(a), int(b)) for a, b in values(found.columns, found.rows, as_json=False))
        state = next(s for lsn, s in shop.states.items() if lsn == found.sources["shop"])
        assert rows == sorted((+state[ORDERS]).elements())


def test_json_values_are_those_of_the_kafka_sink(shop: Little) -> None:
    assert shop.running is not None
    running = shop.running
    found = meanwhile(shop, lambda: answer(running, "select 1 as a, 1.5 as b, null::text as c"), busy=False)
    head, part = found.lines(as_json=True)
    assert [c["name"] for c in head["columns"]] == ["a", "b", "c"]
    assert part == {"part": [{"a": 1, "b": "1.5", "c": None}]}


def test_what_has_no_answer_is_refused_by_name(shop: Little) -> None:
    with pytest.raises(QueryError, match="division by zero"):
        ask(shop, "select 1 / (v - v) as x from public.orders")
    with pytest.raises(ViewError, match="nowhere"):
        ask(shop, "select a from nowhere")
