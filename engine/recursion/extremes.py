"""Bootstrap and Update of a recursion of minima or maxima: each key once, with its extreme and the round in which it was reached.

A row's last column is the value; a better one takes its place. Rules hand a better value on as a better one, strictly: what
follows from a row that gets better gets better too. Invariant: each row has a derivation from rows of earlier rounds,
and no derivation from rows that are there gives a better one; the rounds of a Bootstrap are the earliest, those of an Update need
not be. Called by `switching`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Bools
from headrace.engine.recursion.beside import NONE
from headrace.engine.recursion.bootstrap import Made, Over, come_to
from headrace.engine.recursion.codec import Codec, lanes_of, null_lane
from headrace.engine.recursion.derive import Deriver, Frame
from headrace.engine.recursion.meter import CALL, Meter, OverBudget
from headrace.engine.recursion.portions import Portions, Progress
from headrace.engine.recursion.program import Program
from headrace.engine.recursion.state import ABSENT, NO_NULLS, Int32s, Lanes, Stated, Store
from headrace.engine.recursion.update import FailedRow, Places

_PRESENT = ABSENT - 1
"""As a latest round: whatever is there."""


class _Heads(NamedTuple):
    """What derivations come to: rows, the rounds that they would have, and the frame."""

    rows: Lanes
    rounds: Int32s
    frame: Frame


class _Rules:
    """The rules over rows as they are. `errors`: of derivations that fail."""

    def __init__(self, deriver: Deriver, meter: Meter) -> None:
        self.deriver = deriver
        self.program = deriver.program
        self.stores = deriver.stores
        self.meter = meter
        self.errors: list[pa.Array] = []

    def derived(self, rule: int, start: int, seeds: Int32s, latest: int = _PRESENT) -> Iterator[_Heads]:
        """The heads of the derivations from rows of `start` and others that came by the round `latest`."""
        own = [a for a, atom in enumerate(self.program.rules[rule].atoms) if atom.relation < self.program.variables]
        for frame in self.deriver.derive(rule, start, seeds, lambda _: latest, self.meter) if len(seeds) else ():
            concluded = self.deriver.conclude(self._standing(frame, start))
            self.errors += concluded.errors
            frame = concluded.frame
            self.meter.spend(len(concluded.rows))
            if len(concluded.rows):
                rounds = np.zeros(len(frame), np.int32)
                for atom in own:
                    rounds = np.maximum(rounds, self.deriver.store(rule, atom).rounds[frame.places[atom]])
                yield _Heads(concluded.rows, rounds + np.int32(1), frame)

    def _standing(self, frame: Frame, start: int) -> Frame:
        """Those of which no negated row is there, but for the one that they begin with."""
        for atom, told in enumerate(self.program.rules[frame.rule].atoms):
            if told.negated is not None and atom != start:
                found = frame.places[atom]
                there = found >= 0
                there[there] = self.deriver.store(frame.rule, atom).rounds[found[there]] != ABSENT
                frame = frame.take(~there)
        return frame

    def following(self, changed: Places) -> Iterator[tuple[int, _Heads]]:
        """What is derived from rows of some relations, with the relation of the heads."""
        for number, rule in enumerate(self.program.rules):
            for start, atom in enumerate(rule.atoms):
                for heads in self.derived(number, start, changed.get(atom.relation, NONE)):
                    yield rule.head, heads

    def better(self, relation: int, candidates: Sequence[_Heads]) -> tuple[Lanes, Int32s, Int32s]:
        """Of candidates the best of each key that is better than what is there: rows, rounds, and the places that lose theirs."""
        schema = self.program.schemas[relation]
        rows, rounds = np.concatenate([h.rows for h in candidates]), np.concatenate([h.rounds for h in candidates])
        value, bits = len(schema.columns) - 1, null_lane(schema)
        if bits >= 0:
            keyed: Bools = rows[:, bits] & ((1 << value) - 1) == 0
            rows, rounds = rows[keyed], rounds[keyed]
        store, key = self.stores[relation], tuple(range(value))
        keys = np.ascontiguousarray(rows[:, :value])
        ones, places, visited = store.probe(keys, key, _PRESENT, NO_NULLS, self.meter.most - self.meter.spent)
        self.meter.spend(visited)
        there = np.full(len(rows), -1, np.int32)
        there[ones] = places
        known = there >= 0
        better = ~known
        better[known] = _is_better(self._worth(rows[known], relation), self._worth(store.lanes[there[known]], relation))
        rows, rounds, there = rows[better], rounds[better], there[better]
        missing, worth = self._worth(rows, relation)
        order = np.lexsort((rounds, worth, missing, *(rows[:, k] for k in range(value))))
        rows, rounds, there = rows[order], rounds[order], there[order]
        first = np.ones(len(rows), np.bool_)
        if value:
            first[1:] = (rows[1:, :value] != rows[:-1, :value]).any(axis=1)
        else:
            first[1:] = False
        lost = there[first]
        return np.ascontiguousarray(rows[first]), rounds[first], lost[lost >= 0]

    def _worth(self, rows: Lanes, relation: int) -> tuple[Bools, np.ndarray]:
        """Whether there is no value, which is the worst, and what is less where it is better."""
        schema = self.program.schemas[relation]
        value, bits = len(schema.columns) - 1, null_lane(schema)
        missing = np.zeros(len(rows), np.bool_) if bits < 0 else (rows[:, bits] >> value) & 1 != 0
        return missing, rows[:, value] if self.program.extreme > 0 else ~rows[:, value]


def _is_better(one: tuple[Bools, np.ndarray], other: tuple[Bools, np.ndarray]) -> Bools:
    found: Bools = (one[0] < other[0]) | ((one[0] == other[0]) & ~one[0] & (one[1] < other[1]))
    return found


def bootstrap_extremes(program: Program, outside: Sequence[Store], codec: Codec, meter: Meter) -> Portions[Made]:
    """As `bootstrap`; each round from the rows that the round before made better."""
    own = [Store(lanes_of(program.schemas[v])) for v in range(program.variables)]
    rules = _Rules(Deriver(program, [*own, *outside], codec), meter)
    now = 1
    derived = yield from _collected(rules, _from_outside(rules), own, now)
    changed = _taken_in(rules, derived, now)
    over = _too_many(program, own, changed, now)
    while any(len(places) for places in changed.values()) and now < program.last and over is None:
        now += 1
        derived = yield from _collected(rules, rules.following(changed), own, now)
        changed = _taken_in(rules, derived, now)
        over = _too_many(program, own, changed, now)
    if rules.errors:
        rules.errors = []
        for _ in _standing_ones(rules):
            yield come_to(meter, own, now)
    errors, work = rules.errors, meter.spent
    for store in own:
        store.keep(store.places())
    return Made(own, work, now, errors, over)


def _collected(
    rules: _Rules, derived: Iterator[tuple[int, _Heads]], own: Sequence[Store], now: int
) -> Portions[list[tuple[int, _Heads]]]:
    """All that is derived in the round `now`."""
    found: list[tuple[int, _Heads]] = []
    for pair in derived:
        found.append(pair)
        yield come_to(rules.meter, own, now)
    return found


def _too_many(program: Program, own: Sequence[Store], changed: Places, now: int) -> Over | None:
    for variable, store in enumerate(own):
        if program.most and store.here > program.most:
            more = len(changed[variable])
            return Over(variable, now - 1, store.here - more, more, store.lanes[changed[variable]])
    return None


def _from_outside(rules: _Rules) -> Iterator[tuple[int, _Heads]]:
    """What rules derive that read no variable."""
    for number, rule in enumerate(rules.program.rules):
        if rules.program.variable_atom(rule) is None:
            for heads in rules.derived(number, 0, rules.deriver.store(number, 0).places()):
                yield rule.head, heads


def _taken_in(rules: _Rules, derived: Sequence[tuple[int, _Heads]], now: int) -> Places:
    """Let better rows take the places of others in the round `now`; those rows."""
    changed: Places = {}
    for relation in range(rules.program.variables):
        some = [heads for head, heads in derived if head == relation]
        if not some:
            continue
        store = rules.stores[relation]
        rows, _, lost = rules.better(relation, some)
        places = store.place(rows)
        store.set(lost, np.full(len(lost), ABSENT, np.int32), np.zeros(len(lost), np.int32))
        store.set(places, np.full(len(places), now, np.int32), np.ones(len(places), np.int32))
        changed[relation] = places
    return changed


def _standing_ones(rules: _Rules) -> Iterator[_Heads]:
    """The derivations from the rows that there are at the end, whose errors are those of the rules."""
    for number, rule in enumerate(rules.program.rules):
        start = rules.program.variable_atom(rule) or 0
        yield from rules.derived(number, start, rules.deriver.store(number, start).places())


class UpdateExtremes:
    """One change of the rows from outside, made in the state itself; `drop` takes it back."""

    def __init__(self, deriver: Deriver, meter: Meter) -> None:
        self._rules = _Rules(deriver, meter)
        self._program = deriver.program
        self._stores = deriver.stores
        self._sizes = [store.size for store in deriver.stores]
        self._before: list[list[tuple[Int32s, Int32s]]] = [[] for _ in range(deriver.program.variables)]
        self._outside: Mapping[int, tuple[Int32s, Int32s]] = {}

    def run(self, outside: Mapping[int, tuple[Int32s, Int32s]]) -> Portions[None]:
        """As `Update.run`."""
        self._outside = outside
        lost: Places = {}
        found: Places = {}
        for relation, (places, counts) in outside.items():
            there = self._stores[relation].rounds[places] != ABSENT
            lost[relation], found[relation] = places[there & (counts <= 0)], places[~there & (counts > 0)]
        entering = yield from self._listed(self._entering(lost, found), 0)
        gone = [(0, head, heads) for head, heads in entering]
        self._apply()
        waiting: dict[int, list[tuple[int, Int32s]]] = {}
        self._suspect(waiting, gone)
        without = yield from self._lose(waiting)
        come = yield from self._listed(self._entering(found, lost), 0)
        for relation, places in without.items():
            come += yield from self._listed(self._backwards(relation, places), 0)
        now = 0
        while come:
            self._check()
            self._rules.meter.spend(2 * CALL)
            now += 1
            come = yield from self._listed(self._rules.following(self._taken_in(come)), now)
        self._check()

    def drop(self) -> None:
        """As `Update.drop`."""
        for store, size, before in zip(self._stores, self._sizes, self._before, strict=False):
            for places, rounds in reversed(before):
                kept = places < size
                store.set(places[kept], rounds[kept], (rounds[kept] != ABSENT).astype(np.int32))
            new = np.arange(size, store.size, dtype=np.int32)
            store.set(new, np.full(len(new), ABSENT, np.int32), np.zeros(len(new), np.int32))
            store.drop_last(size)
        self._apply()

    def adopt(self) -> None:
        """Nothing more: the state is what it is to be."""

    def before(self, variable: int) -> Store:
        """As `Update.before`."""
        store, size = self._stores[variable], self._sizes[variable]
        rounds = store.rounds[:size].copy()
        for places, old in reversed(self._before[variable]):
            kept = places < size
            rounds[places[kept]] = old[kept]
        return store.copied(rounds, (rounds != ABSENT).astype(np.int32))

    def _listed(self, derived: Iterator[tuple[int, _Heads]], now: int) -> Portions[list[tuple[int, _Heads]]]:
        """All that is derived, in portions."""
        found: list[tuple[int, _Heads]] = []
        for pair in derived:
            found.append(pair)
            if self._rules.meter.stops():
                here = sum(store.here for store in self._stores[: self._program.variables])
                yield Progress(self._rules.meter.spent, now, here)
        return found

    def changes(self, variable: int) -> tuple[Stated, Stated]:
        """What a variable had and has no more, and what it has anew."""
        store, before = self._stores[variable], self._before[variable]
        if not before:
            return Stated.of(store, NONE), Stated.of(store, NONE)
        places, first = np.unique(np.concatenate([p for p, _ in before]), return_index=True)
        old, new = np.concatenate([r for _, r in before])[first], store.rounds[places]
        gone, come = (old != ABSENT) & (old != new), (new != ABSENT) & (old != new)
        went = Stated.of(store, places[gone], -1)
        counts = np.ones(int(gone.sum()), np.int32)
        return went._replace(rounds=old[gone], counts=counts), Stated.of(store, places[come])

    def _apply(self) -> None:
        for relation, (places, counts) in self._outside.items():
            self._stores[relation].set(places, np.where(counts > 0, 0, ABSENT).astype(np.int32), counts)

    def _check(self) -> None:
        if self._rules.errors:
            raise FailedRow

    def _entering(self, lost: Places, found: Places) -> Iterator[tuple[int, _Heads]]:
        """What is derived from rows from outside: those of `lost`, and of negated relations those of `found`."""
        for number, rule in enumerate(self._program.rules):
            for start, atom in enumerate(rule.atoms):
                some = (lost if atom.negated is None else found).get(atom.relation, NONE)
                for heads in self._rules.derived(number, start, some):
                    yield rule.head, heads

    def _set(self, relation: int, places: Int32s, rounds: Int32s) -> None:
        store = self._stores[relation]
        self._before[relation].append((places, store.rounds[places]))
        store.set(places, rounds, (rounds != ABSENT).astype(np.int32))

    # Losing.

    def _suspect(self, waiting: dict[int, list[tuple[int, Int32s]]], gone: Sequence[tuple[int, int, _Heads]]) -> None:
        """Let rows wait for their rounds, of whose derivations one is gone; `gone`: each with the round of what it lost."""
        for after, relation, heads in gone:
            store = self._stores[relation]
            places = np.unique(store.find(heads.rows))
            places = places[places >= 0]
            rounds = store.rounds[places]
            places, rounds = places[rounds != ABSENT], rounds[rounds != ABSENT]
            for now in np.unique(rounds[rounds > after]).tolist():
                waiting.setdefault(now, []).append((relation, places[rounds == now]))

    def _lose(self, waiting: dict[int, list[tuple[int, Int32s]]]) -> Portions[Places]:
        """Take out the rows that no derivation of earlier rounds is left of, round by round; all of them."""
        without: dict[int, list[Int32s]] = {}
        while waiting:
            now = min(waiting)
            self._rules.meter.spend(2 * CALL)
            due: dict[int, list[Int32s]] = {}
            for relation, places in waiting.pop(now):
                due.setdefault(relation, []).append(places)
            lost = {
                relation: self._unsupported(relation, np.unique(np.concatenate(p)), now) for relation, p in due.items()
            }
            following = yield from self._listed(self._rules.following(lost), now)
            gone = [(now, head, heads) for head, heads in following]
            for relation, places in lost.items():
                self._set(relation, places, np.full(len(places), ABSENT, np.int32))
                without.setdefault(relation, []).append(places)
            self._suspect(waiting, gone)
        self._check()
        return {relation: np.concatenate(parts) for relation, parts in without.items()}

    def _unsupported(self, relation: int, places: Int32s, now: int) -> Int32s:
        """Those rows of the round `now` that no derivation from rows of earlier rounds gives."""
        store = self._stores[relation]
        stands = np.zeros(store.size, np.bool_)
        for number, rule in enumerate(self._program.rules):
            if rule.head == relation:
                head = len(rule.atoms)
                for heads in self._rules.derived(number, head, places, now - 1):
                    at = heads.frame.places[head]
                    stands[at[(store.lanes[at] == heads.rows).all(axis=1)]] = True
        return places[~stands[places]]

    # Finding.

    def _backwards(self, relation: int, places: Int32s) -> Iterator[tuple[int, _Heads]]:
        """What else gives the keys of rows that are lost."""
        for number, rule in enumerate(self._program.rules):
            if rule.head == relation:
                for heads in self._rules.derived(number, len(rule.atoms), places):
                    yield relation, heads

    def _taken_in(self, come: Sequence[tuple[int, _Heads]]) -> Places:
        changed: Places = {}
        for relation in range(self._program.variables):
            some = [heads for head, heads in come if head == relation]
            if not some:
                continue
            rows, rounds, lost = self._rules.better(relation, some)
            late = len(rounds) and int(rounds.max()) >= self._program.last
            if late or 0 < self._program.most < self._stores[relation].here + len(rows) - len(lost):
                # Whether there is a shorter way, and whether there are too many, is for Bootstrap to tell.
                raise OverBudget
            places = self._stores[relation].place(rows)
            self._set(relation, lost, np.full(len(lost), ABSENT, np.int32))
            self._set(relation, places, rounds)
            changed[relation] = places
        return changed


__all__ = ["UpdateExtremes", "bootstrap_extremes"]
