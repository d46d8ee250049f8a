"""How much an Update may do: a part of a Bootstrap's counted work, and what it spares the Bootstrap that goes on from it.

An Update that is dropped hands over the rounds that are over, and Bootstrap goes on with the next one. So with each round that
is over it may do more, by what the last Bootstrap took for these rounds. Always: an Update and the Bootstrap that takes its place
come to little more than the last Bootstrap. Called by `switching`, which makes a budget for each Update, and by whatever ends a
round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headrace.engine.recursion.meter import Meter
from headrace.engine.recursion.state import ABSENT, Store

Shares = npt.NDArray[np.float64]
"""By round, from 0: the part of a Bootstrap's work that is done by the end of it."""

SWITCH = 0.2
"""The part of a Bootstrap's work that an Update may do that hands nothing over, unless a view says another."""

_PART = 0.125
"""That of one that hands over its rounds, before the first is over."""

LEAST = 1 << 14
"""The work that an Update may always do: less is over before a Bootstrap has begun."""

_SPARED = 0.6
"""Of what a Bootstrap takes for some rounds what it is spared that goes on from them: their rows are copied and indexed."""

_LARGE = 0.025
"""A change of more than this part of what is outside mostly comes to several Bootstraps."""

_OF_LARGE = 0.4
"""What an Update of such a change may do before a round is over, as a part of what others may."""

_LOOK = 4
"""An Update that has done less than one part in so many of what it may do needs no more yet: no shares are asked for."""

_SURE = 2
"""So many Updates one after the other, of changes no larger, that came to more than a Bootstrap: one is not tried."""

_PAUSE = 8
"""So many at the most are not tried before one is: one at first, and twice as many each time that it fails too."""


@dataclass
class Trials:
    """How Updates of changes of so many rows ended. Single writer: the group."""

    _failed: list[int] = field(default_factory=list)
    _skipped: int = 0
    _pause: int = 1

    def worth(self, size: int) -> bool:
        """Whether to try one. Where not, it is counted as not tried."""
        if len(self._failed) < _SURE or any(s > size for s in self._failed):
            return True
        if self._skipped < self._pause:
            self._skipped += 1
            return False
        self._skipped, self._pause = 0, min(2 * self._pause, _PAUSE)
        return True

    def ended(self, size: int, *, cheap: bool) -> None:
        """One came to no more than a Bootstrap, or it did, alone or with the Bootstrap that took its place."""
        if cheap:
            self._failed, self._pause = [s for s in self._failed if s > size], 1
        else:
            self._failed = [*self._failed[1 - _SURE :], size]


def budget(size: int, outside: int, whole: int, shares: Callable[[], Shares], least: int) -> Budget:
    """Of an Update of a change of `size` of `outside` rows; `whole`: the work of a Bootstrap; `shares`: gives what part of it is
    done by the end of each round; `least`: what the Update may always do.
    """
    part = whole * _PART * (_OF_LARGE if size > _LARGE * outside else 1)
    return Budget(max(int(part), least), whole=whole, shares=shares)


@dataclass
class Budget(Meter):
    """The meter of an Update that hands over its rounds; see `budget`. Single writer: the Update."""

    whole: int = 0
    shares: Callable[[], Shares] = lambda: np.ones(1)
    _part: int = field(init=False)
    _known: Shares | None = None

    def __post_init__(self) -> None:
        self._part = self.most

    def round_is_over(self, now: int) -> None:
        """The next round is handed over too, wherever the Update stops in it but at its beginning."""
        if self.spent * _LOOK < self._part:
            return
        if self._known is None:
            self._known = self.shares()
        self.most = self._part + int(_SPARED * self.whole * self._known[min(now + 1, len(self._known) - 1)])


class WorkByRound:
    """What the last Bootstrap took by the end of each round. Single writer: the group."""

    def __init__(self) -> None:
        self._work: Shares = np.zeros(1)

    def shares(self, stores: Sequence[Store]) -> Shares:
        """Of each round the part of the whole; where no Bootstrap has told, as after a restart, by the derivations of the rows of
        `stores`, in time linear in these.
        """
        shares: Shares
        if self._work[-1]:
            shares = self._work / self._work[-1]
            return shares
        found: Shares = np.zeros(1)
        for store in stores:
            there = np.flatnonzero(store.rounds[: store.size] != ABSENT)
            own = np.bincount(store.rounds[there], store.counts[there], len(found)).astype(np.float64)
            own[: len(found)] += found
            found = own
        shares = np.cumsum(found)
        return shares / max(float(found.sum()), 1.0)

    def told(self, spared: Shares, own: Sequence[int]) -> None:
        """A Bootstrap has ended: what its first rounds would have taken, which were handed over, and what it took."""
        self._work = np.append(spared, np.full(max(len(own) - len(spared), 0), spared[-1]))
        self._work[: len(own)] += own


__all__ = ["LEAST", "SWITCH", "Budget", "Shares", "Trials", "WorkByRound", "budget"]
