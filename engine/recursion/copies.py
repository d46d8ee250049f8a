"""Bootstrap and Update of a recursion that keeps copies (UNION ALL): each row once for each round, with its copies in it.

The round is the last lane of a row and part of its key; a rule reads the variable at most once. Invariant: the copies of a row
in a round are the sum, over its derivations from the round before, of the products of the copies of their rows. So an
Update is linear: what changes in a round follows from what changed in the round before, and from outside. Called by `switching`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Bools, Int64s
from headrace.engine.errors import InvariantBroken
from headrace.engine.recursion.beside import NONE, Beside
from headrace.engine.recursion.bootstrap import Made, Over, come_to, too_many
from headrace.engine.recursion.codec import Codec, lanes_of
from headrace.engine.recursion.derive import ANY, Deriver, Frame
from headrace.engine.recursion.meter import CALL, Meter, OverBudget
from headrace.engine.recursion.portions import Portions, Progress
from headrace.engine.recursion.program import Program
from headrace.engine.recursion.state import ABSENT, Int32s, Lanes, Stated, Store
from headrace.engine.recursion.update import FailedRow

_MOST = float(1 << 31)

Copies = Callable[[int, Int32s], Int32s]
"""Of a relation and places how many copies there are."""


def bootstrap_copies(program: Program, outside: Sequence[Store], codec: Codec, meter: Meter) -> Portions[Made]:
    """As `bootstrap`. Raises DiffOverflow for more copies of a row than 32 bits count."""
    own = Store(lanes_of(program.schemas[0]) + 1)
    errors: list[pa.Array] = []
    deriver = Deriver(program, [own, *outside], codec)
    before = now = 0
    over: Over | None = None
    while now < program.last and over is None:
        upper = own.size
        if now and upper == before:
            break
        now += 1
        for number, rule in enumerate(program.rules):
            variable = program.variable_atom(rule)
            if variable is None and now > 1:
                continue
            start = 0 if variable is None else variable
            store = deriver.store(number, start)
            seeds = store.places() if variable is None else np.arange(before, upper, dtype=np.int32)
            for frame in deriver.derive(number, start, seeds, lambda _: ABSENT - 1, meter):
                factors = _factors(deriver, frame, lambda relation, places: deriver.stores[relation].counts[places])
                concluded = deriver.conclude(Frame(number, {**frame.places, len(rule.atoms): _positions(frame)}))
                weights = factors[concluded.frame.places[len(rule.atoms)]]
                errors += [e for e in concluded.errors if len(e)]
                meter.spend(len(weights))
                if rule.head >= 0:
                    _add(own, _keyed(concluded.rows[weights > 0], now), weights[weights > 0], now)
                yield come_to(meter, [own], now)
        before = upper
        over = too_many(program, [own], [before], now)
    own.shrink()
    return Made([own], meter.spent, now, errors, over)


@dataclass(frozen=True)
class _Waiting:
    """Heads of one rule, by how many copies more there are while the variable's rows, at `rows`, do not change."""

    rows: Int32s | None
    heads: Lanes
    changes: Int64s


class UpdateCopies:
    """One change of the rows from outside. `notes` holds what becomes of all relations, once it has run."""

    def __init__(self, deriver: Deriver, meter: Meter) -> None:
        self.notes = [Beside(store) for store in deriver.stores]
        self._deriver = deriver
        self._program = deriver.program
        self._meter = meter
        self._waiting: dict[int, list[_Waiting]] = {}

    def run(self, outside: Mapping[int, tuple[Int32s, Int32s]]) -> Portions[None]:
        """As `Update.run`."""
        changed: dict[int, Int32s] = {}
        for relation, (places, counts) in outside.items():
            rounds = np.where(counts > 0, 0, ABSENT).astype(np.int32)
            self.notes[relation].note(places, rounds, counts)
            changed[relation] = places
        for number, rule in enumerate(self._program.rules):
            for start, atom in enumerate(rule.atoms):
                if len(changed.get(atom.relation, NONE)):
                    yield from self._enter(number, start, changed[atom.relation])
        now, moved = 0, NONE
        while self._waiting or (len(moved) and now < self._program.last):
            now = now + 1 if len(moved) else min(self._waiting)
            if now > self._program.last:
                break
            self._meter.spend(2 * CALL)
            moved = yield from self._round(now, moved)
            self._meter.round_is_over(now)
            if self._program.most and self.notes[0].store.size - self.notes[0].size > self._program.most:
                raise OverBudget

    def drop(self) -> None:
        """As `Update.drop`."""
        self.notes[0].drop()
        for note in self.notes[1:]:
            note.adopt()

    def before(self, variable: int) -> Store:
        """As `Update.before`."""
        return self.notes[variable].before()

    def changes(self, variable: int) -> tuple[Stated, Stated]:
        """What becomes of a variable's rows: as they were, and as they will be."""
        return self.notes[variable].changes()

    def adopt(self) -> None:
        """As `Update.adopt`."""
        for note in self.notes:
            note.adopt()

    def _stopped(self, now: int) -> Portions[None]:
        """Stop between two pieces of the round `now`, if it is time to."""
        if self._meter.stops():
            yield Progress(self._meter.spent, now, self.notes[0].store.here)

    def _enter(self, rule: int, start: int, changed: Int32s) -> Portions[None]:
        """What changed rows from outside make of the variable's rows as they were; each derivation by its first changed row."""
        variable = self._program.variable_atom(self._program.rules[rule])
        for frame in self._deriver.derive(rule, start, changed, lambda _: ANY, self._meter):
            old, new = self._old(frame), self._new(frame)
            kept: Bools = old != new
            for atom in range(start + 1):
                if atom != variable:
                    one, other = self._factor(frame, atom, of_old=True), self._factor(frame, atom, of_old=False)
                    kept &= (one == other) if atom < start else (one != other)
            self._put_off(frame, old, new, kept, variable)
            yield from self._stopped(0)

    def _put_off(self, frame: Frame, old: Int64s, new: Int64s, kept: Bools, variable: int | None) -> None:
        heads, at = self._concluded(frame.take(kept))
        changes = (new - old)[kept][at]
        if variable is None:
            self._waiting.setdefault(1, []).append(_Waiting(None, heads, changes))
            return
        rows = frame.places[variable][kept][at]
        rounds = self._deriver.stores[0].rounds[rows].astype(np.int64) + 1
        for now in np.unique(rounds).tolist():
            if now <= self._program.last:
                some = rounds == now
                self._waiting.setdefault(now, []).append(_Waiting(rows[some], heads[some], changes[some]))

    def _round(self, now: int, moved: Int32s) -> Portions[Int32s]:
        """The rows of the round `now` whose copies change, given those of the round before."""
        note = self.notes[0]
        parts = [(NONE[:0].reshape(0, note.store.width - 1).astype(np.int64), np.empty(0, np.int64))]
        for some in self._waiting.pop(now, ()):
            still = np.ones(len(some.heads), np.bool_)
            if some.rows is not None:
                # From a row that changes all of its derivations are found below.
                still = note.store.slots[some.rows] < 0
            parts.append((some.heads[still], some.changes[still]))
        for number, rule in enumerate(self._program.rules) if len(moved) else ():
            variable = self._program.variable_atom(rule)
            if variable is not None:
                for frame in self._deriver.derive(number, variable, moved, lambda _: ANY, self._meter):
                    old, new = self._old(frame), self._new(frame)
                    heads, at = self._concluded(frame.take(old != new))
                    parts.append((heads, (new - old)[old != new][at]))
                    yield from self._stopped(now)
        heads, changes = (np.concatenate(lanes) for lanes in zip(*parts, strict=True))
        if not len(heads):
            return NONE
        places: Int32s
        places, back = np.unique(note.store.place(_keyed(heads, now)), return_inverse=True)
        sums = np.zeros(len(places), np.int64)
        np.add.at(sums, back, changes)
        places, sums = places[sums != 0], sums[sums != 0]
        counts = note.store.counts[places] + sums
        if (counts < 0).any():
            raise InvariantBroken("a row lost more copies than it had", round=now)
        if (counts >= ABSENT).any():
            raise DiffOverflow(recursion=True)
        note.note(places, np.where(counts > 0, now, ABSENT).astype(np.int32), counts.astype(np.int32))
        return places

    def _concluded(self, frame: Frame) -> tuple[Lanes, Int64s]:
        """The heads of derivations, and from which of them each is."""
        head = len(self._program.rules[frame.rule].atoms)
        if not len(frame):
            return np.empty((0, lanes_of(self._program.schemas[0])), np.int64), np.empty(0, np.int64)
        concluded = self._deriver.conclude(Frame(frame.rule, {**frame.places, head: _positions(frame)}))
        if concluded.errors:
            raise FailedRow
        self._meter.spend(len(concluded.rows))
        if self._program.rules[frame.rule].head < 0:
            return np.empty((0, lanes_of(self._program.schemas[0])), np.int64), np.empty(0, np.int64)
        return concluded.rows, concluded.frame.places[head].astype(np.int64)

    def _old(self, frame: Frame) -> Int64s:
        return _factors(self._deriver, frame, lambda relation, places: self._copies(relation, places, of_old=True))

    def _new(self, frame: Frame) -> Int64s:
        return _factors(self._deriver, frame, lambda relation, places: self._copies(relation, places, of_old=False))

    def _factor(self, frame: Frame, atom: int, *, of_old: bool) -> Int64s:
        return _factor(self._deriver, frame, atom, lambda r, places: self._copies(r, places, of_old=of_old))

    def _copies(self, relation: int, places: Int32s, *, of_old: bool) -> Int32s:
        note = self.notes[relation]
        found: Int32s = note.store.counts[places] if of_old else note.new_counts(places)
        return found


def _factors(deriver: Deriver, frame: Frame, copies: Copies) -> Int64s:
    """Of derivations the products of the copies of their rows. Raises DiffOverflow."""
    found = np.ones(len(frame), np.int64)
    for atom in range(len(deriver.program.rules[frame.rule].atoms)):
        factor = _factor(deriver, frame, atom, copies)
        if len(found) and float(found.max()) * float(factor.max()) >= _MOST * _MOST:
            raise DiffOverflow(recursion=True)
        found = found * factor
    return found


def _factor(deriver: Deriver, frame: Frame, atom: int, copies: Copies) -> Int64s:
    """Of derivations the copies of one atom's rows: of what is negated 1 while there is none."""
    told, places = deriver.program.rules[frame.rule].atoms[atom], frame.places[atom]
    if told.negated is None:
        return np.maximum(copies(told.relation, places), 0).astype(np.int64)
    found = np.ones(len(frame), np.int64)
    some = places >= 0
    found[some] = copies(told.relation, places[some]) <= 0
    return found


def _positions(frame: Frame) -> Int32s:
    return np.arange(len(frame), dtype=np.int32)


def _keyed(rows: Lanes, now: int) -> Lanes:
    """Rows with their round behind."""
    made = np.empty((len(rows), rows.shape[1] + 1), np.int64)
    made[:, :-1] = rows
    made[:, -1] = now
    return made


def _add(store: Store, rows: Lanes, weights: Int64s, now: int) -> None:
    """Copies of rows of a round. Raises DiffOverflow."""
    places, back = np.unique(store.place(rows), return_inverse=True)
    sums = store.counts[places].astype(np.int64)
    np.add.at(sums, back, weights)
    if len(sums) and (sums.max() >= ABSENT or sums.min() < 0):
        raise DiffOverflow(recursion=True)
    store.set(places, np.full(len(places), now, np.int32), sums.astype(np.int32))


__all__ = ["UpdateCopies", "bootstrap_copies"]
