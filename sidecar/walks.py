"""The way of rows from their commit to a sink: when each run of epochs reached which point of it.

Always: of a run that a sink may still write its points are known, up to MANY runs. Steps tell them on the loop's thread,
sinks ask for them on theirs. Called by the runtime.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from connectors.sink import EpochStamp
from sidecar.metrics import Legs

FAR = 1000
"""Epochs behind the last one that every sink holds, of which nobody asks any more."""
MANY = 4096


class Walk(NamedTuple):
    """When one run of epochs was in Kafka, polled, bound and stepped (wall seconds)."""

    kafka: float
    polled: float
    bound: float
    stepped: float


class Walks:
    """The walks of the runs of epochs that lie behind, in their order, and the last epoch of each."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._walks: list[Walk] = []
        self._lock = threading.Lock()

    def took(self, epoch: int, walk: Walk) -> None:
        """A run of epochs up to this one, which are later than any before, is stepped."""
        with self._lock:
            self._ends.append(epoch)
            self._walks.append(walk)

    def legs(self, stamps: Mapping[int, EpochStamp], now: float) -> list[Legs]:
        """The legs of each epoch that a sink holds since `now`, where it is known when it was committed."""
        with self._lock:
            places = [bisect_left(self._ends, epoch) for epoch in stamps]
            walks = [self._walks[at] if at < len(self._walks) else None for at in places]
        legs = []
        for stamp, walk in zip(stamps.values(), walks, strict=True):
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
            far, many = bisect_left(self._ends, written - FAR), len(self._ends) - MANY
            gone = max(far, min(many, bisect_right(self._ends, written)))
            if gone > 0:
                del self._ends[:gone], self._walks[:gone]
