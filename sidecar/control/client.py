"""The client of the control channel: over the socket in the state folder, else over HTTP.

Invariant: an error of the sidecar is raised here with its own code; `NotRunning` says that nobody answers. The commands call it.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.protocol import SOCKET, ControlError
from headrace.sidecar.telemetry.http_server import short_name

PATIENCE = 120.0
"""Seconds within which something must be said."""


class NotRunning(ControlError):
    """No sidecar answers."""


class RemoteError(HeadraceError):
    """An error that the sidecar told, with the others; as JSON, and by its exit code, it is of the kind that it was there."""

    def __init__(self, body: Mapping[str, Any], others: Iterable[Mapping[str, Any]] = ()) -> None:
        self._kind = str(body.get("code", self.code))
        super().__init__(str(body.get("what", "")), hint=str(body.get("hint", "")), **dict(body.get("where", {})))
        self.others = tuple(RemoteError(other) for other in others)

    def as_json(self) -> dict[str, object]:
        """See `HeadraceError.as_json`."""
        return {**super().as_json(), "code": self._kind}


class _Unix(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with short_name(self._path) as name:
            self.sock.connect(name)


class Client:
    """Asks one sidecar. `url`: its HTTP address, where its state folder is not on this machine.

    Always: without `url`, no sidecar but the one of the configuration is asked, whoever else listens at its address.
    """

    def __init__(self, settings: Settings | None, url: str | None = None, patience: float = PATIENCE) -> None:
        self._socket = None if settings is None or url else settings.state / SOCKET
        address = url or (f"http://{settings.config.http}" if settings is not None and settings.config.http else None)
        try:
            self._address = None if address is None else urlsplit(address).netloc or address
        except ValueError as error:
            raise NotRunning(f"no sidecar answers: {error}", at=address) from error
        self._name = None if settings is None or url else settings.config.name
        self._patience = patience

    def status(self) -> dict[str, Any]:
        """What the sidecar says of itself. Raises NotRunning and ControlError."""
        found: dict[str, Any] = {}
        for line in self.stream("GET", "/status", {}):
            found = line
        return found

    def ask(self, path: str, body: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """One object for one, within so many seconds. Raises RemoteError, NotRunning and ControlError."""
        last: dict[str, Any] = {}
        end = None if seconds is None else time.monotonic() + seconds
        for line in self.stream("POST", path, body):
            last = line
            if end is not None and line.get("event") == "waiting" and time.monotonic() > end:
                raise ControlError("it is not done in time, and goes on", seconds=seconds, asked=path,
                                   hint="wait for longer with --timeout; `headrace status` shows what became of it")  # fmt: skip
        return last

    def stream(self, method: str, path: str, body: Mapping[str, Any]) -> Generator[dict[str, Any]]:
        """The objects of the answer as they come. Raises as `ask` does."""
        connection: http.client.HTTPConnection | None = None
        try:
            connection = self._connection()
            if method == "GET":
                connection.request("GET", f"{path}?{urlencode(body)}")
            else:
                sent = json.dumps(body).encode()
                connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status == 404:
                raise ControlError("this sidecar does not know that", path=path, hint="is it of an older version?")
            while line := answer.readline():
                found = json.loads(line)
                if "error" in found and "code" in (found["error"] or {}):
                    raise RemoteError(found["error"], found.get("others", ()))
                yield found
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotRunning(
                f"no sidecar answers: {error}", hint="is `headrace run` running?", at=self.where
            ) from error
        finally:
            if connection is not None:
                connection.close()

    @property
    def where(self) -> str:
        """The address that is asked."""
        if self._socket is not None and (self._socket.exists() or self._address is None):
            return str(self._socket)
        return f"http://{self._address}"

    def _connection(self) -> http.client.HTTPConnection:
        if self._socket is not None and self._socket.exists():
            connection: http.client.HTTPConnection = _Unix(self._socket, self._patience)
            try:
                connection.connect()
                return connection
            except OSError:
                connection.close()
        if self._address is None:
            raise NotRunning("no sidecar answers", hint="is `headrace run` running?", at=self._socket)
        connection = http.client.HTTPConnection(self._address, timeout=self._patience)
        if self._name is not None:
            connection.request("GET", "/status")
            told = json.loads(connection.getresponse().read())
            name = told.get("name") if isinstance(told, dict) else None
            if name != self._name:
                connection.close()
                raise NotRunning("another sidecar answers there", name=name, wanted=self._name, at=self.where,
                           hint="is `headrace run` running? Each sidecar needs an address of its own under `http:`")  # fmt: skip
        return connection
