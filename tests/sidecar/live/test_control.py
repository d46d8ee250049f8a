"""The control door: the owner's socket and HTTP on loopback answer alike, and nobody else is answered."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sidecar.config import load
from sidecar.console.status import run_status
from sidecar.health import Door, HttpError, Request, Served, refused
from sidecar.live.changing import Changing
from sidecar.live.client import Away, Client, Told
from sidecar.live.control import Control
from sidecar.live.door import SOCKET
from sidecar.live.history import History
from tests.sidecar.little import VIEWS, Little, answers
from tests.sidecar.live.busy import meanwhile


@pytest.fixture
def doors(shop: Little) -> Iterator[list[Door]]:
    assert shop.running is not None
    history = History(shop.running.runtime, 1 << 20)
    control = Control(shop.running, Changing(shop.running, history.renew), history)
    served = Served(lambda: (True, ""), lambda: (True, ""), bytes, dict, control.ask)
    made = [Door(shop.folder / "state" / SOCKET, served), Door("127.0.0.1:0", served)]
    for door in made:
        door.start()
    yield made
    history.close()
    for door in made:
        door.close()


def clients(shop: Little, doors: list[Door]) -> list[Client]:
    settings = load(shop.folder / "headrace.yaml", {})
    return [Client(settings), Client(None, f"http://{doors[1].address}")]


def test_both_doors_plan_and_query_alike(shop: Little, doors: list[Door]) -> None:
    (shop.folder / "views" / "v.yaml").write_text(VIEWS.replace("count(*) as n", "count(*) + 1 as n"))
    for client in clients(shop, doors):
        plan = meanwhile(shop, lambda c=client: c.ask("/plan", {}), busy=False)
        assert {f["view"]: f["action"] for f in plan["views"]}["by_city"] == "changed"
        sql = {"sql": "select v, n from by_city order by n"}
        _, part = meanwhile(shop, lambda c=client, q=sql: list(c.stream("POST", "/query", q)), busy=False)
        assert part["part"] == [["2", "1"], ["1", "2"]]


def test_apply_tells_how_far_it_is_and_what_was_done(shop: Little, doors: list[Door]) -> None:
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


def test_errors_come_back_as_they_were(shop: Little, doors: list[Door]) -> None:
    for client in clients(shop, doors):
        with pytest.raises(Told, match="nowhere") as told:
            meanwhile(shop, lambda c=client: c.ask("/query", {"sql": "select a from nowhere"}), busy=False)
        assert told.value.as_json()["code"] == "view"
        with pytest.raises(Told, match="a text is needed"):
            meanwhile(shop, lambda c=client: c.ask("/query", {"sql": 3}), busy=False)
        with pytest.raises(Told, match="true or false"):
            meanwhile(shop, lambda c=client: c.ask("/plan", {"drop": "yes"}), busy=False)
        with pytest.raises(Told, match="an epoch is needed"):
            meanwhile(
                shop, lambda c=client: list(c.stream("GET", "/tail", {"view": "orders", "from": "x"})), busy=False
            )


def test_a_view_is_followed_through_the_door(shop: Little, doors: list[Door]) -> None:
    client, _ = clients(shop, doors)
    lines = client.stream("GET", "/tail", {"view": "visits"})

    def read() -> list[dict[str, Any]]:
        return [next(lines) for _ in range(3)]

    head, row, resume = meanwhile(shop, read, busy=False)
    assert (head["view"], head["whole"], row["row"], row["diff"]) == ("visits", True, ["1", "1"], 2)
    assert resume == {"resume": head["epoch"]}


def test_the_socket_is_its_owners_alone_and_goes_with_its_sidecar(shop: Little, doors: list[Door]) -> None:
    path = shop.folder / "state" / SOCKET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    successor = Door(path, Served(lambda: (True, ""), lambda: (True, ""), bytes, dict))
    doors[0].close()
    assert path.exists()
    successor.close()
    assert not path.exists()


def test_nobody_answers(tmp_path: Path, shop: Little) -> None:
    with pytest.raises(Away, match="no sidecar answers"):
        Client(load(shop.folder / "headrace.yaml", {})).ask("/plan", {})


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:port"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(Away, match="no sidecar answers"):
        Client(None, url).status()


def test_another_sidecar_at_our_address_is_not_asked(shop: Little) -> None:
    asked: list[Request] = []
    status = {"name": "other"}
    served = Served(lambda: (True, ""), lambda: (True, ""), bytes, lambda: status, asked.append)
    door = Door("127.0.0.1:0", served)
    door.start()
    path = shop.folder / "headrace.yaml"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"http": door.address}))
    settings = load(path, {})
    try:
        with pytest.raises(Away, match="another sidecar") as caught:
            Client(settings).ask("/apply", {})
        assert caught.value.where["name"] == "other"
        assert asked == []
        status["name"] = settings.config.name
        assert Client(settings).status() == status
    finally:
        door.close()


def test_status_without_http(shop: Little, doors: list[Door]) -> None:
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
