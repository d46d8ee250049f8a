"""Waiting for an answer of every worker, and telling slow ones from those that stand still.

Always: a worker that uses the processor, or that said of late which other it waits for, is slow at most; of the others
one is named after `still_seconds`. Called by the driver.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from engine.batch.wire import Message
from engine.errors import HeadraceError
from sidecar.workers.channel import Channel
from sidecar.workers.crew import Crew, WorkerLost
from sidecar.workers.messages import opened

_EVERY = 1.0
"""Seconds between two looks; a worker that waits says so as often."""

_LATE = 3.0


class Watch:
    """One question to all workers. `answers`: by shard, as they come; `told`: what one failed with."""

    def __init__(self, crew: Crew, still_seconds: float) -> None:
        self.answers: dict[int, tuple[dict[str, Any], list[Message]]] = {}
        self.told: HeadraceError | None = None
        self._crew = crew
        self._still_seconds = still_seconds
        now = time.monotonic()
        self._looked = now
        self._moved = dict.fromkeys(range(len(crew.channels)), now)
        self._cpu: dict[int, float | None] = {}
        self._waited: dict[int, float] = {}

    def misses(self, channels: Sequence[Channel]) -> bool:
        """True while an answer is missing and none has failed. Raises WorkerLost."""
        for shard, channel in enumerate(channels):
            while channel.arrived and shard not in self.answers:
                head, parts = opened(channel.arrived.popleft())
                if "waits" in head:
                    self._waited[shard] = time.monotonic()
                elif "error" in head:
                    self.told = self.told or _failed(shard, head["error"])
                else:
                    self.answers[shard] = head, parts
        if time.monotonic() - self._looked >= _EVERY:
            self.look()
        return self.told is None and len(self.answers) < len(channels)

    def look(self) -> None:
        """See who has moved since the last look. Raises WorkerLost."""
        now = self._looked = time.monotonic()
        still: list[int] = []
        for shard, since in self._moved.items():
            cpu = self._crew.cpu_seconds(shard)
            waits = now - self._waited.get(shard, float("-inf")) < _LATE
            before = self._cpu.get(shard)
            self._cpu[shard] = cpu
            if shard in self.answers or (cpu is not None and (before is None or cpu - before > 0.02)):
                self._moved[shard] = now
            elif now - since >= self._still_seconds:
                still += [shard] if waits else []
                if not waits:
                    raise self._crew.lost(shard, "a worker stands still", seconds=round(now - since, 1))
        if len(still) == len(self._moved):
            raise self._crew.lost(still[0], "all workers wait for each other", seconds=self._still_seconds)


def _failed(shard: int, told: dict[str, Any]) -> HeadraceError:
    """What a worker failed with, as an error of here."""
    where = {name: value for name, value in told["where"].items() if name not in ("worker", "what", "hint")}
    error = HeadraceError(told["what"], hint=told["hint"], **where, worker=shard)
    error.code = told["code"]  # type: ignore[misc]
    return error


__all__ = ["Watch", "WorkerLost"]
