"""Programs of the twin as the engine takes them, and random histories of what is outside."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Updates
from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr, Literal
from headrace.engine.recursion import program as engine
from headrace.engine.recursion.switching import SparseRecursion
from headrace.engine.schema import BIGINT, Column, Schema
from tests.reference import elastic
from tests.reference.elastic import Fact, State

PAIR = Schema((Column("x", BIGINT, nullable=False), Column("y", BIGINT, nullable=False)))
OUTSIDE = ("e", "n", "l")
MANY = 1 << 20


def variables_of(program: elastic.Program) -> list[str]:
    """The relations that the rules derive."""
    return list(dict.fromkeys(rule.head.relation for rule in program))


def translated(program: elastic.Program, last: int = MANY, *, copies: bool = False) -> engine.Program:
    """The program for the engine."""
    names = [*variables_of(program), *OUTSIDE]
    rules = tuple(_rule(rule, names) for rule in program)
    return engine.Program((PAIR,) * len(names), len(names) - len(OUTSIDE), rules, last, copies)


def _rule(rule: elastic.Rule, names: list[str]) -> engine.Rule:
    body = sorted(rule.body, key=lambda literal: literal.negated)
    places: dict[str, list[engine.Place]] = {}
    for atom, literal in enumerate(body):
        for column, term in enumerate(literal.terms):
            if not literal.negated:
                assert isinstance(term, str)
                places.setdefault(term, []).append((atom, column))
    first = {term: some[0] for term, some in places.items()}
    atoms = tuple(
        engine.Atom(names.index(b.relation), tuple(first[str(t)] for t in b.terms) if b.negated else None) for b in body
    )
    columns = tuple(first.values())
    values: list[Expr] = []
    for term in rule.head.terms:
        is_column = isinstance(term, str)
        values.append(ColumnRef(columns.index(first[str(term)]), BIGINT) if is_column else Literal(term, BIGINT))
    equal = tuple(tuple(some) for some in places.values() if len(some) > 1)
    return engine.Rule(names.index(rule.head.relation), atoms, equal, columns, (), tuple(values))


def changes_of(program: elastic.Program, before: set[Fact], after: set[Fact]) -> dict[int, Updates]:
    """What makes the one of the other, for the engine."""
    names = [*variables_of(program), *OUTSIDE]
    found = {}
    for relation in OUTSIDE:
        rows = [(v, 1) for r, v in sorted(after - before) if r == relation]
        rows += [(v, -1) for r, v in sorted(before - after) if r == relation]
        if rows:
            columns = [pa.array([v[k] for v, _ in rows], pa.int64()) for k in range(2)]
            batch = pa.RecordBatch.from_arrays(columns, schema=PAIR.arrow)
            found[names.index(relation)] = Updates(batch, np.zeros(len(rows), np.int64), np.array([d for _, d in rows]))
    return found


def state_of(recursion: SparseRecursion, program: elastic.Program) -> State:
    """The engine's state, as the twin has it."""
    found: State = {}
    for k, name in enumerate(variables_of(program)):
        columns, rounds, counts = recursion.state(k)
        values = zip(*(c.to_pylist() for c in columns), strict=True)
        found |= {(name, v): (r, c) for v, r, c in zip(values, rounds.tolist(), counts.tolist(), strict=True)}
    return found


def histories(seed: int, epochs: int, nodes: int = 7) -> Iterator[set[Fact]]:
    """What is outside after each epoch."""
    random = Random(seed)
    span = random.choice([3, 5, nodes])
    facts: set[Fact] = set()
    size = random.randrange(2, 3 * span)
    for _ in range(epochs):
        gone = random.choice([0, 0.1, 0.1, 0.3, 0.8])
        come = random.choice([0, 1, 3, size])
        facts = {f for f in sorted(facts) if random.random() >= gone}  # the same whatever texts hash to
        for _ in range(come):
            relation = random.choice("eeeeenl")
            facts.add((relation, (random.randrange(span), random.randrange(span))))
        yield set(facts)
