"""A fault proxy for TCP: passes, or, once armed, cuts or stalls a connection at a request that it is told to look for.

Always: one armed fault hits one request; a LOST request never reached the server, a lost REPLY was sent by the server and not
seen by the client. Used between the sidecar and its Kafka and Postgres, and between Connect and the source.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.sidecar.devstack.ports import HOST

PIECE = 1 << 16


class Fault(enum.Enum):
    """What happens to the request that is hit."""

    REQUEST = "the connection is cut before the server sees the request"
    REPLY = "the connection is cut after the server has answered and before the client sees it"
    STALL = "neither side hears of the other for a while"


@dataclass
class _Armed:
    fault: Fault
    hits: Callable[[bytes], bool]
    seconds: float = 0.0


@dataclass(eq=False)
class _Link:
    client: socket.socket
    server: socket.socket
    deaf: bool = False
    until: float = 0.0
    closed: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        self.closed.set()
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on a port of loopback and connects to another one. `met`: how many requests each fault hit."""

    def __init__(self, target: int, port: int = 0) -> None:
        self.target = target
        self._listener = socket.create_server((HOST, port))
        self.port: int = self._listener.getsockname()[1]
        self.met = dict.fromkeys(Fault, 0)
        self._armed: _Armed | None = None
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, fault: Fault, hits: Callable[[bytes], bool] = lambda _: True, seconds: float = 0.0) -> None:
        """The next request for which `hits` says yes (given the bytes that a read brought) meets `fault`."""
        self._armed = _Armed(fault, hits, seconds)

    def disarm(self) -> None:
        """No fault any more."""
        self._armed = None

    def cut(self) -> None:
        """Cut every connection now."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def close(self) -> None:
        """Listen no more, and cut everything."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((HOST, self.target), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            with self._lock:
                self._links.add(link)
            for pump in (self._up, self._down):
                threading.Thread(target=self._pump, args=(pump, link), daemon=True).start()

    def _pump(self, pump: Callable[[_Link], None], link: _Link) -> None:
        with contextlib.suppress(OSError, ValueError):
            pump(link)
        link.close()
        with self._lock:
            self._links.discard(link)

    def _take(self, piece: bytes) -> _Armed | None:
        with self._lock:
            armed = self._armed
            if armed is None or not armed.hits(piece):
                return None
            self._armed = None
            self.met[armed.fault] += 1
            return armed

    def _up(self, link: _Link) -> None:
        while piece := link.client.recv(PIECE):
            armed = self._take(piece)
            if armed is not None and armed.fault is Fault.REQUEST:
                return
            if armed is not None and armed.fault is Fault.STALL:
                link.until = time.monotonic() + armed.seconds
                link.closed.wait(armed.seconds)
            if armed is not None and armed.fault is Fault.REPLY:
                link.deaf = True
            link.server.sendall(piece)

    def _down(self, link: _Link) -> None:
        while piece := link.server.recv(PIECE):
            if link.deaf:
                return
            pause = link.until - time.monotonic()
            if pause > 0:
                link.closed.wait(pause)
            link.client.sendall(piece)


def commits(piece: bytes) -> bool:
    """Whether a piece of Postgres's protocol is a COMMIT."""
    return b"COMMIT" in piece.upper()


def kafka_request(*keys: int) -> Callable[[bytes], bool]:
    """Whether a piece of Kafka's protocol begins a request of one of these api keys (0 Produce, 1 Fetch, 22
    InitProducerId, 24 AddPartitionsToTxn, 26 EndTxn)."""
    return lambda piece: len(piece) > 6 and int.from_bytes(piece[4:6], "big") in keys
