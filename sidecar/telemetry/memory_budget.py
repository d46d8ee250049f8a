"""The memory budget: what is used of it, and when the intake must wait.

Invariant: nothing new is read while memory is over the budget and something waits that will free some. What is held for good
(arrangements) is only reported, as waiting would not make it less. Once the loop rests, what allocators keep of a burst goes
back to the system. The runtime calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.sidecar.execution.malloc import give_back
from headrace.sidecar.telemetry.metrics import resident_bytes

LOOK_SECONDS = 0.1
"""How often the process's memory is asked for: it costs some 20 µs."""
SLACK = 32 << 20
"""By how much memory may have grown when the loop rests, before what is free of it is given back: that costs milliseconds."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds until that is done again, doubled each time: a burst that still goes on needs its memory, and nothing tells its end."""
MANY = 100_000
"""A step of so many rows gives the memory that it needed back to the system at once."""


@dataclass
class Memory:
    """`budget` in bytes, None for none; `used`: resident memory of this process and its workers, mapped files apart, when last
    asked for. `give_back`: what allocators keep of it goes back. `_base`: the least of it since that was done. Single writer:
    the runtime.
    """

    budget: int | None = None
    measure: Callable[[], int] = resident_bytes
    give_back: Callable[[], None] = give_back
    used: int = 0
    _asked: float = float("-inf")
    _base: int = 1 << 62
    _next: float = float("inf")
    _pause: float = FIRST_PAUSE

    @property
    def over(self) -> bool:
        """Whether more is used than the budget allows."""
        return self.budget is not None and self.used > self.budget

    def look(self, now: float) -> bool:
        """Measure, at most every LOOK_SECONDS; whether it is over the budget."""
        if now - self._asked >= LOOK_SECONDS:
            self._asked, self.used = now, self.measure()
        return self.over

    def took(self, rows: int) -> None:
        """A step has taken in so many rows."""
        if rows > MANY:
            self.give_back()

    def rest(self, now: float) -> None:
        """Nothing is to be done now: what a burst has left goes back. Each thread of a client library has an arena of its
        own, which keeps what became free in it.
        """
        if self.used > self._base + SLACK:
            self._next, self._pause = now, FIRST_PAUSE
        self._base = min(self._base, self.used)
        if now >= self._next:
            self.give_back()
            self._base = self.used = self.measure()
            self._next = now + self._pause if self._pause <= LONGEST_PAUSE else float("inf")
            self._pause *= 2
