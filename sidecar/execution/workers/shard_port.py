"""The port of a shard in a process of its own: a socket to each of the others.

Invariant: a shard writes and reads all messages of a round at the same time, so that no size of message blocks two shards. A
round is over once every other shard's message is in. The engine's shard calls it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from headrace.engine.batch.exchange_codec import Message
from headrace.sidecar.execution.dataflow_host import ExchangeFacts
from headrace.sidecar.execution.workers.channel import Channel, moved


class SocketPort:
    """`channels`: to each other shard; `waiting` is told, every second without news, of whom nothing came yet."""

    def __init__(self, count: int, channels: Mapping[int, Channel], waiting: Callable[[Sequence[int]], None]) -> None:
        self._count = count
        self._channels = channels
        self._waiting = waiting
        self._rounds = 0
        self._waited = [0.0] * count

    def facts(self) -> ExchangeFacts:
        """What was exchanged so far."""
        sent = [self._channels[k].sent if k in self._channels else 0 for k in range(self._count)]
        return ExchangeFacts(self._rounds, sent, list(self._waited))

    def exchange(self, out: Sequence[Message]) -> Sequence[Message]:
        """One round. Raises ChannelClosed once another shard is gone."""
        for k, channel in self._channels.items():
            channel.put(out[k])
        found: list[Message] = [()] * self._count
        last, begun = 0, time.perf_counter()

        def missing() -> list[int]:
            nonlocal last
            for k, channel in self._channels.items():
                if not found[k] and channel.arrived:
                    found[k], last = channel.arrived.popleft(), k
            return [k for k in self._channels if not found[k]]

        moved(list(self._channels.values()), lambda: bool(missing()), lambda: self._waiting(missing()))
        missing()
        self._rounds += 1
        self._waited[last] += time.perf_counter() - begun
        return found
