"""On real servers: a paused connector and a killed Kafka make a view late, then stale; /readyz, status, metrics and log agree."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.sidecar.process.event_log import parse
from tests.sidecar.support.real import Real, real

VIEW = {"totals": "select count(*) as n from public.orders"}
DDL = ("create table orders (id int primary key, total int)",)


def ask(sidecar: Real, query: str = "") -> tuple[int, dict[str, Any]]:
    """The code of /readyz and its JSON."""
    try:
        with urllib.request.urlopen(f"http://{sidecar.http}/readyz?format=json{query}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def code(sidecar: Real) -> int:
    with suppress(OSError):
        return ask(sidecar)[0]
    return 0


def gauge(sidecar: Real, name: str) -> float:
    text = (sidecar.get("/metrics") or b"").decode()
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def view(sidecar: Real) -> dict[str, Any]:
    (found,) = sidecar.status()["views"]
    return dict(found)


def events(sidecar: Real) -> list[dict[str, object]]:
    return [parse(line) for line in sidecar.log().splitlines() if line.startswith("time=")]


def named(sidecar: Real) -> list[object]:
    return [e["event"] for e in events(sidecar)]


def limited(sidecar: Real) -> None:
    """The view may be a little old only."""
    each = [{"name": n, "sinks": ["warehouse"], "sql": text, "freshness": {"warn": 2, "error": 4}}
            for n, text in VIEW.items()]  # fmt: skip
    (sidecar.folder / "views" / "v.yaml").write_text(json.dumps({"version": 1, "views": each}))


def goes_stale_and_comes_back(sidecar: Real, back: Callable[[], object]) -> None:
    """What broke is broken already."""
    sidecar.until(lambda: code(sidecar) == 503, "it is not ready")
    _, body = ask(sidecar)
    assert body["started"], "it is not ready for its age, not for its start"
    assert [v["state"] for v in body["views"]] == ["stale"]
    assert (view(sidecar)["state"], sidecar.status()["ready"]) == ("stale", False)
    first = gauge(sidecar, "headrace_view_staleness_seconds")
    assert first > 4
    assert gauge(sidecar, "headrace_view_staleness_seconds") > first, "it grows while nothing arrives"
    assert (sidecar.get("/livez"), sidecar.get("/startupz")) == (b"ok\n", b"ok\n"), "a restart would not help"
    assert ask(sidecar, "&max_staleness=600")[0] == 200
    back()
    sidecar.until(lambda: code(sidecar) == 200, "it is ready again")
    sidecar.until(lambda: view(sidecar)["state"] == "fresh", "it is fresh again")
    sidecar.until(
        lambda: [e for e in named(sidecar) if str(e).startswith("view_")][-1:] == ["view_fresh"], "it is logged"
    )


@pytest.mark.timeout(500)
def test_what_delivers_nothing_is_not_fresh(stack: Any, tmp_path: Path, unique: str) -> None:
    with real(stack, tmp_path, unique) as sidecar:
        source = sidecar.source(unique, DDL)
        source.run("insert into orders values (1, 10), (2, 20)")
        sidecar.configure(VIEW)
        limited(sidecar)
        sidecar.start()
        sidecar.passed(source)
        sidecar.until(lambda: view(sidecar)["state"] == "fresh", "it is fresh")
        sidecar.until(lambda: gauge(sidecar, "headrace_view_staleness_seconds") <= 2, "heartbeats keep it young")
        assert (view(sidecar)["rows"], gauge(sidecar, "headrace_view_rows")) == (1, 1)
        sidecar.until(lambda: sidecar.status()["sources"][0]["heartbeats"], "heartbeats arrive")

        sidecar.pause(source)
        source.run("update orders set total = 11 where id = 1")
        goes_stale_and_comes_back(sidecar, lambda: sidecar.resume(source))
        assert [e for e in named(sidecar) if str(e).startswith("view_")][-3:] == [
            "view_late",
            "view_stale",
            "view_fresh",
        ]
        assert "checkpoint" in named(sidecar)

        kafka, before = stack.kafka, len(sidecar.log().splitlines())
        if not hasattr(kafka, "child"):
            return  # of the compose file: not ours to kill
        kafka.child.kill()
        try:
            goes_stale_and_comes_back(sidecar, kafka.start)
        finally:
            kafka.start()
        lines = sidecar.log().splitlines()[before:]
        assert all(line.startswith("time=") for line in lines), "every line is an event, librdkafka's too"
        assert {"kafka_client", "view_stale", "view_fresh"} <= set(named(sidecar))
        assert len(lines) < 100, "it does not flood the log"
        assert sidecar.stop() == 0
