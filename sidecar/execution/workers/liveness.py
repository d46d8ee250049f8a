"""Waiting for an answer of every worker, and telling slow ones from those that hang.

Always: a worker that uses the processor or is kept from it, or that said of late which other it waits for, is slow at
most; of the others one is named after `still_seconds`. Two that wait for each other have both sent what the other waits
for: after `CUT_SECONDS` the network between them counts as cut. Called by the driver.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from headrace.engine.batch.exchange_codec import Message
from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.failure import error_in, failure
from headrace.sidecar.execution.workers.pool import CUT_OFF, HANGS, WorkerPool
from headrace.sidecar.execution.workers.protocol import opened

_EVERY = 1.0
"""Seconds between two looks; a worker that waits says so as often."""

_LATE = 3.0
CUT_SECONDS = 10.0
"""Two workers that have waited for each other for so long are cut off from each other."""

Replies = Sequence[tuple[dict[str, Any], list[Message]]]
"""Head and parts of each worker's answer, by shard."""


class Watch:
    """One question to all workers."""

    def __init__(self, pool: WorkerPool, still_seconds: float) -> None:
        self._answers: dict[int, tuple[dict[str, Any], list[Message]]] = {}
        self._told: HeadraceError | None = None
        self._pool = pool
        self._still_seconds = still_seconds
        now = time.monotonic()
        self._looked = now
        self._moved = dict.fromkeys(range(len(pool.channels)), now)
        self._cpu: dict[int, float | None] = {}
        self._waited: dict[int, float] = {}
        self._awaited: dict[int, Sequence[int]] = {}
        self._mutual: dict[tuple[int, int], float] = {}

    def answers_of_all(self) -> Replies:
        """One answer of each worker. Raises the error of one that failed, WorkerLost and ChannelClosed."""
        channels = self._pool.channels
        try:
            moved(channels, lambda: self._misses(channels), self._look)
        except ChannelClosed as closed:
            raise self._told or closed from closed
        if self._told is not None:
            raise self._told
        return [self._answers[shard] for shard in range(len(channels))]

    def _misses(self, channels: Sequence[Channel]) -> bool:
        """Whether an answer is still missing and no worker has failed. Raises WorkerLost."""
        for shard, channel in enumerate(channels):
            while channel.arrived and shard not in self._answers:
                head, parts = opened(channel.arrived[0])
                if "error" in head:  # it stays, for whoever asks what ended the workers
                    self._told = self._told or failure(shard, head["error"])
                    break
                channel.arrived.popleft()
                if "waits" in head:
                    self._waited[shard], self._awaited[shard] = time.monotonic(), head["waits"]
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
            cpu = self._pool.cpu_seconds(shard)
            waits = now - self._waited.get(shard, float("-inf")) < _LATE
            before = self._cpu.get(shard)
            self._cpu[shard] = cpu
            worked = cpu is not None and (before is None or cpu - before > 0.02)
            if shard in self._answers or worked or self._pool.is_kept_waiting(shard):
                self._moved[shard] = now
            elif now - since >= self._still_seconds:
                still += [shard] if waits else []
                if not waits:
                    raise self._pool.lost(shard, HANGS, seconds=round(now - since, 1))
        self._look_for_cuts(now, frozen)
        if len(still) == len(self._moved):
            raise self._pool.lost(still[0], "all workers wait for each other", seconds=self._still_seconds)

    def _look_for_cuts(self, now: float, frozen: float) -> None:
        """Name two workers that hear nothing of each other. Raises WorkerLost."""
        fresh = {k: on for k, on in self._awaited.items() if now - self._waited[k] < _LATE and k not in self._answers}
        pairs = {(k, other) for k, on in fresh.items() for other in on if k < other and k in fresh.get(other, ())}
        self._mutual = {pair: self._mutual.get(pair, now) + frozen for pair in pairs}
        for (one, other), since in self._mutual.items():
            if now - since >= CUT_SECONDS:
                raise self._pool.lost(other, CUT_OFF, seconds=round(now - since, 1), by=f"shard {one}")


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
