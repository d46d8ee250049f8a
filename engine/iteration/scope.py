"""Scope: where a loop's body stands in its rounds.

Always: the body's rounds are worked off in the lexicographic order of (outer, inner), and in each every node runs once,
for all epochs of the step. Single writer: the loop.
"""

from __future__ import annotations

from headrace.engine.kernels.times import EPOCH_BITS, OUTER_BITS, ROUND_BITS, ROUNDS
from headrace.engine.lattice import MOST_ROUNDS, TooDeep
from headrace.engine.operators.rounds import Moment

_OUTER = ((1 << OUTER_BITS) - 1) << EPOCH_BITS


class Scope:
    """`now`: the round of the body, as in the bits of a time. `step`: the loop's step; the first one has no history.

    Raises TooDeep for a loop in a loop in a loop.
    """

    def __init__(self, parent: Scope | None) -> None:
        self.depth: int = 1 if parent is None else parent.depth + 1
        if self.depth > MOST_ROUNDS:
            raise TooDeep(self.depth)
        self.parent = parent
        self.holds_another = False
        if parent is not None:
            parent.holds_another = True
        self.now = 0
        self.own = 0
        self.lower = 0
        self.floor = 0
        self.first_step = False

    @property
    def most(self) -> int:
        """The last round that its times have room for."""
        if self.depth > 1:
            return (1 << (ROUND_BITS - OUTER_BITS)) - 1
        return (1 << (OUTER_BITS if self.holds_another else ROUND_BITS)) - 1

    @property
    def moment(self) -> Moment:
        """What the operators of the body need to know."""
        nested = self.depth > 1 or self.holds_another
        return Moment(self.now, _OUTER if nested else ROUNDS, self.lower, self.floor)

    def begin(self, own: int) -> None:
        """Enter the round `own` of this loop, within the current round of the loop around."""
        self.own = own
        if self.parent is None:
            self.now = own << EPOCH_BITS
        else:
            self.now = self.parent.now | own << (EPOCH_BITS + OUTER_BITS)

    def own_of(self, now: int) -> int | None:
        """The round of this loop in `now`, or None if that lies in another round of the outer one."""
        if self.parent is None:
            return now >> EPOCH_BITS
        return now >> (EPOCH_BITS + OUTER_BITS) if now & _OUTER == self.parent.now else None
