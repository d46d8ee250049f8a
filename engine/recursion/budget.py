"""How much an Update may do: a part of the last Bootstrap's counted work, or all that it takes once its end is foreseen.

When a round is over, what the Update did in it is set against the derivations that Bootstrap counts in that round, and as much
is expected of each derivation of the rounds to come. Always: an Update goes past its part only where that end was clearly less
than a whole Bootstrap, and is dropped where more than one is still expected. Work is counted, so the same changes end the same
way anywhere. Called by `switching`, which makes a budget for each Update, and by whatever ends a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headrace.engine.recursion.meter import Meter, OverBudget
from headrace.engine.recursion.state import ABSENT, Store

SWITCH = 0.2
"""The part of a Bootstrap's work that an Update may do whatever its rounds foretell, unless a view says another."""

LEAST = 1 << 14
"""The work that an Update may always do: less is over before a Bootstrap has begun."""

_FORESEEN = 0.6
"""An Update whose end is foreseen below this part of a Bootstrap goes on. Later rounds mostly take more than the last one."""

_LARGE = 0.025
"""Of a change of more than this part of what is outside nothing is foreseen: its early rounds promise too much."""

_OF_LARGE = 0.5
"""What an Update of such a change may do, as a part of what others may: it mostly comes to several Bootstraps."""

_LOOK = 0.05
"""Before this part of a Bootstrap nothing is foreseen."""

_SURE = 2
"""So many Updates one after the other, of changes no larger, that were dropped or came to a whole Bootstrap: one is not tried."""

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

    def failed(self, size: int) -> None:
        """One was dropped, or came to a whole Bootstrap."""
        self._failed = [*self._failed[1 - _SURE :], size]

    def succeeded(self, size: int) -> None:
        """One came to less than a Bootstrap."""
        self._failed, self._pause = [s for s in self._failed if s > size], 1


def budget(size: int, outside: int, whole: int, stores: Sequence[Store], least: int, switch: float | None) -> Meter:
    """Of an Update of a change of `size` of `outside` rows; `whole`: the work of the last Bootstrap; `stores`: the rows of the
    variables; `least`: what it may always do; `switch`: the part of a Bootstrap that it may do, None where more may be foreseen.
    """
    if switch is not None:
        return Meter(max(int(whole * switch), least))
    if size > _LARGE * outside:
        return Meter(max(int(whole * SWITCH * _OF_LARGE), least))
    return Budget(max(int(whole * SWITCH), least), whole=whole, stores=stores)


@dataclass
class Budget(Meter):
    """The meter of an Update that may go on. `whole`: the work of the last Bootstrap; `stores`: the variables' rows as they were.

    Single writer: the Update.
    """

    whole: int = 0
    stores: Sequence[Store] = ()
    _part: int = field(init=False)
    _before: tuple[int, int] = (-1, 0)
    """The round that was over last, and the work by then."""
    _shares: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        self._part = self.most

    def round_is_over(self, now: int) -> None:
        """Set what may be done from here on. Raises OverBudget where a whole Bootstrap is less than what is expected."""
        before, self._before = self._before, (now, self.spent)
        if self.spent < _LOOK * self.whole:
            return
        share = self._share(now)
        more = (self.spent - before[1]) / max(share - self._share(before[0]), 1e-9) * (1 - share)
        if self.spent > self._part and more > self.whole:
            raise OverBudget
        foreseen = self.spent > self._part or self.spent + more < _FORESEEN * self.whole
        self.most = max(self.spent + self.whole, self._part) if foreseen else self._part

    def _share(self, now: int) -> float:
        """The part of all derivations that follow from rows of the round `now` and before it."""
        if self._shares is None:
            self._shares = _shares(self.stores)
        return 0.0 if now < 0 else float(self._shares[min(now + 1, len(self._shares) - 1)])


def _shares(stores: Sequence[Store]) -> npt.NDArray[np.float64]:
    """By round: the part of all derivations that came by then."""
    found: npt.NDArray[np.float64] = np.zeros(1)
    for store in stores:
        there = np.flatnonzero(store.rounds[: store.size] != ABSENT)
        own = np.bincount(store.rounds[there], store.counts[there], len(found)).astype(np.float64)
        own[: len(found)] = own[: len(found)] + found
        found = own
    shares: npt.NDArray[np.float64] = np.cumsum(found) / max(float(found.sum()), 1.0)
    return shares


__all__ = ["LEAST", "SWITCH", "Budget", "Trials", "budget"]
