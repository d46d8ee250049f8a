"""The latency trace: when each run of epochs reached which stage between its commit and a sink.

Invariant: it knows the last MANY runs, and every run that a sink may still write. The loop's thread writes; the sinks'
threads ask. The runtime calls it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from headrace.connectors.sink import EpochStamp
from headrace.sidecar.telemetry.metrics import LatencyStages

FAR = 1000
"""Epochs behind the last one that every sink holds, of which nobody asks any more."""
MANY = 4096


class StageTimes(NamedTuple):
    """When one run of epochs was in Kafka, the loop polled, and it was here, bound and stepped (wall seconds)."""

    kafka: float
    asked: float
    polled: float
    bound: float
    stepped: float


class LatencyTrace:
    """The stage times of the last runs of epochs, in their order, and the last epoch of each."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times: list[StageTimes | None] = []
        self._lock = threading.Lock()

    def took(self, epoch: int, times: StageTimes | None) -> None:
        """A run of epochs up to this one, which are later than any before, is stepped; None where nothing arrived for it."""
        with self._lock:
            self._ends.append(epoch)
            self._times.append(times)

    def stages(self, stamps: Mapping[int, EpochStamp], now: float, writing: float) -> list[LatencyStages]:
        """The stages of each epoch that a sink holds since `now`, where it is known when it was committed; its write took
        `writing` seconds."""
        with self._lock:
            places = [bisect_left(self._ends, epoch) for epoch in stamps]
            times = [self._times[at] if at < len(self._times) else None for at in places]
        stages = []
        for stamp, one in zip(stamps.values(), times, strict=True):
            if one is not None and stamp.commit_us > 0:
                commit = stamp.commit_us / 1e6
                kafka = min(max(one.kafka, commit), one.polled)
                stages.append(
                    LatencyStages(kafka - commit, one.polled - kafka, one.bound - one.polled,
                                  one.stepped - one.bound, now - one.stepped,
                                  max(0.0, min(one.asked, one.polled) - kafka), max(0.0, now - writing - one.stepped))
                )  # fmt: skip
        return stages

    def forget(self, written: int) -> None:
        """Every sink holds epoch `written`: forget what is far behind it, or too much."""
        with self._lock:
            far, many = bisect_left(self._ends, written - FAR), len(self._ends) - MANY
            gone = max(far, min(many, bisect_right(self._ends, written)))
            if gone > 0:
                del self._ends[:gone], self._times[:gone]
