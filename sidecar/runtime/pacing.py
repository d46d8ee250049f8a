"""When a step starts: at once where a sink can take its changes; else what arrives waits, and becomes one range.

Invariant: nothing waits where no sink is attached, where one of them is idle, or for longer than MOST_SECONDS: a sink that
hangs fills its backlog then, which slows the intake or detaches it. Owned by the loop; sinks' threads call `rested`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from headrace.sidecar.delivery.sink_writer import SinkWriter

MOST_SECONDS = 0.5
"""So long may what arrived wait for sinks: also whoever asks something of the loop waits for the step then."""
MOST_EVENTS = 20_000
"""So many events are worth a step whatever the sinks do."""


class Pacing:
    """Single caller of everything but `rested`: the loop. `waited`: whether the last look let time pass."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rested = threading.Event()
        self._since: float | None = None
        self._events = 0
        self.waited = False

    def rested(self) -> None:
        """A sink has done its write. Called by any thread."""
        self._rested.set()

    def arrived(self, events: int) -> None:
        """So many events were read, which no step has taken in yet."""
        self._events += events
        if self._since is None:
            self._since = self._clock()

    def stepped(self) -> None:
        """Nothing waits any more."""
        self._since, self._events = None, 0

    def holds(self, attached: Sequence[SinkWriter], timeout: float) -> bool:
        """Whether what arrived goes on waiting, after a wait of at most `timeout` seconds for a sink to be idle."""
        self._rested.clear()
        self.waited = False
        if not self._may_wait() or not _all_busy(attached):
            return False
        self._rested.wait(timeout)
        self.waited = True
        return self._may_wait() and _all_busy(attached)

    def _may_wait(self) -> bool:
        waiting = self._since is not None and self._events < MOST_EVENTS
        return waiting and self._clock() - (self._since or 0.0) < MOST_SECONDS


def _all_busy(attached: Sequence[SinkWriter]) -> bool:
    return bool(attached) and all(writer.busy for writer in attached)
