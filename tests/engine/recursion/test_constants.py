"""Columns that must have a value: rows without it are not looked at, also where an atom has no other column in common."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from headrace.engine.operators.expressions.core.ir import Call, Cast, ColumnRef, Expr, Literal
from headrace.engine.recursion.bootstrap import bootstrap
from headrace.engine.recursion.codec import Codec, lanes_of
from headrace.engine.recursion.meter import Meter
from headrace.engine.recursion.program import Atom, Place, Program, Rule
from headrace.engine.recursion.state import Store
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, TEXT, Column, Schema

TRIPLE = Schema((Column("kind", TEXT), Column("x", BIGINT), Column("y", BIGINT, nullable=False)))
Row = tuple[str | None, int | None, int]


def is_text(column: int, text: str) -> Expr:
    return Call("=(text,text)", (Literal(text, TEXT), ColumnRef(column, TEXT)), BOOLEAN)


def is_number(column: int, number: int) -> Expr:
    return Call("=(bigint,bigint)", (ColumnRef(column, BIGINT), Cast(Literal(number, INTEGER), BIGINT)), BOOLEAN)


def group() -> Program:
    """`p(k, x, y) :- e(k, x, y). p('c', x, z) :- p('a', 1, x), p('b', y, z).` and no more than that."""
    every: tuple[Place, ...] = tuple((atom, column) for atom in range(2) for column in range(3))
    refs = [ColumnRef(k, TRIPLE.columns[k % 3].type) for k in range(6)]
    copied = Rule(0, (Atom(1),), (), every[:3], (), tuple(refs[:3]))
    conditions = (Call("and", (is_text(0, "a"), is_number(1, 1)), BOOLEAN), is_text(3, "b"))
    joined = Rule(0, (Atom(0), Atom(0)), (), every, conditions, (Literal("c", TEXT), refs[2], refs[5]))
    return Program((TRIPLE, TRIPLE), 1, (copied, joined), 1 << 20)


def made(rows: list[Row]) -> tuple[set[Row], int]:
    """The rows of the fixpoint, and the counted work."""
    codec, outside, meter = Codec(), Store(lanes_of(TRIPLE)), Meter()
    columns = [pa.array([r[k] for r in rows], c.type.arrow) for k, c in enumerate(TRIPLE.columns)]
    outside.count_in(codec.encode(columns, TRIPLE), 0)
    portions = bootstrap(group(), [outside], codec, meter)
    while True:
        try:
            next(portions)
        except StopIteration as ended:
            result = ended.value
            break
    store = result.stores[0]
    found = zip(*(c.to_pylist() for c in codec.decode(store.lanes[store.places()], TRIPLE)), strict=True)
    return {(k, x, y) for k, x, y in found}, meter.spent


@pytest.mark.parametrize("seed", range(8))
def test_the_rows_are_those_of_all_pairs(seed: int) -> None:
    random = Random(seed)
    rows = {
        (random.choice(["a", "b", "c", "d", None]), random.choice([0, 1, 2, None]), random.randrange(20))
        for _ in range(60)
    }
    pairs = {("c", x, z) for k, one, x in rows if (k, one) == ("a", 1) for j, _, z in rows if j == "b"}
    assert made(sorted(rows, key=repr))[0] == rows | pairs


def test_work_does_not_grow_with_rows_that_have_other_values() -> None:
    few: list[Row] = [("a", 1, 5), ("b", 2, 7)]
    work = []
    for count in (4_000, 16_000):
        others: list[Row] = [("a", 2, n) for n in range(count)]
        found, spent = made([*few, *others])
        assert ("c", 5, 7) in found
        assert len(found) == count + 3
        work.append(spent)
    assert work[1] < 4.5 * work[0]
