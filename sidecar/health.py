"""The HTTP door: /healthz (alive), /readyz (caught up once), /metrics (Prometheus), /status (JSON). Loopback by default.

Always: read-only, and nothing secret is ever in what it serves. Wiring starts it; it runs on threads of its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from engine.errors import HeadraceError


class HttpError(HeadraceError):
    """The HTTP address cannot be used."""

    code = "http"


class Door:
    """Serves what four callables say. `health` and `ready` give (is it so, why not, or what to know all the same)."""

    def __init__(
        self,
        address: str,
        *,
        health: Callable[[], tuple[bool, str]],
        ready: Callable[[], tuple[bool, str]],
        metrics: Callable[[], bytes],
        status: Callable[[], Mapping[str, Any]],
    ) -> None:
        host, _, port = address.rpartition(":")
        handler = _handler(health, ready, metrics, status)
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), handler)
        except OSError as error:
            raise HttpError(f"cannot listen: {error.strerror}", http=address,
                            hint="choose another address under `http:`, or null for none") from error  # fmt: skip
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True)

    @property
    def address(self) -> str:
        """host:port really listened on."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _handler(
    health: Callable[[], tuple[bool, str]],
    ready: Callable[[], tuple[bool, str]],
    metrics: Callable[[], bytes],
    status: Callable[[], Mapping[str, Any]],
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path in ("/healthz", "/readyz"):
                good, why = (health if path == "/healthz" else ready)()
                self._answer(200 if good else 503, "text/plain", (("ok" + why if good else why) + "\n").encode())
            elif path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4", metrics())
            elif path == "/status":
                self._answer(200, "application/json", json.dumps(status(), default=str).encode())
            else:
                self._answer(404, "text/plain", b"/healthz /readyz /metrics /status\n")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    return Handler
