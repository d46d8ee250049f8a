"""TLS for tests: certificates that nobody else trusts, and a front that gives a server of ours TLS.

The embedded Postgres is built without TLS, so the front speaks it: it answers Postgres's request for encryption as a
server does, shows its certificate, and passes on what it deciphers. To the client it is a server with TLS.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
"""Postgres's SSLRequest message."""


@dataclass(frozen=True)
class Identity:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM files."""

    certificate: Path
    key: Path


def identity(folder: Path, name: str) -> Identity:
    """A fresh one; the test is skipped where the machine has no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the command openssl")
    made = Identity(folder / f"{name}.crt", folder / f"{name}.key")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made.key), "-out", str(made.certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


class TlsFront:
    """Listens on a free port and passes deciphered bytes to `target`. `encrypted`: sessions that came so far."""

    def __init__(self, target: tuple[str, int], shown: Identity) -> None:
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(shown.certificate, shown.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.encrypted = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> TlsFront:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in list(self._open):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(10)
        for link in self._open:
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            self._start(self._serve, client)

    def _start(self, what: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            if client.recv(8) != _REQUEST:
                client.close()
                return
            client.sendall(b"S")
            secure = self._context.wrap_socket(client, server_side=True)
            self._open.append(secure)
            self.encrypted += 1
            server = socket.create_connection(self._target)
            self._open.append(server)
            self._start(_pass, server, secure)
            _pass(secure, server)


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
