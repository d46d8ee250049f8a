"""Connections are trusted only once both ends have proved the secret, and strangers are refused by name."""

from __future__ import annotations

import pickle
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.sidecar.execution.workers.identity import PROGRAM, difference, identity
from headrace.sidecar.execution.workers.link import LinkRefused, Listener, dial, receive_frame, send_frame
from headrace.sidecar.execution.workers.tls import Trust

SECRET = Trust(secrets.token_bytes(32))


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1", SECRET, check=lambda hello: difference(hello["identity"]))
    yield made
    made.close()


def hello(shard: int, **other: str) -> dict[str, object]:
    return {"name": "driver", "shard": shard, "identity": {**identity(), **other}}


def test_both_ends_that_know_the_secret_talk(listener: Listener) -> None:
    there = dial(listener.address, SECRET, hello(3))
    found = listener.take("driver", 3, 5)
    assert found is not None
    here, said = found
    assert said["identity"] == identity()
    send_frame(there, {"a": 1})
    assert receive_frame(here) == {"a": 1}
    here.close()
    there.close()


def test_who_does_not_know_the_secret_is_not_let_in(listener: Listener) -> None:
    with pytest.raises(LinkRefused, match="does not know the secret"):
        dial(listener.address, Trust(secrets.token_bytes(32)), hello(0))
    assert listener.take("driver", 0, 0.3) is None


def test_who_says_another_thing_than_it_proved_is_not_let_in(listener: Listener) -> None:
    """A proof covers what is said with it: another's cannot be used."""
    seen: list[bytes] = []
    between = socket.create_server(("127.0.0.1", 0))

    def relay() -> None:
        client, _ = between.accept()
        server = socket.create_connection(listener.address)
        client.sendall(server.recv(32, socket.MSG_WAITALL))
        server.sendall(client.recv(64, socket.MSG_WAITALL))
        client.sendall(server.recv(32, socket.MSG_WAITALL))
        size = client.recv(4, socket.MSG_WAITALL)
        text = client.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL).replace(b'"shard": 1', b'"shard": 7')
        server.sendall(size + text)
        seen.append(server.recv(1))
        client.close()
        server.close()

    thread = threading.Thread(target=relay)
    thread.start()
    with pytest.raises(LinkRefused):
        dial(between.getsockname()[:2], SECRET, hello(1))
    thread.join(10)
    between.close()
    assert seen == [b""]
    assert listener.take("driver", 7, 0.3) is None


def test_nothing_that_a_stranger_sends_is_unpickled(listener: Listener) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return pytest.fail, ("unpickled",)

    with socket.create_connection(listener.address, 5) as end:
        end.sendall(pickle.dumps(Evil()) * 10 + b"\xff" * 200)
        said = bytearray()
        with suppress(ConnectionResetError):
            while part := end.recv(1 << 16):
                said += part
    assert len(said) <= 64, "a challenge and a proof, and no more"
    dial(listener.address, SECRET, hello(2)).close()  # and who knows the secret is let in as before


@pytest.mark.parametrize("what", [PROGRAM, "Python", "numba", "CPU model of the kernels", "byte order"])
def test_another_program_is_refused_by_what_differs(listener: Listener, what: str) -> None:
    with pytest.raises(LinkRefused, match=f"{what} differs: another there, {identity()[what]} here"):
        dial(listener.address, SECRET, hello(0, **{what: "another"}))
    assert listener.refused is not None
    assert listener.take("driver", 0, 0.2) is None
