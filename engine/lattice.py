"""Times and frontiers: the product order of (epoch, rounds…), and antichains of it.

Always: a time has as many rounds as its scope is deep, and only times of one depth are compared; a frontier's
elements are pairwise incomparable and sorted, so that equal frontiers are equal objects. Pure; called by every part of
the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from headrace.engine.errors import HeadraceError, InvariantBroken

MOST_ROUNDS = 2
"""Scopes that iterate may be nested so deep: kernels are compiled for times of up to so many rounds."""


class TooDeep(HeadraceError):
    """A scope that iterates inside of more others than times have rounds for."""

    code = "depth"

    def __init__(self, depth: int) -> None:
        super().__init__(
            f"iteration is nested {depth} deep", most=MOST_ROUNDS, hint="join two of the nested recursions into one"
        )


@dataclass(frozen=True, slots=True, order=False)
class Time:
    """An epoch and the round of each enclosing scope, outermost first. Raises TooDeep beyond `MOST_ROUNDS`."""

    epoch: int
    rounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.rounds) > MOST_ROUNDS:
            raise TooDeep(len(self.rounds))

    @property
    def depth(self) -> int:
        """How many scopes deep."""
        return len(self.rounds)

    @property
    def coordinates(self) -> tuple[int, ...]:
        """Epoch and rounds as one tuple; its order is a linear extension of the product order."""
        return (self.epoch, *self.rounds)

    @classmethod
    def at(cls, coordinates: tuple[int, ...]) -> Time:
        """The time with these coordinates."""
        return cls(coordinates[0], tuple(coordinates[1:]))

    def less_equal(self, other: Time) -> bool:
        """True if no coordinate is greater than the other's."""
        return all(a <= b for a, b in self._pairs(other))

    def less_than(self, other: Time) -> bool:
        """True if less or equal, and different."""
        return self != other and self.less_equal(other)

    def join(self, other: Time) -> Time:
        """The least time that is ≥ both."""
        return Time.at(tuple(max(a, b) for a, b in self._pairs(other)))

    def meet(self, other: Time) -> Time:
        """The greatest time that is ≤ both."""
        return Time.at(tuple(min(a, b) for a, b in self._pairs(other)))

    def _pairs(self, other: Time) -> Iterable[tuple[int, int]]:
        if len(self.rounds) != len(other.rounds):
            raise InvariantBroken("times of different scopes have no order", left=self, right=other)
        return zip(self.coordinates, other.coordinates, strict=True)


@dataclass(frozen=True, slots=True)
class Frontier:
    """An antichain: the times ≥ one of its elements may still come. Empty: closed, nothing comes any more.

    Frontiers are ordered by what may still come: f ≤ g when every time beyond g is beyond f; the closed is greatest.
    """

    elements: tuple[Time, ...] = ()

    @classmethod
    def of(cls, times: Iterable[Time]) -> Frontier:
        """The minimal ones among `times`, in canonical order."""
        distinct = set(times)
        if len(distinct) < 2:
            return cls(tuple(distinct))
        kept: list[Time] = []
        for time in sorted(distinct, key=lambda t: t.coordinates):
            # Sorted by a linear extension: a later time is never less than an earlier one.
            if not any(k.less_equal(time) for k in kept):
                kept.append(time)
        return cls(tuple(kept))

    @classmethod
    def at(cls, epoch: int, *rounds: int) -> Frontier:
        """The frontier of one time."""
        return cls((Time(epoch, rounds),)) if rounds else _at(epoch)

    @property
    def closed(self) -> bool:
        """True if nothing comes any more."""
        return not self.elements

    @property
    def epoch(self) -> int:
        """The epoch of a frontier at depth 0. Raises InvariantBroken for a closed or a deeper one."""
        if len(self.elements) != 1 or self.elements[0].rounds:
            raise InvariantBroken("the frontier is not one epoch", frontier=self)
        return self.elements[0].epoch

    def __iter__(self) -> Iterator[Time]:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self.elements)

    def insert(self, time: Time) -> Frontier:
        """The frontier with `time` among what may still come."""
        return Frontier.of((*self.elements, time))

    def less_equal(self, time: Time) -> bool:
        """True if `time` may still come: it is ≥ some element."""
        return any(e.less_equal(time) for e in self.elements)

    def before(self, other: Frontier) -> bool:
        """True if this frontier is ≤ the other."""
        flat = self._flat_with(other)
        if flat:
            return flat[0] <= flat[1]
        return all(self.less_equal(e) for e in other.elements)

    def join(self, other: Frontier) -> Frontier:
        """The least frontier ≥ both: beyond it are the times beyond both."""
        flat = self._flat_with(other)
        if flat:
            return self if flat[0] >= flat[1] else other
        return Frontier.of(a.join(b) for a in self.elements for b in other.elements)

    def meet(self, other: Frontier) -> Frontier:
        """The greatest frontier ≤ both: beyond it are the times beyond either."""
        flat = self._flat_with(other)
        if flat:
            return self if flat[0] <= flat[1] else other
        if self.closed or other.closed:
            return other if self.closed else self
        return Frontier.of((*self.elements, *other.elements))

    def _flat_with(self, other: Frontier) -> tuple[int, int] | None:
        """The epochs of two frontiers at depth 0: their order is that of integers, and they are asked at every insert."""
        if len(self.elements) == 1 and len(other.elements) == 1:
            mine, theirs = self.elements[0], other.elements[0]
            if not mine.rounds and not theirs.rounds:
                return mine.epoch, theirs.epoch
        return None


@lru_cache(maxsize=4)
def _at(epoch: int) -> Frontier:
    """Every arrangement asks for that of the step's end."""
    return Frontier((Time(epoch),))


MINIMUM = Frontier.at(0)
"""Where every trace at depth 0 starts."""

CLOSED = Frontier()
"""Nothing comes any more."""


def representative(time: Time, frontier: Frontier) -> Time | None:
    """The time that stands for `time` at all times beyond `frontier`; None at a closed one: nothing is left to ask.

    It compares with every time ≥ some element as `time` does, and two times that compare alike there have the same one:
    the meet, over the elements, of their join with `time`.
    """
    found: Time | None = None
    for element in frontier.elements:
        upper = time.join(element)
        found = upper if found is None else found.meet(upper)
    return found
