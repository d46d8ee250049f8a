"""Ages of views by a clock of the test: they grow while nothing arrives, limits decide, and every change is one event."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headrace.engine.errors import HeadraceError
from headrace.sidecar.cli.status import of_view, status_tables, view_tables
from headrace.sidecar.control import applied_views
from headrace.sidecar.state.generation import last_generation
from headrace.sidecar.transactions.model import Incomplete
from headrace.views.limits import FreshnessLimits
from headrace.views.view_files import load
from headrace.views.yaml_reader import ConfigError
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS
from tests.sidecar.support.looked import Looked, looking


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    with looking(tmp_path, monkeypatch) as made:
        yield made


def test_an_age_grows_and_its_limits_decide(looked: Looked) -> None:
    looked.frontier(looked.now)
    assert looked.look() == []
    assert looked.board.ready({}).code == 200
    assert looked.view("orders")["state"] == "fresh"
    assert looked.view("visits")["state"] == "unknown", "its source tells nothing and it declares nothing"
    looked.now += 3
    assert looked.view("orders")["staleness_seconds"] == 3.0, "without any turn of the loop"
    assert looked.look() == ["view_late orders"]
    assert looked.board.ready({}).code == 200
    assert "late: view orders in s is 3.0 s old, its limit is 2 s" in looked.board.ready({}).text
    assert looked.board.ready({"max_staleness": "2.5"}).code == 503
    looked.now += 3
    assert looked.look() == ["view_stale orders"]
    assert looked.look() == []
    assert looked.board.ready({}).code == looked.board.ready({"view": "orders"}).code == 503
    assert looked.board.read()["ready"] is False
    assert looked.board.started().code == 200
    assert looked.board.ready({"view": "visits"}).code == looked.board.ready({"max_staleness": "7"}).code == 200
    assert 'headrace_view_staleness_seconds{sink="s",view="orders"} 6.0' in looked.running.metrics.render().decode()
    looked.frontier(looked.now)
    assert looked.look() == ["view_fresh orders"]
    assert looked.board.ready({}).code == 200
    runtime = looked.running.runtime
    runtime.parts.views = [v for v in runtime.parts.views if v.view.name != "orders"]
    looked.look()
    assert 'headrace_view_staleness_seconds{sink="s",view="orders"}' not in looked.running.metrics.render().decode()


def test_a_source_whose_clock_is_ahead_grows_old_all_the_same(looked: Looked) -> None:
    looked.frontier(looked.now + 3600)
    looked.look()
    looked.now += 6
    assert looked.view("orders")["staleness_seconds"] == 6.0
    assert looked.board.ready({}).code == 503


def test_sources_with_heartbeats_have_limits_by_default(looked: Looked) -> None:
    intake = looked.running.runtime.parts.intakes[0]
    intake.beats.last["1"] = (7, "now", 9)
    looked.look()
    assert looked.view("visits")["limits"] == {"warn": 10.0, "error": 60.0}
    looked.now += 9
    assert looked.look() == ["view_stale orders"]
    looked.now += 2
    assert set(looked.look()) == {"source_down shop", *(f"view_late {v}" for v in ("customers", "visits", "by_city"))}
    assert looked.board.read()["sources"][0]["up"] is False
    assert looked.look() == []
    assert 'headrace_source_up{source="shop"} 0.0' in looked.running.metrics.render().decode()
    intake.beats.last["1"] = (8, "now", 10)
    looked.frontier(looked.now)
    assert set(looked.look()) >= {"source_up shop", "view_fresh visits"}


def test_a_suspended_table_ages_its_views_and_not_the_others(looked: Looked) -> None:
    shop = looked.shop
    assert (looked.view("customers")["rows"], looked.view("by_city")["rows"]) == (2, 1)
    (place,) = shop.transact((CUSTOMERS, "c", (3, 3)))
    shop.places.add(place)
    shop.show_all()
    shop.turn(3)
    looked.frontier(looked.now)
    assert set(looked.look()) >= {f"table_suspended {CUSTOMERS}", "view_error customers", "view_error by_city"}
    looked.now += 4
    looked.frontier(looked.now)
    looked.look()
    assert looked.view("customers")["staleness_seconds"] >= 4
    assert looked.view("orders")["staleness_seconds"] == 0
    assert looked.board.ready({}).code == looked.board.ready({"view": "orders"}).code == 200
    assert looked.board.ready({"view": "customers"}).code == 503
    text = looked.running.metrics.render().decode()
    assert 'headrace_view_up{view="customers"} 0.0' in text
    assert f'headrace_table_suspended{{table="{CUSTOMERS}"}} 1.0' in text


def test_what_is_asked_wrongly_is_refused(looked: Looked) -> None:
    assert looked.board.ready({"view": "nothing"}).code == 404
    for wrong in ("soon", "-1", "nan", "0"):
        assert looked.board.ready({"max_staleness": wrong}).code == 400


def test_rows_are_known_after_a_restart(looked: Looked) -> None:
    shop = looked.shop
    shop.transact((ORDERS, "c", (2, 2)))
    shop.show_all()
    shop.turn(3)
    assert [v.rows for v in looked.running.runtime.parts.views] == [2, 2, 0, 1]
    shop.end(drained=True)
    shop.start()
    shop.turn(3)
    assert shop.running is not None
    assert [v.rows for v in shop.running.runtime.parts.views] == [2, 2, 0, 1]


def screen(looked: Looked, **options: bool) -> str:
    console = Console(width=110, record=True, file=StringIO(), highlight=False)
    for table in status_tables(looked.board.read(), **options):
        console.print(table)
    return console.export_text()


def test_status_is_a_screen_that_begins_with_what_needs_somebody(looked: Looked) -> None:
    looked.look()
    well = screen(looked)
    assert "little: ready, epoch" in well
    assert "needs somebody" not in well
    assert "Arrangements" not in well
    details = screen(looked, verbose=True)
    assert "Arrangements" in details
    assert all(leg in details for leg in ("kafka, queueing", "sink, service")), "each leg's two parts are shown apart"
    assert len(well.splitlines()) < 40
    looked.now += 7
    looked.look()
    told = screen(looked)
    assert "NOT READY" in told
    assert "view orders" in told.splitlines()[4]
    assert "7.0 s old" in told
    one = of_view(looked.board.read(), "orders")
    assert str(view_tables(one)[0].title) == "View orders of little"
    with pytest.raises(HeadraceError, match="orders"):
        of_view(looked.board.read(), "ordres")


def test_status_tells_who_asks_for_each_transaction_and_what_it_costs(looked: Looked) -> None:
    looked.look()
    assert "Each transaction" not in screen(looked)
    each = looked.running.runtime.each
    asker = each.ask("tail of view orders", 5.0)
    shop = looked.shop
    for i in range(5):
        shop.transact((ORDERS, "c", (20 + i, 2)))
    shop.show_all()
    shop.turn()
    looked.look()
    told = looked.board.read()["each_transaction"]
    assert (told["ranges"], told["otherwise"]) == (5, 1)
    assert [(a["who"], a["lag_seconds"]) for a in told["asked_by"]] == [("tail of view orders", 5.0)]
    shown = screen(looked)
    assert "Each transaction by itself: 5 times in the engine where 1 would do" in shown
    assert "tail of view orders" in shown
    asker.ended = "slow"
    looked.running.runtime.parts.writers[0].each = True
    shop.turn()
    looked.look()
    assert "it is a contract" in screen(looked)


def test_limits_are_read_strictly_and_kept(looked: Looked) -> None:
    orders = next(v.spec for v in looked.running.views if v.name == "orders")
    assert orders.freshness == FreshnessLimits(warn=2, error=5)
    kept = applied_views.last(last_generation(looked.shop.folder / "state"))
    applied_views.note(looked.running.generation, [v.spec for v in looked.running.views])
    kept = applied_views.last(last_generation(looked.shop.folder / "state"))
    assert kept is not None
    assert {s.name: s.freshness for s in kept[0]}["orders"] == orders.freshness
    (looked.shop.folder / "w.yaml").write_text(
        VIEWS.replace("{name: orders,", "{name: orders, freshness: {warn: 9, error: 5},")
    )
    with pytest.raises(ConfigError, match="warn is more than error"):
        load(looked.shop.folder / "w.yaml")


def test_a_stalled_snapshot_is_told(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    intake = looked.running.runtime.parts.intakes[0]
    with monkeypatch.context() as patch:
        patch.setattr(intake.assembler, "waiting", lambda: Incomplete("snapshot", -1, {ORDERS: 5}, -1), raising=False)
        assert looked.look() == ["snapshot shop"]
        assert looked.look() == []
        assert 'headrace_snapshot_missing_rows{source="shop"} 5.0' in looked.running.metrics.render().decode()
    assert looked.look() == ["snapshot shop"]


def test_a_source_stands_at_an_lsn_or_a_version(looked: Looked) -> None:
    looked.look()
    status = looked.board.read()
    [source] = status["sources"]
    at = source.pop("lsn", None)
    assert at is None or "/" in at
    spark = {**source, "name": "lake", "type": "spark", "version": "12041"}
    console = Console(width=110, record=True, file=StringIO(), highlight=False)
    for table in status_tables({**status, "sources": [{**source, "lsn": "0/22CE4D8"}, spark]}):
        console.print(table)
    text = console.export_text()
    assert "0/22CE4D8" in text
    assert "12041" in text
