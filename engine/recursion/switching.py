"""A recursive group by state: each change is followed by an Update, or the group is made anew by Bootstrap.

An Update may do a fraction of the work that the last Bootstrap did; past it, it is dropped and Bootstrap runs. What leaves is the
difference of the two states, whichever was taken; work is counted, never timed. Invariant: after `follow` the state is that
of a Bootstrap over what is outside now. Called by the dataflow's node of recursive groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.recursion.bootstrap import Over, bootstrap
from headrace.engine.recursion.codec import Codec, lanes_of
from headrace.engine.recursion.copies import UpdateCopies, bootstrap_copies
from headrace.engine.recursion.derive import Deriver, Meter, OverBudget
from headrace.engine.recursion.extremes import UpdateExtremes, bootstrap_extremes
from headrace.engine.recursion.program import Program
from headrace.engine.recursion.state import ABSENT, Int32s, Lanes, Stated, Store
from headrace.engine.recursion.unsaved import Unsaved
from headrace.engine.recursion.update import Update

SWITCH = 0.2
"""The fraction of a Bootstrap's work that an Update may do, unless a view says another."""

LEAST = 4_096
"""The work that an Update may always do: less is over before a Bootstrap has begun."""

_SURE = 2
"""So many Updates dropped one after the other, of changes no larger, and one is not tried."""

_TRY_AGAIN = 8
"""After so many that were not tried, one is."""

_SPARE_NUMBERS = 4_096


Following = Update | UpdateCopies | UpdateExtremes


class Strategy(Enum):
    """How a change is followed."""

    AUTO = "auto"
    UPDATE = "update"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class Left:
    """What leaves of a variable: rows, each with whether it came in the last round, and multiplicities."""

    rows: list[pa.Array]
    diffs: Int64s


@dataclass(frozen=True)
class Followed:
    """What leaves: rows by variable, and messages."""

    variables: list[Left]
    messages: list[str]
    message_diffs: list[int]


@dataclass
class Account:
    """What was done so far. `work`: that of the last Bootstrap; `rounds`: its rounds; `dropped`: Updates past their budget."""

    bootstraps: int = 0
    updates: int = 0
    dropped: int = 0
    not_tried: int = 0
    work: int = 0
    rounds: int = 0


class SparseRecursion:
    """The state of a recursive group, and how it follows changes.

    Between steps these may change: `strategy`, `switch`, and `least`, the work that an Update may always do. `told`: the error of
    too many rows, of which it is given those of the round that would bring them.
    """

    def __init__(
        self,
        program: Program,
        strategy: Strategy = Strategy.AUTO,
        switch: float = SWITCH,
        told: Callable[[Over, pa.RecordBatch], str] = lambda over, _: f"more rows than {over.so_far}",
    ) -> None:
        self.program = program
        self._told = told
        self._totals = [0] * program.variables
        self.strategy = strategy
        self.switch = switch
        self.least = LEAST
        self.account = Account()
        self.failures: Counter[str] = Counter()
        self._codec = Codec()
        self._numbers = 0
        # Where copies count, a row's round is its last lane.
        widths = [lanes_of(schema) + (program.copies and k == 0) for k, schema in enumerate(program.schemas)]
        self._stores = [Store(width) for width in widths]
        self._deriver = Deriver(program, self._stores, self._codec)
        self._dropped: list[int] = []
        self._skipped = 0
        self._begun = self._endless = False
        self.unsaved = Unsaved(program.variables)
        """What changed since the state was last saved."""

    @property
    def rows(self) -> int:
        """How many rows the group's variables have."""
        return sum(store.here for store in self._stores[: self.program.variables])

    @property
    def nbytes(self) -> int:
        """The memory that the state holds."""
        return sum(store.nbytes for store in self._stores) + self._codec.nbytes

    def state(self, relation: int) -> tuple[list[pa.Array], Int32s, Int32s]:
        """The rows of a relation that are there, as columns, their rounds and counts."""
        store = self._stores[relation]
        places = store.places()
        columns = self._codec.decode(store.lanes[places], self.program.schemas[relation])
        return columns, store.rounds[places], store.counts[places]

    def columns_of(self, variable: int, some: Stated) -> list[pa.Array]:
        """Rows of a variable with their rounds and counts, as they are saved."""
        columns = self._codec.decode(some.lanes, self.program.schemas[variable])
        return [*columns, pa.array(some.rounds), pa.array(some.counts)]

    def stated(self, variable: int) -> Stated:
        """All that the state has of a variable."""
        store = self._stores[variable]
        return Stated.of(store, store.places())

    def resume(
        self,
        content: Mapping[int, Updates],
        saved: Sequence[Updates],
        account: Account,
        failures: Mapping[str, int],
    ) -> None:
        """Go on from a state that was saved: the rows from outside, and of each variable what `columns_of` gave."""
        for relation, updates in content.items():
            places, counts = self._changed(relation, updates)
            self._stores[relation].set(places, np.where(counts > 0, 0, ABSENT).astype(np.int32), counts)
        for variable, updates in enumerate(saved):
            store, width = self._stores[variable], len(self.program.schemas[variable].columns)
            columns = [updates.struct.column(k) for k in range(width + 2)]
            rounds, counts = (c.to_numpy().astype(np.int32, copy=False) for c in columns[width:])
            lanes = self._codec.encode(columns[:width], self.program.schemas[variable])
            if store.width > lanes.shape[1]:
                lanes = np.concatenate([lanes, rounds[:, None].astype(np.int64)], axis=1)
            store.set(store.place(np.ascontiguousarray(lanes)), rounds, counts)
            store.shrink()
        self.account, self.failures = account, Counter(failures)
        self._numbers, self._begun = len(self._codec), True
        self._totals = self._counted()
        self._endless = bool(self.program.extreme) and any(
            (s.rounds == self.program.last).any() for s in self._stores[: self.program.variables]
        )

    def content(self, variable: int) -> Left:
        """All rows of a variable."""
        store = self._stores[variable]
        places = store.places()
        diffs = store.counts[places].astype(np.int64) if self.program.copies else np.ones(len(places), np.int64)
        return self._left(variable, [(store.lanes[places], store.rounds[places] == self.program.last, diffs)])

    def failed(self) -> Followed:
        """All messages, and no rows."""
        return self._followed([], self.failures)

    def follow(self, changes: Mapping[int, Updates]) -> Followed:
        """The changes of relations from outside, all of one time. Raises DiffOverflow; then the state is lost."""
        outside, size = {}, 0
        for relation, updates in changes.items():
            places, counts = self._changed(relation, updates)
            if len(places):
                outside[relation] = places, counts
                size += len(places)
        if not outside:
            return self._followed([[] for _ in range(self.program.variables)], Counter())
        kind = UpdateCopies if self.program.copies else UpdateExtremes if self.program.extreme else Update
        update: Following = kind(self._deriver, Meter(self._budget()))
        if self._worth_trying(size):
            try:
                update.run(outside)
            except OverBudget:
                update.drop()
                self.account.dropped += 1
                self._dropped = [*self._dropped[1 - _SURE :], size]
                return self._anew()
            parts = [self._noted(update, variable) for variable in range(self.program.variables)]
            totals = [n + sum(int(d.sum()) for _, _, d in some) for n, some in zip(self._totals, parts, strict=True)]
            if not 0 < self.program.most < max(totals):
                return self._updated(update, size, parts, totals)
            update.drop()
            return self._anew()
        for relation, (places, counts) in outside.items():
            self._stores[relation].set(places, np.where(counts > 0, 0, ABSENT).astype(np.int32), counts)
        return self._anew()

    # Which way.

    def _budget(self) -> int:
        if self.strategy is Strategy.UPDATE:
            return 1 << 62
        return max(int(self.account.work * self.switch), self.least)

    def _worth_trying(self, size: int) -> bool:
        """Whether to try an Update. Those of changes no larger that were dropped say whether it would be."""
        if self.strategy is Strategy.BOOTSTRAP or self.failures or self._endless or not self._begun:
            return False
        if self.strategy is Strategy.UPDATE:
            return True
        sure = len(self._dropped) >= _SURE and all(s <= size for s in self._dropped)
        if not sure or self._skipped >= _TRY_AGAIN:
            self._skipped = 0
            return True
        self._skipped += 1
        self.account.not_tried += 1
        return False

    # The two ways.

    def _updated(self, update: Following, size: int, parts: Sequence[Sequence[_Part]], totals: list[int]) -> Followed:
        """Let the state be what the Update noted."""
        self.account.updates += 1
        self._dropped = [s for s in self._dropped if s > size]
        found = self._followed(parts, Counter())
        self._totals = totals
        for variable in range(self.program.variables) if not self.unsaved.whole else ():
            self.unsaved.note(variable, update.changes(variable), self.rows)
        update.adopt()
        for store in self._stores:
            store.compact()
        self._renew()
        return found

    def _noted(self, update: Following, variable: int) -> list[_Part]:
        """What leaves of what an Update noted of a variable."""
        if isinstance(update, UpdateExtremes):
            return [(s.lanes, np.zeros(len(s.diffs), np.bool_), s.diffs) for s in update.changes(variable)]
        note = update.notes[variable]
        last, places, new = self.program.last, note.places, note.rounds
        old, lanes = note.old(places), note.store.lanes[places]
        if self.program.copies:
            diffs = note.new_counts(places).astype(np.int64) - note.store.counts[places]
            return [(lanes, np.minimum(old, new) == last, diffs)]
        other = (old == last) != (new == last)
        gone = (old != ABSENT) & ((new == ABSENT) | other)
        come = (new != ABSENT) & ((old == ABSENT) | other)
        return [_part(lanes[gone], old[gone] == last, -1), _part(lanes[come], new[come] == last, 1)]

    def _anew(self) -> Followed:
        """Bootstrap over what is outside now, and what differs."""
        variables = self.program.variables
        for store in self._stores[variables:]:
            store.compact()
        extremes = bootstrap_extremes if self.program.extreme else bootstrap
        begin = bootstrap_copies if self.program.copies else extremes
        made = begin(self.program, self._stores[variables:], self._codec)
        self._begun = True
        self.unsaved.forget()
        self.account.bootstraps += 1
        self.account.work, self.account.rounds = made.work, made.rounds
        # Which extreme comes in which round, where they do not come to rest, is for Bootstrap to tell.
        self._endless = bool(self.program.extreme) and any((s.rounds == self.program.last).any() for s in made.stores)
        failures = Counter(m for part in made.errors for m in part.to_pylist())
        if made.over is not None:
            failures[self._told_of(made.over)] += 1
        failed, self.failures = self.failures, failures
        parts = [self._differing(*both) for both in zip(self._stores[:variables], made.stores, strict=True)]
        self._stores[:variables] = made.stores
        self._totals = self._counted()
        self._deriver = Deriver(self.program, self._stores, self._codec)
        changed = Counter(failures)
        changed.subtract(failed)
        found = self._followed(parts, changed)
        self._renew()
        return found

    def _counted(self) -> list[int]:
        """How many rows each variable has, copies too."""
        own = self._stores[: self.program.variables]
        return [int(s.counts[s.places()].sum(dtype=np.int64)) if self.program.copies else s.here for s in own]

    def _told_of(self, over: Over) -> str:
        """The error of too many rows."""
        schema = self.program.schemas[over.variable]
        columns = self._codec.decode(over.rows, schema)
        return self._told(over, pa.RecordBatch.from_arrays(columns, schema=schema.arrow))

    def _differing(self, before: Store, after: Store) -> list[_Part]:
        """What leaves where one state takes the place of another."""
        last = self.program.last
        if self.program.copies:
            return [_more(after, before, last, 1), _more(before, after, last, -1)]
        return _exchanged(before, after, last)

    def _changed(self, relation: int, updates: Updates) -> tuple[Int32s, Int32s]:
        """The places of the rows that change, each once, and how often each is there afterwards."""
        store, schema = self._stores[relation], self.program.schemas[relation]
        columns = [updates.struct.column(k) for k in range(len(schema.columns))]
        places, back = np.unique(store.place(self._codec.encode(columns, schema)), return_inverse=True)
        sums = np.zeros(len(places), np.int64)
        np.add.at(sums, back, updates.diffs)
        counts = store.counts[places].astype(np.int64) + sums
        if len(counts) and (counts.max() >= ABSENT or counts.min() <= -ABSENT):
            raise DiffOverflow(recursion=True)
        changed = sums != 0
        return places[changed], counts[changed].astype(np.int32)

    def _followed(self, parts: Sequence[Sequence[_Part]], messages: Counter[str]) -> Followed:
        """Rows of each variable and messages as they leave."""
        failed = [(m, n) for m, n in messages.items() if n]
        left = [self._left(variable, of_variable) for variable, of_variable in enumerate(parts)]
        return Followed(left, [m for m, _ in failed], [n for _, n in failed])

    def _left(self, variable: int, parts: Sequence[_Part]) -> Left:
        some = [part for part in parts if len(part[0])]
        width = self._stores[variable].width
        lanes = np.concatenate([p[0] for p in some]) if some else np.empty((0, width), np.int64)
        flags = np.concatenate([p[1] for p in some]) if some else np.empty(0, np.bool_)
        diffs = np.concatenate([p[2] for p in some]) if some else np.empty(0, np.int64)
        return Left([*self._codec.decode(lanes, self.program.schemas[variable]), pa.array(flags)], diffs)

    def _renew(self) -> None:
        """Begin the dictionary anew once it may hold twice what it held."""
        if len(self._codec) <= 2 * self._numbers + _SPARE_NUMBERS:
            return
        self.unsaved.forget()
        codec = Codec()
        for relation, (store, schema) in enumerate(zip(self._stores, self.program.schemas, strict=True)):
            places = store.places()
            made = Store(store.width)
            lanes = codec.encode(self._codec.decode(store.lanes[places], schema), schema)
            if store.width > lanes.shape[1]:
                lanes = np.concatenate([lanes, store.lanes[places, -1:]], axis=1)
            at = made.place(lanes)
            made.set(at, store.rounds[places], store.counts[places])
            made.shrink()
            self._stores[relation] = made
        self._codec, self._numbers = codec, len(codec)
        self._deriver = Deriver(self.program, self._stores, codec)


_Part = tuple[Lanes, Bools, Int64s]
"""Rows, which of them came in the last round, and the multiplicities with which they leave."""


def _part(lanes: Lanes, last: Bools, sign: int) -> _Part:
    return lanes, last, np.full(len(lanes), sign, np.int64)


def _more(store: Store, other: Store, last: int, sign: int) -> _Part:
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


def _exchanged(before: Store, after: Store, last: int) -> list[_Part]:
    """The rows that are in one of two stores alone, or came in the last round in one of them alone: those that go, and come."""
    places = after.places()
    lanes, mine = after.lanes[places], after.rounds[places] == last
    if not before.here:
        return [_part(lanes, mine, 1)]
    found = before.find(lanes)
    there = np.full(len(found), ABSENT, np.int32)
    there[found >= 0] = before.rounds[found[found >= 0]]
    stays = (there != ABSENT) & ((there == last) == mine)
    gone = before.rounds[: before.size] != ABSENT
    gone[found[stays]] = False
    left = np.flatnonzero(gone)
    return [
        _part(before.lanes[left], before.rounds[left] == last, -1),
        _part(lanes[~stays], mine[~stays], 1),
    ]


__all__ = ["LEAST", "SWITCH", "Account", "Followed", "SparseRecursion", "Strategy"]
