"""A view that stood still for a lost column goes on: whoever holds or follows it is given it whole, whatever came between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connectors.sink import SinkState
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.change_history import ChangeHistory
from headrace.sidecar.control.data_tests import Checks
from headrace.sidecar.control.query import QueryError, answer
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.control.test_tail import Follower
from tests.sidecar.operations.test_resync import Altered
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS

BEFORE = {(1, 5): 1, (2, 6): 1}
TESTED = """\
  - name: tested
    sinks: [s]
    sql: select id, v from public.customers
    columns: [{name: v, data_tests: [not_null, {accepted_values: [5, 6]}]}]
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Altered]:
    with Altered(tmp_path, monkeypatch).begun({CUSTOMERS: [(1, 5), (2, 6)], ORDERS: [(1, 1)]}) as made:
        yield made


def lose(shop: Altered) -> None:
    """The column goes, is missed by a row of each kind, and comes back: the views that name it stand."""
    shop.gone = True
    shop.transact((CUSTOMERS, "u", (1, 8)), (CUSTOMERS, "c", (3, 7)), (CUSTOMERS, "d", (2, 6)))
    shop.gone = False
    shop.show_all()
    shop.turn(2)
    assert shop.in_error() >= {"customers", "by_city"}
    assert shop.rows("customers") == BEFORE


def mend(shop: Altered) -> None:
    shop.ask(CUSTOMERS)
    shop.turn()
    shop.is_right()  # by the first step
    shop.turn()
    assert shop.told.pop()["changed"] == 2


def test_by_the_first_step_after_a_restart(shop: Altered) -> None:
    lose(shop)
    shop.end(drained=True)
    shop.start()
    mend(shop)


def test_by_the_first_step_after_its_sink_came_back(shop: Altered) -> None:
    lose(shop)
    assert shop.running is not None
    runtime, marks = shop.running.runtime, {name: text for name, (text, _) in shop.store.errors.items()}
    for writer in runtime.parts.writers:
        runtime.reconcile(writer, SinkState(1, shop.store.frontier, frozenset(), marks), everything=False)
    mend(shop)


def test_who_follows_it_is_told_and_given_it_whole(shop: Altered) -> None:
    assert shop.running is not None
    history = ChangeHistory(shop.running.runtime, 1 << 20)
    follower = Follower(shop, history, "customers")
    follower.read()
    assert follower.held == BEFORE
    lose(shop)
    follower.read()
    assert "column v is gone" in follower.errors[0]
    late = Follower(shop, history, "customers")
    late.read()
    assert late.errors == follower.errors
    assert not late.held, "nothing is told of a view that has NULLs for values"
    mend(shop)
    for each in (follower, late):
        each.read()
        assert +each.held == shop.rows("customers")
        assert len(each.errors) == 1


def test_its_data_tests_count_anew(shop: Altered) -> None:
    assert shop.running is not None
    checks = Checks(shop.running)
    changing = ViewChanger(shop.running, checks.renew)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + TESTED)
    meanwhile(shop, lambda: changing.apply(drop=False), busy=False)
    lose(shop)
    mend(shop)
    assert Counter({test["name"]: test["failing"] for test in checks.status()}) == {
        "tested.v.accepted_values": 2,
        "tested.v.not_null": 0,
    }


def test_no_query_reads_the_lost_column(shop: Altered) -> None:
    lose(shop)
    running = shop.running
    assert running is not None
    for named in ("select v from public.customers", "select count(*) from by_city"):
        with pytest.raises(QueryError, match="column v is gone"):
            meanwhile(shop, lambda named=named: answer(running, named), busy=False)  # type: ignore[misc]
    counted = meanwhile(shop, lambda: answer(running, "select count(*) from public.customers"), busy=False)
    assert counted.rows.column(0).to_pylist() == [2]
    mend(shop)
    mended = meanwhile(shop, lambda: answer(running, "select v from public.customers order by v"), busy=False)
    assert mended.rows.column(0).to_pylist() == [7, 8]


def test_a_view_that_names_it_from_now_on_is_given_nothing_before(shop: Altered) -> None:
    lose(shop)
    assert shop.running is not None
    changing = ViewChanger(shop.running)
    (shop.folder / "views" / "v.yaml").write_text(
        VIEWS + "  - {name: later, sinks: [s], sql: select v from public.customers}\n"
    )
    meanwhile(shop, lambda: changing.apply(drop=False), busy=False)
    assert "later" in shop.in_error()
    assert not shop.rows("later")
    mend(shop)
    assert shop.rows("later") == {(7,): 1, (8,): 1}
