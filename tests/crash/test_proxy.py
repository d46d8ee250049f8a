"""The fault proxy does what its faults say, to one request."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.crash.proxy import Fault, Proxy, commits, kafka_request


class Echo:
    """Answers each piece with itself, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            while piece := peer.recv(1000):
                self.seen.append(piece)
                peer.sendall(piece)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.listener.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    made = Proxy(echo.listener.getsockname()[1])
    yield made
    made.close()


def ask(proxy: Proxy, *pieces: bytes) -> list[bytes]:
    """What each piece is answered with; b"" once the connection is cut."""
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
        out = []
        for piece in pieces:
            try:
                client.sendall(piece)
                out.append(client.recv(1000))
            except OSError:
                out.append(b"")
        return out


def test_what_is_not_armed_passes(echo: Echo, proxy: Proxy) -> None:
    assert ask(proxy, b"one", b"two") == [b"one", b"two"]
    proxy.arm(Fault.REQUEST, commits)
    assert ask(proxy, b"SELECT") == [b"SELECT"]
    proxy.disarm()
    assert ask(proxy, b"COMMIT") == [b"COMMIT"]


@pytest.mark.parametrize(("fault", "seen"), [(Fault.REQUEST, []), (Fault.REPLY, [b"COMMIT"])])
def test_a_cut_is_before_the_server_sees_or_after_it_has_answered(
    echo: Echo, proxy: Proxy, fault: Fault, seen: list[bytes]
) -> None:
    proxy.arm(fault, commits)
    assert ask(proxy, b"BEGIN", b"COMMIT")[1] == b""
    assert echo.seen == [b"BEGIN", *seen]
    assert ask(proxy, b"COMMIT") == [b"COMMIT"], "one fault hits one request"
    assert proxy.met[fault] == 1


def test_a_stall_holds_both_ways_and_then_goes_on(proxy: Proxy) -> None:
    proxy.arm(Fault.STALL, seconds=0.2)
    began = time.monotonic()
    assert ask(proxy, b"x") == [b"x"]
    assert time.monotonic() - began >= 0.2


def test_requests_of_kafka_are_told_by_their_key() -> None:
    ends = kafka_request(26)
    assert ends(b"\x00\x00\x00\x09\x00\x1arest")
    assert not ends(b"\x00\x00\x00\x09\x00\x00rest")
    assert not ends(b"\x00")
