"""Counted work, by which Updates are bounded and portions are cut: the same wherever and however fast it is done.

Called by whatever derives rows.
"""

from __future__ import annotations

from dataclasses import dataclass

CALL = 128
"""Work of finding derivations at all, however few there are: so much of it is counted for each piece."""

PIECE = 1 << 20
"""About so many derivations are worked on at a time."""


class OverBudget(Exception):
    """More work was done than there is to do."""


@dataclass
class Meter:
    """Counted work: rows looked at, derivations found, and calls. Past `most` it raises OverBudget.

    `call`: what finding derivations counts at all. `piece`: about how many derivations are worked on at a time; less than PIECE
    where work is done in portions. `at_once`: what an Update may do before it stops, to go on later; 0 for any.
    """

    most: int = 1 << 62
    spent: int = 0
    call: int = CALL
    piece: int = PIECE
    at_once: int = 0
    _stopped: int = 0

    @property
    def left(self) -> int:
        """The work that may still be done."""
        return self.most - self.spent

    def stops(self) -> bool:
        """Whether an Update stops here: so much was done since it stopped last."""
        if not self.at_once or self.spent - self._stopped < min(self.at_once, self.piece):
            return False
        self._stopped = self.spent
        return True

    def round_is_over(self, now: int) -> None:
        """A round of an Update is over, and what follows from it is known."""

    def spend(self, work: int) -> None:
        """So much more. Raises OverBudget."""
        self.spent += work
        if self.spent > self.most:
            raise OverBudget


__all__ = ["CALL", "PIECE", "Meter", "OverBudget"]
