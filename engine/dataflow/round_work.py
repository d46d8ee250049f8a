"""The work of a loop's rounds, counted: the rows that its nodes send, and how far the rounds have come.

Invariant: it depends on the changes, on the step and on the number of shards alone, and not on the machine or on where the rounds
stop. Several shards tell each other what they count where they meet anyway, and stop only there: all in the same place, for the
work of all of them. Called by the nodes of loops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.shard import Shard
from headrace.engine.operators.chunked_delta import Pieced
from headrace.engine.operators.delta import Delta
from headrace.engine.recursion.portions import Progress

RATE = 2
"""What a row counts that a node of a loop sends: it takes as long as two that a recursion by state looks at."""

PIECE = 1 << 13
"""After so much work rounds may stop, also in the middle of one."""


class RoundWork:
    """What the rounds of a step did so far, those of loops in the loop among them. `here`: this shard alone."""

    def __init__(self, shard: Shard) -> None:
        self.here = 0
        self._shard = shard
        self._work = self._stopped = self._round = self._rows = 0

    @property
    def progress(self) -> Progress:
        """How far they have come: the round of the outermost loop, and the rows that all rounds brought to its variables."""
        return Progress(self._work, self._round, self._rows)

    def of(self, delta: Delta) -> bool:
        """Count what a node sent; whether it is time to stop. What is still in pieces counts where it is made whole."""
        if isinstance(delta, Pieced):
            return False
        self.here += RATE * len(delta.rows or ())
        return self._shard.is_alone and self.met(self.here)

    def met(self, work: int) -> bool:
        """All shards together have done so much `work`; whether it is time to stop."""
        self._work = work
        if work - self._stopped < PIECE:
            return False
        self._stopped = work
        return True

    def turned(self, own: int, rows: Sequence[Updates | None], *, goes_on: bool, is_outer: bool) -> bool:
        """A loop's round `own` is over, and brings `rows` to its variables; whether it `goes_on` in any shard."""
        brought = sum(len(some) for some in rows if some is not None)
        if self._shard.is_alone:
            self._work = self.here
        else:
            told = np.array([goes_on, self.here, brought], np.int64)
            goes, self._work, brought = self._shard.summed(told).tolist()
            goes_on = goes > 0
        self._stopped = self._work
        if is_outer:
            self._round = own
            self._rows += brought
        return goes_on


__all__ = ["RoundWork"]
