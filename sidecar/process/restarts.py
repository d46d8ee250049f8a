"""How often workers may be lost: each time the sidecar starts new ones and goes on from the last checkpoint, within limits.

Invariant: of five losses within ten minutes the fifth ends the process, by the error that names it. Owned by the host.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers.pool import SlotsMissing, WorkerLost

MOST = 5
WITHIN_SECONDS = 600.0


class Restarts:
    """Losses of this process. `reasons`: how many there were of each; `legs`: the seconds of the last restart, by part."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._losses: deque[float] = deque(maxlen=MOST)
        self._lost_at: float | None = None
        self._tried: list[float] = []
        self._running_at: float | None = None
        self.reasons: Counter[str] = Counter()
        self.legs: Mapping[str, float] = {}

    @property
    def count(self) -> int:
        """All losses so far."""
        return self.reasons.total()

    def may_follow(self, error: HeadraceError) -> bool:
        """Whether new workers are to be started after this error.

        Missing slots are waited for and not counted. Any other error than a lost worker ends the process.
        """
        now = self._clock()
        if self._lost_at is None:
            self._lost_at, self._tried = now, []
        if isinstance(error, SlotsMissing):
            return True
        if not isinstance(error, WorkerLost):
            return False
        self._losses.append(now)
        self.reasons[error.reason] += 1
        return len(self._losses) < MOST or now - self._losses[0] > WITHIN_SECONDS

    def starting(self) -> None:
        """New workers are asked for; those before have ended."""
        self._tried.append(self._clock())

    def running(self, slots: float = 0.0, start: float = 0.0) -> float | None:
        """The workers run again, which waited so long for slots and took so long to start: the seconds since they were lost.

        None where they were not.
        """
        if self._lost_at is None:
            return None
        now, tried = self._clock(), self._tried or [self._clock()]
        self.legs = {
            "end": tried[0] - self._lost_at,
            "slots": tried[-1] - tried[0] + slots,
            "start": start,
            "recover": max(0.0, now - tried[-1] - slots - start),
        }
        seconds, self._lost_at, self._running_at = now - self._lost_at, None, now
        return seconds

    def caught_up(self) -> Mapping[str, float] | None:
        """The sinks have caught up: all parts of the restart; None where that was told, or there was none."""
        if self._running_at is None:
            return None
        self.legs = {**self.legs, "catch up": self._clock() - self._running_at}
        self._running_at = None
        return self.legs
