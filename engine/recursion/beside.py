"""What an Update notes beside a store: of each row that it changes the round and the count that it will have.

Invariant: the store's rounds and counts stay those of before until `adopt`; until then new rows stand behind all others, and
`drop` takes them out. Single writer: one Update.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.batch.updates import Bools
from headrace.engine.recursion.state import ABSENT, Int32s, Stated, Store

NONE = np.empty(0, np.int32)


class Beside:
    """The notes of one relation. `size`: places before it were there when the Update began."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.size = store.size
        self._noted = 0
        self._places, self._rounds, self._counts = NONE, NONE, NONE

    @property
    def places(self) -> Int32s:
        """The places of which something is noted."""
        return self._places[: self._noted]

    @property
    def rounds(self) -> Int32s:
        """Their rounds to be."""
        return self._rounds[: self._noted]

    def old(self, places: Int32s) -> Int32s:
        """The rounds of before."""
        found: Int32s = self.store.rounds[places]
        return found

    def new(self, places: Int32s) -> Int32s:
        """The rounds to be, as far as they are known: of what nothing is noted those of before."""
        found: Int32s = self.store.rounds[places]
        if self._noted:
            slots = self.store.slots[places]
            noted = slots >= 0
            if noted.any():
                found[noted] = self._rounds[slots[noted]]
        return found

    def new_counts(self, places: Int32s) -> Int32s:
        """The counts to be, as far as they are known."""
        found: Int32s = self.store.counts[places]
        if self._noted:
            slots = self.store.slots[places]
            noted = slots >= 0
            found[noted] = self._counts[slots[noted]]
        return found

    def note(self, places: Int32s, rounds: Int32s, counts: Int32s) -> None:
        """Rows, each named once, and what they will have."""
        slots = self.store.slots[places]
        new = np.flatnonzero(slots < 0)
        if len(new):
            room = self._noted + len(new)
            if room > len(self._places):
                grown = max(2 * room, 64)
                self._places, self._rounds, self._counts = (
                    np.concatenate([lane[: self._noted], np.empty(grown - self._noted, np.int32)])
                    for lane in (self._places, self._rounds, self._counts)
                )
            slots[new] = np.arange(self._noted, room, dtype=np.int32)
            self._places[self._noted : room] = places[new]
            self.store.slots[places[new]] = slots[new]
            self._noted = room
        self._rounds[slots] = rounds
        self._counts[slots] = counts

    def take(self, places: Int32s, rounds: Int32s, counts: Int32s) -> None:
        """All that is noted, in the order of the slots that the store has for it."""
        self._places, self._rounds, self._counts, self._noted = places, rounds, counts, len(places)

    def before(self) -> Store:
        """A copy of the store as it was when the Update began."""
        return self.store.copied(self.store.rounds[: self.size].copy(), self.store.counts[: self.size].copy())

    def up_to(self, last: int) -> Store:
        """A store of the rows that are to come by the round `last`, those of earlier rounds first."""
        places = np.arange(self.store.size, dtype=np.int32)
        rounds = self.new(places)
        places = places[rounds <= last]
        places = places[np.argsort(rounds[places], kind="stable")]
        return Store.of(self.store.lanes[places], rounds[places], self.new_counts(places))

    def changes(self) -> tuple[Stated, Stated]:
        """The rows whose round or count changes: as they were, and as they will be."""
        places, new, after = self.places, self.rounds, self._counts[: self._noted]
        old, before = self.old(places), self.store.counts[places]
        changed: Bools = (old != new) | (before != after)
        gone, come = changed & (old != ABSENT), changed & (new != ABSENT)
        went, came = Stated.of(self.store, places[gone], -1), Stated.of(self.store, places[come])
        return went, came._replace(rounds=new[come], counts=after[come])

    def adopt(self) -> None:
        """Let the store have what is noted."""
        self.store.set(self.places, self.rounds, self._counts[: self._noted])
        self._forget()

    def drop(self) -> None:
        """Leave the store as it was."""
        self._forget()
        self.store.drop_last(self.size)

    def _forget(self) -> None:
        if self._noted:
            self.store.slots[self.places] = -1
        self._noted = 0


__all__ = ["NONE", "Beside"]
