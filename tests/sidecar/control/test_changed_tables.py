"""Tables that are declared otherwise while all runs: their rows go on, views that do not name what is new miss nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.plan import ApplyError
from headrace.sidecar.operations.resync import Resync, TableRead
from headrace.sidecar.wiring import build as wiring
from headrace.views.errors import ViewError
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.control.conftest import begun
from tests.sidecar.execution.workers.threads import Threads
from tests.sidecar.support.little import CUSTOMERS, ORDERS, PREFIX, VIEWS, VISITS, Little, answers, read_ahead

WIDE = "  - {name: wide, key: [id], sinks: [s], sql: 'select id, w from public.orders'}\n"


@pytest.fixture(params=[(1, "driver"), (2, "driver"), (2, "shards")], ids=["alone", "workers", "reading"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    workers, intake = request.param
    monkeypatch.setattr(wiring, "make_pool", lambda *_: Threads)
    yield from begun(Little(tmp_path, monkeypatch, workers=workers, intake=intake))


def declare(shop: Little, table: str, change: Callable[[dict[str, Any]], None]) -> None:
    """From now on `headrace.yaml` declares a table as `change` leaves it."""
    before = shop.configure

    def configure() -> dict[str, Any]:
        body = before()
        body["sources"][0]["database"] = "postgresql://nobody@127.0.0.1:9/x"
        change(next(t for t in body["sources"][0]["tables"] if t["name"] == table))
        return body

    shop.configure = configure  # type: ignore[method-assign]


def apply(shop: Little, views: str = VIEWS, *, busy: bool = True) -> Any:
    """Put the files in force, while the loop turns and, if `busy`, transactions go on."""
    (shop.folder / "views" / "v.yaml").write_text(views)
    (shop.folder / "headrace.yaml").write_text(json.dumps(shop.configure()))
    assert shop.running is not None
    changing = ViewChanger(shop.running)
    return meanwhile(shop, lambda: changing.apply(drop=False), busy=busy)


def rewritten(shop: Little, table: str, row: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Rows that Kafka does not show yet are written as `row` has them."""
    queue = shop.queues[f"{PREFIX}.{table}"]
    for at, (partition, value, key) in enumerate(queue):
        body = json.loads(value)
        for image in ("before", "after"):
            body[image] = None if body[image] is None else row(body[image])
        queue[at] = (partition, json.dumps(body).encode(), key)


def check(shop: Little, *, but: frozenset[str] = frozenset()) -> None:
    """The sink holds what SQL answers, and each state that it ever held is one of the source's."""
    wanted = answers(shop.state)
    assert {n: shop.rows(n) for n in wanted if n not in but} == {n: r for n, r in wanted.items() if n not in but}
    for _, state in shop.store.history:
        seen = {n: state[n] for n in ("customers", "orders", "visits")}
        assert any(seen == {n: answers(s)[n] for n in seen} for s in shop.states.values())


def resync(shop: Little, table: str, lines: Callable[[tuple[int, int]], str]) -> Any:
    """The table is read from its source, whose rows `lines` tells as COPY does; what came of it."""
    assert shop.running is not None
    told: list[Any] = []
    runtime = shop.running.runtime
    [intake] = runtime.parts.intakes
    rows = [lines(row) for row in sorted((+shop.state[table]).elements())]
    read = TableRead(shop.lsn, pa.array(rows, pa.large_string()))
    with ThreadPoolExecutor(1) as executor:
        job = Resync(table, executor, told.append, intake, intake.schemas[table], lambda: read)
        runtime.jobs.append(job)
        for _ in range(20):
            shop.turn()
    [report] = told
    return report


def columns(table: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table["columns"]
    return found


def test_a_renamed_column_keeps_its_values(shop: Little) -> None:
    declare(shop, ORDERS, lambda t: columns(t)[1].update(name="city", renamed_from="v"))
    views = VIEWS.replace("select id, v from public.orders", "select id, city as v from public.orders")
    done = apply(shop, views.replace("c.id = o.v", "c.id = o.city"))
    [change] = done["tables_changed"]
    assert (change["renamed"], change["added"], change["dropped"]) == ({"city": "v"}, [], [])
    check(shop)
    assert "tables" in done
    assert done["tables"] == [], "nothing is to be read from the source"
    shop.transact((ORDERS, "c", (90, 2)), (CUSTOMERS, "c", (90, 4)))
    rewritten(shop, ORDERS, lambda row: {"id": row["id"], "city": row["v"]})
    shop.show_all()
    shop.turn(2)
    shop.transact((ORDERS, "u", (90, 1)), (ORDERS, "c", (91, 90)))
    shop.transact((ORDERS, "d", (90, 0)))
    shop.show_all()
    shop.turn(2)
    check(shop)
    shop.end(drained=True)
    shop.start()
    shop.turn(3)
    check(shop)


def test_a_wider_type_and_a_dropped_column(shop: Little) -> None:
    declare(shop, ORDERS, lambda t: columns(t)[1].update(data_type="numeric(21,2)"))
    declare(shop, CUSTOMERS, lambda t: columns(t).pop())
    views = VIEWS.replace("select id, v from public.customers", "select id, 0 as v from public.customers")
    views = views.replace("select c.v, count(*)", "select c.id as v, count(*)").replace("group by c.v", "group by c.id")
    done = apply(shop, views, busy=False)
    assert [(c["table"], c["dropped"], c["retyped"]) for c in done["tables_changed"]] == [
        (CUSTOMERS, ["v"], []),
        (ORDERS, [], ["v"]),
    ]
    for id_ in (91, 92):
        assert shop.rows("orders") == Counter({(i, Decimal(v)): n for (i, v), n in (+shop.state[ORDERS]).items()})
        assert shop.rows("customers") == Counter({(i, 0): n for (i, _), n in (+shop.state[CUSTOMERS]).items()})
        assert shop.rows("visits") == +shop.state[VISITS]
        shop.transact((ORDERS, "c", (id_, 2)), (CUSTOMERS, "c", (id_, 4)), (VISITS, "c", (5, 5)))
        rewritten(shop, ORDERS, lambda row: {**row, "v": f"{row['v']}.00"})  # as Debezium writes a numeric
        shop.show_all()
        shop.turn(2)


def test_views_that_name_a_new_column_wait_until_it_is_read_and_no_other_does(shop: Little) -> None:
    declare(shop, ORDERS, lambda t: columns(t).append({"name": "w", "data_type": "integer"}))
    done = apply(shop, VIEWS + WIDE)
    assert [c["added"] for c in done["tables_changed"]] == [["w"]]
    assert [(t["table"], t["why"]) for t in done["tables"]] == [(ORDERS, "")]
    check(shop)
    assert shop.in_error() == {"wide"}
    assert "column=w" in shop.store.errors["wide"][0]
    assert shop.running is not None
    log = shop.running.runtime.parts.commands
    assert (log.open[ORDERS].stands, log.open[ORDERS].by_itself) == (False, True)
    shop.transact((ORDERS, "c", (92, 1)), (CUSTOMERS, "c", (95, 9)), (VISITS, "c", (9, 9)))
    rewritten(shop, ORDERS, lambda row: {**row, "w": 7})
    shop.show_all()
    shop.turn(2)
    check(shop)

    report = resync(shop, ORDERS, lambda row: f"{row[0]}\t{row[1]}\t7")
    assert report.changed == len(+shop.state[ORDERS]) - 1, "the last one brought its value"
    assert shop.in_error() == set()
    assert log.open == {}
    check(shop)
    assert shop.rows("wide") == Counter({(i, 7): 1 for i, _ in +shop.state[ORDERS]})
    shop.transact((ORDERS, "u", (92, 2)))
    rewritten(shop, ORDERS, lambda row: {**row, "w": None})
    shop.show_all()
    shop.turn(2)
    assert shop.rows("wide")[92, None] == 1


@pytest.mark.parametrize("drained", [False, True], ids=["killed", "drained"])
def test_a_start_goes_on_where_the_values_of_a_new_column_are_not_read_yet(shop: Little, *, drained: bool) -> None:
    declare(shop, ORDERS, lambda t: columns(t).append({"name": "w", "data_type": "integer"}))
    apply(shop, VIEWS + WIDE)
    shop.transact((ORDERS, "c", (93, 1)), (VISITS, "c", (9, 9)))
    rewritten(shop, ORDERS, lambda row: {**row, "w": 7})
    shop.show_all()
    shop.turn()
    shop.end(drained=drained)
    shop.start()
    shop.turn(3)
    assert "wide" in shop.in_error()
    resync(shop, ORDERS, lambda row: f"{row[0]}\t{row[1]}\t7")
    assert {n: shop.rows(n) for n in answers(shop.state)} == answers(shop.state)
    assert shop.in_error() == set()
    assert shop.rows("wide") == Counter({(i, 7): 1 for i, _ in +shop.state[ORDERS]})


def test_a_column_that_records_lost_stays_so_under_its_new_name_until_the_table_is_read(shop: Little) -> None:
    shop.transact((ORDERS, "c", (94, 1)))
    rewritten(shop, ORDERS, lambda row: {"id": row["id"], "city": row["v"]})
    shop.show_all()
    shop.turn(2)
    assert shop.in_error() == {"orders", "by_city"}
    declare(shop, ORDERS, lambda t: columns(t)[1].update(name="city", renamed_from="v"))
    views = VIEWS.replace("select id, v from public.orders", "select id, city as v from public.orders")
    apply(shop, views.replace("c.id = o.v", "c.id = o.city"), busy=False)
    assert shop.in_error() == {"orders", "by_city"}
    resync(shop, ORDERS, lambda row: f"{row[0]}\t{row[1]}")
    assert shop.in_error() == set()
    check(shop)


@pytest.mark.parametrize("shop", [(2, "shards")], indirect=True)
@pytest.mark.parametrize("renamed", [False, True], ids=["as it was declared", "as it is declared now"])
def test_rows_that_workers_read_ahead_of_a_declaration(shop: Little, *, renamed: bool) -> None:
    """Rows of whole transactions, and of one that is whole later only, read under the columns of before: a value under a name
    that was not declared then is lost, and never NULL in a view."""
    orders = f"{PREFIX}.{ORDERS}"
    shop.transact((ORDERS, "c", (90, 2)), (CUSTOMERS, "c", (90, 4)))
    shop.transact((ORDERS, "c", (91, 1)))
    if renamed:
        rewritten(shop, ORDERS, lambda row: {"id": row["id"], "city": row["v"]})

    def show() -> None:
        shop.show(orders, 2)
        shop.show(f"{PREFIX}.{CUSTOMERS}")
        shop.show(f"{PREFIX}.transaction")

    read_ahead(shop, show)
    declare(shop, ORDERS, lambda t: columns(t)[1].update(name="city", renamed_from="v"))
    views = VIEWS.replace("select id, v from public.orders", "select id, city as v from public.orders")
    apply(shop, views.replace("c.id = o.v", "c.id = o.city"), busy=False)
    shop.show_all()
    shop.turn(2)
    if renamed:
        assert shop.in_error() == {"orders", "by_city"}
        assert "column=city" in shop.store.errors["orders"][0]
        resync(shop, ORDERS, lambda row: f"{row[0]}\t{row[1]}")
    for _ in range(2):
        assert shop.in_error() == set()
        assert {n: shop.rows(n) for n in answers(shop.state)} == answers(shop.state)
        if not renamed:  # else views that waited stood still beside the others
            check(shop)
        shop.end(drained=True)
        shop.start()
        shop.turn(3)


def key(table: dict[str, Any]) -> None:
    table["key"] = ["v", "id"]


def text(table: dict[str, Any]) -> None:
    columns(table)[1]["data_type"] = "text"


def narrow(table: dict[str, Any]) -> None:
    columns(table)[1]["data_type"] = "integer"


def gone(table: dict[str, Any]) -> None:
    columns(table).pop()


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        (ORDERS, key, "its key is declared otherwise"),
        (ORDERS, text, "column v is text instead of bigint"),
        (ORDERS, narrow, "column v is integer instead of bigint"),
        (VISITS, gone, "it has no key"),
    ],
)
def test_what_needs_a_start_is_refused_by_name_and_changes_nothing(
    shop: Little, table: str, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    declare(shop, table, change)
    with pytest.raises(ApplyError, match=said) as refused:
        apply(shop)
    assert "start again: the state folder stays" in refused.value.hint
    check(shop)


def test_a_view_that_names_a_dropped_column_is_refused_and_changes_nothing(shop: Little) -> None:
    declare(shop, ORDERS, gone)
    with pytest.raises(ViewError, match="v"):
        apply(shop)
    check(shop)


def test_the_rows_of_a_partition_that_is_declared_are_its_table_s(shop: Little) -> None:
    leaf = "public.orders_1"
    shop.log.create(f"{PREFIX}.{leaf}")
    declare(shop, ORDERS, lambda t: t.update(partitions=[leaf]))
    done = apply(shop)
    assert [(c["table"], c["partitions"]) for c in done["tables_changed"]] == [(ORDERS, [leaf])]
    [told] = done["tables"]
    assert "`connect:`" in told["why"]
    shop.txid, shop.lsn = shop.txid + 1, shop.lsn + 1
    shop.state[ORDERS][97, 1] += 1
    shop._event(leaf, "c", None, (97, 1), 1)
    shop._end({leaf: 1})
    shop.show_all()
    shop.turn(2)
    check(shop)
    assert shop.running is not None
    assert "declared since the topics were read" in shop.running.runtime.parts.commands.open[ORDERS].why
