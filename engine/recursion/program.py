"""The rules of a recursive group, as recursion by state evaluates them: atoms that are joined, conditions, and head values.

Relations are numbered: first the group's variables, then those from outside. Invariant: negated atoms come after the others and
are of relations from outside; NULL equals nothing. Made by `headrace.views.state_recursion`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.engine.operators.expressions.core.ir import Call, Cast, ColumnRef, Expr, Literal
from headrace.engine.schema import Kind, Schema
from headrace.engine.value import derived

Place = tuple[int, int]
"""A column of a rule: which atom, and which column there."""


@dataclass(frozen=True)
class Atom:
    """A relation that a rule reads; `negated`: of each of its columns the column of another atom, such that there must be no
    row with all of these values. None: there must be one.
    """

    relation: int
    negated: tuple[Place, ...] | None = None


@dataclass(frozen=True)
class Rule:
    """`head` holds `values` for each row of the atoms joined on `equal` for which `conditions` are true, one after the other.

    `columns`: what the expressions' columns are. `guards`: a row for which one of these fails is left out, and nothing is told of
    it here; a rule of no head (-1) tells it, which makes no rows.
    """

    head: int
    atoms: tuple[Atom, ...]
    equal: tuple[tuple[Place, ...], ...]
    columns: tuple[Place, ...]
    conditions: tuple[Expr, ...]
    values: tuple[Expr, ...]
    guards: tuple[Expr, ...] = ()

    @derived
    def chosen(self) -> tuple[Place | None, ...]:
        """Of each value the column that it is, or None for what is computed."""
        return tuple(self.columns[e.index] if isinstance(e, ColumnRef) else None for e in self.values)

    @derived
    def computes(self) -> bool:
        """Whether there are expressions to evaluate."""
        return bool(self.conditions or self.guards) or None in self.chosen

    @derived
    def constants(self) -> tuple[tuple[Place, Literal], ...]:
        """The columns that must have a value, as far as the first conditions say so: for rows without it no other condition is
        asked, and none can fail."""
        found: list[tuple[Place, Literal]] = []
        for condition in () if self.guards else _conjuncts(self.conditions):
            value = _constant(condition)
            if value is None:
                break
            found.append((self.columns[value[0]], value[1]))
        return tuple(found)


@dataclass(frozen=True)
class Program:
    """Relations by number, `variables` of them the group's own; the first variable is what is shown.

    `last`: later rounds are not looked at. `copies`: copies of rows count; then there is one variable, which no rule reads twice.
    `most`: rows of a variable, with more of which no further round is made, or 0 for no limit.
    `extreme`: of each variable the last column is the least (1) or the greatest (-1) that rules give for the others, or 0.
    """

    schemas: tuple[Schema, ...]
    variables: int
    rules: tuple[Rule, ...]
    last: int
    copies: bool = False
    extreme: int = 0
    most: int = 0

    @property
    def outside(self) -> Sequence[int]:
        """The relations that come from outside."""
        return range(self.variables, len(self.schemas))

    def variable_atom(self, rule: Rule) -> int | None:
        """The first atom of a rule that is of a variable."""
        return next((a for a, atom in enumerate(rule.atoms) if atom.relation < self.variables), None)


def _conjuncts(conditions: Sequence[Expr]) -> Iterator[Expr]:
    for condition in conditions:
        if isinstance(condition, Call) and condition.function == "and":
            yield from _conjuncts(condition.args)
        else:
            yield condition


def _constant(condition: Expr) -> tuple[int, Literal] | None:
    """The column and the value of an equation of the two."""
    if not (isinstance(condition, Call) and condition.function.startswith("=(") and len(condition.args) == 2):
        return None
    one, two = condition.args if isinstance(condition.args[0], ColumnRef) else condition.args[::-1]
    if isinstance(two, Cast) and isinstance(two.arg, Literal) and two.arg.type.kind in _WIDER.get(two.type.kind, ()):
        two = Literal(two.arg.value, two.type)
    if not isinstance(one, ColumnRef) or not isinstance(two, Literal) or two.value is None or one.type != two.type:
        return None
    return (one.index, two) if one.type.kind in _EXACT else None


_WIDER = {Kind.BIGINT: (Kind.INTEGER, Kind.SMALLINT), Kind.INTEGER: (Kind.SMALLINT,)}
"""Of a whole number's kind those whose values are all values of it."""
_EXACT = frozenset({Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.TEXT})
"""Kinds whose equal values have one lane."""

__all__ = ["Atom", "Place", "Program", "Rule"]
