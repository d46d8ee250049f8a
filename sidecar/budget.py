"""The memory that a run may use, what of it is used, and when the intake must wait because of it.

Always: nothing new is read while memory is over the budget and something waits that, once it is done, gives some back; what
is held for good (arrangements) is only told, as waiting would not make it less. Called by the runtime.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from sidecar.metrics import resident_bytes

LOOK_SECONDS = 0.1
"""How often the process's memory is asked for: it costs some 20 µs."""


@dataclass
class Memory:
    """`budget` in bytes, None for none; `used`: resident memory of this process, mapped files apart, when last asked for.
    Single writer: the runtime.
    """

    budget: int | None = None
    measure: Callable[[], int] = resident_bytes
    used: int = 0
    _asked: float = float("-inf")

    @property
    def over(self) -> bool:
        """Whether more is used than the budget allows."""
        return self.budget is not None and self.used > self.budget

    def look(self, now: float) -> bool:
        """Measure, at most every LOOK_SECONDS; whether it is over the budget."""
        if now - self._asked >= LOOK_SECONDS:
            self._asked, self.used = now, self.measure()
        return self.over


def give_back() -> None:
    """Return to the system what allocators keep of memory that is free again; where they have no such thing, nothing."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
