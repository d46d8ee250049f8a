"""A recursive group by state: each change is followed by an Update, or the group is made anew by Bootstrap.

An Update may do a part of the work of a Bootstrap, and more for each round that is over (`budget`); past it, it is dropped and
Bootstrap goes on from its rounds, also in portions. What leaves is the difference of the two states, whichever was taken; work is
counted, never timed. Invariant: after `follow` the state is that of a Bootstrap over what is outside now. Called by the
dataflow's node of recursive groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Updates
from headrace.engine.recursion.bootstrap import Begun, Over, bootstrap
from headrace.engine.recursion.budget import LEAST, SWITCH, Trials, WorkByRound, budget
from headrace.engine.recursion.codec import Codec, lanes_of
from headrace.engine.recursion.copies import UpdateCopies, bootstrap_copies
from headrace.engine.recursion.derive import Deriver
from headrace.engine.recursion.differing import Part, differing, part
from headrace.engine.recursion.extremes import UpdateExtremes, bootstrap_extremes
from headrace.engine.recursion.followed import Account, Base, Followed, Left, Strategy
from headrace.engine.recursion.meter import PIECE, Meter, OverBudget
from headrace.engine.recursion.portions import Portions, Progress, whole
from headrace.engine.recursion.program import Program
from headrace.engine.recursion.state import ABSENT, Int32s, Stated, Store
from headrace.engine.recursion.unsaved import Unsaved
from headrace.engine.recursion.update import Update

_OUTGROWN, _FEW = 8, 4_096
"""From so many times its rows, and so many at least, a relation may want another order of the atoms that are looked up."""

_SPARE_NUMBERS = 4_096

_SMALL_PIECE = 1 << 13
"""About so many derivations are worked on at a time in a group that may become late."""

Following = Update | UpdateCopies | UpdateExtremes


class SparseRecursion:
    """The state of a recursive group, and how it follows changes.

    Between steps these may change: `strategy`; `switch`, the part of a Bootstrap past which an Update is dropped, None
    where each round that is over adds to it; and `least`, the work that an Update may always do. `told`: the error of too
    many rows, of which it is given those of the round that would bring them. `most_work`: what is done before the group may
    become late, 0 for any. `base`: what a late group was when it left, else None.
    """

    def __init__(
        self,
        program: Program,
        strategy: Strategy = Strategy.AUTO,
        switch: float | None = None,
        told: Callable[[Over, pa.RecordBatch], str] = lambda over, _: f"more rows than {over.so_far}",
    ) -> None:
        self.program = program
        self._told = told
        self._totals = [0] * program.variables
        self.strategy = strategy
        self.switch = switch
        self.least = LEAST
        self.most_work = 0
        self.base: Base | None = None
        self._updating: Following | None = None
        self.account = Account()
        self.failures: Counter[str] = Counter()
        self._codec = Codec()
        self._numbers = 0
        # Where copies count, a row's round is its last lane.
        widths = [lanes_of(schema) + (program.copies and k == 0) for k, schema in enumerate(program.schemas)]
        self._stores = [Store(width) for width in widths]
        self._deriver = Deriver(program, self._stores, self._codec)
        self._trials = Trials()
        self._begun = self._endless = False
        self._by_round = WorkByRound()
        self.unsaved = Unsaved(program.variables)
        """What changed since the state was last saved."""

    @property
    def rows(self) -> int:
        """How many rows the group's variables have."""
        return sum(store.here for store in self._stores[: self.program.variables])

    @property
    def nbytes(self) -> int:
        """The memory that the state holds."""
        base = () if self.base is None else self.base.stores
        return sum(store.nbytes for store in {*self._stores, *base}) + self._codec.nbytes

    @property
    def shown(self) -> Base:
        """The state as readers know it now."""
        own = self._stores[: self.program.variables]
        return self.base or Base(own, self.failures, self.account, self.unsaved)

    def leave(self) -> None:
        """The group is late from here on, as it is: what it does from now on is shown to nobody until it is back.

        A Bootstrap may be under way, which makes other stores; or an Update, which changes those that there are: of these a copy
        is kept as they were. Invariant: nothing that is done while it is late changes `base`.
        """
        shown = self.shown
        if self._updating is not None:
            shown = replace(shown, stores=[self._updating.before(v) for v in range(self.program.variables)])
        self.base = replace(shown, failures=Counter(self.failures), account=replace(self.account))
        self.unsaved = Unsaved(self.program.variables)

    def returned(self) -> Followed:
        """The group is back: what all that was followed meanwhile makes of what it was."""
        base, now = self.base, self._stores[: self.program.variables]
        assert base is not None, "it was late"
        changed = Counter(self.failures)
        changed.subtract(base.failures)
        self.base = None
        found = self._followed(self._differing(base.stores, now), changed)
        self._renew()
        return found

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
        store = self.shown.stores[variable]
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
        store = self.shown.stores[variable]
        places = store.places()
        diffs = store.counts[places].astype(np.int64) if self.program.copies else np.ones(len(places), np.int64)
        return self._left(variable, [(store.lanes[places], store.rounds[places] == self.program.last, diffs)])

    def failed(self) -> Followed:
        """All messages, and no rows."""
        return self._followed([], self.shown.failures)

    def nothing(self) -> Followed:
        """No rows, and no messages."""
        return self._followed([[] for _ in range(self.program.variables)], Counter())

    def follow(self, changes: Mapping[int, Updates]) -> Followed:
        """The changes of relations from outside, all of one time. Raises DiffOverflow; then the state is lost."""
        return whole(self.following(changes))

    def anew(self) -> Portions[Followed]:
        """Bootstrap over what is outside now, in portions."""
        return self._anew(0)

    def following(self, changes: Mapping[int, Updates]) -> Portions[Followed]:
        """As `follow`, in portions. Of a late group nothing leaves before `returned`."""
        outside, size = {}, 0
        for relation, updates in changes.items():
            places, counts = self._changed(relation, updates)
            if len(places):
                outside[relation] = places, counts
                size += len(places)
        if not outside:
            return self.nothing()
        if any(s.here > _OUTGROWN * max(n, _FEW) for s, n in zip(self._stores, self._deriver.sizes, strict=True)):
            self._deriver = Deriver(self.program, self._stores, self._codec)
        kind = UpdateCopies if self.program.copies else UpdateExtremes if self.program.extreme else Update
        meter = self._meter(size, hands_over=kind is Update)
        update: Following = kind(self._deriver, meter)
        if self._worth_trying(size):
            try:
                self._updating = update
                yield from update.run(outside)
            except OverBudget:
                self._updating = None
                begun = update.begun() if isinstance(update, Update) else None
                update.drop()
                self.account.dropped += 1
                found = yield from self._anew(meter.spent, begun)
                self._trials.ended(size, cheap=found.work <= self.account.work)
                return found
            parts = [self._noted(update, variable) for variable in range(self.program.variables)]
            totals = [n + sum(int(d.sum()) for _, _, d in some) for n, some in zip(self._totals, parts, strict=True)]
            self._updating = None
            if not 0 < self.program.most < max(totals):
                return self._updated(update, size, parts, totals, meter.spent)
            update.drop()
            return (yield from self._anew(meter.spent))
        for relation, (places, counts) in outside.items():
            self._stores[relation].set(places, np.where(counts > 0, 0, ABSENT).astype(np.int32), counts)
        return (yield from self._anew(0))

    def _meter(self, size: int, *, hands_over: bool) -> Meter:
        """What an Update of a change of so many rows may do."""
        own, outside = self._stores[: self.program.variables], self._stores[self.program.variables :]
        meter = Meter()
        if self.strategy is not Strategy.UPDATE:
            if hands_over and self.switch is None:
                there = sum(store.here for store in outside)
                meter = budget(size, there, self.account.work, lambda: self._by_round.shares(own), self.least)
            else:
                switch = SWITCH if self.switch is None else self.switch
                meter = Meter(max(int(self.account.work * switch), self.least))
        meter.piece, meter.at_once = self._piece, self.most_work
        return meter

    @property
    def _piece(self) -> int:
        return _SMALL_PIECE if self.most_work else PIECE

    def _worth_trying(self, size: int) -> bool:
        """Whether to try an Update. Those of changes no larger that were dropped say whether it would be."""
        if self.strategy is Strategy.BOOTSTRAP or self.failures or self._endless or not self._begun:
            return False
        if self.strategy is Strategy.UPDATE:
            return True
        if self._trials.worth(size):
            return True
        self.account.not_tried += 1
        return False

    # The two ways.

    def _updated(
        self, update: Following, size: int, parts: Sequence[Sequence[Part]], totals: list[int], work: int
    ) -> Followed:
        """Let the state be what the Update noted."""
        self.account.updates += 1
        self._trials.ended(size, cheap=work <= max(self.account.work, self.least))
        # A group that is late tells the difference at its return.
        found = replace(self.nothing() if self.base else self._followed(parts, Counter()), work=work)
        self._totals = totals
        for variable in range(self.program.variables) if not self.unsaved.whole else ():
            self.unsaved.note(variable, update.changes(variable), self.rows)
        update.adopt()
        for store in self._stores:
            store.compact()
        self._renew()
        return found

    def _noted(self, update: Following, variable: int) -> list[Part]:
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
        return [part(lanes[gone], old[gone] == last, -1), part(lanes[come], new[come] == last, 1)]

    def _anew(self, spent: int, begun: Begun | None = None) -> Portions[Followed]:
        """Bootstrap over what is outside now, and what differs. `spent`, `begun`: the work and the rounds of an Update that was
        dropped.
        """
        variables = self.program.variables
        spared = np.zeros(1)
        if begun is not None:
            spared = self.account.work * self._by_round.shares(self._stores[:variables])[: begun.round + 1]
        if self._begun:
            yield Progress(spent, 0, 0, self.account.work)
        for store in self._stores[variables:]:
            store.compact()
        meter = Meter(spent=spent, piece=self._piece)
        given = self.program, self._stores[variables:], self._codec, meter
        if self.program.copies:
            made = yield from bootstrap_copies(*given)
        else:
            made = yield from bootstrap_extremes(*given) if self.program.extreme else bootstrap(*given, begun)
        self._begun = True
        self.unsaved.forget()
        self.account.bootstraps += 1
        self._by_round.told(spared, made.by_round)
        self.account.work, self.account.rounds = made.work - spent + int(spared[-1]), made.rounds
        # Which extreme comes in which round, where they do not come to rest, is for Bootstrap to tell.
        self._endless = bool(self.program.extreme) and any((s.rounds == self.program.last).any() for s in made.stores)
        failures = Counter(m for part in made.errors for m in part.to_pylist())
        if made.over is not None:
            failures[self._told_of(made.over)] += 1
        failed, self.failures = self.failures, failures
        # A group that is late tells the difference at its return.
        late = self.base is not None
        parts = [[]] * variables if late else self._differing(self._stores[:variables], made.stores)
        self._stores[:variables] = made.stores
        self._totals = self._counted()
        self._deriver = Deriver(self.program, self._stores, self._codec)
        changed = Counter(failures)
        changed.subtract(failed)
        found = replace(self._followed(parts, changed), work=made.work)
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

    def _differing(self, before: Sequence[Store], after: Sequence[Store]) -> list[list[Part]]:
        """What leaves of each variable where one state takes the place of another."""
        last, copies = self.program.last, self.program.copies
        return [differing(*both, last, copies=copies) for both in zip(before, after, strict=True)]

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

    def _followed(self, parts: Sequence[Sequence[Part]], messages: Counter[str]) -> Followed:
        """Rows of each variable and messages as they leave."""
        failed = [(m, n) for m, n in messages.items() if n]
        left = [self._left(variable, of_variable) for variable, of_variable in enumerate(parts)]
        return Followed(left, [m for m, _ in failed], [n for _, n in failed])

    def _left(self, variable: int, parts: Sequence[Part]) -> Left:
        some = [part for part in parts if len(part[0])]
        width = self._stores[variable].width
        lanes = np.concatenate([p[0] for p in some]) if some else np.empty((0, width), np.int64)
        flags = np.concatenate([p[1] for p in some]) if some else np.empty(0, np.bool_)
        diffs = np.concatenate([p[2] for p in some]) if some else np.empty(0, np.int64)
        return Left([*self._codec.decode(lanes, self.program.schemas[variable]), pa.array(flags)], diffs)

    def _renew(self) -> None:
        """Begin the dictionary anew once it may hold twice what it held."""
        if len(self._codec) <= 2 * self._numbers + _SPARE_NUMBERS or self.base is not None:
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


__all__ = ["LEAST", "SWITCH", "Account", "Followed", "Left", "SparseRecursion", "Strategy"]
