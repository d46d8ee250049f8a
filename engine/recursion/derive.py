"""Derivations of a rule in columns: from rows of one of its atoms, or of its head, to those of all others, atom by atom.

A frame holds of each atom the places of its rows, a derivation at a position; of a negated atom the place of what is not to be
there, or -1. Invariant: a derivation is found once for each row that one begins with. Called by Bootstrap and Update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.expressions.core.evaluate import evaluate, satisfied
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.operators.linear import as_mask, present
from headrace.engine.recursion.among import Among
from headrace.engine.recursion.codec import Codec, lanes_of, missing_of, null_lane
from headrace.engine.recursion.meter import CALL, PIECE, Meter
from headrace.engine.recursion.paths import Path, Step, path_of
from headrace.engine.recursion.program import Program, Rule
from headrace.engine.recursion.small_update import SmallUpdate, Untold
from headrace.engine.recursion.state import ABSENT, Int32s, Joined, Lanes, Store

ANY = ABSENT
"""As a latest round: there or not."""

_ROUNDS = 1 << 10
"""So many rounds of a linear rule are worked on at a time, where work is done in portions."""


@dataclass
class Frame:
    """Derivations of one rule: of each atom their places."""

    rule: int
    places: dict[int, Int32s] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.places.values())))

    def take(self, at: Int64s | np.ndarray) -> Frame:
        """Some of them."""
        return Frame(self.rule, {a: p[at] for a, p in self.places.items()})


@dataclass(frozen=True)
class Concluded:
    """What derivations come to: the frame of those that hold, their heads, and the messages of those that fail."""

    frame: Frame
    rows: Lanes
    errors: list[pa.Array]


class Deriver:
    """The rules of a program over stores of its relations. `sizes`: how many rows these had when it was made."""

    def __init__(self, program: Program, stores: Sequence[Store], codec: Codec) -> None:
        self.program = program
        self.stores = list(stores)
        self.codec = codec
        self.sizes = [store.here for store in stores]
        self._paths: dict[tuple[int, int], Path] = {}
        self._constants: list[Mapping[int, tuple[tuple[int, ...], Lanes]]] = []
        self._small: list[SmallUpdate | None] = []

    @property
    def small(self) -> SmallUpdate | None:
        """What follows small changes of these rules, if a kernel can be told them; made once."""
        if not self._small:
            paths = [
                [self.path(n, start) for start in range(len(r.atoms) + 1)] for n, r in enumerate(self.program.rules)
            ]
            try:
                self._small.append(SmallUpdate(self.program, self.stores, paths))
            except Untold:
                self._small.append(None)
        return self._small[0]

    def relation(self, rule: int, atom: int) -> int:
        """The relation of an atom, or of the head."""
        atoms = self.program.rules[rule].atoms
        return self.program.rules[rule].head if atom == len(atoms) else atoms[atom].relation

    def store(self, rule: int, atom: int) -> Store:
        """Its rows."""
        return self.stores[self.relation(rule, atom)]

    def path(self, rule: int, start: int) -> Path:
        """The way from there, worked out once."""
        found = self._paths.get((rule, start))
        if found is None:
            found = self._paths[rule, start] = path_of(self.program, rule, start, self._fanout)
        return found

    def _fanout(self, rule: int, atom: int, columns: tuple[int, ...]) -> float | None:
        """See `paths.Fanout`."""
        told = self.constants(rule)
        return self.store(rule, atom).fanout(tuple(sorted({*columns, *(told[atom][0] if atom in told else ())})))

    def constants(self, rule: int) -> Mapping[int, tuple[tuple[int, ...], Lanes]]:
        """Of each atom the columns that must have a value, and these values' lanes."""
        if not self._constants:
            for told in self.program.rules:
                found: dict[int, dict[int, Int64s]] = {}
                for (atom, column), value in told.constants:
                    lane = self.codec.lane(pa.array([value.value], value.type.arrow), value.type)
                    found.setdefault(atom, {})[column] = lane
                self._constants.append(
                    {a: (tuple(of), np.concatenate(list(of.values())).reshape(1, -1)) for a, of in found.items()}
                )
        return self._constants[rule]

    def derive(
        self,
        rule: int,
        start: int,
        seeds: Int32s,
        latest: Callable[[int], int],
        meter: Meter,
        among: Among | None = None,
    ) -> Iterator[Frame]:
        """The derivations from rows of `start`, in pieces; of other atoms rows count up to the round `latest` says of them.

        `among`: heads that alone are looked for; others are left out as soon as a column tells, and not all of them.
        """
        path = self.path(rule, start)
        for frame in self._pieces(rule, path, seeds, latest, meter, among):
            for step in path.lookups:
                frame.places[step.atom] = self._looked_up(frame, step)
                meter.spend(len(frame))
            yield frame

    def counts(self, rule: int, start: int) -> bool:
        """Whether `count` may stand for `derive`: nothing is computed or negated, and the last atom has a key alone to meet."""
        told = self.program.rules[rule]
        steps = self.path(rule, start).steps
        negated = any(atom.negated is not None for atom in told.atoms)
        return not told.computes and not negated and bool(steps) and not steps[-1].same

    def count(
        self, rule: int, start: int, seeds: Int32s, latest: Callable[[int], int], meter: Meter, now: int
    ) -> Iterator[None]:
        """Count the heads of the derivations from rows of `start` in the round `now`, the last atom's rows without a frame; in
        pieces, after each of which it stops.
        """
        path, told = self.path(rule, start), self.program.rules[rule]
        *steps, last = path.steps
        head, joined = self.stores[told.head], self._joined(rule, last, latest(last.atom))
        for frame in self._pieces(rule, replace(path, steps=tuple(steps)), seeds, latest, meter):
            visited, derived = head.count_joined(self._keys(frame, last), self._heads(told, frame, {}), joined, now)
            meter.spend(visited + derived)
            yield

    def linear(self) -> int | None:
        """The rule by whose rounds alone the group comes about: the only one that reads a variable, which is its head, once."""
        read = [n for n, rule in enumerate(self.program.rules) if self.program.variable_atom(rule) is not None]
        if len(read) != 1:
            return None
        [number] = read
        rule = self.program.rules[number]
        own = [a for a, atom in enumerate(rule.atoms) if atom.relation < self.program.variables]
        alone = len(own) == 1 and rule.atoms[own[0]].relation == rule.head and len(rule.atoms) == 2
        path = self.path(number, own[0])
        return number if alone and not path.first.same and self.counts(number, own[0]) else None

    def count_rounds(self, rule: int, begun: int, now: int, meter: Meter) -> tuple[int, int]:
        """Rounds of a linear rule after the round `now`, whose rows are those from the place `begun` on: the last of them, and
        where its rows begin. These are all rounds, or as many as bring about a piece where work is done in portions.
        """
        told, start = self.program.rules[rule], self.program.variable_atom(self.program.rules[rule])
        assert start is not None
        path, head = self.path(rule, start), self.stores[told.head]
        if head.size == begun:
            return now, begun
        [last] = path.steps
        pairs = [(k, place[1]) for k, place in enumerate(told.chosen) if place is not None and place[0] == start]
        key = np.array([column for _, column in last.sources], np.int64)
        nulls = self._null_lane(rule, start) if path.first.bits else -1
        keyed = key, nulls, path.first.bits, np.array(pairs, np.int64).reshape(-1, 2)
        joined = self._joined(rule, last, 0)
        until = self.program.last, self.program.most or 1 << 62
        if meter.piece < PIECE:
            until = min(until[0], now + _ROUNDS), min(until[1], head.size + (meter.piece >> 1))
        counted = head.count_rounds(keyed, joined, begun, now, until)
        meter.spend(counted.visited + counted.found + CALL * (counted.now - now))
        return counted.now, counted.before

    def _joined(self, rule: int, last: Step, latest: int) -> Joined:
        """What a kernel is told of the last atom, and of what its rows give to the head."""
        told, found_nulls = self.program.rules[rule], self._null_lane(rule, last.atom)
        pairs = [(k, place[1]) for k, place in enumerate(told.chosen) if place is not None and place[0] == last.atom]
        taken = np.array(pairs, np.int64).reshape(-1, 2), null_lane(self.program.schemas[told.head]), found_nulls
        asked = latest, found_nulls if last.bits else -1, last.bits
        return Joined(self.store(rule, last.atom), last.columns, asked, taken)

    def _pieces(
        self,
        rule: int,
        path: Path,
        seeds: Int32s,
        latest: Callable[[int], int],
        meter: Meter,
        among: Among | None = None,
    ) -> Iterator[Frame]:
        """Frames of all positive atoms of a path, each of about so many derivations."""
        step, at = min(1 << 15, meter.piece >> 3), 0
        while at < len(seeds):
            some, before = seeds[at : at + step], meter.spent
            meter.spend(meter.call)
            frame = self._extended(rule, path, some, latest, meter, among)
            at += step
            if len(frame):
                yield frame
            # In portions it counts too what is done with a frame.
            cost = len(frame) if meter.piece >= PIECE else meter.spent - before
            step = max(min(step * meter.piece // max(cost, 1), 4 * step), 1)

    def _extended(
        self,
        rule: int,
        path: Path,
        seeds: Int32s,
        latest: Callable[[int], int],
        meter: Meter,
        among: Among | None,
    ) -> Frame:
        constants = self.constants(rule)
        frame = Frame(rule, {path.start: self._checked(rule, path.first, seeds)[0]})
        if path.start in constants:
            frame = self._of_constants(frame, path.start, *constants[path.start])
        if among is not None:
            frame = self._filtered(frame, among, path.start)
        for step in path.steps:
            if not len(frame):
                break
            store = self.store(rule, step.atom)
            keys, columns = self._keys(frame, step), step.columns
            if not columns and step.atom in constants:  # else all of its rows would be looked at
                columns, values = constants[step.atom]
                keys = np.repeat(values, len(frame), axis=0)
            most = meter.left
            nulls = (self._null_lane(rule, step.atom) if step.bits else -1, step.bits)
            ones, places, visited = store.probe(keys, columns, latest(step.atom), nulls, most)
            meter.spend(visited)
            frame = frame.take(ones)
            frame.places[step.atom] = places
            if step.same:
                places, kept = self._checked(rule, step, places)
                frame = frame.take(kept)
            if step.columns and step.atom in constants:
                frame = self._of_constants(frame, step.atom, *constants[step.atom])
            if among is not None:
                frame = self._filtered(frame, among, step.atom)
        return frame

    def _of_constants(self, frame: Frame, atom: int, columns: tuple[int, ...], values: Lanes) -> Frame:
        """Those whose row of an atom has these values."""
        rows = self.store(frame.rule, atom).lanes[frame.places[atom]]
        kept = (rows[:, columns] == values).all(axis=1)
        return frame if kept.all() else frame.take(kept)

    def _filtered(self, frame: Frame, among: Among, atom: int) -> Frame:
        """Those that may come to one of the heads, now that the rows of an atom are known too."""
        chosen = self.program.rules[frame.rule].chosen
        known = [(k, place) for k, place in enumerate(chosen) if place is not None and place[0] in frame.places]
        if not any(place[0] == atom for _, place in known) or not len(frame):
            return frame
        keys = np.empty((len(frame), len(known)), np.int64)
        for k, (_, (source, column)) in enumerate(known):
            keys[:, k] = self.store(frame.rule, source).lanes[frame.places[source], column]
        kept = among.has(keys, tuple(k for k, _ in known))
        return frame if kept.all() else frame.take(kept)

    def _checked(self, rule: int, step: Step, places: Int32s) -> tuple[Int32s, np.ndarray]:
        """The places whose row is one of the atom at all, and which they are."""
        kept = np.ones(len(places), np.bool_)
        lanes = self.store(rule, step.atom).lanes
        for one, other in step.same:
            kept &= lanes[places, one] == lanes[places, other]
        if step.bits:
            kept &= lanes[places, self._null_lane(rule, step.atom)] & step.bits == 0
        return (places, kept) if kept.all() else (places[kept], kept)

    def _null_lane(self, rule: int, atom: int) -> int:
        return null_lane(self.program.schemas[self.relation(rule, atom)])

    def _keys(self, frame: Frame, step: Step) -> Lanes:
        keys = np.empty((len(frame), len(step.columns)), np.int64)
        for k, (atom, column) in enumerate(step.sources):
            keys[:, k] = self.store(frame.rule, atom).lanes[frame.places[atom], column]
        return keys

    def _looked_up(self, frame: Frame, step: Step) -> Int32s:
        """Where what a negated atom must not have stands, or -1; NULL is among nothing."""
        nulls = (self._null_lane(frame.rule, step.atom) if step.bits else -1, step.bits)
        found = self.store(frame.rule, step.atom).find(self._keys(frame, step), step.columns, nulls)
        for atom, column in step.sources:
            schema = self.program.schemas[self.relation(frame.rule, atom)]
            missing = missing_of(self.store(frame.rule, atom).lanes[frame.places[atom]], schema, column)
            if missing is not None:
                found = np.where(missing, np.int32(-1), found)
        return found

    def conclude(self, frame: Frame) -> Concluded:
        """The heads of derivations, for those that the rule's conditions let pass."""
        rule = self.program.rules[frame.rule]
        errors: list[pa.Array] = []
        if rule.computes:
            columns = self._columns(rule, frame)
            for guard in rule.guards:
                kept = _sound(guard, columns)
                if not kept.all():
                    frame, columns = frame.take(kept), columns.filter(pa.array(kept))
            for condition in rule.conditions:
                found = satisfied(condition, columns)
                kept = as_mask(found.values)
                if found.errors is not None and found.errors.null_count < len(found.errors):
                    failed = present(found.errors)
                    errors.append(found.errors.filter(pa.array(failed)))
                    kept = kept & ~failed
                if not kept.all():
                    frame, columns = frame.take(kept), columns.filter(pa.array(kept))
            frame, computed = self._computed(rule, frame, columns, errors)
        else:
            computed = {}
        if rule.head < 0:
            return Concluded(frame, np.empty((len(frame), 0), np.int64), errors)
        return Concluded(frame, self._heads(rule, frame, computed), errors)

    def _columns(self, rule: Rule, frame: Frame) -> pa.RecordBatch:
        """What a rule's expressions read."""
        made = []
        for atom, column in rule.columns:
            relation = rule.atoms[atom].relation
            schema, rows = self.program.schemas[relation], self.stores[relation].lanes[frame.places[atom]]
            told = schema.columns[column]
            made.append(self.codec.column(rows[:, column], missing_of(rows, schema, column), told))
        if not made:
            made = [pa.nulls(len(frame))]
        return pa.RecordBatch.from_arrays(made, names=[str(k) for k in range(len(made))])

    def _computed(
        self, rule: Rule, frame: Frame, columns: pa.RecordBatch, errors: list[pa.Array]
    ) -> tuple[Frame, dict[int, pa.Array]]:
        """The values that are computed, of the derivations in which none fails."""
        found: dict[int, pa.Array] = {}
        messages: pa.Array | None = None
        for k, expr in enumerate(rule.values):
            if rule.chosen[k] is None:
                value = evaluate(expr, columns)
                found[k] = value.values
                if value.errors is not None and value.errors.null_count < len(value.errors):
                    messages = value.errors if messages is None else pc.coalesce(messages, value.errors)
        if messages is None:
            return frame, found
        failed = present(messages)
        errors.append(messages.filter(pa.array(failed)))
        return frame.take(~failed), {k: v.filter(pa.array(~failed)) for k, v in found.items()}

    def _heads(self, rule: Rule, frame: Frame, computed: Mapping[int, pa.Array]) -> Lanes:
        """The rows of heads, without the columns of atoms that the frame has no places of."""
        schema = self.program.schemas[rule.head]
        rows = np.empty((len(frame), lanes_of(schema)), np.int64)
        bits = np.zeros(len(frame), np.int64)
        for k, place in enumerate(rule.chosen):
            if place is None:
                values = computed[k]
                rows[:, k] = self.codec.lane(values, schema.columns[k].type)
                missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
            elif place[0] not in frame.places:
                continue
            else:
                relation, at = rule.atoms[place[0]].relation, frame.places[place[0]]
                rows[:, k] = self.stores[relation].lanes[at, place[1]]
                theirs = self.program.schemas[relation]
                missing = None
                if theirs.columns[place[1]].nullable:
                    missing = (self.stores[relation].lanes[at, null_lane(theirs)] >> place[1]) & 1 != 0
            if missing is not None:
                bits[missing] |= np.int64(1 << k)
                rows[missing, k] = 0
        if null_lane(schema) >= 0:
            rows[:, -1] = bits
        return rows


def _sound(expr: Expr, columns: pa.RecordBatch) -> np.ndarray:
    """For which rows an expression does not fail."""
    errors = evaluate(expr, columns).errors
    return np.ones(columns.num_rows, np.bool_) if errors is None else ~present(errors)


__all__ = ["ANY", "CALL", "Among", "Concluded", "Deriver", "Frame"]
