"""The control door: the owner's socket and HTTP on loopback answer alike, and nobody else is answered."""

from __future__ import annotations

import json
import re
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.dead_letters import MemoryDeadLetterQueue
from headrace.sidecar.cli.status import run_status
from headrace.sidecar.cli.view_commands import run_rescale
from headrace.sidecar.config.config import load
from headrace.sidecar.control import handlers
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.change_history import ChangeHistory
from headrace.sidecar.control.client import Client, NotRunning, RemoteError
from headrace.sidecar.control.handlers import Control
from headrace.sidecar.control.jobs import BackgroundJobs
from headrace.sidecar.control.protocol import SOCKET, ControlError
from headrace.sidecar.telemetry.http_server import ALIVE, HttpError, HttpServer, Request, Served, refused
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.operations.test_resync import Source
from tests.sidecar.support.little import CUSTOMERS, VIEWS, Little, answers


@pytest.fixture
def doors(shop: Little) -> Iterator[list[HttpServer]]:
    assert shop.running is not None
    history = ChangeHistory(shop.running.runtime, 1 << 20)
    runtime, settings = shop.running.runtime, load(shop.folder / "headrace.yaml", {})
    jobs = BackgroundJobs(
        runtime, settings, lambda *of: Source(shop).read(*of), letters=lambda _: MemoryDeadLetterQueue()
    )
    control = Control(shop.running, ViewChanger(shop.running, history.renew), history, jobs)
    served = Served(lambda _: ALIVE, bytes, dict, control.ask)
    made = [HttpServer(shop.folder / "state" / SOCKET, served), HttpServer("127.0.0.1:0", served)]
    for door in made:
        door.start()
    yield made
    history.close()
    jobs.close()
    for door in made:
        door.close()


def clients(shop: Little, doors: list[HttpServer]) -> list[Client]:
    settings = load(shop.folder / "headrace.yaml", {})
    return [Client(settings), Client(None, f"http://{doors[1].address}")]


def test_both_doors_plan_and_query_alike(shop: Little, doors: list[HttpServer]) -> None:
    (shop.folder / "views" / "v.yaml").write_text(VIEWS.replace("count(*) as n", "count(*) + 1 as n"))
    for client in clients(shop, doors):
        plan = meanwhile(shop, lambda c=client: c.ask("/plan", {}), busy=False)
        assert {f["view"]: f["action"] for f in plan["views"]}["by_city"] == "changed"
        sql = {"sql": "select v, n from by_city order by n"}
        _, part = meanwhile(shop, lambda c=client, q=sql: list(c.stream("POST", "/query", q)), busy=False)
        assert part["part"] == [["2", "1"], ["1", "2"]]


def test_apply_tells_how_far_it_is_and_what_was_done(shop: Little, doors: list[HttpServer]) -> None:
    (shop.folder / "views" / "v.yaml").write_text(VIEWS.replace("count(*) as n", "count(*) + 1 as n"))
    client, _ = clients(shop, doors)
    lines = meanwhile(shop, lambda: list(client.stream("POST", "/apply", {})))
    first, *between, last = [line["event"] for line in lines]
    assert (first, {*between}, last) == ("plan", {"progress"}, "applied")
    assert lines[-1]["seconds"]["total"] > 0
    plus = plus_one(answers(shop.state)["by_city"])
    assert shop.rows("by_city") == plus
    assert meanwhile(shop, lambda: client.ask("/cancel", {})) == {"cancelled": False}


def plus_one(rows: Mapping[Any, int]) -> dict[Any, int]:
    return {(city, n + 1): 1 for city, n in rows}


def test_errors_come_back_as_they_were(shop: Little, doors: list[HttpServer]) -> None:
    for client in clients(shop, doors):
        with pytest.raises(RemoteError, match="nowhere") as told:
            meanwhile(shop, lambda c=client: c.ask("/query", {"sql": "select a from nowhere"}), busy=False)
        assert told.value.as_json()["code"] == "view"
        with pytest.raises(RemoteError, match="a text is needed"):
            meanwhile(shop, lambda c=client: c.ask("/query", {"sql": 3}), busy=False)
        with pytest.raises(RemoteError, match="true or false"):
            meanwhile(shop, lambda c=client: c.ask("/plan", {"drop": "yes"}), busy=False)
        with pytest.raises(RemoteError, match="an epoch is needed"):
            meanwhile(
                shop, lambda c=client: list(c.stream("GET", "/tail", {"view": "orders", "from": "x"})), busy=False
            )


def test_a_table_is_compared_with_its_source_through_either_door(
    shop: Little, doors: list[HttpServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "WAITING_SECONDS", 0.01)
    for wanted, client in zip((1, 0), clients(shop, doors), strict=True):
        shop.state[CUSTOMERS] = Counter({(1, 1): 1, (2, 9): 1})
        asked = {"table": CUSTOMERS, "from": "postgresql://nobody@127.0.0.1:9/x"}
        found = meanwhile_on(shop, lambda c=client, a=asked: c.ask("/resync", a, 60))
        assert (found["table"], found["changed"]) == (CUSTOMERS, wanted)
        assert shop.rows("customers") == {(1, 1): 1, (2, 9): 1}
        with pytest.raises(RemoteError, match="no view reads such a table") as told:
            meanwhile(shop, lambda c=client: c.ask("/resync", {"table": "public.nothing"}), busy=False)
        assert told.value.as_json()["code"] == "request"
        with pytest.raises(RemoteError, match="there is no database"):
            meanwhile(shop, lambda c=client: c.ask("/resync", {"table": CUSTOMERS}), busy=False)
        with pytest.raises(RemoteError, match="dead letters are needed"):
            meanwhile(shop, lambda c=client: c.ask("/replay", {"letters": [{}]}), busy=False)
        assert meanwhile(shop, lambda c=client: c.ask("/replay", {"letters": []}), busy=False) == {"letters": []}


def meanwhile_on(shop: Little, work: Callable[[], Any]) -> Any:
    """As `meanwhile`, while transactions of nothing move the source on."""
    turn = shop.turn

    def on(times: int = 1) -> None:
        shop.transact()
        shop.show_all()
        turn(times)

    shop.turn = on  # type: ignore[method-assign]
    try:
        return meanwhile(shop, work, busy=False)
    finally:
        shop.turn = turn  # type: ignore[method-assign]


def test_a_job_that_takes_longer_than_its_client_waits_goes_on(
    shop: Little, doors: list[HttpServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "WAITING_SECONDS", 0.01)
    gate, read = threading.Event(), Source.read

    def slowly(source: Source, *of: Any) -> Any:
        gate.wait(60)
        return read(source, *of)

    monkeypatch.setattr(Source, "read", slowly)
    client, _ = clients(shop, doors)
    asked = {"table": CUSTOMERS, "from": "postgresql://nobody@127.0.0.1:9/x"}
    with pytest.raises(ControlError, match="not done in time, and goes on"):
        meanwhile(shop, lambda: client.ask("/resync", asked, 0.1), busy=False)
    assert shop.running is not None
    assert len(shop.running.runtime.jobs) == 1
    gate.set()
    end = time.monotonic() + 30
    while shop.running.runtime.jobs and time.monotonic() < end:
        shop.transact()
        shop.show_all()
        shop.turn(3)
    assert shop.running.runtime.jobs == []


def test_all_mistakes_of_a_changed_folder_come_at_once(shop: Little, doors: list[HttpServer]) -> None:
    wrong = VIEWS.replace("select id, v from public.orders", "select id, w from public.orders").replace(
        'visits"}', 'visit"}'
    )
    (shop.folder / "views" / "v.yaml").write_text(wrong)
    for client in clients(shop, doors):
        with pytest.raises(RemoteError) as told:
            meanwhile(shop, lambda c=client: c.ask("/plan", {}), busy=False)
        assert told.value.place.endswith("v.yaml:4:60")
        assert [(e.where["view"], e.as_json()["code"]) for e in told.value.others] == [("visits", "view")]


def test_a_view_is_followed_through_the_door(shop: Little, doors: list[HttpServer]) -> None:
    client, _ = clients(shop, doors)
    lines = client.stream("GET", "/tail", {"view": "visits"})

    def read() -> list[dict[str, Any]]:
        return [next(lines) for _ in range(3)]

    head, row, resume = meanwhile(shop, read, busy=False)
    assert (head["view"], head["whole"], row["row"], row["diff"]) == ("visits", True, ["1", "1"], 2)
    assert resume == {"resume": head["epoch"]}


def test_the_socket_is_its_owners_alone_and_goes_with_its_sidecar(shop: Little, doors: list[HttpServer]) -> None:
    path = shop.folder / "state" / SOCKET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    successor = HttpServer(path, Served(lambda _: ALIVE, bytes, dict))
    doors[0].close()
    assert path.exists()
    successor.close()
    assert not path.exists()


def test_nobody_answers(tmp_path: Path, shop: Little) -> None:
    with pytest.raises(NotRunning, match="no sidecar answers"):
        Client(load(shop.folder / "headrace.yaml", {})).ask("/plan", {})


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:port"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(NotRunning, match="no sidecar answers"):
        Client(None, url).status()


def test_another_sidecar_at_our_address_is_not_asked(shop: Little) -> None:
    asked: list[Request] = []
    status = {"name": "other"}
    served = Served(lambda _: ALIVE, bytes, lambda: status, asked.append)
    door = HttpServer("127.0.0.1:0", served)
    door.start()
    path = shop.folder / "headrace.yaml"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"http": door.address}))
    settings = load(path, {})
    try:
        with pytest.raises(NotRunning, match="another sidecar") as caught:
            Client(settings).ask("/apply", {})
        assert caught.value.where["name"] == "other"
        assert asked == []
        status["name"] = settings.config.name
        assert Client(settings).status() == status
    finally:
        door.close()


def test_status_without_http(shop: Little, doors: list[HttpServer]) -> None:
    settings = load(shop.folder / "headrace.yaml", {})
    assert settings.config.http is None
    assert Client(settings).status() == {}
    doors[0].close()
    with pytest.raises(HttpError, match="no sidecar answers") as caught:
        run_status(settings, None, as_json=True)
    assert caught.value.where["http"] == str(settings.state / SOCKET)


GOOD = {"Host": "127.0.0.1:8088", "Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("peer", "headers", "why"),
    [
        ("127.0.0.1", GOOD, None),
        ("::1", GOOD | {"Host": "[::1]:8088"}, None),
        ("127.0.0.1", GOOD | {"Host": "localhost"}, None),
        ("192.0.2.7", GOOD, "on this machine"),
        ("127.0.0.1", GOOD | {"Host": "evil.example:8088"}, "browser"),
        ("127.0.0.1", GOOD | {"Origin": "http://127.0.0.1:8088"}, "browser"),
        ("127.0.0.1", {"Host": "127.0.0.1"}, "application/json"),
        ("127.0.0.1", {"Content-Type": "application/json"}, "browser"),
    ],
)
def test_who_may_ask_over_http(peer: str, headers: Mapping[str, str], why: str | None) -> None:
    found = refused(peer, headers, "POST")
    assert found is None if why is None else why in (found or "")


def test_rescale_tells_what_it_did_and_refuses_no_number(
    shop: Little, doors: list[HttpServer], capsys: pytest.CaptureFixture[str]
) -> None:
    for client in clients(shop, doors):
        for wrong in ("two", True, None):
            with pytest.raises(RemoteError, match="a number is needed"):
                meanwhile(shop, lambda c=client, w=wrong: c.ask("/rescale", {"workers": w}), busy=False)
        with pytest.raises(RemoteError, match=r"there is no such count of workers .*workers=65"):
            meanwhile(shop, lambda c=client: c.ask("/rescale", {"workers": 65}), busy=False)
    settings = load(shop.folder / "headrace.yaml", {})
    assert shop.running is not None
    before = shop.running.runtime.parts.flow.count
    meanwhile(shop, lambda: run_rescale(settings, None, before, as_json=False), busy=False)
    assert capsys.readouterr().out == f"nothing to do: the count of workers is {before}\n"
    meanwhile(shop, lambda: run_rescale(settings, None, 3, as_json=False))
    told = capsys.readouterr().out
    assert re.match(rf"3 workers instead of {before} since epoch \d+; it paused for [\d.]+ s\n", told)
    assert told.endswith("\nset engine.workers for the next start\n")
    assert shop.running.runtime.parts.flow.count == 3
    assert shop.rows("by_city") == dict(answers(shop.state)["by_city"])


def test_who_waits_for_a_job_hears_that_its_run_is_over(
    shop: Little, doors: list[HttpServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that were lost end a run and its jobs; the process goes on with another."""
    monkeypatch.setattr(handlers, "WAITING_SECONDS", 0.01)
    client, _ = clients(shop, doors)
    answer = client.stream("POST", "/fill", {"table": "public.later"})
    assert meanwhile(shop, lambda: next(answer), busy=False) == handlers.WAITING
    assert shop.running is not None
    shop.running.runtime.tasks.close()
    with pytest.raises(RemoteError, match="stopping, or begins anew"):
        list(answer)
