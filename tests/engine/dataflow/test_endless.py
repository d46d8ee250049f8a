"""Loops that end with their last round: what they hold, and an error while that round brings rows, in any number of shards."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.batch.updates import INSERT, RETRACT
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.dataflow.round_limit import until_it_ends
from headrace.engine.dataflow.shard import ALONE, Shard
from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.engine.schema import BIGINT, Column, Schema
from tests.engine.dataflow.pairs import World
from tests.engine.dataflow.shards import in_shards
from tests.reference.dataflow import Op

EDGES = Schema((Column("a", BIGINT), Column("b", BIGINT)))
NODES = Schema((Column("node", BIGINT),))
MOST = 6
HISTORY = [
    Op(0, INSERT, (0, 1)),
    Op(1, INSERT, (1, 2)),
    Op(2, INSERT, (2, 0)),
    Op(3, INSERT, (2, 3)),
    Op(4, RETRACT, (2, 0)),
    Op(5, INSERT, (3, 0)),
    Op(6, RETRACT, (0, 1)),
]


def walks(edges: Collection, flow: Dataflow) -> Collection:
    """The ends of walks along the edges, one row a walk."""
    loop = flow.iterate("walks", most=MOST)
    ends, entered = loop.variable(NODES), loop.enter(edges)
    further = ends.join(entered, [0], [0]).project([ColumnRef(2, BIGINT)], NODES)
    rule = entered.project([ColumnRef(1, BIGINT)], NODES).concat(further)
    rows, left_over = loop.close({ends: rule}, [rule], [ends])
    return until_it_ends(rows, [left_over], "walks", MOST - 1, "cut it")


def expected(epoch: int) -> tuple[dict[int, int], int]:
    """Walks of up to MOST + 1 edges by their end, and how many have as many."""
    edges: list[Any] = []
    for op in HISTORY[: epoch + 1]:
        (edges.append if op.kind == INSERT else edges.remove)(op.row)
    found: dict[int, int] = {}
    last = [b for _, b in edges]
    for k in range(MOST + 1):
        for end in last:
            found[end] = found.get(end, 0) + 1
        last = [b for end in last for a, b in edges if a == end] if k < MOST else last
    return found, len(last)


def ran(shard: Shard, cut: int, late: int) -> list[tuple[dict[int, int], list[str]]]:
    """What stands after each step of `cut` epochs; the loop is made before the epoch `late`."""
    flow = Dataflow(shard)
    world = World({"edges": EDGES}, lambda _: {}, {"edges": HISTORY})
    world.flow = flow
    edges = flow.table("edges", EDGES)
    found = []
    made: Collection | None = None
    for epoch in range(0, len(HISTORY), cut):
        upper = min(epoch + cut, len(HISTORY))
        if made is None and epoch >= late:
            made = walks(edges, flow)
            made.output("walks")
        if shard.holds_the_whole:
            world.push(epoch, upper)
        flow.step(upper)
        if made is not None:
            rows, errors = made.snapshot(upper - 1)
            counts = dict(zip(rows.rows.column(0).to_pylist(), rows.diffs.tolist(), strict=True))
            found.append((counts, errors.rows.column(0).to_pylist()))
    return found


@pytest.mark.parametrize("cut", [1, 2, 7])
@pytest.mark.parametrize("late", [0, 3])
@pytest.mark.parametrize("shards", [1, 3])
def test_it_is_in_error_while_the_last_round_brings_rows(cut: int, late: int, shards: int) -> None:
    parts = [ran(ALONE, cut, late)] if shards == 1 else in_shards(shards, lambda shard: ran(shard, cut, late))
    for part in parts:
        assert isinstance(part, list), part
    steps = [min(e + cut, len(HISTORY)) - 1 for e in range(0, len(HISTORY), cut) if e >= late]
    for k, epoch in enumerate(steps):
        rows, last = expected(epoch)
        got: dict[int, int] = {}
        for part in parts:
            for node, copies in part[k][0].items():
                got[node] = got.get(node, 0) + copies
        errors = [e for part in parts for e in part[k][1]]
        assert got == rows, epoch
        so_far = f"{sum(rows.values())} rows so far, {last} of them in the last"
        said = f'recursive query "walks" did not end within {MOST - 1} rounds: {so_far}'
        assert errors == ([f"{said}; cut it"] if last else []), epoch
