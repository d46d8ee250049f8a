"""Probes answer as text and as JSON; a client that hangs up leaves no traceback."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headrace.sidecar.telemetry.http_server import HttpServer, Probe, Served


def ready(query: Mapping[str, str]) -> Probe:
    return Probe.of("view" not in query, "\nlate" if "view" not in query else "stale", asked=dict(query))


def big() -> bytes:
    time.sleep(0.3)
    return b"x" * (8 << 20)


@pytest.fixture
def door() -> Iterator[HttpServer]:
    made = HttpServer("127.0.0.1:0", Served(ready, big, dict, started=lambda: Probe.of(False, "catching up")))
    made.start()
    yield made
    made.close()


def get(door: HttpServer, path: str, accept: str = "*/*") -> tuple[int, str]:
    request = urllib.request.Request(f"http://{door.address}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_probes_as_text_and_as_json(door: HttpServer) -> None:
    assert get(door, "/livez") == get(door, "/healthz") == (200, "ok\n")
    assert get(door, "/startupz") == (503, "catching up\n")
    assert get(door, "/readyz") == (200, "ok\nlate\n")
    assert get(door, "/readyz?view=v&max_staleness=2") == (503, "stale\n")
    for code, text in (
        get(door, "/readyz?view=v&max_staleness=2&format=json"),
        get(door, "/readyz?view=v&max_staleness=2", "application/json"),
    ):
        body = json.loads(text)
        assert (code, body["ok"], body["asked"]["max_staleness"]) == (503, False, "2")
    assert json.loads(get(door, "/livez", "application/json")[1]) == {"ok": True}
    assert get(door, "/nothing")[0] == 404


def test_a_client_that_hangs_up_leaves_no_traceback(door: HttpServer, capfd: pytest.CaptureFixture[str]) -> None:
    host, _, port = door.address.rpartition(":")
    for sent in (
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /met",
        b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    ):
        client = socket.create_connection((host, int(port)))
        client.sendall(sent)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset
    assert get(door, "/livez")[0] == 200
    time.sleep(0.6)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_a_connection_that_is_kept_open_ends_with_its_run(tmp_path: Path, over: str) -> None:
    """Found by `make alerts`: Prometheus asked a run that was over for its metrics, over the connection that it had kept."""

    def opened(run: str, address: str | Path) -> HttpServer:
        made = HttpServer(address, Served(ready, run.encode, dict))
        made.start()
        return made

    def connected() -> socket.socket:
        host, _, port = before.address.rpartition(":")
        made = socket.socket(socket.AF_UNIX if over == "unix" else socket.AF_INET)
        made.settimeout(5)
        made.connect(str(tmp_path / "socket") if over == "unix" else (host, int(port)))
        return made

    def ask(client: socket.socket, length: int) -> bytes:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        found = b""
        while len(found.partition(b"\r\n\r\n")[2]) < length:
            found += client.recv(4096)
        return found[-length:]

    before = opened("before", "127.0.0.1:0" if over == "tcp" else tmp_path / "socket")
    with connected() as client:
        assert ask(client, 6) == b"before"
        before.close()
        assert client.recv(1) == b"", "it ends, and the client knows that"
    after = opened("after", before.address if over == "tcp" else tmp_path / "socket")
    with connected() as client:
        assert ask(client, 5) == b"after"
    after.close()


def test_an_answer_that_is_under_way_is_given_to_its_end() -> None:
    asked, closed = threading.Event(), threading.Event()

    def render() -> bytes:
        asked.set()
        assert closed.wait(5)
        return b"x" * (8 << 20)

    door = HttpServer("127.0.0.1:0", Served(ready, render, dict))
    door.start()
    host, _, port = door.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(5)
        door.close()
        closed.set()
        found = b""
        while more := client.recv(1 << 20):
            found += more
    assert len(found) > 8 << 20
