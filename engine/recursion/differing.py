"""What leaves of a variable: the difference of two of its states, in rows with their multiplicities.

Called by `switching`, where one state takes the place of another.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.batch.updates import Bools, Int64s
from headrace.engine.recursion.state import ABSENT, Lanes, Store

Part = tuple[Lanes, Bools, Int64s]
"""Rows, which of them came in the last round, and the multiplicities with which they leave."""


def part(lanes: Lanes, last: Bools, sign: int) -> Part:
    """Rows that all come, or all go."""
    return lanes, last, np.full(len(lanes), sign, np.int64)


def more_of(store: Store, other: Store, last: int, sign: int) -> Part:
    """Rows of which a store has other copies than another one; where `sign` is -1 those alone that the other has none of."""
    places = store.places()
    lanes, counts = store.lanes[places], store.counts[places].astype(np.int64)
    found = other.find(lanes)
    known = found >= 0
    known[known] = other.rounds[found[known]] != ABSENT
    theirs = np.zeros(len(found), np.int64)
    theirs[known] = other.counts[found[known]]
    more = counts != theirs if sign > 0 else ~known
    return lanes[more], store.rounds[places][more] == last, (sign * (counts - theirs))[more]


def exchanged(before: Store, after: Store, last: int) -> list[Part]:
    """The rows that are in one of two stores alone, or came in the last round in one of them alone: those that go, and come."""
    places = after.places()
    lanes, mine = after.lanes[places], after.rounds[places] == last
    if not before.here:
        return [part(lanes, mine, 1)]
    found = before.find(lanes)
    there = np.full(len(found), ABSENT, np.int32)
    there[found >= 0] = before.rounds[found[found >= 0]]
    stays = (there != ABSENT) & ((there == last) == mine)
    gone = before.rounds[: before.size] != ABSENT
    gone[found[stays]] = False
    left = np.flatnonzero(gone)
    return [
        part(before.lanes[left], before.rounds[left] == last, -1),
        part(lanes[~stays], mine[~stays], 1),
    ]


def differing(before: Store, after: Store, last: int, *, copies: bool) -> list[Part]:
    """What leaves where one state takes the place of another; `last`: the program's last round."""
    if copies:
        return [more_of(after, before, last, 1), more_of(before, after, last, -1)]
    return exchanged(before, after, last)


__all__ = ["Part", "differing", "part"]
