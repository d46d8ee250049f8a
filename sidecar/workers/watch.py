"""Waiting for an answer of every worker, and telling slow ones from those that stand still.

Always: a worker that uses the processor or is kept from it, or that said of late which other it waits for, is slow at
most; of the others one is named after `still_seconds`. Called by the driver.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from engine.batch.wire import Message
from engine.errors import HeadraceError
from sidecar.workers.cause import error_in, failure
from sidecar.workers.channel import Channel, ChannelClosed, moved
from sidecar.workers.crew import Crew, Guests
from sidecar.workers.messages import opened

_EVERY = 1.0
"""Seconds between two looks; a worker that waits says so as often."""

_LATE = 3.0

Replies = Sequence[tuple[dict[str, Any], list[Message]]]
"""Head and parts of each worker's answer, by shard."""


class Watch:
    """One question to all workers."""

    def __init__(self, crew: Crew | Guests, still_seconds: float) -> None:
        self._answers: dict[int, tuple[dict[str, Any], list[Message]]] = {}
        self._told: HeadraceError | None = None
        self._crew = crew
        self._still_seconds = still_seconds
        now = time.monotonic()
        self._looked = now
        self._moved = dict.fromkeys(range(len(crew.channels)), now)
        self._cpu: dict[int, float | None] = {}
        self._waited: dict[int, float] = {}

    def answers_of_all(self) -> Replies:
        """One answer of each worker. Raises what one failed with, WorkerLost, ChannelClosed."""
        channels = self._crew.channels
        try:
            moved(channels, lambda: self._misses(channels), self._look)
        except ChannelClosed as closed:
            raise self._told or closed from closed
        if self._told is not None:
            raise self._told
        return [self._answers[shard] for shard in range(len(channels))]

    def _misses(self, channels: Sequence[Channel]) -> bool:
        """True while an answer is missing and none has failed. Raises WorkerLost."""
        for shard, channel in enumerate(channels):
            while channel.arrived and shard not in self._answers:
                head, parts = opened(channel.arrived[0])
                if "error" in head:  # it stays, for whoever asks what ended the workers
                    self._told = self._told or failure(shard, head["error"])
                    break
                channel.arrived.popleft()
                if "waits" in head:
                    self._waited[shard] = time.monotonic()
                else:
                    self._answers[shard] = head, parts
        if time.monotonic() - self._looked >= _EVERY:
            self._look()
        return self._told is None and len(self._answers) < len(channels)

    def _look(self) -> None:
        """See who has moved since the last look. Raises WorkerLost."""
        now = time.monotonic()
        frozen = max(
            0.0, now - self._looked - _LATE
        )  # nobody looked for so long: we were stopped, and they may have been too
        self._looked = now
        still: list[int] = []
        for shard, since in self._moved.items():
            self._moved[shard] = since = since + frozen
            cpu = self._crew.cpu_seconds(shard)
            waits = now - self._waited.get(shard, float("-inf")) < _LATE
            before = self._cpu.get(shard)
            self._cpu[shard] = cpu
            worked = cpu is not None and (before is None or cpu - before > 0.02)
            if shard in self._answers or worked or self._crew.is_kept_waiting(shard):
                self._moved[shard] = now
            elif now - since >= self._still_seconds:
                still += [shard] if waits else []
                if not waits:
                    raise self._crew.lost(shard, "a worker stands still", seconds=round(now - since, 1))
        if len(still) == len(self._moved):
            raise self._crew.lost(still[0], "all workers wait for each other", seconds=self._still_seconds)


def answered(channels: Sequence[Channel]) -> Replies:
    """One answer on each channel, however long it takes. Raises what a worker failed with, ChannelClosed."""
    closed: ChannelClosed | None = None
    try:
        moved(channels, lambda: not all(channel.arrived for channel in channels), lambda: None)
    except ChannelClosed as error:
        closed = error
    for shard, channel in enumerate(channels):
        told = error_in(channel)
        if told is not None:
            raise failure(shard, told)
    if closed is not None:
        raise closed
    return [opened(channel.arrived.popleft()) for channel in channels]
