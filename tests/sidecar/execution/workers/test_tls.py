"""Encrypted connections: nothing of them can be read on the way, strangers are refused, and messages come as over a socket."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.sidecar.config.config import Settings, load_for_replay
from headrace.sidecar.config.hosting import SparkConfig
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.link import LinkRefused, Listener, dial, receive_frame, send_frame
from headrace.sidecar.execution.workers.tls import End, Trust, certificate
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.wiring.worker_pools import make_pool
from tests.engine.dataflow.test_determinism import as_bytes
from tests.sidecar.execution.workers.built import TABLES, VIEWS, built, customers, orders

SECRET = secrets.token_bytes(32)
TRUST = Trust(SECRET, certificate())
MARK = b"a row that nobody else may read"


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1", TRUST)
    yield made
    made.close()


def met(listener: Listener, at: Any = None) -> tuple[End, End]:
    """Both ends of a connection."""
    there = dial(at or listener.address, TRUST, {"name": "rows", "shard": 0})
    found = listener.take("rows", 0, 5)
    assert found is not None
    return found[0], there


def test_nothing_of_it_can_be_read_on_the_way(listener: Listener) -> None:
    seen: list[bytes] = []
    between = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                seen.append(piece)
                to.sendall(piece)

    def relay() -> None:
        client, _ = between.accept()
        with client, socket.create_connection(listener.address) as server:
            back = threading.Thread(target=pump, args=(server, client))
            back.start()
            pump(client, server)
            server.shutdown(socket.SHUT_RDWR)
            back.join()

    thread = threading.Thread(target=relay)
    thread.start()
    here, there = met(listener, between.getsockname()[:2])
    send_frame(there, {"text": MARK.decode()})
    assert receive_frame(here) == {"text": MARK.decode()}
    whole = b"".join(seen)
    assert len(whole) > 500
    assert MARK not in whole
    assert b"rows" not in whole
    for end in (there, here, between):
        end.close()
    thread.join(10)


@pytest.mark.parametrize(
    "stranger", [Trust(SECRET), Trust(SECRET, certificate())], ids=["plain", "another certificate"]
)
def test_who_has_another_certificate_or_none_is_refused_though_it_knows_the_secret(
    listener: Listener, stranger: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sidecar.execution.workers.link.PROVING_SECONDS", 2.0)
    with pytest.raises(LinkRefused):
        dial(listener.address, stranger, {"name": "rows", "shard": 0})
    assert listener.take("rows", 0, 0.3) is None
    for end in met(listener):
        end.close()


def test_messages_larger_than_a_socket_holds_come_whole_from_both_sides_at_once(listener: Listener) -> None:
    draws = np.random.default_rng(1)
    ends = [Channel(end, k) for k, end in enumerate(met(listener))]
    sent = [
        [[draws.bytes(int(n)) for n in draws.integers(0, most, 5)] for most in (10, 100_000, 9_000_000)] for _ in ends
    ]
    for channel, messages in zip(ends, sent, strict=True):
        for message in messages:
            channel.put(message)
    moved(ends, lambda: any(len(channel.arrived) < 3 for channel in ends), lambda: None)
    for channel, messages in zip(ends, reversed(sent), strict=True):
        assert [[bytes(part) for part in message] for message in channel.arrived] == messages
    ends[0].close()
    with pytest.raises(ChannelClosed):
        moved([ends[1]], lambda: True, lambda: None)
    ends[1].close()


@pytest.mark.parametrize(
    ("tls", "conf", "encrypted"),
    [(None, {}, False), (True, {}, True), (None, {"spark.ssl.enabled": "true"}, True),
     (None, {"spark.network.crypto.enabled": "TRUE"}, True), (False, {"spark.ssl.rpc.enabled": "true"}, False)],
)  # fmt: skip
def test_it_is_encrypted_where_it_is_asked_for_or_spark_is(
    tls: bool | None, conf: dict[str, str], encrypted: bool
) -> None:
    assert SparkConfig(tls=tls, conf=conf).is_encrypted is encrypted


@pytest.mark.long
@pytest.mark.spark
def test_encrypted_workers_on_spark_publish_the_same(spark_settings: Settings, tmp_path: Path) -> None:
    text = spark_settings.path.read_text().replace("spark: {master", "spark: {tls: true, master")
    (tmp_path / "headrace.yaml").write_text(text)
    encrypted = make_pool(load_for_replay(tmp_path / "headrace.yaml", {}), 1)
    assert getattr(encrypted, "tls", False) is True
    found = []
    for maker in (encrypted, make_pool(spark_settings, 1)):
        with Workers.start(2, Task(built, tmp_path), TABLES, VIEWS, maker=maker) as workers:
            workers.push("customers", customers(0))
            for epoch in range(4):
                workers.push("orders", orders(epoch, epoch * 200_000, 150_000 if epoch == 2 else 300))
                workers.step(epoch + 1)
            taken = (output.take() for output in workers.outputs.values())
            found.append([as_bytes([side]) for sides in taken for side in sides])
    assert found[0] == found[1]
