"""What a cluster's features are, asked of a true broker, and how answers are read."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from headrace.connectors.kafka import features, sink
from headrace.connectors.kafka.sink import KafkaSink
from tests.contracts.sink import ORDERS


def answer(finalized: dict[str, int] | None, *, error: int = 0) -> bytes:
    """What a broker sends: one API, a tag that nobody knows, and the finalized features if any."""
    tagged = b"\x63\x02ab"
    tags = 1
    if finalized is not None:
        body = bytes([len(finalized) + 1])
        for name, version in finalized.items():
            body += bytes([len(name) + 1]) + name.encode() + struct.pack(">hh", version, 0) + b"\0"
        tagged += bytes([2, len(body)]) + body
        tags += 1
    return (
        struct.pack(">ih", 1, error)
        + b"\x02"
        + struct.pack(">hhh", 18, 0, 4)
        + b"\0"
        + b"\0" * 4
        + bytes([tags])
        + tagged
    )


@pytest.mark.parametrize("found", [{}, {"transaction.version": 2}, {"metadata.version": 25, "transaction.version": 1}])
def test_an_answer_is_read(found: dict[str, int]) -> None:
    assert features.parse(answer(found)) == found
    assert features.parse(answer(None)) == {}
    assert features.parse(answer(found, error=35)) is None


def test_a_true_broker_tells_and_has_version_two(kafka: str, unique: str) -> None:
    found = features.finalized(kafka)
    assert found is not None
    assert found["metadata.version"] > 0
    made = KafkaSink("group", {"bootstrap.servers": kafka}, f"{unique}.", sidecar=unique, replication=1)
    made.open([ORDERS])
    assert made.warnings == (() if found.get("transaction.version", 0) >= 2 else sink.OLD_TRANSACTIONS)
    made.close()


@pytest.mark.parametrize(("version", "warned"), [({}, True), ({"transaction.version": 1}, True), (None, False)])
def test_an_older_cluster_is_known(version: dict[str, int] | None, warned: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as asked:
                asked.recv(1000)
                body = answer(version, error=0 if version is not None else 35)
                asked.sendall(struct.pack(">i", len(body)) + body)

        thread = threading.Thread(target=serve)
        thread.start()
        found = features.transaction_version({"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}"})
        thread.join()
    assert (found is not None and found < 2) is warned


def test_where_it_cannot_be_known_nothing_is_said() -> None:
    assert features.transaction_version({"bootstrap.servers": "127.0.0.1:1"}) is None
    assert features.transaction_version({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL"}) is None
