"""One answer from a running sidecar: the rows that SQL gives, in its order, at an epoch, and nothing left of it after."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.query import QueryError, answer, answer_question, explain_row, values
from headrace.views.errors import ViewError
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.support.little import ORDERS, VIEWS, Little


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
        state = next(s for lsn, s in shop.states.items() if lsn == found.sources["shop"].order)
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


QUESTION = """\
  - name: rules
    datalog: |
      .input ordered(id, customer) = public.orders(id, v)
      same(a, b) :- ordered(a, c), ordered(b, c), a != b.
      same(a, c) :- same(a, b), same(b, c).
      small(i) :- ordered(i, c), c <= 1.
      .output small
      .query same(+order, -other)
"""


def test_a_question_of_a_program_is_answered_and_leaves_nothing_behind(shop: Little) -> None:
    assert shop.running is not None
    running = shop.running
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + QUESTION)
    changing = ViewChanger(running, lambda: None)
    meanwhile(shop, lambda: changing.apply(drop=False), busy=False)
    before = set(running.runtime.parts.flow.facts())
    for order in ("1", "2", "3"):
        found = meanwhile(shop, lambda o=order: answer_question(running, "rules.same", {"order": o}), busy=False)
        rows = sorted(values(found.columns, found.rows, as_json=False))
        assert [c.name for c in found.columns] == ["order", "other"]
        state = next(s for lsn, s in shop.states.items() if lsn == found.sources["shop"].order)
        held = (+state[ORDERS]).elements()
        value = dict(list(held)).get(int(order))
        others = [k for k, v in (+state[ORDERS]).elements() if v == value]
        want = [[order, str(k)] for k in sorted(others)] if len(others) > 1 else []
        assert rows == want, order
    assert set(running.runtime.parts.flow.facts()) == before
    with pytest.raises(ViewError, match="needs a value of order"):
        answer_question(running, "rules.same", {})


def test_why_a_row_of_a_program_is_there(shop: Little) -> None:
    assert shop.running is not None
    running = shop.running
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + QUESTION.replace("query same(+order, -other)", "output same"))
    changing = ViewChanger(running, lambda: None)
    meanwhile(shop, lambda: changing.apply(drop=False), busy=False)
    held = dict((+next(reversed(shop.states.values()))[ORDERS]).elements())
    pair = next(([a, b] for a in held for b in held if a != b and held[a] == held[b]), None)
    assert pair is not None
    key = [str(v) for v in pair]
    found = meanwhile(shop, lambda: explain_row(running, "rules_same", key), busy=False)
    [proof] = found["proofs"]
    assert proof["row"] == key
    assert [b["source"] for b in proof["body"]] == ["public.orders", "public.orders"]
    found = meanwhile(shop, lambda: explain_row(running, "rules_same", ["99", key[0]]), busy=False)
    assert found["proofs"] == []
    assert found["missing"][0]["fails_at"].startswith("ordered(a, c)")
    with pytest.raises(ViewError, match="no relation of a program"):
        explain_row(running, "by_city", ["1"])


def test_a_question_of_a_relation_that_stands_reads_it(shop: Little) -> None:
    assert shop.running is not None
    running = shop.running
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + QUESTION + "      .query small(+order)\n")
    changing = ViewChanger(running, lambda: None)
    meanwhile(shop, lambda: changing.apply(drop=False), busy=False)
    held = dict((+next(reversed(shop.states.values()))[ORDERS]).elements())
    for order, value in held.items():
        found = meanwhile(shop, lambda o=order: answer_question(running, "rules.small", {"order": str(o)}), busy=False)
        assert values(found.columns, found.rows, as_json=False) == ([[str(order)]] if value <= 1 else [])
