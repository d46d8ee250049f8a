"""Loops with a limit of rows: in error from the round in which there are too many, and back once there are fewer, in any cut
of steps, in any number of shards and after a restart."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from headrace.engine.batch.updates import INSERT, RETRACT
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.dataflow.row_limit import MostRows
from headrace.engine.dataflow.shard import ALONE, Shard
from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.engine.schema import BIGINT, Column, Schema
from tests.engine.dataflow.pairs import World
from tests.engine.dataflow.shards import in_shards
from tests.reference.dataflow import Op

EDGES = Schema((Column("a", BIGINT), Column("b", BIGINT)))
PAIRS = EDGES
MOST = 30
EPOCHS = 24


def texts(rows: pa.RecordBatch) -> list[str]:
    return [f"{a}-{b}" for a, b in zip(*(rows.column(i).to_pylist() for i in (0, 1)), strict=True)]


def closure(edges: Collection, flow: Dataflow) -> Collection:
    """All pairs of nodes along the edges."""
    loop = flow.iterate("closure")
    pairs, entered = loop.variable(PAIRS), loop.enter(edges)
    further = pairs.join(entered, [1], [0]).project([ColumnRef(0, BIGINT), ColumnRef(3, BIGINT)], PAIRS)
    rule = entered.concat(further).distinct()
    return loop.close({pairs: rule}, [rule], (), MostRows(MOST, ["closure"], "cut it", texts))[0]


def history(seed: int) -> list[Op]:
    """Edges that come and go, in some epochs so many that the closure has more than its limit."""
    rng, held, made = random.Random(seed), list[Pair](), list[Op]()
    for epoch in range(EPOCHS):
        for _ in range(rng.randint(1, 4)):
            if held and (rng.random() < 0.25 or len(held) > 14):
                made.append(Op(epoch, RETRACT, held.pop(rng.randrange(len(held)))))
            else:
                edge = (rng.randint(0, 7), rng.randint(0, 7))
                held.append(edge)
                made.append(Op(epoch, INSERT, edge))
    return made


Pair = tuple[int, int]


def expected(ops: list[Op], epoch: int) -> tuple[set[Pair], str, set[str]]:
    """The pairs of an epoch, from nothing; the error's begin, and the rows that it may show."""
    edges: list[Any] = []
    for op in ops:
        if op.epoch <= epoch:
            (edges.append if op.kind == INSERT else edges.remove)(op.row)
    pairs: set[Pair] = set()
    for own in range(1000):
        now = set(edges) | {(a, d) for a, b in pairs for c, d in edges if b == c}
        if len(now) > MOST:
            begin = f"closure comes to more than {MOST} rows: {len(pairs)} rows so far in round {own}, which brings "
            return now, f"{begin}{len(now - pairs)} more", {f"{a}-{b}" for a, b in now - pairs}
        if now == pairs:
            break
        pairs = now
    return pairs, "", set()


def ran(
    ops: list[Op], shard: Shard, cut: int, late: int, *, restarts: bool = False
) -> list[tuple[int, list[Pair], list[str]]]:
    """Epoch, rows and errors after each step; the loop is made before the epoch `late`."""
    flow = Dataflow(shard)
    world = World({"edges": EDGES}, lambda _: {}, {"edges": ops})
    world.flow = flow
    edges = flow.table("edges", EDGES)
    made: Collection | None = None
    found = []
    for epoch in range(0, EPOCHS, cut):
        upper = min(epoch + cut, EPOCHS)
        if made is None and epoch >= late:
            made = closure(edges, flow)
            made.output("closure")
        if shard.holds_the_whole:
            world.push(epoch, upper)
        flow.step(upper)
        if made is not None:
            rows, errors = made.snapshot(upper - 1)
            pairs = list(zip(*(rows.rows.column(i).to_pylist() for i in (0, 1)), strict=True))
            found.append((upper - 1, pairs, errors.rows.column(0).to_pylist()))
        if restarts and made is not None:
            flow.advance_since(upper - 1)
            batches = {n: a.spine.batches() for n, a in flow.arrangements().items()}
            flow = world.flow = Dataflow()
            edges = flow.table("edges", EDGES)
            made = closure(edges, flow)
            made.output("closure")
            flow.restore(upper, batches)
            assert not flow.unhydrated()
    return found


def ran_beside(ops: list[Op], shard: Shard) -> list[tuple[int, list[Pair], list[str]]]:
    """As `ran`, of a loop that leaves the step of each epoch, and is back at a time of its own, before the next one."""
    flow = Dataflow(shard)
    world = World({"edges": EDGES}, lambda _: {}, {"edges": [replace(op, epoch=2 * op.epoch) for op in ops]})
    world.flow = flow
    made = closure(flow.table("edges", EDGES), flow)
    output = made.output("closure")
    flow.late.step_work = 1
    found = []
    for epoch in range(EPOCHS):
        if shard.holds_the_whole:
            world.push(2 * epoch, 2 * epoch + 1)
        flow.step(2 * epoch + 1)
        while flow.late and not flow.late.ended:
            assert not len(output.take()[0])
            flow.late.go_on(5_000)
        flow.step(2 * epoch + 2)
        assert not flow.late
        output.take()
        rows, errors = made.snapshot(2 * epoch + 1)
        pairs = list(zip(*(rows.rows.column(i).to_pylist() for i in (0, 1)), strict=True))
        found.append((epoch, pairs, errors.rows.column(0).to_pylist()))
    return found


CUTS = [(1, 0), (3, 0), (5, 10), (EPOCHS, 0)]
RUNS: list[tuple[int | str, int, int]] = [(shards, *cut) for shards in (1, 2, "restarts") for cut in CUTS]


@pytest.mark.parametrize(("shards", "cut", "late"), [*RUNS, ("late", 1, 0), ("late in 2", 1, 0)])
def test_it_is_in_error_while_there_are_too_many(cut: int, late: int, shards: int | str) -> None:
    met, recovered = 0, 0
    for seed in range(12):
        ops = history(seed)
        if shards == 2:
            parts = in_shards(2, partial(ran, ops, cut=cut, late=late))
        elif shards in ("late", "late in 2"):
            parts = in_shards(1 + (shards != "late"), partial(ran_beside, ops))
        else:
            parts = [ran(ops, ALONE, cut, late, restarts=shards == "restarts")]
        for part in parts:
            assert isinstance(part, list), part
        before = False
        for step in zip(*parts, strict=True):
            pairs, error, may_show = expected(ops, step[0][0])
            told = [e for part in step for e in part[2]]
            assert [e.partition(", as ")[0].removesuffix("; cut it") for e in told] == ([error] if error else [])
            for text in told:
                assert set(text.partition(", as ")[2].split("; ")) <= may_show | {"cut it", ""}, seed
            if not error:
                assert sorted(p for part in step for p in part[1]) == sorted(pairs), (seed, step[0][0])
                recovered += before
            met += bool(error)
            before = bool(error)
    assert met > 5
    assert recovered > 3 or cut == EPOCHS
