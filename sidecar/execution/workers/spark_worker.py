"""A worker that a supervisor started on another host: it dials the driver and the shards before it, then serves.

Always: nothing is unpickled before the driver has proved the secret of the run; the process ends with its supervisor,
even while it is stopped. Run as a program; its standard input gives where the driver is, and its task.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace.engine.errors import HeadraceError
from headrace.engine.kernels import warm
from headrace.sidecar.execution.malloc import share_one_heap
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.identity import identity
from headrace.sidecar.execution.workers.link import Address, LinkRefused, Listener, dial, receive_frame
from headrace.sidecar.execution.workers.protocol import message
from headrace.sidecar.execution.workers.tls import Trust
from headrace.sidecar.execution.workers.worker import Ends, serve

MEETING_SECONDS = 90.0
"""How long a worker waits for the others to dial it."""

DRIVER, ASIDE, SHARDS = "driver", "aside", "shards"
_DEATH_SIGNAL = 1


class DialledDoor:
    """A worker's door on another host: it dials the driver and the shards before it, and the others dial it."""

    def __init__(
        self, shard: int, driver: Address, trust: Trust, others: Sequence[Address], listener: Listener
    ) -> None:
        self._shard, self._driver, self._trust = shard, driver, trust
        self._others, self._listener = others, listener

    def take(self, name: str, others: Sequence[int]) -> tuple[Channel, dict[int, Channel]]:
        """As `Door.take`."""
        hello = {"name": name, "shard": self._shard}
        channel = Channel(dial(self._driver, self._trust, hello), -1)
        return channel, self.meet(name, others)

    def meet(self, name: str, others: Sequence[int]) -> dict[int, Channel]:
        """The channels of this name to the other shards alone."""
        hello, found = {"name": name, "shard": self._shard}, {}
        for k in (k for k in others if k < self._shard):
            found[k] = Channel(dial(self._others[k], self._trust, hello), k)
        for k in (k for k in others if k > self._shard):
            taken = self._listener.take(name, k, MEETING_SECONDS)
            if taken is None:
                raise ChannelClosed("another shard does not come", shard=k, seconds=MEETING_SECONDS)
            found[k] = Channel(taken[0], k)
        return found

    def close(self) -> None:
        """Take no more."""
        self._listener.close()


def main() -> None:
    """Read where to dial, meet the others, serve until the driver's channel closes."""
    head = json.loads(sys.stdin.buffer.readline())
    _end_with(head["parent"])
    blob = sys.stdin.buffer.read(head["size"])
    threading.Thread(target=_end_with_input, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    share_one_heap()
    warm()
    try:
        ends = _met(head)
    except LinkRefused as refused:
        sys.exit(str(refused))
    try:
        task = pickle.loads(blob)  # noqa: S301 (of the driver, which has proved that it is ours)
    except Exception as error:
        _tell(ends.driver, error)
        raise
    serve(ends, head["shard"], task)


def _met(head: dict[str, Any]) -> Ends:
    """All ends of this worker."""
    shard, count = head["shard"], head["count"]
    trust = Trust(bytes.fromhex(head["secret"]), head["certificate"])
    driver: Address = (head["driver"][0], head["driver"][1])
    hello = {"name": DRIVER, "shard": shard, "identity": dict(identity()), "pid": os.getpid()}
    listener = Listener(_own_address(driver), trust, ports=head["ports"])
    main_end = dial(driver, trust, {**hello, "address": listener.address})
    aside = dial(driver, trust, {"name": ASIDE, "shard": shard})
    others: list[Address] = [(host, port) for host, port in receive_frame(main_end)["addresses"]]
    door = DialledDoor(shard, driver, trust, others, listener)
    met = door.meet(SHARDS, [k for k in range(count) if k != shard])
    return Ends(Channel(main_end, -1), met, Channel(aside, -1), door)


def _own_address(driver: Address) -> str:
    """By which this machine reaches the driver: by that the others reach it. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(driver)
        return str(probe.getsockname()[0])


def _tell(driver: Channel, error: Exception) -> None:
    told: dict[str, object] = {"code": "internal", "what": f"{type(error).__name__}: {error}", "where": {},
            "hint": "the executors need the same program and environment as the driver"}  # fmt: skip
    if isinstance(error, HeadraceError):
        told = dict(error.as_json())
    with suppress(ChannelClosed):
        driver.put(message({"error": told}))
        moved([driver], lambda: False, lambda: None)


def _end_with(parent: int) -> None:
    """Have the system end this process with its supervisor, even while it is stopped."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _end_with_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
