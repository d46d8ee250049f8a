"""Recursions that keep copies against their twin: the copies of each row in each round, after every epoch."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Updates
from headrace.engine.recursion.copies import UpdateCopies
from headrace.engine.recursion.state import ABSENT
from headrace.engine.recursion.switching import SparseRecursion, Strategy
from tests.engine.recursion.histories import OUTSIDE, PAIR, translated
from tests.reference import elastic
from tests.reference.elastic import PROGRAMS, Fact, Literal, Rule

LAST = 5
WALKS = {
    "walks": PROGRAMS["closure"],
    "same generation": PROGRAMS["same generation"],
    "negation": PROGRAMS["negation"],
    "twice the same": [
        Rule(Literal("t", ("x", "y")), (Literal("e", ("x", "y")), Literal("e", ("y", "x")))),
        Rule(Literal("t", ("x", "z")), (Literal("n", ("y", "z")), Literal("t", ("x", "y")), Literal("n", ("y", "z")))),
        Rule(Literal("t", ("y", "x")), (Literal("t", ("x", "y")), Literal("l", ("y", "y"), True))),
    ],
}


def changes(before: Counter[Fact], after: Counter[Fact]) -> dict[int, Updates]:
    """What makes the one of the other."""
    moved = Counter(after)
    moved.subtract(before)
    found = {}
    for number, relation in enumerate(OUTSIDE, 1):
        rows = [(v, n) for (r, v), n in sorted(moved.items()) if r == relation and n]
        if rows:
            columns = [pa.array([v[k] for v, _ in rows], pa.int64()) for k in range(2)]
            batch = pa.RecordBatch.from_arrays(columns, schema=PAIR.arrow)
            found[number] = Updates(batch, np.zeros(len(rows), np.int64), np.array([n for _, n in rows]))
    return found


def history(seed: int, epochs: int = 6) -> list[Counter[Fact]]:
    """What is outside after each epoch, with copies."""
    random, facts = Random(seed), Counter[Fact]()
    found = []
    for _ in range(epochs):
        for fact in list(facts):
            if random.random() < random.choice([0, 0.2, 0.6]):
                facts[fact] -= 1
        for _ in range(random.choice([0, 1, 4])):
            facts[random.choice("eeenl"), (random.randrange(4), random.randrange(4))] += random.choice([1, 1, 3])
        found.append(Counter(+facts))
    return found


def different(name: str, seed: int, strategy: Strategy) -> bool:
    """Whether a history ends in other copies than the twin's, or puts other rows out."""
    program = WALKS[name]
    recursion = SparseRecursion(translated(program, LAST, copies=True), strategy)
    shown: Counter[tuple[object, ...]] = Counter()
    before: Counter[Fact] = Counter()
    for facts in history(seed):
        twin = elastic.copies(program, facts, LAST)
        try:
            [left] = recursion.follow(changes(before, facts)).variables
        except DiffOverflow:
            return max(n for now in twin for n in now.values()) < ABSENT
        for row, diff in zip(zip(*(c.to_pylist() for c in left.rows), strict=True), left.diffs.tolist(), strict=True):
            shown[row] += diff
        columns, rounds, counts = recursion.state(0)
        rows = zip(zip(*(c.to_pylist() for c in columns), strict=True), rounds.tolist(), counts.tolist(), strict=True)
        if sorted(rows) != sorted((v, k, n) for k, now in enumerate(twin, 1) for (_, v), n in now.items()):
            return True
        want: Counter[tuple[object, ...]] = Counter()
        for k, now in enumerate(twin, 1):
            for (_, values), n in now.items():
                want[(*values, k == LAST)] += n
        if +shown != want or min(shown.values(), default=0) < 0:
            return True
        before = facts
    return False


@pytest.mark.parametrize("strategy", [Strategy.BOOTSTRAP, Strategy.UPDATE])
@pytest.mark.parametrize("name", WALKS)
def test_copies_are_the_twins(name: str, strategy: Strategy) -> None:
    assert not [seed for seed in range(25) if different(name, seed, strategy)]


@pytest.mark.parametrize("part", ["_enter", "_round"])
def test_an_update_without_one_of_its_parts_is_noticed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = getattr(UpdateCopies, part)
    nothing = {"_enter": lambda *_: iter(()), "_round": lambda self, now, moved: whole(self, now, moved[:0])}
    monkeypatch.setattr(UpdateCopies, part, nothing[part])
    assert any(different("walks", seed, Strategy.UPDATE) for seed in range(25))


def test_more_copies_than_can_be_counted_are_an_error() -> None:
    recursion = SparseRecursion(translated(WALKS["walks"], LAST, copies=True), Strategy.UPDATE)
    facts: Counter[Fact] = Counter({("e", (0, 0)): 2000})
    with pytest.raises(DiffOverflow):
        recursion.follow(changes(Counter(), facts))
