"""A column that is dropped, renamed or of another type stops the views that name it, and no other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.errors import HeadraceError
from headrace.sidecar.process.status_board import status
from tests.sidecar.support.little import CUSTOMERS, ORDERS, PREFIX, VISITS, Little

VIEWS = """\
version: 1
views:
  - {name: ids, key: [id], sinks: [s], sql: "select id from public.customers"}
  - {name: named, key: [id], sinks: [s], sql: "select id, v from public.customers"}
  - {name: chosen, key: [id], sinks: [s], sql: "select id from public.customers where v > 1"}
  - {name: above, sinks: [s], sql: "select count(*) as n from named"}
  - name: joined
    key: [id]
    sinks: [s]
    sql: select o.id, o.v from public.orders o join public.customers c on c.id = o.v
  - {name: visits, sinks: [s], sql: "select id, v from public.visits"}
"""
OVER_V = {"named", "chosen", "above"}


class Changing(Little):
    """A shop whose customers' column v may be dropped, renamed or of another type; `views`, `policy`: as configured."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch)
        self.policy: str | None = None
        self.set_views(VIEWS)
        self.alter: dict[str, Any] = {}

    def set_views(self, text: str) -> None:
        (self.folder / "views" / "v.yaml").write_text(text)

    def configure(self) -> dict[str, Any]:
        body = super().configure()
        if self.policy is not None:
            body["sources"][0]["schema_changes"] = self.policy
        return body

    def queue(self, topic: str, value: dict[str, Any], partition: int = 0, key: bytes | None = None) -> Any:
        for image in (value.get("before"), value.get("after")):
            if topic in self.alter and image is not None:
                was = image.pop("v")
                image |= {name: kind(was) for name, kind in self.alter[topic].items()}
        return super().queue(topic, value, partition, key)

    def go(self, turns: int = 2) -> None:
        self.show_all()
        self.turn(turns)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Changing]:
    made = Changing(tmp_path, monkeypatch)
    made.snapshot({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1)], VISITS: [(1, 1)]})
    yield made
    made.close()


CHANGES = [
    pytest.param({}, id="dropped"),
    pytest.param({"w": int}, id="renamed"),
    pytest.param({"v": lambda v: f"no. {v}"}, id="another type"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_views_that_name_the_column_stand_and_the_others_go_on(shop: Changing, change: dict[str, Any]) -> None:
    shop.show_all()
    shop.start()
    shop.turn(2)
    assert not shop.in_error()
    before = {v: Counter(shop.rows(v)) for v in OVER_V}
    shop.alter[f"{PREFIX}.{CUSTOMERS}"] = change
    places = shop.transact((CUSTOMERS, "u", (1, 9)), (CUSTOMERS, "c", (3, 9)), (ORDERS, "c", (2, 3)))
    shop.transact((CUSTOMERS, "d", (2, 0)), (VISITS, "c", (5, 5)))
    shop.go()
    assert shop.in_error() == OVER_V
    assert shop.rows("ids") == {(1,): 1, (3,): 1}
    assert shop.rows("joined") == {(1, 1): 1, (2, 3): 1}
    assert shop.rows("visits") == {(1, 1): 1, (5, 5): 1}
    assert {v: shop.rows(v) for v in OVER_V} == before
    message = shop.store.errors["named"][0]
    topic, partition, offset = places[0]
    for part in ("column v", "table=public.customers", f"topic={topic}"):
        assert part in message
    [lost] = status(shop.running)["sources"][0]["lost"]
    assert (lost["table"], lost["column"], lost["pauses"]) == (CUSTOMERS, "v", True)
    assert (lost["topic"], lost["partition"], lost["offset"]) in places
    assert offset >= 0
    assert partition in (0, 1)
    assert shop.stopped() == []
    for drained in (True, False):
        shop.end(drained=drained)
        shop.start()
        shop.transact((CUSTOMERS, "c", (7 + drained, 1)))
        shop.go()
        assert shop.in_error() == OVER_V, "also after a restart"
        assert {v: shop.rows(v) for v in OVER_V} == before
    assert shop.rows("ids") == {(1,): 1, (3,): 1, (7,): 1, (8,): 1}


def test_an_added_column_harms_nobody(shop: Changing) -> None:
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.alter[f"{PREFIX}.{CUSTOMERS}"] = {"v": int, "new": str}
    shop.transact((CUSTOMERS, "u", (1, 9)))
    shop.go()
    assert not shop.in_error()
    assert shop.rows("named") == {(1, 9): 1, (2, 2): 1}


def broken(shop: Changing, change: dict[str, Any] | None = None) -> None:
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.alter[f"{PREFIX}.{CUSTOMERS}"] = change or {}
    shop.transact((CUSTOMERS, "u", (1, 9)))
    shop.go()
    assert shop.in_error() == OVER_V


def test_a_view_goes_on_when_it_names_the_column_no_more(shop: Changing) -> None:
    broken(shop)
    shop.end(drained=True)
    shop.set_views(VIEWS.replace("select id, v from public.customers", "select id from public.customers"))
    shop.start()
    shop.transact((CUSTOMERS, "c", (4, 4)))
    shop.go()
    assert shop.in_error() == {"chosen"}
    assert shop.rows("named") == {(1,): 1, (2,): 1, (4,): 1}
    assert shop.rows("above") == {(3,): 1}


def test_evolve_makes_a_dropped_column_null(shop: Changing) -> None:
    broken(shop)
    shop.end(drained=True)
    shop.policy = "evolve"
    shop.start()
    shop.transact((CUSTOMERS, "c", (4, 4)))
    shop.go()
    assert shop.in_error() == set()
    assert shop.rows("named") == {(1, None): 1, (2, 2): 1, (4, None): 1}
    assert shop.rows("chosen") == {(2,): 1}


def test_evolve_makes_nothing_of_another_type(shop: Changing) -> None:
    shop.policy = "evolve"
    broken(shop, {"v": str})


def test_fail_stops_all(shop: Changing) -> None:
    shop.policy = "fail"
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.alter[f"{PREFIX}.{CUSTOMERS}"] = {}
    (place,) = shop.transact((CUSTOMERS, "u", (1, 9)))
    shop.show_all()
    with pytest.raises(HeadraceError, match="column v is gone") as failure:
        shop.turn(2)
    where = failure.value.as_json()
    assert json.dumps(where)
    for part in (f"topic={place[0]}", f"partition={place[1]}", f"offset={place[2]}", "schema_changes"):
        assert part in str(failure.value)


@pytest.mark.parametrize("table", [CUSTOMERS, VISITS])
def test_a_key_column_stops_its_table(shop: Changing, table: str) -> None:
    """Of a table without a key every column is the key: a row could not be found again without it."""
    shop.show_all()
    shop.start()
    shop.turn(2)
    if table == VISITS:
        shop.alter[f"{PREFIX}.{VISITS}"] = {}
        shop.transact((VISITS, "c", (9, 9)))
    else:
        shop.txid += 1
        shop.lsn += 2
        value = {"op": "c", "before": None, "after": {"v": 3}, "transaction": {"id": f"{shop.txid}:0", "total_order": 1},
                 "source": {"schema": "public", "table": "customers", "txId": shop.txid, "lsn": shop.lsn - 1, "ts_us": 1,
                            "snapshot": "false"}}  # fmt: skip
        super(Changing, shop).queue(f"{PREFIX}.{CUSTOMERS}", value, 0, b'{"id": 1}')
        count = [{"data_collection": CUSTOMERS, "event_count": 1}]
        end = {
            "status": "END",
            "id": f"{shop.txid}:{shop.lsn}",
            "event_count": 1,
            "ts_ms": 2,
            "data_collections": count,
        }
        shop.queue(f"{PREFIX}.transaction", end)
    shop.go()
    assert shop.stopped() == [table]


@pytest.mark.parametrize("together", [False, True])
def test_another_type_stops_what_evolve_has_made_null_before(shop: Changing, together: bool) -> None:
    """It is another record of the same column, perhaps of one poll: the views went on with NULLs for what was no NULL."""
    shop.policy = "evolve"
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.alter[f"{PREFIX}.{CUSTOMERS}"] = {}
    shop.transact((CUSTOMERS, "u", (1, 9)))
    if not together:
        shop.go()
        assert shop.in_error() == set()
    shop.alter[f"{PREFIX}.{CUSTOMERS}"] = {"v": lambda v: f"no. {v}"}
    [(topic, partition, offset)] = shop.transact((CUSTOMERS, "c", (3, 9)))
    shop.go()
    for drained in (True, False):
        assert shop.in_error() == OVER_V
        assert f"topic={topic}, partition={partition}, offset={offset}" in shop.store.errors["named"][0]
        shop.end(drained=drained)
        shop.start()
        shop.turn(2)
