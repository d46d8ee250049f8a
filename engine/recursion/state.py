"""The sparse state of one relation: each row once, with the round in which it first came and its derivations in that round.

Rows are 64-bit lanes in a table of their own; lookups by other lanes are chains of places. A row that is not there keeps
its place until `compact`, with the round ABSENT. `slots` are for an Update, which notes there what becomes of a place. Invariant:
no row stands twice, whatever came and went; single writer: the recursion that holds it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Int64s
from headrace.engine.kernels import sparse_joins, sparse_state
from headrace.engine.kernels.sparse_state import ABSENT

Int32s = npt.NDArray[np.int32]
Lanes = npt.NDArray[np.int64]
"""Rows of 64-bit lanes: int64[rows, lanes]."""

NO_NULLS = (-1, 0)
"""Of a lookup in which every row has a key; else the lane of the NULLs' bits, and those of the key."""

_SAMPLE = 1 << 10
"""Rows by which values are counted."""
_MIX = np.int64(-7046029254386353131)
_LEAST_ROOM = 16
_GROWTH, _GROWTH_ANEW = 1.125, 1.5
"""How much room more a store takes: while it follows changes, and while it is made anew, which ends with `shrink`."""
_MOST_DEAD = 8
"""Rows that are not there are thrown out once they are a part in so many."""


@dataclass(frozen=True)
class Joined:
    """What `count_joined` finds. `columns`: the lanes that are the key; `asked`: the latest round, and `nulls` of `probe`.

    `taken`: pairs of lanes, of a row that is counted and of what is found; and the lanes of both's NULL bits, or -1.
    """

    store: Store
    columns: tuple[int, ...]
    asked: tuple[int, int, int]
    taken: tuple[Lanes, int, int]


Keyed = tuple[Int64s, int, int, Lanes]
"""The lanes that are a row's key, the lane of its NULLs' bits and those of the key, and pairs of lanes for a new row."""


class Counted(NamedTuple):
    """What `count_rounds` did: rows looked at and found, the last round, and the place where its rows begin."""

    visited: int
    found: int
    now: int
    before: int


class _Table:
    """Places by some lanes. `linked`: the places before it are in the table."""

    def __init__(self, columns: tuple[int, ...], room: int) -> None:
        self.columns = np.array(columns, np.int64)
        self.heads: Int32s = np.full(_power(room), -1, np.int32)
        self.nexts: Int32s = np.empty(room, np.int32)
        self.linked = 0

    @property
    def parts(self) -> tuple[Int64s, Int32s, Int32s]:
        """As the kernels take it."""
        return self.columns, self.heads, self.nexts

    def fit(self, room: int, lanes: Lanes) -> None:
        """Room for so many places."""
        if len(self.nexts) < room:
            self.nexts = _longer(self.nexts, room)
        if len(self.heads) < room:
            self.heads = np.full(_power(room), -1, np.int32)
            sparse_state.link(lanes, self.parts, 0, self.linked)

    def shrink(self, size: int, lanes: Lanes) -> None:
        """Room for so many places and no more."""
        self.nexts = self.nexts[:size].copy()
        if len(self.heads) > _power(size):
            self.heads = np.full(_power(size), -1, np.int32)
            sparse_state.link(lanes, self.parts, 0, self.linked)

    def catch_up(self, lanes: Lanes, size: int) -> None:
        """Link the places that came since."""
        if self.linked < size:
            sparse_state.link(lanes, self.parts, self.linked, size)
            self.linked = size


class Store:
    """The rows of one relation. `size`: how many places there are; `here`: how many of them hold a row that is there."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.size = 0
        self.here = 0
        self.lanes: Lanes = np.empty((0, width), np.int64)
        self.rounds: Int32s = np.empty(0, np.int32)
        self.counts: Int32s = np.empty(0, np.int32)
        self._slots: Int32s | None = None
        self._whole = _Table(tuple(range(width)), 0)
        self._tables: dict[tuple[int, ...], _Table] = {tuple(range(width)): self._whole}

    @classmethod
    def of(cls, lanes: Lanes, rounds: Int32s, counts: Int32s) -> Store:
        """A store of these rows, of which none stands twice, in their order."""
        made = cls(lanes.shape[1])
        made.lanes, made.rounds, made.counts = lanes, rounds, counts
        made._keep_all()
        return made

    @property
    def slots(self) -> Int32s:
        """For an Update: where it notes what becomes of a place, or -1; all -1 between Updates."""
        if self._slots is None:
            self._slots = np.full(len(self.rounds), -1, np.int32)
        return self._slots

    @property
    def nbytes(self) -> int:
        """The memory that it holds."""
        tables = sum(table.heads.nbytes + table.nexts.nbytes for table in self._tables.values())
        slots = 0 if self._slots is None else self._slots.nbytes
        return self.lanes.nbytes + self.rounds.nbytes + self.counts.nbytes + slots + tables

    def places(self) -> Int32s:
        """The places of the rows that are there, in their order."""
        return np.flatnonzero(self.rounds[: self.size] != ABSENT).astype(np.int32)

    def fanout(self, columns: tuple[int, ...]) -> float | None:
        """About how many rows have the same values in some columns; None where there are no rows.

        By a sample, in which what is seen once stands for as many values more as the root of how much smaller it is: the
        estimator GEE of Charikar and others, "Towards Estimation Error Guarantees for Distinct Values", PODS 2000.
        """
        if not self.size:
            return None
        if not columns:
            return float(self.size)
        sample = self.lanes[: self.size : -(-self.size // _SAMPLE)][:, columns]
        powers = _MIX ** np.arange(1, len(columns) + 1, dtype=np.int64)
        _, seen = np.unique(sample @ powers, return_counts=True)
        once = int((seen == 1).sum())
        return self.size / (math.sqrt(self.size / len(sample)) * once + len(seen) - once)

    def find(self, rows: Lanes, columns: tuple[int, ...] | None = None, nulls: tuple[int, int] = NO_NULLS) -> Int32s:
        """Where rows stand, there or not, or -1; by some lanes, where these tell them apart."""
        table = self._whole if columns is None else self._table(columns)
        if table.linked < self.size:
            table.fit(self.size, self.lanes)
            table.catch_up(self.lanes, self.size)
        found: Int32s = sparse_state.look_up(rows, self.lanes, table.parts, nulls)
        return found

    def place(self, rows: Lanes) -> Int32s:
        """Where rows stand; new ones get the last places, and are not there yet."""
        places = np.empty(len(rows), np.int32)
        done = 0
        while True:
            facts, parts = (self.rounds, self.counts), self._whole.parts
            self.size, done = sparse_state.place_in(rows, done, self.lanes, facts, parts, self.size, places)
            self._whole.linked = self.size
            if done == len(rows):
                return places
            self._grow(len(rows) - done)

    def count_in(self, rows: Lanes, now: int) -> None:
        """Add derivations of the round `now`: what is not there comes with it, what came in it counts one more.

        Invariant: every place holds a row that is there. Raises DiffOverflow for more derivations than 32 bits count.
        """
        done = 0
        while True:
            facts, parts = (self.rounds, self.counts), self._whole.parts
            size, done = sparse_state.count_in(rows, done, self.lanes, facts, parts, self.size, now)
            if size == sparse_state.OVERFLOWED:
                raise DiffOverflow(recursion=True)
            self.size = self.here = self._whole.linked = size
            if done == len(rows):
                return
            self._grow(len(rows) - done, by=_GROWTH_ANEW)

    def count_joined(self, keys: Lanes, begun: Lanes, of: Joined, now: int) -> tuple[int, int]:
        """As `count_in` of the rows that `probe` finds in another store, without a list of them: rows looked at, rows found.

        `begun`: of each key its row, but for the lanes that come from what is found. Raises DiffOverflow.
        """
        done = np.zeros(5, np.int64)
        done[2] = self.size
        while True:
            probed = of.store.parts(of.columns)
            target = self.lanes, (self.rounds, self.counts), self._whole.parts
            over = sparse_joins.count_joined(keys, begun, probed, of.asked, of.taken, target, now, done)
            if done[2] == sparse_state.OVERFLOWED:
                raise DiffOverflow(recursion=True)
            self.size = self.here = self._whole.linked = int(done[2])
            if over:
                return int(done[3]), int(done[4])
            self._grow(len(keys) - int(done[0]), sparse_state.BLOCK, _GROWTH_ANEW)

    def count_rounds(self, key: Keyed, of: Joined, begun: int, now: int, until: tuple[int, int]) -> Counted:
        """Round after round, `count_joined` of the rows that the round before brought, those from the place `begun` on first.

        `now`: the round of these; `until`: the last round, and the most rows, after which there is no other. Raises DiffOverflow.
        """
        done = np.array([begun, 0, self.size, 0, 0, now + 1, self.size, begun])
        while True:
            target = self.lanes, (self.rounds, self.counts), self._whole.parts
            over = sparse_joins.count_rounds(target, key, of.store.parts(of.columns), of.asked, of.taken, until, done)
            if done[2] == sparse_state.OVERFLOWED:
                raise DiffOverflow(recursion=True)
            self.size = self.here = self._whole.linked = int(done[2])
            if over:
                return Counted(int(done[3]), int(done[4]), int(done[5]), int(done[7]))
            self._grow(int(done[6] - done[0]), sparse_state.BLOCK, _GROWTH_ANEW)

    def parts(self, columns: tuple[int, ...]) -> tuple[Lanes, tuple[Int32s, Int32s], tuple[Int64s, Int32s, Int32s]]:
        """Rows, what is told of them, and where they are by some lanes, as kernels take it."""
        return self.lanes, (self.rounds, self.counts), self._table(columns).parts

    def probe(
        self, keys: Lanes, columns: tuple[int, ...], latest: int, nulls: tuple[int, int], most: int
    ) -> tuple[Int32s, Int32s, int]:
        """Each key with each row that has it in `columns` and came by round `latest`: positions, places, rows looked at.

        What it gives is not all where more than `most` were looked at.
        """
        parts = self._table(columns).parts
        found: tuple[Int32s, Int32s, int] = sparse_state.probe(
            keys, self.lanes, parts, self.rounds, latest, nulls, most
        )
        return found

    def reserve(self, more: int) -> None:
        """Room for so many more rows."""
        if len(self.rounds) - self.size < more:
            self._grow(more, more)

    def added(self, size: int, tables: Sequence[tuple[int, ...]]) -> None:
        """A kernel put rows that are not there behind the others, and into these tables."""
        self.size = size
        for columns in tables:
            self._tables[columns].linked = size

    def drop_last(self, size: int) -> None:
        """Take out the places from `size` on: what an Update added that is dropped."""
        for table in self._tables.values():
            if table.linked > size:
                sparse_state.unlink(self.lanes, table.parts, size, table.linked)
                table.linked = size
        self.size = size

    def set(self, places: Int32s, rounds: Int32s, counts: Int32s) -> None:
        """What becomes of rows, each named once."""
        before = int((self.rounds[places] != ABSENT).sum())
        self.rounds[places] = rounds
        self.counts[places] = counts
        self.here += int((rounds != ABSENT).sum()) - before

    def compact(self) -> None:
        """Throw out what is not there, once that is much."""
        if (self.size - self.here) * _MOST_DEAD > self.size:
            self.keep(self.places())

    def keep(self, places: Int32s) -> None:
        """Only these rows, in this order, in no more memory than they need."""
        self.lanes, self.rounds, self.counts = self.lanes[places], self.rounds[places], self.counts[places]
        self._keep_all()

    def _keep_all(self) -> None:
        """Only the rows that the arrays have, all of which are there."""
        self._slots = None
        self.size = self.here = len(self.rounds)
        whole = tuple(self._whole.columns.tolist())
        # The other tables are made again when they are asked for.
        self._tables = {whole: _Table(whole, self.size)}
        self._whole = self._tables[whole]
        self._whole.catch_up(self.lanes, self.size)

    def copied(self, rounds: Int32s, counts: Int32s) -> Store:
        """Another store of the first places, of which these say what is there. The rows themselves, which never change, are
        those of this one; where they are is worked out when it is asked.
        """
        made = Store(self.width)
        made.size, made.here = len(rounds), int((rounds != ABSENT).sum())
        made.lanes, made.rounds, made.counts = self.lanes[: made.size], rounds, counts
        return made

    def shrink(self) -> None:
        """Give back what was taken to grow."""
        if self.here < self.size:
            self.keep(self.places())
        elif len(self.rounds) > self.size:
            self.lanes, self.rounds = self.lanes[: self.size].copy(), self.rounds[: self.size].copy()
            self.counts, self._slots = self.counts[: self.size].copy(), None
            for table in self._tables.values():
                table.shrink(self.size, self.lanes)

    def _table(self, columns: tuple[int, ...]) -> _Table:
        found = self._tables.get(columns)
        if found is None:
            found = self._tables[columns] = _Table(columns, len(self.rounds))
        found.catch_up(self.lanes, self.size)
        return found

    def _grow(self, more: int, least: int = 0, by: float = _GROWTH) -> None:
        """Room for more rows, for `least` of them at any rate, in all that has an entry a place."""
        room = max(int(self.size * by), min(self.size + more, 2 * self.size), _LEAST_ROOM, self.size + least)
        self.lanes = _longer(self.lanes, room)
        self.rounds, self.counts = _longer(self.rounds, room), _longer(self.counts, room)
        if self._slots is not None:
            before = len(self._slots)
            self._slots = _longer(self._slots, room)
            self._slots[before:] = -1
        for table in self._tables.values():
            table.fit(room, self.lanes)


class Stated(NamedTuple):
    """Rows with their rounds and counts, which come or go."""

    lanes: Lanes
    rounds: Int32s
    counts: Int32s
    diffs: Int64s

    @classmethod
    def of(cls, store: Store, places: Int32s, sign: int = 1) -> Stated:
        """What a store has at some places."""
        diffs = np.full(len(places), sign, np.int64)
        return cls(store.lanes[places], store.rounds[places], store.counts[places], diffs)


def _longer(lane: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    made = np.empty((room, *lane.shape[1:]), lane.dtype)
    made[: len(lane)] = lane
    return made


def _power(room: int) -> int:
    return 1 << (max(room, _LEAST_ROOM) - 1).bit_length()


__all__ = ["ABSENT", "NO_NULLS", "Int32s", "Joined", "Lanes", "Stated", "Store"]
