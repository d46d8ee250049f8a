"""A cluster's finalized features, asked of one broker in its own protocol, as the client library does not tell them.

Invariant: read-only, within a second or two, and None where it cannot be known (TLS, a broker that does not answer). The sink
calls it at `open`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

_API_VERSIONS, _VERSION = 18, 3
_FINALIZED = 2
"""The tag of the field that holds the finalized features."""


def finalized(servers: str, timeout: float = 2.0) -> dict[str, int] | None:
    """Feature → its final version, from the first of `servers` (host:port,…) that answers."""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout) as broker:
                broker.settimeout(timeout)
                broker.sendall(request())
                [size] = struct.unpack(">i", _exactly(broker, 4))
                return parse(_exactly(broker, size))
        except (OSError, ValueError, IndexError, struct.error):
            continue
    return None


def transaction_version(settings: Mapping[str, object]) -> int | None:
    """The cluster's transaction.version (0: none); None where it cannot be known without a session of the library's."""
    if str(settings.get("security.protocol", "plaintext")).lower() != "plaintext":
        return None
    features = finalized(str(settings.get("bootstrap.servers", "")))
    return None if features is None else features.get("transaction.version", 0)


def request() -> bytes:
    """An ApiVersions request with its length in front."""
    software = b"headrace"
    named = bytes([len(software) + 1]) + software
    client = struct.pack(">h", len(software)) + software
    body = struct.pack(">hhi", _API_VERSIONS, _VERSION, 1) + client + b"\0" + named + b"\x020" + b"\0"
    return struct.pack(">i", len(body)) + body


def parse(answer: bytes) -> dict[str, int] | None:
    """The finalized features of an answer; None where the broker refused the question. Raises IndexError, struct.error."""
    [error] = struct.unpack_from(">h", answer, 4)
    if error:
        return None
    count, at = _varint(answer, 6)
    for _ in range(count - 1):
        at = _after_tags(answer, at + 6)
    tags, at = _varint(answer, at + 4)
    for _ in range(tags):
        tag, at = _varint(answer, at)
        size, at = _varint(answer, at)
        if tag == _FINALIZED:
            return _features(answer, at)
        at += size
    return {}


def _features(answer: bytes, at: int) -> dict[str, int]:
    found = {}
    count, at = _varint(answer, at)
    for _ in range(count - 1):
        length, at = _varint(answer, at)
        name, at = answer[at : at + length - 1].decode(), at + length - 1
        [found[name]] = struct.unpack_from(">h", answer, at)
        at = _after_tags(answer, at + 4)
    return found


def _after_tags(answer: bytes, at: int) -> int:
    tags, at = _varint(answer, at)
    for _ in range(tags):
        _, at = _varint(answer, at)
        size, at = _varint(answer, at)
        at += size
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _exactly(broker: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = broker.recv(size - len(data))
        if not more:
            raise OSError("the broker closed the connection")
        data += more
    return data
