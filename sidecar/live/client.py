"""The command's side of the control door: over the socket in the state folder, else over HTTP.

Always: an error of the sidecar is raised here as it was there, with its code; where nobody answers `Away` says so. Called
by the command.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from engine.errors import HeadraceError
from sidecar.config import Settings
from sidecar.health import short_name
from sidecar.live.door import SOCKET, ControlError

PATIENCE = 120.0
"""Seconds within which something must be said."""


class Away(ControlError):
    """No sidecar answers."""


class Told(HeadraceError):
    """An error that the sidecar told; as JSON, and by its exit code, it is of the kind that it was there."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._kind = str(body.get("code", self.code))
        super().__init__(str(body.get("what", "")), hint=str(body.get("hint", "")), **dict(body.get("where", {})))

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
            raise Away(f"no sidecar answers: {error}", at=address) from error
        self._name = None if settings is None or url else settings.config.name
        self._patience = patience

    def status(self) -> dict[str, Any]:
        """What the sidecar says of itself. Raises Away and ControlError."""
        found: dict[str, Any] = {}
        for line in self.stream("GET", "/status", {}):
            found = line
        return found

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """One object for one. Raises Told, Away and ControlError."""
        last: dict[str, Any] = {}
        for line in self.stream("POST", path, body):
            last = line
        return last

    def stream(self, method: str, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
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
                    raise Told(found["error"])
                yield found
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Away(f"no sidecar answers: {error}", hint="is `headrace run` running?", at=self.where) from error
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
            raise Away("no sidecar answers", hint="is `headrace run` running?", at=self._socket)
        connection = http.client.HTTPConnection(self._address, timeout=self._patience)
        if self._name is not None:
            connection.request("GET", "/status")
            told = json.loads(connection.getresponse().read())
            name = told.get("name") if isinstance(told, dict) else None
            if name != self._name:
                connection.close()
                raise Away("another sidecar answers there", name=name, wanted=self._name, at=self.where,
                           hint="is `headrace run` running? Each sidecar needs an address of its own under `http:`")  # fmt: skip
        return connection
