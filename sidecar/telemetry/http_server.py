"""The HTTP server: /livez, /startupz, /readyz, /metrics and /status, and the control channel.

Invariant: those five are read-only and hold no secret. Everything else goes to `ask`, and only from this machine and not from
a page in a browser. The same server listens on a unix socket that only its owner may open. The host starts it; it runs on
threads of its own.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import logging
import os
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from headrace.engine.errors import HeadraceError


class HttpError(HeadraceError):
    """The HTTP address cannot be used."""

    code = "http"


@dataclass(frozen=True)
class Request:
    """What is asked: `query` is the address's, `body` the JSON object that came."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """A JSON object, or, as they come, several: one a line."""

    code: int
    body: Mapping[str, Any] | Iterator[Mapping[str, Any]]


Ask = Callable[[Request], Answer | None]
"""What answers all but the five; None where there is no such address."""
LOGGER = logging.getLogger("headrace.http")
ADDRESSES = b"/livez /readyz /startupz /metrics /status\n"


@dataclass(frozen=True)
class Probe:
    """What a probe says: HTTP's code, a text for people, and the same as JSON."""

    code: int
    text: str
    body: Mapping[str, Any]

    @classmethod
    def of(cls, good: bool, text: str = "", **body: Any) -> Probe:
        """200 or 503, with what to know all the same."""
        return cls(200 if good else 503, "ok" + text if good else text, {"ok": good, **body})


ALIVE = Probe.of(True)


@dataclass(frozen=True)
class Served:
    """What a door serves. `ready` is given the address's query; `started`: whether the sidecar has caught up once."""

    ready: Callable[[Mapping[str, str]], Probe]
    metrics: Callable[[], bytes]
    status: Callable[[], Mapping[str, Any]]
    ask: Ask = lambda _: None
    started: Callable[[], Probe] = lambda: ALIVE


class HttpServer:
    """Serves over TCP (`address` is host:port) or, given a path, over a unix socket of mode 0600."""

    def __init__(self, address: str | Path, served: Served) -> None:
        self._path = address if isinstance(address, Path) else None
        self._server: _Server
        self._told = str(address)
        try:
            if isinstance(address, Path):
                self._server = _bind(address, _handler(served, here=True))
            else:
                host, _, port = address.rpartition(":")
                server = _TcpServer((host.strip("[]"), int(port)), _handler(served, here=False))
                self._told = f"{server.server_address[0]!s}:{server.server_address[1]}"
                self._server = server
        except OSError as error:
            raise _cannot_listen(address, error) from error
        self._inode = None if self._path is None else self._path.stat().st_ino
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True)

    @property
    def address(self) -> str:
        """host:port really listened on, or the socket's path."""
        return self._told

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering, over connections too that clients keep open."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        self._server.leave()
        with suppress(OSError):
            if self._path is not None and self._path.stat().st_ino == self._inode:  # not a successor's
                self._path.unlink()


def check_free(address: str) -> None:
    """Raise HttpError where nobody could listen at host:port now: it is told before a state is read, not after."""
    host, _, port = address.rpartition(":")
    try:
        ThreadingHTTPServer((host.strip("[]"), int(port)), BaseHTTPRequestHandler).server_close()
    except OSError as error:
        raise _cannot_listen(address, error) from error


def _cannot_listen(address: object, error: OSError) -> HttpError:
    hint = "choose another address under `http:`, or null for none"
    if error.errno == errno.EADDRINUSE:
        hint = f"another program has this port, perhaps another run (`ss -ltnp` names it): {hint}"
    return HttpError(f"cannot listen: {error.strerror}", http=address, hint=hint)


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Does not print a traceback where a client hangs up; any other failure goes to the log. `leave`: its connections end once
    what was asked over them is answered, so that nobody goes on asking a run that is over."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def leave(self) -> None:
        """End the connections that are kept open."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)

    def handle_error(self, request: object, client_address: object) -> None:
        del request, client_address
        if not isinstance(sys.exception(), OSError):
            LOGGER.exception("a request failed")


class _TcpServer(_Server, HTTPServer):
    pass


class _UnixServer(_Server):
    address_family = socket.AF_UNIX
    request_queue_size = 16

    def server_bind(self) -> None:
        os.fchmod(self.socket.fileno(), 0o600)  # before it has a name: nobody else can ever open it
        super().server_bind()


def _bind(path: Path, handler: type[BaseHTTPRequestHandler]) -> _UnixServer:
    """A server on the socket `path`, which takes the place of one that a dead sidecar left."""
    with suppress(FileNotFoundError):
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    with short_name(path) as name:
        return _UnixServer(name, handler)


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name for a socket that fits the kernel's 108 bytes, however deep its folder lies."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class _Handler(BaseHTTPRequestHandler):
    """Answers for `served`; `here`: whoever comes in may ask anything, as the socket's mode says."""

    served: ClassVar[Served]
    here: ClassVar[bool]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path in ("/livez", "/healthz"):
            self._probe(ALIVE, query)
        elif path == "/startupz":
            self._probe(self.served.started(), query)
        elif path == "/readyz":
            self._probe(self.served.ready(dict(parse_qsl(query))), query)
        elif path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4", self.served.metrics())
        elif path == "/status":
            self._json(200, self.served.status())
        else:
            self._ask("GET")

    def _probe(self, probe: Probe, query: str) -> None:
        """As text, or as JSON where it is asked for."""
        accepted = self.headers.get("Accept", "")
        if "application/json" in accepted or dict(parse_qsl(query)).get("format") == "json":
            self._json(probe.code, probe.body)
        else:
            self._answer(probe.code, "text/plain", (probe.text + "\n").encode())

    def do_POST(self) -> None:
        self._ask("POST")

    def _ask(self, method: str) -> None:
        path, _, query = self.path.partition("?")
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        why = None if self.here else refused(str(self.client_address[0]), self.headers, method)
        if why is not None:
            self._json(403, _error(why, "use the socket in the state folder"))
            return
        try:
            body = json.loads(sent) if sent else {}
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._json(400, _error("the body is no JSON object", ""))
            return
        answer = self.served.ask(Request(method, path, dict(parse_qsl(query)), body))
        if answer is None:
            self._answer(404, "text/plain", ADDRESSES)
        elif isinstance(answer.body, Mapping):
            self._json(answer.code, answer.body)
        else:
            self._stream(answer.code, answer.body)

    def _json(self, code: int, body: Mapping[str, Any]) -> None:
        self._answer(code, "application/json", json.dumps(body, default=str).encode())

    def _stream(self, code: int, lines: Iterator[Mapping[str, Any]]) -> None:
        """Lines as they come, each sent at once; ends when they do, or when nobody reads any more."""
        self.send_response(code)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for line in lines:
                data = json.dumps(line, default=str).encode() + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            close = getattr(lines, "close", None)
            if close is not None:
                close()

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        with suppress(ConnectionError):  # nobody waits for the answer any more
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


def _handler(served: Served, *, here: bool) -> type[BaseHTTPRequestHandler]:
    return type("Handler", (_Handler,), {"served": served, "here": here})


def _error(what: str, hint: str) -> dict[str, Any]:
    return {"error": {"code": "control", "what": what, "where": {}, "hint": hint}}


def refused(peer: str, headers: Message | Mapping[str, str], method: str) -> str | None:
    """Why whoever is at `peer` may not ask for more than the five; None where it may.

    Nobody from another machine, and no page in a browser on this one: those name their origin, or a host of their own.
    """
    if not _is_loopback(peer):
        return "only whoever is on this machine may ask for this"
    if headers.get("Origin") is not None or not _is_loopback(re.sub(r":\d+$", "", headers.get("Host", "")).strip("[]")):
        return "pages in a browser may not ask for this"
    if method == "POST" and headers.get("Content-Type", "").partition(";")[0] != "application/json":
        return "the content type must be application/json"
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
