"""Update: what a change from outside makes of a recursive group's state, on the rows that change alone.

The derivations that a changed row is part of are found once, and wait for their round: deletions for that of the derivation
before the change, insertions for that after it, and the other derivations of a row that is lost for their own; a round in which
nothing waits is not visited, and it may stop between two pieces of a round. Invariant: when a round is over, the rounds to be of
all rows up to it are final. It differs from Algorithm 3 of "Towards Elastic Incrementalization for Datalog" in that nothing is
asked in every round, and its third term is that of section 3.3. Called by `switching`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from headrace.engine.batch.updates import Bools
from headrace.engine.errors import InvariantBroken
from headrace.engine.recursion.among import Among
from headrace.engine.recursion.beside import NONE, Beside
from headrace.engine.recursion.bootstrap import Begun
from headrace.engine.recursion.derive import ANY, Deriver, Frame
from headrace.engine.recursion.meter import Meter, OverBudget
from headrace.engine.recursion.portions import Portions, Progress
from headrace.engine.recursion.small_update import GIVEN_UP, MOST_CHANGES, OVER_BUDGET
from headrace.engine.recursion.state import ABSENT, Int32s, Stated, Store

_WORTH_A_LOOK = 64
"""Where less than a part in so many is lost, all that comes later is taken to be more."""

_CALL = 2_048
"""What a piece of work of an Update in columns counts, however few derivations there are: some tens of calls of numpy."""

_DERIVATION = 8
"""What a derivation counts that an Update comes upon: the rounds of its rows, its head and its wait, a pass over columns each."""

_IN_KERNEL = 4
"""What a row counts that the kernel of small changes looks at: it takes several times what it takes in Bootstrap's."""

Places = dict[int, Int32s]
"""Of relations the places of some of their rows."""


class Term(Enum):
    """Why a derivation waits: it was counted and may be gone, it is new, or it stands and may find a lost row again."""

    DELETION = "deletion"
    INSERTION = "insertion"
    REDISCOVERY = "re-discovery"


@dataclass(frozen=True)
class _Waiting:
    """Derivations of one rule that may count in a round, with the places of their heads.

    `found`, `start`: of insertions, the round and the atom of the row that they were found from.
    """

    term: Term
    frame: Frame
    heads: Int32s
    found: int = 0
    start: int = 0


class Update:
    """One change of the rows from outside. `notes` holds what becomes of all relations, once it has run."""

    def __init__(self, deriver: Deriver, meter: Meter) -> None:
        self.notes = [Beside(store) for store in deriver.stores]
        self.forwards = 0
        """How often it went forwards for what may be found again."""
        self.rounds = 0
        """How many it visited."""
        self._deriver = deriver
        self._program = deriver.program
        self._meter = meter
        self._waiting: dict[int, list[_Waiting]] = {}
        self._more = [0] * deriver.program.variables
        self._final = 0
        """The rows of this round and of those before it are what they will be."""

    def run(self, outside: Mapping[int, tuple[Int32s, Int32s]]) -> Portions[None]:
        """`outside`: of each relation from outside the places of rows that change, and how often each is there now.

        In portions. Raises OverBudget and FailedRow; then, too, `drop` leaves the variables as they were.
        """
        lost: Places = {}
        found: Places = {}
        for relation, (places, counts) in outside.items():
            note = self.notes[relation]
            rounds = np.where(counts > 0, 0, ABSENT).astype(np.int32)
            before = note.old(places)
            note.note(places, rounds, counts)
            lost[relation] = places[(before == 0) & (rounds == ABSENT)]
            found[relation] = places[(before == ABSENT) & (rounds == 0)]
        if self._is_small(lost, found):
            return
        self._meter.call = _CALL
        yield from self._spread(0, lost, found)
        self._meter.round_is_over(0)
        while self._waiting:
            now = min(self._waiting)
            self.rounds += 1
            self._meter.spend(_CALL)
            self._final = now - 1
            lost, found = self._decided(now, self._waiting.pop(now))
            self._final = now
            yield from self._spread(now, lost, found)
            self._meter.round_is_over(now)

    def _is_small(self, lost: Places, found: Places) -> bool:
        """Whether the change is small, and was followed by a kernel, which does not stop. Raises OverBudget."""
        size = sum(len(places) for some in (lost, found) for places in some.values())
        small = self._deriver.small if size <= MOST_CHANGES else None
        if small is None:
            return False
        most = min(self._meter.left, self._meter.at_once or self._meter.left)
        ended, work = small.run(self.notes, lost, found, most // _IN_KERNEL)
        self._meter.spend(work * _IN_KERNEL)
        if ended == GIVEN_UP:
            return False
        if ended != OVER_BUDGET:
            return True
        if most == self._meter.at_once:
            # In columns it goes on in portions.
            for note in self.notes[: self._program.variables]:
                note.drop()
            return False
        raise OverBudget

    def _stopped(self, now: int) -> Portions[None]:
        """Stop between two pieces of the round `now`, if it is time to."""
        if self._meter.stops():
            yield Progress(self._meter.spent, now, sum(n.store.here for n in self.notes[: self._program.variables]))

    def begun(self) -> Begun | None:
        """What a Bootstrap need not do again, where this one is going to be dropped."""
        if self._final < 1:
            return None
        return Begun(self._final, [note.up_to(self._final) for note in self.notes[: self._program.variables]])

    def drop(self) -> None:
        """Leave the variables as they were; the rows from outside become what they are now."""
        for relation, note in enumerate(self.notes):
            if relation < self._program.variables:
                note.drop()
            else:
                note.adopt()

    def before(self, variable: int) -> Store:
        """A copy of a variable's rows as they were, however far it has come."""
        return self.notes[variable].before()

    def changes(self, variable: int) -> tuple[Stated, Stated]:
        """What becomes of a variable's rows: as they were, and as they will be."""
        return self.notes[variable].changes()

    def adopt(self) -> None:
        """Let the state be what it is now."""
        for note in self.notes:
            note.adopt()

    # A round.

    def _decided(self, now: int, waiting: list[_Waiting]) -> tuple[Places, Places]:
        """What is lost and what is found in the round `now`, by relation, of the derivations that waited for it."""
        parts: dict[int, list[tuple[Int32s, int]]] = {}
        for some in waiting:
            heads = self._counting(now, some)
            relation = self._program.rules[some.frame.rule].head
            parts.setdefault(relation, []).append((heads, -1 if some.term is Term.DELETION else 1))
        lost: Places = {}
        found: Places = {}
        for relation, changes in parts.items():
            every = np.concatenate([heads for heads, _ in changes])
            signs = np.concatenate([np.full(len(heads), sign) for heads, sign in changes])
            heads, back = np.unique(every, return_inverse=True)
            sums = np.bincount(back, signs, len(heads)).astype(np.int64)
            note = self.notes[relation]
            old = note.old(heads)
            counts = np.where(old == now, note.store.counts[heads], 0) + sums
            if (counts < 0).any():
                raise InvariantBroken("a row lost more derivations than it had", round=now, relation=relation)
            changed = sums != 0
            heads, old, counts = heads[changed], old[changed], counts[changed].astype(np.int32)
            rounds = np.where(counts > 0, now, ABSENT).astype(np.int32)
            note.note(heads, rounds, counts)
            lost[relation] = heads[rounds == ABSENT]
            found[relation] = heads[(rounds == now) & (old != now)]
            self._more[relation] += len(found[relation]) - len(lost[relation])
            if self._program.most and note.store.here + self._more[relation] > self._program.most:
                # Whether there are too many is for Bootstrap to tell.
                raise OverBudget
        return lost, found

    def _counting(self, now: int, some: _Waiting) -> Int32s:
        """The heads of the derivations that do count in the round `now`."""
        frame, heads = some.frame, some.heads
        head = self.notes[self._program.rules[frame.rule].head]
        # What was found before is not looked for.
        counts = head.new(heads) >= now
        old, new = self._rounds(frame)
        if some.term is Term.DELETION:
            counts &= new.max(axis=0) >= now
        elif some.term is Term.REDISCOVERY:
            counts &= (old == new).all(axis=0)
        else:
            for atom in range(len(new)):
                later = (new[atom] > some.found) | ((new[atom] == some.found) & (atom > some.start))
                # From that row it is found too, and later.
                counts &= ~((new[atom] != old[atom]) & later)
            # What counted in this round before is in the row's count already.
            counts &= ~((head.old(heads) == now) & (old.max(axis=0) == now - 1))
        return heads[counts]

    # What follows from a round.

    def _spread(self, now: int, lost: Places, found: Places) -> Portions[None]:
        """Find the derivations that rows lost and found in the round `now` are part of."""
        if now >= self._program.last:
            return
        for number, rule in enumerate(self._program.rules):
            for start, atom in enumerate(rule.atoms):
                one, other = lost.get(atom.relation, NONE), found.get(atom.relation, NONE)
                gone, come = (one, other) if atom.negated is None else (other, one)
                if len(gone) and rule.head >= 0:
                    yield from self._delete(now, number, start, gone)
                if len(come):
                    yield from self._insert(now, number, start, come)
        for relation in range(self._program.variables):
            if len(lost.get(relation, NONE)):
                yield from self._find_again(now, relation, lost[relation])

    def _delete(self, now: int, rule: int, start: int, lost: Int32s) -> Portions[None]:
        """What was derived from lost rows, where each is the first of a derivation's rows to be lost."""
        for frame in self._deriver.derive(rule, start, lost, lambda _: ABSENT - 1, self._meter):
            old, new = self._rounds(frame)
            kept = old.max(axis=0) != ABSENT
            for atom in range(len(old)):
                if atom != start:
                    before = (old[atom] < now) | ((old[atom] == now) & (atom < start))
                    kept &= ~(before & (new[atom] > old[atom]))
            self._put_off(Term.DELETION, frame.take(kept), now, start)
            yield from self._stopped(now)

    def _insert(self, now: int, rule: int, start: int, found: Int32s) -> Portions[None]:
        """What is derived from rows found anew, where each is the last of a derivation's changed rows to be found."""
        for frame in self._deriver.derive(rule, start, found, lambda _: ANY, self._meter):
            old, new = self._rounds(frame)
            kept = new.max(axis=0) != ABSENT
            for atom in range(start + 1, len(old)):
                kept &= ~((new[atom] == now) & (old[atom] != now))
            self._put_off(Term.INSERTION, frame.take(kept), now, start)
            yield from self._stopped(now)

    def _find_again(self, now: int, relation: int, lost: Int32s) -> Portions[None]:
        """The other derivations of lost rows, of rows that stay: backwards from these, or forwards from what comes later."""
        if self._goes_forwards(now, len(lost)):
            self.forwards += 1
            yield from self._forwards(now, relation, Among(self.notes[relation].store.lanes[lost]))
            return
        for number, rule in enumerate(self._program.rules):
            if rule.head == relation:
                head = len(rule.atoms)
                for frame in self._deriver.derive(number, head, lost, lambda _: ABSENT - 1, self._meter):
                    self._put_off(Term.REDISCOVERY, self._staying(frame, now), now, head)
                    yield from self._stopped(now)

    def _goes_forwards(self, now: int, lost: int) -> bool:
        """Whether fewer rows came in the round `now` and after it than are lost; counted where that may be."""
        stores = [note.store for note in self.notes[: self._program.variables]]
        if lost * _WORTH_A_LOOK < sum(store.here for store in stores):
            return False
        return sum(int(((s.rounds >= now) & (s.rounds != ABSENT))[: s.size].sum()) for s in stores) < lost

    def _forwards(self, now: int, relation: int, lost: Among) -> Portions[None]:
        """Derivations from rows of the round `now` and of later ones, whose heads are lost in the round `now`.

        The lost ones filter variable by variable, so that what comes to others is not multiplied out.
        """
        later: Places = {}
        for own in range(self._program.variables):
            note = self.notes[own]
            rounds = note.store.rounds[: note.size]
            later[own] = np.flatnonzero((rounds >= now) & (rounds != ABSENT)).astype(np.int32)
        for number, rule in enumerate(self._program.rules):
            if rule.head != relation:
                continue
            for start, atom in enumerate(rule.atoms):
                seeds = later.get(atom.relation, NONE)
                if not len(seeds):
                    continue
                for frame in self._deriver.derive(number, start, seeds, lambda _: ABSENT - 1, self._meter, lost):
                    old, _ = self._rounds(frame)
                    kept = old.max(axis=0) == old[start]
                    if start:
                        kept &= old[:start].max(axis=0) < old[start]
                    self._put_off(Term.REDISCOVERY, self._staying(frame.take(kept), now), now, start)
                    yield from self._stopped(now)

    def _staying(self, frame: Frame, now: int) -> Frame:
        """Derivations of the rounds after `now` all of whose rows are, as far as is known, where they were."""
        if not len(frame):
            return frame
        old, new = self._rounds(frame)
        latest = old.max(axis=0)
        return frame.take((latest >= now) & (latest != ABSENT) & (old == new).all(axis=0))

    # Derivations that wait.

    def _put_off(self, term: Term, frame: Frame, now: int, start: int) -> None:
        """Let derivations wait for their rounds, if they can count there at all."""
        if not len(frame):
            return
        self._meter.spend(_CALL + _DERIVATION * len(frame))
        concluded = self._deriver.conclude(frame)
        if concluded.errors:
            raise FailedRow
        frame, rows = concluded.frame, concluded.rows
        if self._program.rules[frame.rule].head < 0:
            return
        old, new = self._rounds(frame)
        rounds = (new if term is Term.INSERTION else old).max(axis=0) + 1
        relation = self._program.rules[frame.rule].head
        note = self.notes[relation]
        kept: Bools = rounds <= self._program.last
        head = len(self._program.rules[frame.rule].atoms)
        if start == head:
            heads = frame.places[head]
            kept &= (note.store.lanes[heads] == rows).all(axis=1)
        else:
            heads = note.store.find(rows)
            known = heads >= 0
            before, after = np.full((2, len(heads)), ABSENT, np.int32)
            before[known], after[known] = note.old(heads[known]), note.new(heads[known])
            if term is Term.DELETION:
                kept &= before == rounds
            elif term is Term.REDISCOVERY:
                kept &= (before == now) & (after == ABSENT)
            else:
                kept &= after > now
                kept &= ~((before == rounds) & (old.max(axis=0) + 1 == rounds))
            if term is Term.INSERTION:
                new_ones = np.flatnonzero(kept & ~known)
                heads[new_ones] = note.store.place(rows[new_ones])
        for at, some in _by_round(rounds, np.flatnonzero(kept)):
            waiting = _Waiting(term, frame.take(some), heads[some], now, start)
            self._waiting.setdefault(at, []).append(waiting)

    def _rounds(self, frame: Frame) -> tuple[Int32s, Int32s]:
        """The rounds of before and those to be of all atoms' rows: two arrays of an atom a line.

        What is negated is there, in round 0, while there is no such row.
        """
        atoms = self._program.rules[frame.rule].atoms
        old = np.empty((len(atoms), len(frame)), np.int32)
        new = np.empty((len(atoms), len(frame)), np.int32)
        for atom, told in enumerate(atoms):
            note, places = self.notes[told.relation], frame.places[atom]
            if told.negated is None:
                old[atom], new[atom] = note.old(places), note.new(places)
                continue
            some = places >= 0
            for lane, of in ((old, note.old), (new, note.new)):
                lane[atom] = 0
                lane[atom, some] = np.where(of(places[some]) == ABSENT, 0, ABSENT)
        return old, new


class FailedRow(OverBudget):
    """A derivation fails: of these Bootstrap gives account."""


def _by_round(rounds: Int32s, kept: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    found = rounds[kept]
    for at in np.unique(found).tolist():
        yield at, kept[found == at]


__all__ = ["FailedRow", "Term", "Update"]
