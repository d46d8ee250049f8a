"""Live errors of keys are dealt out with their keys: read from the message, whatever the key's columns hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.operators.missing_toast import _shown, message_around
from headrace.engine.schema import BIGINT, TEXT, Column, DataType, Schema
from headrace.sidecar.execution.error_shards import _key_in, _rows, shards_of
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.worker import Task
from tests.sidecar.execution.workers.threads import Threads

KINDS = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "text": st.text(max_size=8).filter(lambda t: "\x00" not in t)
    | st.sampled_from(["', '", "''", ") has no earlier row", ""]),
    "bytea": st.binary(max_size=4),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp without time zone": st.datetimes(),
}


def schema_of(types: tuple[str, ...]) -> Schema:
    columns = [Column(f"k{i}", DataType.parse(t), nullable=False) for i, t in enumerate(types)]
    return Schema.of([*columns, Column("v", TEXT)], [c.name for c in columns])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_key_is_read_from_its_message_as_it_was_written(data: Any) -> None:
    types = tuple(data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3)))
    schema = schema_of(types)
    keys = [tuple(data.draw(KINDS[t]) for t in types) for _ in range(3)]
    arrays = [
        pa.array([k[i] for k in keys], schema.arrow.field(f"k{i}").type, from_pandas=False) for i in range(len(types))
    ]
    rows = pa.RecordBatch.from_arrays(arrays, names=[f"k{i}" for i in range(len(types))])
    head, tail = message_around("s.t", schema, len(types))
    messages = [f"{head}{shown}{tail}" for shown in _shown(rows).to_pylist()]
    found = [_key_in("s.t", schema, message) for message in messages]
    assert all(f is not None for f in found)
    read = _rows(schema, [f for f in found if f is not None])
    assert [read.column(i).to_pylist() for i in range(len(types))] == [a.to_pylist() for a in arrays]


def test_an_error_of_the_table_is_the_first_shards() -> None:
    schema = schema_of(("bigint",))
    flow = Dataflow()
    flow.table("s.t", schema)
    layout = next(iter(flow.registry.arrangements().values())).layout
    assert shards_of("s.t", schema, layout, ["record 7 cannot be decoded", "broken"], 4).tolist() == [0, 0]


TABLE = Schema.of([Column("id", BIGINT), Column("v", TEXT)], ["id"])


def built(flow: Dataflow) -> Mapping[str, Collection]:
    return {"t": flow.table("t", TABLE)}


def changes(epoch: int, ids: list[int], *, unchanged: bool) -> Upserts:
    rows = pa.RecordBatch.from_arrays(
        [pa.array(ids, pa.int64()), pa.array([f"v{i}" for i in ids], TABLE.arrow.field("v").type)], schema=TABLE.arrow
    )
    masks = {1: np.ones(len(ids), np.bool_)} if unchanged else {}
    return Upserts(rows, np.full(len(ids), epoch), np.full(len(ids), UPSERT, np.uint8), masks)


def begun(folder: Path, count: int) -> Workers:
    return Workers(Threads(count, Task(built, folder)), {"t": TABLE}, {"t": Schema(TABLE.columns)})


def live(workers: Workers) -> list[str]:
    _, errors = workers.outputs["t"].snapshot(workers.frontier - 1)
    assert set(errors.diffs.tolist()) <= {1}
    return sorted(errors.rows.column(0).to_pylist())


@pytest.mark.parametrize("counts", [(1, 3), (3, 2), (2, 1)])
def test_each_shard_mends_the_errors_of_its_keys(tmp_path: Path, counts: tuple[int, int]) -> None:
    """An unchanged value that never came is an error of a key; the row that sends it mends it, whichever shard has it now."""
    before, after = counts
    ids = list(range(30))
    with begun(tmp_path, before) as old:
        old.push("t", changes(1, ids, unchanged=True))
        old.push_errors("t", {"record 7 cannot be decoded": 1}, 1)
        old.step(2)
        errors = live(old)
        files = old.hold()()
    assert len(errors) == len(ids) + 1
    with begun(tmp_path, after) as new:
        new.recover(2, files, before)
        assert live(new) == errors
        for epoch, some in enumerate((ids[::2], ids[1::2]), 2):
            new.push("t", changes(epoch, some, unchanged=False))
            new.step(epoch + 1)
        assert live(new) == ["record 7 cannot be decoded"]
        new.push_errors("t", {"record 7 cannot be decoded": -1}, 4)
        new.step(5)
        assert live(new) == []
        rows, _ = new.outputs["t"].snapshot(4)
        assert sorted(rows.rows.column(0).to_pylist()) == ids
