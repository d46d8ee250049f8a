"""Recursions of minima and maxima against their definition: the extremes after every epoch, and what each rests on."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import Updates
from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Expr, Literal
from headrace.engine.recursion.extremes import UpdateExtremes
from headrace.engine.recursion.meter import Meter, OverBudget
from headrace.engine.recursion.portions import whole
from headrace.engine.recursion.program import Atom, Program, Rule
from headrace.engine.recursion.switching import SparseRecursion, Strategy
from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema

NULLABLE = Schema((Column("a", BIGINT), Column("value", BIGINT)))
PAIR = Schema((Column("a", BIGINT, nullable=False), Column("value", BIGINT, nullable=False)))
THREE = Schema((*PAIR.columns[:1], Column("b", BIGINT, nullable=False), PAIR.columns[1]))

Row = tuple[int | None, ...]
Rows = set[Row]
Value = int | None


def ref(place: int) -> ColumnRef:
    return ColumnRef(place, BIGINT)


def plus(one: Expr, other: Expr) -> Expr:
    return Call("+(bigint,bigint)", (one, other), BIGINT)


def paths(nullable: bool) -> Program:
    """d(x, v) :- s(x, v). d(y, v + w) :- d(x, v), e(x, y, w), !n(x, y)."""
    schema = NULLABLE if nullable else PAIR
    two = Schema(THREE.columns[:2])
    begin = Rule(0, (Atom(1),), (), ((0, 0), (0, 1)), (), (ref(0), ref(1)))
    further = Rule(
        0, (Atom(0), Atom(2), Atom(3, ((0, 0), (1, 1)))), (((0, 0), (1, 0)),), ((1, 1), (0, 1), (1, 2)), (),
        (ref(0), plus(ref(1), ref(2))),
    )  # fmt: skip
    return Program((schema, schema, THREE, two), 1, (begin, further), 1 << 20, extreme=1)


def widest() -> Program:
    """A maximum over pairs, not linear, that a bound ends: d(x, z, v + w) :- d(x, y, v), d(y, z, w), v >= 0."""
    begin = Rule(0, (Atom(1),), (), ((0, 0), (0, 1), (0, 2)), (), (ref(0), ref(1), ref(2)))
    further = Rule(
        0, (Atom(0), Atom(0)), (((0, 1), (1, 0)),), ((0, 0), (1, 1), (0, 2), (1, 2)),
        (Call(">=(bigint,bigint)", (ref(2), Literal(0, BIGINT)), BOOLEAN),), (ref(0), ref(1), plus(ref(2), ref(3))),
    )  # fmt: skip
    return Program((THREE, THREE), 1, (begin, further), 1 << 20, extreme=-1)


def defined_paths(tables: list[Rows]) -> dict[Row, tuple[Value, int]]:
    """The least values, and the rounds in which they are reached, round after round from all of the round before."""
    start, edges, without = tables

    def heads(found: dict[Row, Value]) -> Iterator[tuple[Row, Value]]:
        yield from (((x,), v) for x, v in start if x is not None)
        for x, y, w in edges:
            if (x,) in found and (x, y) not in without:
                v = found[(x,)]
                yield (y,), None if v is None or w is None else v + w

    return _defined(heads, lambda one, other: one is not None and (other is None or one < other))


def defined_widest(tables: list[Rows]) -> dict[Row, tuple[Value, int]]:
    """As `defined_paths`."""
    [start] = tables

    def heads(found: dict[Row, Value]) -> Iterator[tuple[Row, Value]]:
        yield from (((x, y), v) for x, y, v in start)
        for (x, y), v in found.items():
            for (a, z), w in found.items():
                if a == y and v is not None and w is not None and v >= 0:
                    yield (x, z), v + w

    return _defined(heads, lambda one, other: one is not None and (other is None or one > other))


def _defined(heads, better) -> dict[Row, tuple[Value, int]]:  # type: ignore[no-untyped-def]
    found: dict[Row, Value] = {}
    rounds: dict[Row, int] = {}
    now = 0
    while True:
        now += 1
        after: dict[Row, Value] = {}
        for key, value in heads(found):
            if key not in after or better(value, after[key]):
                after[key] = value
        if after == found:
            return {key: (value, rounds[key]) for key, value in found.items()}
        rounds |= {key: now for key, value in after.items() if key not in found or found[key] != value}
        found = after


def tables(random: Random, program: Program) -> list[list[Rows]]:
    """What is outside after each epoch."""
    now: list[Rows] = [set() for _ in program.outside]
    found = []
    for _ in range(7):
        share = random.choice([0, 0.1, 0.3, 0.9])
        now = [{row for row in sorted(rows, key=repr) if random.random() >= share} for rows in now]
        for _ in range(random.choice([1, 2, 8])):
            a, b = random.randrange(6), random.randrange(6)
            if program.extreme < 0:
                # No way round, along which a maximum would rise for ever.
                now[0].add((min(a, b), max(a, b) + 1, random.randrange(-2, 4)))
            elif random.random() < 0.3:
                nullable = program.schemas[1].columns[0].nullable
                now[0].add((None, 1) if nullable and a == 0 else (a, None if nullable and b == 0 else b))
            elif random.random() < 0.1:
                now[2].add((a, b))
            else:
                now[1].add((a, b, random.randrange(4)))
        found.append([set(rows) for rows in now])
    return found


def changes(program: Program, before: list[Rows], after: list[Rows]) -> dict[int, Updates]:
    found = {}
    for relation, old, new in zip(program.outside, before, after, strict=True):
        rows = [(r, 1) for r in sorted(new - old, key=repr)] + [(r, -1) for r in sorted(old - new, key=repr)]
        if rows:
            schema = program.schemas[relation].arrow
            columns = [pa.array([r[k] for r, _ in rows], pa.int64()) for k in range(len(schema))]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            found[relation] = Updates(batch, np.zeros(len(rows), np.int64), np.array([d for _, d in rows]))
    return found


def state_of(recursion: SparseRecursion) -> dict[Row, tuple[Value, int]]:
    columns, rounds, _ = recursion.state(0)
    rows = list(zip(*(c.to_pylist() for c in columns), strict=True))
    found = {row[:-1]: (row[-1], now) for row, now in zip(rows, rounds.tolist(), strict=True)}
    assert len(found) == len(rows), "each key once"
    return found


CASES = {
    "shortest": (paths(nullable=False), defined_paths),
    "with NULLs": (paths(nullable=True), defined_paths),
    "widest": (widest(), defined_widest),
}


@pytest.mark.parametrize("strategy", [Strategy.UPDATE, Strategy.BOOTSTRAP])
@pytest.mark.parametrize("name", CASES)
def test_extremes_are_those_of_their_definition(name: str, strategy: Strategy) -> None:
    program, defined = CASES[name]
    updates = 0
    for seed in range(60):
        random = Random(seed)
        recursion = SparseRecursion(program, strategy)
        shown: dict[Row, Value] = {}
        before: list[Rows] = [set() for _ in program.outside]
        for after in tables(random, program):
            [left] = recursion.follow(changes(program, before, after)).variables
            want = defined(after)
            got = state_of(recursion)
            assert {k: v for k, (v, _) in got.items()} == {k: v for k, (v, _) in want.items()}, seed
            if strategy is Strategy.BOOTSTRAP:
                assert got == want, "each in the first round in which it is reached"
            else:
                assert all(now >= want[key][1] for key, (_, now) in got.items())
            rows = zip(*(c.to_pylist() for c in left.rows[:-1]), left.diffs.tolist(), strict=True)
            sums: dict[Row, int] = {(*k, v): 1 for k, v in shown.items()}
            for *row, diff in rows:
                sums[tuple(row)] = sums.get(tuple(row), 0) + diff
            shown = {row[:-1]: row[-1] for row, n in sums.items() if n}
            assert shown == {k: v for k, (v, _) in want.items()}, seed
            before = after
        updates += recursion.account.updates
    assert (updates > 100) == (strategy is Strategy.UPDATE)


@pytest.mark.parametrize("name", CASES)
def test_a_dropped_update_leaves_extremes_as_they_were(name: str) -> None:
    program, _ = CASES[name]
    dropped = 0
    for seed in range(20):
        *_, before, after = tables(Random(seed), program)
        for most in range(1, 6000, 300):
            recursion = SparseRecursion(program, Strategy.UPDATE)
            recursion.follow(changes(program, [set() for _ in program.outside], before))
            kept = state_of(recursion)
            outside = {r: recursion._changed(r, u) for r, u in changes(program, before, after).items()}
            update = UpdateExtremes(recursion._deriver, Meter(most))
            try:
                whole(update.run(outside))
            except OverBudget:
                dropped += 1
                update.drop()
                assert state_of(recursion) == kept
                assert [s.here for s in recursion._stores[:1]] == [len(kept)]
            else:
                break
    assert dropped > 30


@pytest.mark.parametrize("step", ["_unsupported", "_backwards", "_suspect"])
def test_an_update_without_one_of_its_steps_is_noticed(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: UpdateExtremes, *args: object) -> object:
        return np.empty(0, np.int32) if step == "_unsupported" else []

    monkeypatch.setattr(UpdateExtremes, step, without)
    program, defined = CASES["shortest"]
    wrong = 0
    for seed in range(30):
        recursion = SparseRecursion(program, Strategy.UPDATE)
        before: list[Rows] = [set() for _ in program.outside]
        for after in tables(Random(seed), program):
            recursion.follow(changes(program, before, after))
            wrong += {k: v for k, (v, _) in state_of(recursion).items()} != {
                k: v for k, (v, _) in defined(after).items()
            }
            before = after
    assert wrong
