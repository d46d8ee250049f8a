"""The way of rows from their commit to a sink: when each run of epochs reached which point of it.

Always: of a run that a sink may still write its points are known, up to MANY runs. Steps tell them on the loop's thread,
sinks ask for them on theirs. Called by the runtime.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from connectors.sink import EpochStamp
from sidecar.metrics import Legs

FAR = 10_000
"""Epochs behind the last one that every sink holds, of which nobody asks any more."""
MANY = 4096


class Walk(NamedTuple):
    """When one run of epochs was in Kafka, polled, bound and stepped (wall seconds)."""

    kafka: float
    polled: float
    bound: float
    stepped: float


class Walks:
    """The walks of the runs of epochs that lie behind, by the last epoch of each."""

    def __init__(self) -> None:
        self._walks: dict[int, Walk] = {}
        self._lock = threading.Lock()

    def took(self, epoch: int, walk: Walk) -> None:
        """A run of epochs up to this one is stepped."""
        with self._lock:
            self._walks[epoch] = walk

    def legs(self, stamps: Mapping[int, EpochStamp], now: float) -> list[Legs]:
        """The legs of each epoch that a sink holds since `now`, where it is known when it was committed."""
        with self._lock:
            walks = sorted(self._walks.items())
        ends = [epoch for epoch, _ in walks]
        legs = []
        for epoch, stamp in stamps.items():
            at = bisect_left(ends, epoch)
            walk = walks[at][1] if at < len(walks) else None
            if walk is not None and stamp.commit_us > 0:
                commit = stamp.commit_us / 1e6
                kafka = min(max(walk.kafka, commit), walk.polled)
                legs.append(
                    Legs(kafka - commit, walk.polled - kafka, walk.bound - walk.polled,
                         walk.stepped - walk.bound, now - walk.stepped)
                )  # fmt: skip
        return legs

    def forget(self, written: int) -> None:
        """Every sink holds epoch `written`: forget what is far behind it, or too much."""
        with self._lock:
            for epoch in [e for e in self._walks if e < written - FAR or len(self._walks) > MANY]:
                if epoch <= written:
                    del self._walks[epoch]
