"""`min` and `max` in their own recursion, as in shortest paths: which rules may hold them, and why another may not.

The rounds begin with nothing, and from round to round a minimum only falls. Invariant: what is accepted can only bring more rows
or a lower minimum (a higher maximum) for more rows or a lower minimum that it reads, so that the rounds come to rest at the one
answer that the rules have, whatever their order. Called by `program`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from headrace.views.datalog.strata import names_read
from headrace.views.datalog_text.syntax import (
    Aggregate,
    Atom,
    Condition,
    Expression,
    Literal,
    Negative,
    Positive,
    Rule,
    names_of,
)
from headrace.views.datalog_text.tokens import Token

_BOUNDS = {"min": frozenset({"<", "<="}), "max": frozenset({">", ">="})}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARED = frozenset({"<", "<=", ">", ">=", "=", "!=", "<>"})


@dataclass(frozen=True)
class NotMonotone:
    """Why a rule may not stand in the recursion of an extreme, and where."""

    at: int
    reason: str
    rule: Rule


def not_monotone(group: Sequence[str], rules: Sequence[Rule], function: str) -> NotMonotone | None:
    """What keeps the rules of a group from coming to rest at one answer; None where nothing does. `function`: the
    extreme that all of the group's aggregates of its own relations are.
    """
    known: set[tuple[str, int]] = set()
    while True:
        before = len(known)
        for rule in rules:
            part = _Part(frozenset(group), function, known, rule)
            found = part.rule_found()
            if found is not None:
                return found
        if len(known) == before:
            return None


class _Refused(Exception):
    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at, self.reason = at, reason


@dataclass
class _Part:
    """One rule. `known`: columns (relation and place) whose values depend on an extreme; those of the head are added."""

    group: frozenset[str]
    function: str
    known: set[tuple[str, int]]
    rule: Rule

    def rule_found(self) -> NotMonotone | None:
        """What is wrong with the rule."""
        try:
            costs = self.body(self.rule.body)
            for place, argument in enumerate(self.rule.head.arguments):
                if argument.value is not None and self.reads(argument.value, costs):
                    self.rising(argument.value, costs)
                    self.known.add((self.rule.head.name, place))
        except _Refused as why:
            return NotMonotone(why.at, why.reason, self.rule)
        return None

    def body(self, literals: Sequence[Literal]) -> frozenset[str]:
        """The variables of a body that depend on an extreme. Raises _Refused."""
        atoms = [x.atom for x in literals if isinstance(x, Positive)]
        counts = Counter(v for atom in atoms for v in _alone(atom))
        costs: set[str] = set()
        for atom in atoms:
            for place, argument in enumerate(atom.arguments):
                if (atom.name, place) not in self.known or argument.value is None:
                    continue
                name = argument.value.variable
                if name is not None and counts[name] == 1:
                    costs.add(name)
                    continue
                self.refuse(argument.start, "is compared with one value, which a better one takes the place of")
        conditions = [x.expression for x in literals if isinstance(x, Condition)]
        bound = {v for atom in atoms for v in _alone(atom)}
        binding: set[Expression] = set()
        while True:
            more = {e: v for e in conditions if e not in binding and (v := self.binds(e, costs, bound)) is not None}
            if not more:
                break
            binding.update(more)
            costs.update(more.values())
        for expression in conditions:
            if expression not in binding:
                self.condition(expression, costs)
        for literal in literals:
            if isinstance(literal, Negative) and any(
                a.value is not None and self.reads(a.value, costs) for a in literal.atom.arguments
            ):
                self.refuse(literal.atom.start, "is looked for by negation")
        for atom in atoms:
            for argument in atom.arguments:
                if argument.value is not None and (atom.name not in self.group) and self.reads(argument.value, costs):
                    self.refuse(argument.start, "is looked up in another relation")
        return frozenset(costs)

    def binds(self, expression: Expression, costs: set[str], bound: set[str]) -> str | None:
        """The variable to which an equation gives an extreme, or what depends on one."""
        for one, other in _sides(expression):
            name = one.variable
            if name is None or name in bound or name in costs:
                continue
            if other.aggregates:
                if self.aggregated(other, costs):
                    return name
            elif self.reads(other, costs):
                self.rising(other, costs)
                return name
        return None

    def aggregated(self, expression: Expression, costs: set[str]) -> bool:
        """Whether an expression is an aggregate that depends on the recursion. Raises _Refused for one in another form."""
        inner = [a for a in expression.aggregates if self.group & set(names_read(a.body))]
        for aggregate in expression.aggregates:
            if aggregate not in inner and costs & _variables_in(aggregate):
                self.refuse(aggregate.start, "is read by an aggregate of other relations")
        if not inner:
            return False
        if len(expression.pieces) > 1:
            self.refuse(
                inner[0].start, f"is computed with at once: bind it to a variable, m = {self.function} … : {{ … }}"
            )
        aggregate = inner[0]
        outer = costs & _variables_in(aggregate)
        if outer:
            self.refuse(aggregate.start, f"({', '.join(sorted(outer))}) is read inside of the aggregate")
        within = self.body(aggregate.body)
        if aggregate.value is not None and self.reads(aggregate.value, set(within)):
            self.rising(aggregate.value, within)
        return True

    def condition(self, expression: Expression, costs: set[str]) -> None:
        """A condition may only say that a minimum is below something, a maximum above. Raises _Refused."""
        for aggregate in expression.aggregates:
            if self.group & set(names_read(aggregate.body)):
                self.refuse(
                    aggregate.start, f"stands in a condition: bind it to a variable, m = {self.function} … : {{ … }}"
                )
        if not self.reads(expression, costs):
            return
        split = _compared(expression)
        if split is not None:
            left, sign, right = split
            if self.reads(right, costs) and not self.reads(left, costs):
                left, sign, right = right, _MIRRORED.get(sign, sign), left
            if sign in _BOUNDS[self.function] and not self.reads(right, costs):
                self.rising(left, costs)
                return
        allowed = " or ".join(sorted(_BOUNDS[self.function]))
        self.refuse(
            expression.start, f"stands in a condition that a better one may not meet; {allowed} a bound is fine"
        )

    def rising(self, expression: Expression, costs: frozenset[str] | set[str]) -> None:
        """That an expression rises with the extremes in it: sums of them and other values. Raises _Refused."""
        for sign, term in _terms(expression.pieces):
            names = {p.text for p in term if isinstance(p, Token) and p.kind == "name"} & set(costs)
            if not names:
                continue
            factors = [p for p in term if isinstance(p, Token)]
            others = [p for p in factors if p.text not in costs and p.text != "*"]
            product = len(factors) == 1 or (len(factors) == 3 and factors[1].text == "*")
            if sign != "+" or not product or any(p.kind != "number" for p in others):
                self.refuse(
                    expression.start, "is computed with otherwise than by adding to it, or multiplying it by a number"
                )

    def reads(self, expression: Expression, costs: frozenset[str] | set[str]) -> bool:
        """Whether an expression reads a variable that depends on an extreme."""
        return any(t.text in costs for t in names_of(expression))

    def refuse(self, at: int, what: str) -> NoReturn:
        """Raises _Refused."""
        raise _Refused(at, f"a {'minimum' if self.function == 'min' else 'maximum'} of its own recursion {what}")


def _alone(atom: Atom) -> Iterator[str]:
    return (a.value.variable for a in atom.arguments if a.value is not None and a.value.variable is not None)


def _variables_in(aggregate: Aggregate) -> set[str]:
    """The names in an aggregate's value and body."""
    found = set() if aggregate.value is None else {t.text for t in names_of(aggregate.value)}
    for literal in aggregate.body:
        if isinstance(literal, Condition):
            found |= {t.text for t in names_of(literal.expression)}
        else:
            found |= {t.text for a in literal.atom.arguments if a.value is not None for t in names_of(a.value)}
    return found


def _sides(expression: Expression) -> list[tuple[Expression, Expression]]:
    sides = expression.equated()
    return [] if sides is None else [sides, sides[::-1]]


def _compared(expression: Expression) -> tuple[Expression, str, Expression] | None:
    """The sides of a comparison at the outermost level, where it is the only one."""
    depth, places = 0, []
    for place, piece in enumerate(expression.pieces):
        text = piece.text.lower() if isinstance(piece, Token) else ""
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if depth == 0 and text in _COMPARED | {"and", "or", "not", "case"}:
            places.append((place, text))
    if len(places) != 1 or places[0][1] not in _COMPARED or not 0 < places[0][0] < len(expression.pieces) - 1:
        return None
    at, sign = places[0]
    return Expression(expression.pieces[:at]), sign, Expression(expression.pieces[at + 1 :])


def _terms(pieces: Sequence[Token | Aggregate]) -> Iterator[tuple[str, list[Token | Aggregate]]]:
    """The terms of a sum at its outermost level, with their signs; parentheses around all of it are taken off."""
    texts = [p.text if isinstance(p, Token) else "" for p in pieces]
    while texts[0] == "(" and _closes(texts) == len(texts) - 1:
        pieces, texts = pieces[1:-1], texts[1:-1]
    depth, sign = 0, "+"
    term: list[Token | Aggregate] = []
    for piece, text in zip(pieces, texts, strict=True):
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if depth == 0 and text in ("+", "-") and term:
            yield sign, term
            sign, term = text, []
        else:
            term.append(piece)
    yield sign, term


def _closes(texts: Sequence[str]) -> int:
    """The place of the bracket that closes the first."""
    depth = 0
    for place, text in enumerate(texts):
        depth += (text == "(") - (text == ")")
        if depth == 0:
            return place
    return len(texts)


__all__ = ["NotMonotone", "not_monotone"]
