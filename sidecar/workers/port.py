"""The port of a shard in a process of its own: a socket to each of the others.

Always: all messages of a round are written and read side by side, whatever their sizes, and a round is over when every
other shard's message is in. Called by the engine's shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.batch.wire import Message
from sidecar.workers.channel import Channel, moved


class SocketPort:
    """`channels`: to each other shard; `waiting` is told, every second without news, of whom nothing came yet."""

    def __init__(self, count: int, channels: Mapping[int, Channel], waiting: Callable[[Sequence[int]], None]) -> None:
        self._count = count
        self._channels = channels
        self._waiting = waiting

    def exchange(self, out: Sequence[Message]) -> Sequence[Message]:
        """One round. Raises ChannelClosed once another shard is gone."""
        for k, channel in self._channels.items():
            channel.put(out[k])
        found: list[Message] = [()] * self._count

        def missing() -> list[int]:
            for k, channel in self._channels.items():
                if not found[k] and channel.arrived:
                    found[k] = channel.arrived.popleft()
            return [k for k in self._channels if not found[k]]

        moved(list(self._channels.values()), lambda: bool(missing()), lambda: self._waiting(missing()))
        missing()
        return found
