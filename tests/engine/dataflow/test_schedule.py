"""A step visits the nodes that have something to do, and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.dataflow.delta_join import delta_join
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.node import Node
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, TEXT, Column, Schema

ROWS = Schema.of([Column("id", INTEGER), Column("kind", TEXT), Column("n", INTEGER)], ["id"])
SUM = Schema((Column("kind", TEXT), Column("sum", BIGINT)))


def of_kind(rows: Collection, kind: str) -> Collection:
    same = Call("=(text,text)", (ColumnRef(1, TEXT), Literal(kind, TEXT)), BOOLEAN)
    return rows.filter(same).reduce([1], [Aggregate("sum", ColumnRef(2, INTEGER), BIGINT)], SUM)


def push(flow: Dataflow, table: str, epoch: int, *rows: tuple[int, str | None, int]) -> None:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), ROWS.arrow, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=ROWS.arrow)
    flow.push(table, Upserts(batch, np.full(len(rows), epoch, np.int64), np.zeros(len(rows), np.uint8)))


def shown(output: Output) -> Counter[tuple[object, ...]]:
    rows, _ = output.take()
    found: Counter[tuple[object, ...]] = Counter()
    for values, diff in zip(
        zip(*(c.to_pylist() for c in rows.rows.columns), strict=True), rows.diffs.tolist(), strict=True
    ):
        found[values] += diff
    return found


@contextmanager
def visits() -> Iterator[list[Node]]:
    seen: list[Node] = []
    step = Node.step

    def counted(self: Node, lower: int, upper: int) -> None:
        seen.append(self)
        step(self, lower, upper)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "step", counted)
        yield seen


def test_a_step_visits_what_has_input() -> None:
    flow = Dataflow()
    one, two = flow.table("one", ROWS), flow.table("two", ROWS)
    outputs = [of_kind(table, "a").output(str(k)) for k, table in enumerate([one, two])]
    push(flow, "one", 0, (1, "a", 1))
    push(flow, "two", 0, (1, "a", 1))
    flow.step(1)
    assert [shown(output) for output in outputs] == [{("a", 1): 1}] * 2
    push(flow, "one", 1, (2, "a", 1))
    with visits() as seen:
        flow.step(2)
    # a table's own step is another
    assert [node.label for node in seen] == ["filter", "project", "reduce"]
    assert [shown(output) for output in outputs] == [{("a", 1): -1, ("a", 2): 1}, {}]
    with visits() as seen:
        flow.step(3)
    assert not seen
    assert not outputs[0].collection.node.is_due(3), "what was sent in the step before is not sent again"


def test_of_views_that_differ_in_a_constant_those_of_the_rows_are_visited() -> None:
    flow = Dataflow()
    table = flow.table("one", ROWS)
    outputs = {kind: of_kind(table, kind).output(kind) for kind in "abcdefgh"}
    push(flow, "one", 0, *((k, kind, k) for k, kind in enumerate("abcdefgh")), (9, None, 9))
    flow.step(1)
    assert {kind: shown(o) for kind, o in outputs.items()} == {kind: {(kind, k): 1} for k, kind in enumerate(outputs)}
    push(flow, "one", 1, (2, "d", 2))
    with visits() as seen:
        flow.step(2)
    assert len(seen) == 6, "filter, projection and reduce of the kind before and of the kind after"
    found = {kind: shown(output) for kind, output in outputs.items()}
    changed = {kind: changes for kind, changes in found.items() if changes}
    assert changed == {"c": {("c", 2): -1}, "d": {("d", 3): -1, ("d", 5): 1}}
    flow.drop(outputs.pop("d"))
    push(flow, "one", 2, (3, "a", 3))
    flow.step(3)
    assert shown(outputs["a"]) == {("a", 0): -1, ("a", 3): 1}
    outputs["d"] = of_kind(table, "d").output("d")
    push(flow, "one", 3, (4, "d", 4))
    flow.step(4)
    assert shown(outputs["d"]) == {("d", 2): -1, ("d", 6): 1}
    assert shown(outputs["e"]) == {("e", 4): -1}


def test_changes_of_later_epochs_wait_for_their_step() -> None:
    flow = Dataflow()
    output = of_kind(flow.table("one", ROWS), "a").output("a")
    push(flow, "one", 1, (1, "a", 1))
    push(flow, "one", 3, (2, "a", 1))
    flow.step(1)
    assert not shown(output)
    flow.step(3)
    assert shown(output) == {("a", 1): 1}
    flow.step(4)
    assert shown(output) == {("a", 1): -1, ("a", 2): 1}


def looked_up(flow: Dataflow) -> Output:
    one, two = flow.table("one", ROWS), flow.table("two", ROWS)
    return delta_join([one, two], [[(0, 2), (1, 0)]], [(0, 0), (1, 1)]).output("pairs")


def test_a_look_up_waits_for_its_stream_alone() -> None:
    flow = Dataflow()
    output = looked_up(flow)
    push(flow, "one", 0, (1, "a", 7))
    push(flow, "two", 0, (7, "b", 0))
    flow.step(1)
    assert shown(output) == {(1, "b"): 1}
    push(flow, "two", 1, (8, "c", 0))
    with visits() as seen:
        flow.step(2)
    assert [node.label for node in seen].count("look up") == 1, (
        "of the one that the change of the other is taken through"
    )
    push(flow, "two", 2, (7, "d", 0))
    flow.step(3)
    assert shown(output) == {(1, "b"): -1, (1, "d"): 1}


def test_a_look_up_says_that_what_it_reads_has_failed() -> None:
    flow = Dataflow()
    output = looked_up(flow)
    push(flow, "one", 0, (1, "a", 7))
    push(flow, "two", 0, (7, "b", 0))
    flow.step(1)
    shown(output)
    read = next(n for n in reachable([output.collection.node]) if n.label == "arrange" and n.watchers)
    read.fail(DiffOverflow())
    flow.schedule.call(read)
    flow.step(2)
    rows, errors = output.take()
    assert not len(rows)
    assert len(errors)
