"""The work of a loop's rounds, counted: the rows that its nodes send, and how far the rounds have come.

Invariant: it depends on the changes and on the step alone, and not on the machine or on where the rounds stop. Called by the
nodes of loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.batch.updates import Updates
from headrace.engine.operators.chunked_delta import Pieced
from headrace.engine.operators.delta import Delta
from headrace.engine.recursion.portions import Progress

RATE = 2
"""What a row counts that a node of a loop sends: it takes as long as two that a recursion by state looks at."""

PIECE = 1 << 14
"""After so much work rounds may stop, also in the middle of one."""


class RoundWork:
    """What the rounds of a step did so far, those of loops in the loop among them."""

    def __init__(self) -> None:
        self._work = self._stopped = self._round = self._rows = 0

    @property
    def progress(self) -> Progress:
        """How far they have come: the round of the outermost loop, and the rows that all rounds brought to its variables."""
        return Progress(self._work, self._round, self._rows)

    def of(self, delta: Delta) -> bool:
        """Count what a node sent; whether it is time to stop. What is still in pieces counts where it is made whole."""
        if isinstance(delta, Pieced):
            return False
        self._work += RATE * len(delta.rows or ())
        if self._work - self._stopped < PIECE:
            return False
        self._stopped = self._work
        return True

    def turned(self, own: int, rows: Sequence[Updates | None], *, is_outer: bool) -> Progress:
        """A loop's round `own` is over, and brings `rows` to its variables."""
        self._stopped = self._work
        if is_outer:
            self._round = own
            self._rows += sum(len(some) for some in rows if some is not None)
        return self.progress


__all__ = ["RoundWork"]
