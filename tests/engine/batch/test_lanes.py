"""Which lanes a large batch keeps, as docs/engine.md says ("Keys at merges"), and how many bytes a row that makes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Batch, Description, Updates
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.schema import BIGINT, TEXT, Column, DataType, Schema

SIZE = 20_000
LANES = ("hash", "check", "order", "high", "low", "time", "diff", "position")


def batch_of(kind: DataType, rows_a_key: int, epochs: int) -> Batch:
    schema = Schema((Column("k", kind), Column("v", BIGINT)))
    numbers = np.random.default_rng(0).permutation(SIZE) // rows_a_key
    keys = pa.array([f"key {k:012}" for k in numbers], pa.large_string()) if kind == TEXT else pa.array(numbers)
    rows = pa.RecordBatch.from_arrays([keys, pa.array(np.arange(SIZE))], schema=schema.arrow)
    times = np.arange(SIZE) % epochs
    return Batch.seal(
        layout_of(schema, (0,)), Updates(rows, times, np.ones(SIZE, np.int64)), Description.epochs(0, epochs)
    )


def kept(batch: Batch) -> set[str]:
    lanes = zip(LANES, (*batch.ids, *batch.facts), strict=True)
    return {name for name, lane in lanes if len(lane) == SIZE and lane.strides[0]}


@pytest.mark.parametrize(
    ("kind", "rows_a_key", "lanes", "width"),
    [
        (BIGINT, 1, {"hash"}, 24),
        (BIGINT, 10, {"hash", "high", "low"}, 40),
        (TEXT, 1, {"hash", "check", "position"}, 56),
        (TEXT, 10, {"hash", "check", "high", "low", "position"}, 72),
    ],
)
def test_a_lane_is_kept_where_its_entries_differ(kind: DataType, rows_a_key: int, lanes: set[str], width: int) -> None:
    batch = batch_of(kind, rows_a_key, 1)
    assert kept(batch) == lanes
    assert width <= batch.nbytes / SIZE < width + 1
    assert kept(batch_of(kind, rows_a_key, 5)) == lanes | {"time"}
