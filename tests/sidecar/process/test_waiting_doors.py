"""Without workers the sidecar is alive and not ready, says why, and tells how many it lacks."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from headrace.sidecar.config.config import Settings, load_for_replay
from headrace.sidecar.control.client import Client, NotRunning
from headrace.sidecar.devstack.ports import is_open, pick
from headrace.sidecar.execution.workers.pool import CUT_OFF, SlotsMissing, WorkerLost
from headrace.sidecar.process.restarts import Restarts
from headrace.sidecar.process.waiting_doors import WaitingDoors
from headrace.sidecar.telemetry.http_server import HttpServer, Probe, Served

FEW = SlotsMissing("the cluster has too few slots for the workers", wanted=9, free=4)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "headrace.yaml"
    path.write_text(
        "version: 1\nname: tests\nkafka: {bootstrap.servers: localhost}\nengine: {workers: 3}\n"
        f"sources: [{{name: s, type: debezium, topic_prefix: s}}]\nhttp: 127.0.0.1:{pick(1)[0]}\n"
    )
    return load_for_replay(path, {})


def ask(settings: Settings, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{settings.config.http}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_is_alive_and_not_ready_and_says_why(settings: Settings) -> None:
    restarts, doors = Restarts(), WaitingDoors(settings)
    assert restarts.may_follow(WorkerLost(CUT_OFF))
    assert doors.open(FEW, restarts)
    assert doors.are_open
    assert ask(settings, "/livez")[0] == 200
    for path in ("/readyz", "/startupz"):
        code, text = ask(settings, path)
        assert code == 503
        assert "too few slots for the workers (wanted=9, free=4)" in text
    metrics = ask(settings, "/metrics")[1]
    assert 'headrace_workers{state="missing"} 5.0' in metrics
    assert 'headrace_worker_restarts_total{reason="cut"} 1.0' in metrics
    assert 'headrace_worker_restarts_total{reason="died"} 0.0' in metrics
    told = Client(settings, None, 5).status()
    assert not told["ready"]
    assert "wanted=9" in told["waits"]["why"]
    assert json.loads(ask(settings, "/status")[1])["waits"] == told["waits"]

    assert not doors.open(FEW, restarts), "the same again is not told again"
    assert doors.open(SlotsMissing("too few", wanted=9, free=8), restarts)
    assert 'headrace_workers{state="missing"} 1.0' in ask(settings, "/metrics")[1]
    assert doors.open(WorkerLost("a worker died"), restarts)
    assert 'headrace_workers{state="missing"} 3.0' in ask(settings, "/metrics")[1]


def test_closed_they_leave_the_address_to_the_runtime(settings: Settings) -> None:
    doors = WaitingDoors(settings)
    doors.open(FEW, Restarts())
    doors.close()
    assert not doors.are_open
    port = int(str(settings.config.http).rpartition(":")[2])
    assert not is_open(port)
    other = HttpServer(str(settings.config.http), Served(lambda _: Probe.of(True), bytes, dict))
    doors.open(FEW, Restarts())  # the address is taken: the socket in the state folder answers alone
    other.close()
    doors.close()
    with pytest.raises(NotRunning):
        Client(settings, None, 1).status()
