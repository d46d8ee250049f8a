"""Naive twin of recursion by state: Bootstrap and Update over dictionaries, by the definitions, round by round.

A program is a list of rules, a rule a head and a body of literals (relation, terms, negated); a term is a variable's name or a
constant. Facts are (relation, values). The state gives each derived fact its round, from 1, and the derivations in that round.
Facts from outside are of round 0; what is negated is from outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

Term = str | int
Fact = tuple[str, tuple[int, ...]]
State = dict[Fact, tuple[int, int]]


class Literal(NamedTuple):
    """A relation with terms; `negated`: there must be no such fact."""

    relation: str
    terms: tuple[Term, ...]
    negated: bool = False


class Rule(NamedTuple):
    """A head and what it follows from."""

    head: Literal
    body: tuple[Literal, ...]


Program = list[Rule]

Derivation = tuple[Fact, tuple[tuple[Fact, bool], ...]]
"""A head, and the facts that it rests on, each with whether it must not be there."""


def derivations(program: Program, facts: set[Fact]) -> Iterator[Derivation]:
    """All instances of the rules whose positive facts are among these; what is negated is not looked at."""
    for head, body in program:
        positive = [b for b in body if not b.negated]
        for values in _bindings(positive, facts, {}):
            rests = [((b.relation, _values(b.terms, values)), b.negated) for b in body]
            yield (head.relation, _values(head.terms, values)), tuple(rests)


def _bindings(body: list[Literal], facts: set[Fact], bound: dict[str, int]) -> Iterator[dict[str, int]]:
    if not body:
        yield bound
        return
    first, *rest = body
    for relation, values in facts:
        if relation == first.relation:
            found = dict(bound)
            pairs = zip(first.terms, values, strict=True)
            if all((found.setdefault(t, v) if isinstance(t, str) else t) == v for t, v in pairs):
                yield from _bindings(rest, facts, found)


def _values(terms: tuple[Term, ...], bound: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(bound[t] if isinstance(t, str) else t for t in terms)


def bootstrap(program: Program, outside: set[Fact]) -> State:
    """Round by round, each from all facts so far."""
    state: State = {}
    now = 0
    while True:
        now += 1
        facts = outside | set(state)
        new: Counter[Fact] = Counter()
        for head, rests in derivations(program, facts):
            if head not in state and not any(negated and fact in outside for fact, negated in rests):
                new[head] += 1
        if not new:
            return state
        state |= {fact: (now, count) for fact, count in new.items()}


def update(program: Program, state: State, before: set[Fact], after: set[Fact], terms: str = "dir") -> State:
    """Algorithm 3 with the third term of section 3.3. `terms`: which of deletion, insertion and re-discovery there are."""
    old = dict.fromkeys(before, 0) | {f: k for f, (k, _) in state.items()}
    new = dict.fromkeys(after, 0)
    found: State = {}
    every = list(derivations(program, before | after | _reachable(program, state, after)))

    def of(rounds: Mapping[Fact, int], outside: set[Fact], rests: tuple[tuple[Fact, bool], ...]) -> list[int]:
        """The rounds of what a derivation rests on; without an end for what is not there."""
        return [(0 if f not in outside else 1 << 60) if negated else rounds.get(f, 1 << 60) for f, negated in rests]

    now = 0
    least = max([k for k, _ in state.values()], default=0)
    while True:
        now += 1
        counts = Counter({f: count for f, (k, count) in state.items() if k == now})
        for head, rests in every:
            ours, theirs = max(of(old, before, rests)), max(of(new, after, rests))
            if ours == now - 1 and theirs > now - 1 and old.get(head) == now:
                counts[head] -= "d" in terms
            if theirs == now - 1:
                if ours > now - 1:
                    counts[head] += "i" in terms
                elif old.get(head, now) < now:
                    counts[head] += "r" in terms
        some = {f: c for f, c in counts.items() if c > 0 and f not in new}
        found |= {f: (now, c) for f, c in some.items()}
        new |= dict.fromkeys(some, now)
        if not some and now > least:
            return found


def _reachable(program: Program, state: State, after: set[Fact]) -> set[Fact]:
    """All facts of both states, and more: what follows whatever is negated."""
    facts = after | set(state)
    while True:
        more = {head for head, _ in derivations(program, facts)} - facts
        if not more:
            return facts
        facts |= more


def copies(program: Program, outside: Mapping[Fact, int], last: int) -> list[Counter[Fact]]:
    """Of a program whose derived facts are copies: those of each round, from 1, each from the round before."""
    found: list[Counter[Fact]] = []
    derived = {rule.head.relation for rule in program}
    for _ in range(last):
        before = found[-1] if found else Counter[Fact]()
        now: Counter[Fact] = Counter()
        facts = {f for f, n in outside.items() if n > 0} | set(before)
        for head, rests in derivations(program, facts):
            if bool(found) != any(f[0] in derived for f, _ in rests):
                continue
            product = 1
            for fact, negated in rests:
                here = before[fact] if fact[0] in derived else outside.get(fact, 0)
                product *= here <= 0 if negated else here
            now[head] += product
        if not +now:
            break
        found.append(+now)
    return found


EDGE, REACHED = ("x", "y"), ("x", "z")
PROGRAMS: dict[str, Program] = {
    "closure": [
        Rule(Literal("t", EDGE), (Literal("e", EDGE),)),
        Rule(Literal("t", REACHED), (Literal("t", EDGE), Literal("e", ("y", "z")))),
    ],
    "closure, not linear": [
        Rule(Literal("t", EDGE), (Literal("e", EDGE),)),
        Rule(Literal("t", REACHED), (Literal("t", EDGE), Literal("t", ("y", "z")))),
    ],
    "same generation": [
        Rule(Literal("s", EDGE), (Literal("e", ("p", "x")), Literal("e", ("p", "y")))),
        Rule(Literal("s", EDGE), (Literal("e", ("a", "x")), Literal("s", ("a", "b")), Literal("e", ("b", "y")))),
    ],
    "mutual": [
        Rule(Literal("odd", EDGE), (Literal("e", EDGE),)),
        Rule(Literal("even", REACHED), (Literal("odd", EDGE), Literal("e", ("y", "z")))),
        Rule(Literal("odd", REACHED), (Literal("even", EDGE), Literal("e", ("y", "z")))),
    ],
    "points to": [
        Rule(Literal("p", EDGE), (Literal("n", EDGE),)),
        Rule(Literal("p", ("v", "o")), (Literal("e", ("v", "w")), Literal("p", ("w", "o")))),
        Rule(
            Literal("p", ("v", "o")),
            (
                Literal("l", ("v", "y")),
                Literal("n", ("q", "u")),
                Literal("p", ("y", "a")),
                Literal("p", ("q", "a")),
                Literal("p", ("u", "o")),
            ),
        ),
    ],
    "negation": [
        Rule(Literal("t", EDGE), (Literal("e", EDGE), Literal("l", ("x", "x"), True))),
        Rule(Literal("t", REACHED), (Literal("t", EDGE), Literal("e", ("y", "z")), Literal("n", ("x", "z"), True))),
    ],
    "constants and loops": [
        Rule(Literal("t", ("x", 0)), (Literal("e", ("x", "x")),)),
        Rule(Literal("t", ("y", "x")), (Literal("t", ("x", "w")), Literal("t", ("x", "x")), Literal("e", ("x", "y")))),
        Rule(
            Literal("t", ("x", "y")),
            (Literal("n", ("x", "y")), Literal("e", ("z", "y")), Literal("l", ("y", "z"), True)),
        ),
    ],
}
"""Over relations e, n and l of two columns."""
