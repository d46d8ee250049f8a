"""What a recursive group still has to follow: changes of one step that are under way, and later ones that wait.

It works in portions of counted work. Invariant: what it comes to does not depend on the portions: all that waits is followed at
once, when what is under way has ended. Owned by the node of a group that is kept by state, or of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from headrace.engine.recursion.portions import Portions, Progress

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


class Worked(Protocol):
    """What something comes to, with the counted work that it took."""

    @property
    def work(self) -> int:
        """From its beginning on."""


C = TypeVar("C")
R = TypeVar("R", bound=Worked)


class Evaluation(Generic[C, R]):
    """Changes that a group follows in portions. `followed`: what the last of them came to that have ended; `work`: what was done
    in all; `progress`: how far what is under way has come.

    `follow`: begins to follow all changes that wait; `begun`: what is under way at first.
    """

    def __init__(self, follow: Callable[[Sequence[C]], Portions[R]], begun: Portions[R] | None = None) -> None:
        self.followed: R | None = None
        self.work = 0
        self.progress = Progress(0, 0, 0)
        self._follow = follow
        self._running = begun
        self._waiting: list[C] = []

    @property
    def ended(self) -> bool:
        """Whether nothing is left to be followed."""
        return self._running is None and not self._waiting

    def add(self, changes: C) -> None:
        """Later changes."""
        self._waiting.append(changes)

    def advance(self, most: int, *, forecast: bool = False) -> bool:
        """Go on until all is followed, or more than `most` work was done, 0 for any; whether all is.

        `forecast`: stop too where more is known to be ahead. Raises DiffOverflow; then the state is lost.
        """
        done = 0
        while not self.ended:
            if self._running is None:
                changes, self._waiting = self._waiting, []
                self._running, self.progress = self._follow(changes), Progress(0, 0, 0)
            try:
                now = next(self._running)
            except StopIteration as end:
                came_to: R = end.value
                self._running, self.followed = None, came_to
                more = max(came_to.work - self.progress.work, 0)
                done, self.work = done + more, self.work + more
                continue
            more = now.work - self.progress.work + STOP
            done, self.work, self.progress = done + more, self.work + more, now
            if most and (done > most or (forecast and now.expected > most)):
                return False
        return True


__all__ = ["LATE", "STOP", "Evaluation", "Standing"]
