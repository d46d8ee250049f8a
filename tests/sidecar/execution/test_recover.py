"""Workers of another count go on from a checkpoint, whatever they are asked before their first step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.dataflow.collection import Collection
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.worker import Task
from tests.sidecar.execution.workers.threads import Threads

TABLE = Schema.of([Column("id", BIGINT), Column("v", BIGINT)], ["id"])
VALUES = Schema.of([Column("v", BIGINT)])


def built(flow: Dataflow) -> Mapping[str, Collection]:
    return {"groups": flow.table("t", TABLE).pick([1], VALUES).count()}


def begun(folder: Path, count: int) -> Workers:
    views = {"groups": built(Dataflow())["groups"].schema}
    return Workers(Threads(count, Task(built, folder)), {"t": TABLE}, views)


def changes(epoch: int, ids: range) -> Upserts:
    rows = pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array([i % 5 for i in ids])], schema=TABLE.arrow)
    return Upserts(rows, np.full(len(ids), epoch), np.full(len(ids), UPSERT, np.uint8))


def groups(workers: Workers) -> dict[int, int]:
    rows, errors = workers.outputs["groups"].snapshot(workers.frontier - 1)
    assert not len(errors)
    return dict(zip(rows.rows.column(0).to_pylist(), rows.rows.column(1).to_pylist(), strict=True))


@pytest.mark.parametrize(
    "first",
    [lambda w: w.advance_since(1), lambda w: w.exert(100), lambda w: w.facts(), lambda w: w.at_rest()],
    ids=["advance_since", "exert", "facts", "at_rest"],
)  # fmt: skip
@pytest.mark.parametrize("counts", [(1, 3), (3, 2), (2, 2)])
def test_what_is_asked_first(tmp_path: Path, counts: tuple[int, int], first: Callable[[Workers], object]) -> None:
    """Found by `test_where_there_is_no_room_for_both_the_old_end_first`: what was not filled yet was taken for complete."""
    with begun(tmp_path, counts[0]) as old:
        old.push("t", changes(1, range(30)))
        old.step(2)
        files = old.hold()()
    with begun(tmp_path, counts[1]) as new:
        new.recover(2, files, counts[0])
        first(new)
        new.push("t", changes(2, range(30, 35)))
        new.step(3)
        assert groups(new) == dict.fromkeys(range(5), 7)
