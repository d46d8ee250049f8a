"""The order in which the atoms of a rule are visited from one of them, or from its head, and what each must meet.

Invariant: every atom that is not negated is visited once, by the columns that what was visited before gives. Called by `derive`,
and by `small_update`, which tells it to a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.engine.recursion.program import Place, Program, Rule

Fanout = Callable[[int, int, tuple[int, ...]], float | None]
"""About how many rows of an atom of a rule share the values of some columns; None where nothing is known yet."""

NARROW, UNKNOWN = 8, 16
"""Rows a lookup may find before fewer count as better, and how many it is taken to find where nothing is known."""


@dataclass(frozen=True)
class Step:
    """The rows of `atom` whose `columns` are those at `sources`; then `same` pairs of its columns are equal.

    `bits`: its columns that must not be NULL.
    """

    atom: int
    columns: tuple[int, ...]
    sources: tuple[Place, ...]
    bits: int
    same: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Path:
    """How the derivations of a rule are found from the rows of `start`, an atom, or the head as the number after all atoms."""

    start: int
    first: Step
    steps: tuple[Step, ...]
    lookups: tuple[Step, ...]
    """Of negated atoms."""


def path_of(program: Program, number: int, start: int, fanout: Fanout) -> Path:
    """How the other atoms of a rule are visited: those first of which a lookup finds fewest rows, where it is many; else most
    equal columns first, those from outside before the group's own."""
    rule = program.rules[number]
    head = len(rule.atoms)
    classes: list[tuple[set[Place], bool]] = [(set(c), True) for c in rule.equal]
    if start < head and rule.atoms[start].negated is not None:
        for column, place in enumerate(rule.atoms[start].negated or ()):
            classes = _joined(classes, (start, column), place, real=True)
    if start == head:
        # Of an extreme any value is looked for.
        width = len(rule.values) - (program.extreme != 0)
        for column, chosen in enumerate(rule.chosen[:width]):
            if chosen is not None:
                classes = _joined(classes, (head, column), chosen, real=False)
    seen, steps = {start}, []
    left = [a for a, atom in enumerate(rule.atoms) if a != start and atom.negated is None]
    while left:
        options = {a: _step(program, rule, a, classes, seen) for a in left}
        own = {a: rule.atoms[a].relation < program.variables for a in left}
        wide = {a: _width(fanout(number, a, options[a].columns)) for a in left} if len(left) > 1 else {left[0]: 0}
        atom = min(left, key=lambda a: (wide[a], -len(options[a].columns), own[a], a))
        steps.append(options[atom])
        seen.add(atom)
        left.remove(atom)
    first = _step(program, rule, start, classes, set()) if start < head else Step(head, (), (), 0, ())
    lookups = []
    for a, told in enumerate(rule.atoms):
        if told.negated is not None and a != start:
            nullable = program.schemas[told.relation].columns
            bits = sum(1 << k for k in range(len(told.negated)) if nullable[k].nullable)
            lookups.append(Step(a, tuple(range(len(told.negated))), told.negated, bits, ()))
    return Path(start, first, tuple(steps), tuple(lookups))


def _width(found: float | None) -> int:
    """The power of four of so many rows; 0 for few."""
    return max(round(math.log((UNKNOWN if found is None else max(found, 1.0)) / NARROW, 4)), 0)


def _joined(
    classes: list[tuple[set[Place], bool]], one: Place, other: Place, *, real: bool
) -> list[tuple[set[Place], bool]]:
    """The classes with two places in one. Where that is all that makes it one (not `real`), NULL is equal too."""
    mine = [c for c in classes if one in c[0] or other in c[0]]
    together = {one, other}.union(*(c for c, _ in mine))
    return [*(c for c in classes if c not in mine), (together, real or any(r for _, r in mine))]


def _step(program: Program, rule: Rule, atom: int, classes: Sequence[tuple[set[Place], bool]], seen: set[int]) -> Step:
    columns: dict[int, Place] = {}
    same: list[tuple[int, int]] = []
    bits = 0
    nullable = program.schemas[rule.atoms[atom].relation].columns
    for members, real in classes:
        mine = sorted(c for a, c in members if a == atom)
        if real:
            bits |= sum(1 << c for c in mine if nullable[c].nullable)
        there = sorted((a, c) for a, c in members if a in seen)
        if there:
            columns |= dict.fromkeys(mine, there[0])
        else:
            same += [(mine[0], c) for c in mine[1:]]
    keys = tuple(sorted(columns))
    return Step(atom, keys, tuple(columns[k] for k in keys), bits, tuple(same))


__all__ = ["Path", "Step", "path_of"]
