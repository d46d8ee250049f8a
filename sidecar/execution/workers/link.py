"""Connections between driver and workers over TCP: dialled by name, and trusted only after both ends have proved a secret.

Always: before anything but fixed-size challenges is believed, each end shows by HMAC that it knows the secret of the run;
where the run has a certificate all of it is encrypted; frames here are JSON, so nothing is unpickled. A stranger is refused
with the reason. Called by the driver's pool, by supervisors and by workers on Spark.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers.tls import End, Trust

Address = tuple[str, int]
Facts = Mapping[str, Any]

PROVING_SECONDS = 15.0
"""How long either end may take to prove itself."""
_NONCE = 32
_MOST = 1 << 20
"""Bytes of a frame, at most: what is longer is no frame of ours."""


class LinkRefused(HeadraceError):
    """The other end does not know the secret, or is another program."""

    code = "worker"


def send_frame(end: End, body: Facts) -> None:
    """Write one frame of JSON."""
    text = json.dumps(body).encode()
    end.sendall(struct.pack("<I", len(text)) + text)


def receive_frame(end: End) -> dict[str, Any]:
    """Read one frame. Raises OSError when the other end is gone, or what comes is no frame."""
    (size,) = struct.unpack("<I", _exactly(end, 4))
    if size > _MOST:
        raise ConnectionError("what came is no frame of ours")
    try:
        found = json.loads(_exactly(end, size))
    except ValueError as error:
        raise ConnectionError("what came is no frame of ours") from error
    if not isinstance(found, dict):
        raise ConnectionError("what came is no frame of ours")
    return found


def _exactly(end: End, size: int) -> bytes:
    out = bytearray()
    while len(out) < size:
        part = end.recv(size - len(out))
        if not part:
            raise ConnectionError("the connection was closed")
        out += part
    return bytes(out)


def _proof(secret: bytes, role: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, role + b"".join(hashlib.sha256(part).digest() for part in parts), "sha256")


def _tuned(end: socket.socket) -> None:
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 15_000)):
        if hasattr(socket, name):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def dial(address: Address, trust: Trust, hello: Facts) -> End:
    """A connection whose other end has proved the secret and taken this one by what `hello` says of it. Raises LinkRefused."""
    end: End | None = None
    secret = trust.secret
    try:
        plain = end = socket.create_connection(address, PROVING_SECONDS)
        _tuned(plain)
        end = trust.encrypted(plain, listens=False)
        theirs, mine = _exactly(end, _NONCE), secrets.token_bytes(_NONCE)
        text = json.dumps(hello).encode()
        end.sendall(mine + _proof(secret, b"dials", theirs, mine, text))
        if not hmac.compare_digest(_exactly(end, 32), _proof(secret, b"listens", mine, theirs)):
            raise LinkRefused(
                "who listens there does not know the secret of this run", address=f"{address[0]}:{address[1]}"
            )
        end.sendall(struct.pack("<I", len(text)) + text)
        answer = receive_frame(end)
        if answer.get("refused"):
            raise LinkRefused(str(answer["refused"]), address=f"{address[0]}:{address[1]}")
        end.settimeout(None)
        return end
    except OSError as error:
        if end is not None:
            end.close()
        raise LinkRefused("no connection to a process of this run", address=f"{address[0]}:{address[1]}", error=error,
                          hint="the driver and the workers must reach each other's ports") from error  # fmt: skip
    except LinkRefused:
        if end is not None:
            end.close()
        raise


Check = Callable[[Facts], str | None]
"""Why whoever says this of itself is refused; None where it is welcome."""


class Listener:
    """Takes connections by their names: `take(name, peer)` waits for the one that says so of itself.

    `trust`: of the run; `ports`: of which one is listened on, any where there are none. What nobody takes is closed in the
    end. Single owner; connections are proved on threads of their own, so that none holds up another.
    """

    def __init__(self, host: str, trust: Trust, *, ports: Sequence[int] = (0,), check: Check = lambda _: None) -> None:
        self._trust, self._check = trust, check
        self._server = _listening(host, ports)
        self._found: dict[tuple[str, int], tuple[End, Facts]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self.refused: HeadraceError | None = None
        threading.Thread(target=self._accept, name="listener", daemon=True).start()

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._server.getsockname()[:2]
        return host, port

    def take(self, name: str, peer: int, seconds: float) -> tuple[End, Facts] | None:
        """The connection of that name and peer, and what it said of itself; None where none comes in time."""
        until = time.monotonic() + seconds
        with self._changed:
            while (name, peer) not in self._found and not self._closed:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return self._found.pop((name, peer), None)

    def close(self) -> None:
        """Listen no more; what nobody took is closed."""
        with self._changed:
            self._closed = True
            for end, _ in self._found.values():
                end.close()
            self._found.clear()
            self._changed.notify_all()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._prove, args=(end,), name="proving", daemon=True).start()

    def _prove(self, plain: socket.socket) -> None:
        end: End = plain
        secret = self._trust.secret
        try:
            plain.settimeout(PROVING_SECONDS)
            _tuned(plain)
            end = self._trust.encrypted(plain, listens=True)
            mine = secrets.token_bytes(_NONCE)
            end.sendall(mine)
            theirs, proof = _exactly(end, _NONCE), _exactly(end, 32)
            end.sendall(_proof(secret, b"listens", theirs, mine))
            (size,) = struct.unpack("<I", _exactly(end, 4))
            text = _exactly(end, size) if size <= _MOST else b""
            if not hmac.compare_digest(proof, _proof(secret, b"dials", mine, theirs, text)):
                raise ConnectionError("who dials does not know the secret of this run")
            self._welcome(end, json.loads(text))
        except (OSError, ValueError, KeyError):
            end.close()

    def _welcome(self, end: End, hello: Facts) -> None:
        why = self._check(hello)
        if why is not None:
            self.refused = LinkRefused(
                why, shard=hello.get("shard"), host=hello.get("host"), executor=hello.get("executor")
            )
            send_frame(end, {"refused": why})
            end.close()
            return
        with self._changed:
            if self._closed:
                end.close()
                return
            end.settimeout(None)
            self._found[str(hello["name"]), int(hello["shard"])] = end, hello
            send_frame(end, {"refused": ""})
            self._changed.notify_all()


def _listening(host: str, ports: Sequence[int]) -> socket.socket:
    told: OSError | None = None
    for port in ports:
        try:
            return socket.create_server((host, port), backlog=128)
        except OSError as error:
            told = error
    raise HeadraceError("no port to listen on", host=host, ports=f"{ports[0]}-{ports[-1]}", error=told,
                        hint="widen engine.spark.ports") from told  # fmt: skip
