"""Small changes of a recursive group, each in one call of a kernel: the rules as numbers, and the stores as addresses.

Invariant: what is noted is what `Update` notes in columns. Only rules that join, compare whole numbers and take columns over can
be told so; what turns out large is given up, with nothing changed, and followed in columns. Called by `update`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from headrace.engine.errors import InvariantBroken
from headrace.engine.kernels import sparse_rules as rules
from headrace.engine.kernels import sparse_update as kernel
from headrace.engine.kernels.sparse_update import DONE, GIVEN_UP, OVER_BUDGET
from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Expr, Literal
from headrace.engine.recursion.beside import Beside
from headrace.engine.recursion.codec import null_lane
from headrace.engine.recursion.paths import Path
from headrace.engine.recursion.program import Program, Rule
from headrace.engine.recursion.state import Int32s, Store

MOST_CHANGES = 256
"""Larger changes are followed in columns at once."""

_MOST_NOTES, _MOST_WAITING = 1 << 14, 1 << 15
_FIRST, _A_ROUND = 2_048, 2_048
"""So much work, and so much more for each rule in each round, and columns take less."""

_SPARE = 128
_COMPARED = {
    "=": rules.EQUAL,
    "<>": rules.UNEQUAL,
    "<": rules.LESS,
    ">": rules.GREATER,
    "<=": rules.AT_MOST,
    ">=": rules.AT_LEAST,
}
_COMPARISON = re.compile(r"(=|<>|<=|>=|<|>)\((smallint|integer|bigint),(smallint|integer|bigint)\)")


class Untold(Exception):
    """A rule that the kernel cannot be told."""


class SmallUpdate:
    """The rules of a program as the kernel takes them. `paths`: of each rule one from each atom, and from its head."""

    def __init__(self, program: Program, stores: Sequence[Store], paths: Sequence[Sequence[Path]]) -> None:
        """Raises Untold."""
        if program.copies or program.extreme or any(rule.guards or rule.head < 0 for rule in program.rules):
            raise Untold
        if any(atom.negated is not None for rule in program.rules for atom in rule.atoms):
            raise Untold
        self._program = program
        self._paths = paths
        self._code: list[int] = []
        needed: dict[int, set[tuple[int, ...]]] = {}
        for rule, of_rule in zip(program.rules, paths, strict=True):
            asked = {atom for (atom, _), _ in rule.constants}
            for step in (step for path in of_rule for step in path.steps):
                if not step.columns and step.atom in asked:  # it would look at all rows
                    raise Untold
                needed.setdefault(rule.atoms[step.atom].relation, set()).add(step.columns)
        self._tables: dict[tuple[int, tuple[int, ...]], int] = {}
        self._own: list[list[tuple[int, ...]]] = []
        for relation, store in enumerate(stores):
            whole = tuple(range(store.width))
            self._own.append([whole, *sorted(needed.get(relation, set()) - {whole})])
            for columns in self._own[-1]:
                self._tables[relation, columns] = len(self._tables)
        self._keys = {key: self._wrote(key[1]) for key in self._tables}
        self._rules = np.array([self._rule(n, rule) for n, rule in enumerate(program.rules)], np.int64)
        self._numbers = np.array([*self._code, 0], np.int64)
        widest = max(len(rule.atoms) for rule in program.rules)
        self._notes = np.empty((len(stores), _MOST_NOTES, 5), np.int32)
        self._queue = np.empty((_MOST_WAITING, 7 + widest), np.int32)
        self._heap = np.empty(_MOST_WAITING, np.int64)
        self._hand = np.empty(2 * _MOST_NOTES, np.int64)

    def run(
        self, notes: Sequence[Beside], lost: Mapping[int, Int32s], found: Mapping[int, Int32s], most: int
    ) -> tuple[int, int]:
        """Follow what is lost and found of relations from outside, which is noted: how it ended, and the work.

        Where it ends with GIVEN_UP all notes but those are dropped.
        """
        told = self._numbers, *self._addresses(notes), self._rules
        changes = [(r, p) for some in (lost, found) for r, places in some.items() for p in places.tolist()]
        self._hand[: 2 * len(changes)] = np.array(changes, np.int64).reshape(-1)
        count = sum(len(places) for places in lost.values())
        state = np.array([0, 0, 0, most, _FIRST, _A_ROUND * len(self._rules)], np.int64)
        kept = self._notes, self._queue, self._heap, self._hand
        ended = kernel.follow(told, kept, count << 32 | (len(changes) - count), self._program.last, state)
        if ended == kernel.BROKEN:
            raise InvariantBroken("a row lost more derivations than it had")
        for relation, note in enumerate(notes):
            self._take(relation, note, told[1][relation])
            if ended == GIVEN_UP and relation < self._program.variables:
                note.drop()
        return ended, int(state[2])

    # What the kernel is told.

    def _wrote(self, numbers: Sequence[int]) -> int:
        at = len(self._code)
        self._code += numbers
        return at

    def _nulls(self, relation: int, column: int) -> int:
        schema = self._program.schemas[relation]
        return null_lane(schema) if schema.columns[column].nullable else -1

    def _rule(self, number: int, rule: Rule) -> list[int]:
        relations = self._wrote([*(atom.relation for atom in rule.atoms), rule.head])
        chosen: list[int] = []
        for place in rule.chosen:
            if place is None:
                raise Untold
            chosen += [*place, self._nulls(rule.atoms[place[0]].relation, place[1])]
        conditions = [n for condition in rule.conditions for n in self._condition(rule, condition)]
        paths = [self._path(rule, path) for path in self._paths[number]]
        return [
            rule.head,
            len(rule.atoms),
            relations,
            self._wrote(chosen),
            null_lane(self._program.schemas[rule.head]),
            len(rule.conditions),
            self._wrote(conditions),
            self._wrote(paths),
        ]

    def _condition(self, rule: Rule, condition: Expr) -> list[int]:
        how, one, other = comparison(condition)
        return [how, *self._side(rule, one), *self._side(rule, other)]

    def _side(self, rule: Rule, side: ColumnRef | int) -> list[int]:
        if isinstance(side, int):
            return [-1, side, -1]
        atom, column = rule.columns[side.index]
        return [atom, column, self._nulls(rule.atoms[atom].relation, column)]

    def _path(self, rule: Rule, path: Path) -> int:
        numbers = [len(path.steps)]
        for step in (path.first, *path.steps):
            relation = rule.head if step.atom == len(rule.atoms) else rule.atoms[step.atom].relation
            sources = self._wrote([n for place in step.sources for n in place])
            same = self._wrote([n for pair in step.same for n in pair])
            table = self._tables.get((relation, step.columns), -1)
            nulls = null_lane(self._program.schemas[relation])
            numbers += [step.atom, table, len(step.columns), sources, nulls, step.bits, len(step.same), same]
        return self._wrote(numbers)

    def _addresses(self, notes: Sequence[Beside]) -> tuple[np.ndarray, np.ndarray]:
        stores, tables = [], []
        for relation, note in enumerate(notes):
            store = note.store
            own = self._own[relation]
            if relation < self._program.variables:
                store.reserve(_SPARE)
            rows, *facts = (_address(lane) for lane in (store.lanes, store.rounds, store.counts, store.slots))
            noted, whole = len(note.places), self._tables[relation, own[0]]
            stores.append([rows, store.width, *facts, store.size, len(store.rounds), noted, whole, len(own)])
            for columns in own:
                _, heads, nexts = store.parts(columns)[2]
                keys = self._keys[relation, columns]
                tables.append([_address(heads), len(heads) - 1, _address(nexts), len(columns), keys])
            if noted:
                self._notes[relation, :noted, rules.PLACE] = note.places
                self._notes[relation, :noted, rules.ROUND] = note.rounds
                self._notes[relation, :noted, rules.COUNT] = note.new_counts(note.places)
        return np.array(stores, np.int64), np.array(tables, np.int64)

    def _take(self, relation: int, note: Beside, numbers: np.ndarray) -> None:
        """What the kernel noted of a relation, and the rows that it added."""
        noted = self._notes[relation, : numbers[rules.NOTED]]
        note.take(*(noted[:, of].copy() for of in (rules.PLACE, rules.ROUND, rules.COUNT)))
        if relation < self._program.variables:
            note.store.added(int(numbers[rules.SIZE]), self._own[relation])


def comparison(condition: Expr) -> tuple[int, ColumnRef | int, ColumnRef | int]:
    """A condition that compares whole numbers: how, and both sides. Raises Untold for any other."""
    found = _COMPARISON.fullmatch(condition.function) if isinstance(condition, Call) else None
    if found is None or not isinstance(condition, Call):
        raise Untold
    one, other = (_side_of(arg) for arg in condition.args)
    return _COMPARED[found[1]], one, other


def _side_of(expr: Expr) -> ColumnRef | int:
    if isinstance(expr, ColumnRef):
        return expr
    if isinstance(expr, Literal) and type(expr.value) is int:
        return expr.value
    raise Untold


def _address(lane: np.ndarray) -> int:
    return int(lane.__array_interface__["data"][0])


__all__ = ["DONE", "GIVEN_UP", "MOST_CHANGES", "OVER_BUDGET", "SmallUpdate", "Untold"]
