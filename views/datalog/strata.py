"""The strata of a program: the relations in groups that read each other, each group after those that it reads.

A group is one strongly connected set of rules. Invariant: within a group no relation is negated or aggregated, or the program
is refused with the cycle spelled out rule by rule. Called by `program`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.views.datalog_text.syntax import (
    Literal,
    Negative,
    Positive,
    Rule,
    expressions_of,
)


@dataclass(frozen=True)
class Reading:
    """That a rule's head reads a relation; `how`: "" for an atom, else what makes it wait for the whole relation."""

    head: str
    read: str
    how: str
    rule: Rule
    at: int


def readings(rules: Sequence[Rule]) -> tuple[Reading, ...]:
    """What each rule reads."""
    return tuple(Reading(r.head.name, name, how, r, at) for r in rules for name, how, at in _named(r.body, ""))


def _named(body: Sequence[Literal], how: str) -> Iterator[tuple[str, str, int]]:
    for literal in body:
        if isinstance(literal, Positive):
            yield literal.atom.name, how, literal.atom.start
        elif isinstance(literal, Negative):
            yield literal.atom.name, how or "negation", literal.atom.start
        for expression in expressions_of(literal):
            for aggregate in expression.aggregates:
                yield from _named(aggregate.body, aggregate.function)


def names_read(body: Sequence[Literal]) -> list[str]:
    """The relations that a body reads."""
    return [name for name, _, _ in _named(body, "")]


def strata(names: Sequence[str], read: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """The groups, each after those it reads; Tarjan's algorithm, without recursion.

    >>> strata(["a", "b", "c"], {"a": ["b"], "b": ["a", "c"], "c": []})
    [('c',), ('a', 'b')]
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []
    for root in names:
        if root in order:
            continue
        work = [(root, iter(read.get(root, ())))]
        order[root] = low[root] = len(order)
        stack.append(root)
        while work:
            name, rest = work[-1]
            for other in rest:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    work.append((other, iter(read.get(other, ()))))
                    break
                if other in stack:
                    low[name] = min(low[name], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    cut = stack.index(name)
                    group = stack[cut:]
                    del stack[cut:]
                    found.append(tuple(n for n in names if n in group))
    return found


def unstratified(group: Sequence[str], all_readings: Sequence[Reading]) -> list[Reading] | None:
    """A cycle in the group through a negation or an aggregate, that reading first; None where there is none."""
    inner = [r for r in all_readings if r.head in group and r.read in group]
    for bad in (r for r in inner if r.how):
        paths: dict[str, list[Reading]] = {bad.read: []}
        queue = [bad.read]
        while queue and bad.head not in paths:
            name = queue.pop(0)
            for reading in inner:
                if reading.head == name and reading.read not in paths:
                    paths[reading.read] = [*paths[name], reading]
                    queue.append(reading.read)
        return [bad, *paths.get(bad.head, [])]
    return None
