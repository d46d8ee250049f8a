"""TLS between driver and workers: one certificate a run, made by the driver, which both ends take for the only true one.

Always: certificate and key travel to executors as the secret of the run does, with Spark's own task, and lie in no file;
nothing of a connection is readable by others, and who has not this certificate is not talked to. What a connection of
ours needs of a socket an encrypted one does as well. Called by `link`; the secret is proved inside, as without it.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from headrace.engine.errors import HeadraceError

_DAYS = 3650
_PIECE = 1 << 18
"""Bytes that are encrypted at once, at most."""
_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


def certificate() -> str:
    """A fresh certificate that nobody else trusts, and its key, as PEM. Raises HeadraceError."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise HeadraceError("engine.spark.tls needs the package cryptography",
                            hint="pip install 'headrace[spark]'") from error  # fmt: skip
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a run of headrace")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    plain, encoding = serialization.NoEncryption(), serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    return (made.public_bytes(encoding) + private).decode()


@lru_cache(maxsize=4)
def _context(pem: str, *, listens: bool) -> ssl.SSLContext:
    """Of either end: both show the certificate of the run, and take no other."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # the certificate is the run's, wherever a process of it is
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=pem)
    memory = os.memfd_create("certificate")  # the library reads keys from files alone: this one has no name
    try:
        os.write(memory, pem.encode())
        made.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return made


@dataclass(frozen=True)
class Trust:
    """What all processes of a run know and nobody else: the secret, and the certificate with its key, empty without TLS."""

    secret: bytes = field(repr=False)
    pem: str = field(default="", repr=False)

    def encrypted(self, end: socket.socket, *, listens: bool) -> End:
        """The connection as this run has it. Raises OSError."""
        return TlsEnd(end, self.pem, listens=listens) if self.pem else end


class TlsEnd:
    """An encrypted connection, with what `link` and `Channel` use of a socket. Two threads may use it, one for each way."""

    def __init__(self, end: socket.socket, pem: str, *, listens: bool) -> None:
        """The handshake, in the time that the socket waits. Raises OSError; the socket is closed then."""
        context = _context(pem, listens=listens)
        self._timeout = end.gettimeout()
        self._end = context.wrap_socket(end, server_side=listens)
        self._end.setblocking(False)
        self._lock = threading.RLock()
        self._piece = b""

    def settimeout(self, seconds: float | None) -> None:
        """How long `recv` and `sendall` wait."""
        self._timeout = seconds

    def setblocking(self, blocking: bool) -> None:
        """As a socket's."""
        self._timeout = None if blocking else 0.0

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """As a socket's."""
        self._end.setsockopt(level, option, value)

    def fileno(self) -> int:
        """Of the socket: what is deciphered already it does not tell of."""
        return self._end.fileno()

    def pending(self) -> int:
        """Bytes that are deciphered and not read."""
        with self._lock:
            return self._end.pending()

    def recv(self, size: int) -> bytes:
        """As a socket's, within the time. Raises OSError."""
        while True:
            with self._lock:
                try:
                    return self._end.recv(size)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLEOFError:
                    return b""
            self._wait(select.POLLIN)

    def sendall(self, data: bytes) -> None:
        """As a socket's, within the time. Raises OSError."""
        left = memoryview(data)
        while left:
            piece = left[:_PIECE]
            while True:
                with self._lock:
                    try:
                        self._end.send(piece)
                        break
                    except ssl.SSLWantWriteError:
                        pass
                self._wait(select.POLLOUT)
            left = left[len(piece) :]

    def _wait(self, what: int) -> None:
        poll = select.poll()
        poll.register(self._end.fileno(), what)
        if not poll.poll(None if self._timeout is None else self._timeout * 1000):
            raise TimeoutError("the other end is silent")

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        """As a socket's that does not wait: raises BlockingIOError, after which the same buffers are to be given first."""
        if not self._piece:  # what was begun is to be finished as it was
            some, size = [], 0
            for buffer in buffers:
                some.append(buffer[: _PIECE - size])
                size += some[-1].nbytes
                if size >= _PIECE:
                    break
            self._piece = b"".join(some)
        with self._lock:
            try:
                self._end.send(self._piece)
            except _WANTS as wants:
                raise BlockingIOError from wants
        size, self._piece = len(self._piece), b""
        return size

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        """As a socket's that does not wait. Raises BlockingIOError."""
        total = 0
        with self._lock:
            for buffer in buffers:
                at = 0
                while at < buffer.nbytes:
                    try:
                        count = self._end.recv_into(buffer[at:])
                    except _WANTS as wants:
                        if total:
                            return (total,)
                        raise BlockingIOError from wants
                    except ssl.SSLEOFError:
                        count = 0
                    if not count:
                        return (total,)
                    at += count
                    total += count
        return (total,)

    def close(self) -> None:
        """As a socket's: the other end sees it."""
        self._end.close()


End = socket.socket | TlsEnd
"""One end of a connection between two processes of a run."""
