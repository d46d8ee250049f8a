"""What a recursive group still has to follow: changes of one epoch that are under way, and later ones that wait.

It works in portions of counted work. Invariant: what it comes to does not depend on the portions: what waits is followed as one
change, once what is under way has ended. Owned by the group's node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.engine.batch.updates import Updates
from headrace.engine.operators.delta import concat
from headrace.engine.recursion.portions import Portions, Progress
from headrace.engine.recursion.switching import Followed, SparseRecursion

STOP = 3_000
"""Work that is counted for each piece of it beside the rows: what stopping and going on takes, also where there are few."""

LATE = "late: "
"""How the error of a late group begins: the view that has it, and no other, comes back by itself."""


class Standing(NamedTuple):
    """How a late group stands: the epoch since which it is late; the counted work, the round and the rows so far of what is under
    way, and whether it has ended and the group comes back with the next step.
    """

    since: int
    work: int
    round: int
    rows: int
    ended: bool


class Evaluation:
    """Changes that a group follows in portions. `followed`: what the first of them came to, once that has ended; `work`: what was
    done in all; `progress`: how far what is under way has come.
    """

    def __init__(self, state: SparseRecursion, begun: Portions[Followed] | None = None) -> None:
        self.followed = state.nothing()
        self.work = 0
        self.progress = Progress(0, 0, 0)
        self._state = state
        self._running = begun
        self._waiting: dict[int, list[Updates]] = {}

    @property
    def ended(self) -> bool:
        """Whether nothing is left to be followed."""
        return self._running is None and not self._waiting

    def add(self, changes: Mapping[int, Updates]) -> None:
        """Changes of a later epoch."""
        for relation, updates in changes.items():
            self._waiting.setdefault(relation, []).append(updates)

    def advance(self, most: int, *, forecast: bool = False) -> bool:
        """Go on until all is followed, or more than `most` work was done, 0 for any; whether all is.

        `forecast`: stop too where more is known to be ahead. Raises DiffOverflow; then the state is lost.
        """
        done, before = 0, self._state.updates_work
        while not self.ended:
            if self._running is None:
                self._running, self._waiting = self._state.following(self._together()), {}
                self.progress = Progress(0, 0, 0)
            try:
                now = next(self._running)
            except StopIteration as end:
                self._running, self.followed = None, end.value
                more, before = self._state.updates_work - before, self._state.updates_work
                done, self.work = done + more, self.work + more
                continue
            more = now.work - self.progress.work + STOP
            done, self.work, self.progress = done + more, self.work + more, now
            if most and (done > most or (forecast and now.expected > most)):
                return False
        return True

    def _together(self) -> dict[int, Updates]:
        found = {relation: concat(parts) for relation, parts in self._waiting.items()}
        return {relation: updates for relation, updates in found.items() if updates is not None}


__all__ = ["LATE", "Evaluation", "Standing"]
