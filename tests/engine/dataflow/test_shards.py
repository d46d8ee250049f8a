"""Shards of a dataflow: together they answer every question as one does, and fail together."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import INSERT, RETRACT, UPSERT, Updates, Upserts
from headrace.engine.dataflow import OVERFLOWED, Dataflow
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.output import canonical
from headrace.engine.dataflow.shard import Shard, ShardFailed
from headrace.engine.dataflow.shard_exchange import ExchangeNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.delta import Delta, concat
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.sidecar.execution.workers.shard_router import Dealer
from tests.engine.dataflow import (
    test_arrange,
    test_delta_join,
    test_delta_rounds,
    test_iterate,
    test_partners,
    test_random,
)
from tests.engine.dataflow.pairs import Shape, World
from tests.engine.dataflow.shards import in_shards
from tests.engine.dataflow.standard import Make, seeds
from tests.engine.dataflow.test_determinism import as_bytes
from tests.engine.dataflow.test_overflow import ONE, most
from tests.reference.dataflow import Op

MODULES: tuple[Any, ...] = (
    test_random, test_partners, test_iterate, test_delta_join, test_delta_rounds, test_arrange,
)  # fmt: skip
WORLDS: dict[str, tuple[Make, Shape]] = {
    name: (module.world, shape) for module in MODULES for name, shape in module.SHAPES.items()
}
Asked = dict[str, tuple[Updates, Updates]]


def world(name: str, seed: int) -> tuple[World, random.Random]:
    """Without changes of keys, which take values along: the driver's affair."""
    make, shape = WORLDS[name]
    made, rng = make(shape, seed)
    ops: Mapping[str, list[Op]] = {n: [replace(o, fill_from=-1) for o in some] for n, some in made.ops.items()}
    return World(made.schemas, made.shape, ops), rng


def dealt(flow: Dataflow, schema: Schema, changes: Upserts) -> Upserts | None:
    return Dealer(schema, flow.shard.count).dealt(changes)[flow.shard.index]


class Part(World):
    """One shard's world."""

    def __init__(self, made: World, shard: Shard) -> None:
        super().__init__(made.schemas, made.shape, made.ops)
        self.flow = Dataflow(shard)

    def hand(self, table: str, changes: Upserts) -> None:
        mine = dealt(self.flow, self.schemas[table], changes)
        if mine is not None:
            self.flow.push(table, mine)


def story(made: World, shard: Shard, middle: int, since: int) -> tuple[Asked, dict[str, Schema]]:
    """Views made late, asked about the past, read at their own pace; what they emitted since."""
    part = Part(made, shard)
    part.tables()
    part.run([middle])
    part.build()
    found: Asked = {}
    for name, output in part.outputs.items():
        found[f"{name} made"] = output.snapshot(middle - 1)
    readings = {name: part.flow.read(view.real, "reader", middle - 1) for name, view in part.views.items()}
    for upper in range(middle + 1, part.end + 1, 2):
        part.push(part.flow.frontier, upper)
        part.step(upper)
        part.flow.advance_since(upper - 1)
    last = part.flow.frontier - 1
    at = min(max(since, middle - 1), last)
    for name, reading in readings.items():
        found[f"{name} then"] = reading.snapshot(at)
        found[f"{name} since"] = reading.take(last + 1)
        found[f"{name} at last"] = reading.snapshot(last)
        reading.release()
    schemas = {
        f"{n} {when}": v.real.schema for n, v in part.views.items() for when in ("made", "then", "since", "at last")
    }
    for name, seen in part.seen.items():
        for k, sides in enumerate(seen):
            found[f"{name} step {k}"] = sides
            schemas[f"{name} step {k}"] = part.views[name].real.schema
    return found, schemas


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    "name",
    [
        "joins",
        "sums",
        "general",
        "deep",
        "partners",
        "outer",
        "multiplicities",
        *test_iterate.SHAPES,
        *test_delta_rounds.SHAPES,
        "chain",
        "parts",
    ],
)
@seeds(4)
def test_questions_are_answered_as_by_one(name: str, count: int, seed: int) -> None:
    made, rng = world(name, seed)
    middle, since = rng.randrange(1, made.end + 1), rng.randrange(made.end)
    whole, schemas = in_shards(1, lambda shard: story(made, shard, middle, since))[0]
    check_parts(whole, schemas, in_shards(count, lambda shard: story(made, shard, middle, since)[0]))


def check_parts(whole: Asked, schemas: dict[str, Schema], parts: Sequence[Any]) -> None:
    """Together the shards answered what one did."""
    for part in parts:
        if isinstance(part, BaseException):
            raise part
    for question, (rows, errors) in whole.items():
        both = [Delta(*(side if len(side) else None for side in part[question])) for part in parts]
        layout = layout_of(schemas[question], ())
        mine = canonical(Delta(concat([d.rows for d in both]), concat([d.errors for d in both])), layout)
        assert as_bytes([mine[0]]) == as_bytes([rows]), question
        assert as_bytes([mine[1]]) == as_bytes([errors]), question


def test_what_is_agreed_is_of_all() -> None:
    def script(shard: Shard) -> Any:
        with shard.together():
            return (
                list(shard.gathered(shard.index * 10)), shard.agree(shard.index), shard.agree(shard.index, min),
                shard.agree(1, sum), shard.every(holds=shard.index < 2), shard.every(holds=True),
                shard.union(np.array([shard.index, 7])).tolist(),
            )  # fmt: skip

    assert in_shards(3, script) == [([0, 10, 20], 2, 0, 3, False, True, [0, 1, 2, 7])] * 3
    assert in_shards(1, script) == [([0], 0, 0, 1, True, True, [0, 7])]


@pytest.mark.parametrize(("raised", "told"), [(DiffOverflow(), DiffOverflow), (KeyError("x"), ShardFailed)])
@pytest.mark.parametrize("rounds", [0, 1])
def test_what_fails_in_one_fails_in_all_and_they_go_on(raised: Exception, told: type[Exception], rounds: int) -> None:
    def script(shard: Shard) -> Any:
        kinds = []
        try:
            with shard.together():
                for _ in range(rounds):
                    shard.agree(1)
                if shard.index == 1:
                    raise raised
                shard.agree(2)
        except (KeyError, DiffOverflow, ShardFailed) as error:
            kinds.append(type(error))
        with shard.together():
            return kinds, shard.agree(shard.index)

    assert in_shards(3, script) == [([told], 2), ([type(raised)], 2), ([told], 2)]


def test_one_that_comes_through_hears_that_another_did_not() -> None:
    def script(shard: Shard) -> None:
        with shard.together():
            if shard.index == 0:
                raise InvariantBroken("mine alone")

    one, two = in_shards(2, script)
    assert isinstance(one, InvariantBroken)
    assert isinstance(two, ShardFailed)
    assert "mine alone" in str(two)
    assert two.where["shard"] == 0


def test_shards_that_go_different_ways_are_told() -> None:
    def script(shard: Shard) -> None:
        with shard.together():
            if shard.index == 0:
                shard.exchange(1, [()] * 2)
            else:
                shard.exchange(2, [()] * 2)

    assert all("different ways" in str(error) for error in in_shards(2, script))


def test_shards_meet_only_in_what_they_do_together() -> None:
    def script(shard: Shard) -> None:
        shard.agree(1)

    assert all(isinstance(error, InvariantBroken) for error in in_shards(2, script))


def test_a_multiplicity_that_does_not_fit_is_told_once_and_stops_no_shard() -> None:
    def script(shard: Shard) -> Any:
        flow = Dataflow(shard)
        table = flow.table("t", ONE)
        many = most(table)
        broken = many.concat(many).join(table, [0], [0]).output("broken")
        behind = many.concat(many).join(table, [0], [0]).distinct().join(table, [1], [0]).output("behind")
        plain = table.distinct().output("plain")
        told = []
        for epoch, kind in ((1, INSERT), (2, RETRACT), (3, INSERT)):
            rows = layout_of(ONE, ()).schema.arrow.empty_table()
            values = [7, 8] if kind == INSERT else [7]
            rows = rows.from_arrays([values * 2], schema=ONE.arrow).to_batches()[0]
            mine = dealt(flow, ONE, Upserts(rows, np.full(len(rows), epoch), np.full(len(rows), kind, np.uint8)))
            if mine is not None:
                flow.push("t", mine)
            flow.step(epoch + 1)
            told.append([output.take() for output in (broken, behind, plain)])
        snapshots = [broken.snapshot(3), behind.snapshot(3), plain.snapshot(3)]
        late = table.project([test_random.ref(0, ONE).expr], ONE).join(many, [0], [0]).output("late")
        flow.step(5)
        return told, snapshots, late.name

    shards = in_shards(2, script)
    for found in shards:
        if isinstance(found, BaseException):
            raise found
    messages = [m for told, _, _ in shards for step in told for _, errors in step[:2]
                for m in errors.rows.column(0).to_pylist()]  # fmt: skip
    assert set(messages) == {OVERFLOWED}
    assert 2 <= len(messages) <= 4
    plain = sorted(v for _, snapshots, _ in shards for v in snapshots[2][0].rows.column(0).to_pylist())
    assert plain == [7, 8]


@pytest.mark.parametrize(("different", "sent"), [(7, 14), (20_000, 20_000)])
def test_equal_rows_are_added_up_before_they_go_to_another_shard(different: int, sent: int) -> None:
    schema = Schema.of([Column("id", BIGINT), Column("group", BIGINT)], ["id"])
    ids = np.arange(20_000)
    rows = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids % different)], schema=schema.arrow)
    changes = Upserts(rows, np.zeros(len(ids), np.int64), np.full(len(ids), UPSERT, np.uint8))

    def script(shard: Shard) -> tuple[list[int], int]:
        flow = Dataflow(shard)
        counted = flow.table("t", schema).pick([1], Schema(schema.columns[1:])).count().output("counted")
        mine = dealt(flow, schema, changes)
        assert mine is not None
        flow.push("t", mine)
        flow.step(1)
        [came] = [n.delta.rows for n in reachable([counted.collection.node]) if isinstance(n, ExchangeNode)]
        return counted.take()[0].rows.column(1).to_pylist(), 0 if came is None else len(came)

    (one, here), (two, there) = in_shards(2, script)
    assert here + there == sent, "of each shard's equal rows one"
    assert sorted(one + two) == sorted(np.unique(ids % different, return_counts=True)[1].tolist())
