"""Large batches sealed against a dictionary: few rows that share a key, or many; order, times and diffs alike or not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.batch.sort_layout import FULL_HASH
from headrace.engine.kernels.compiler import JIT_OFF
from headrace.engine.schema import BIGINT, TEXT, Column, Schema

NUMBERS = Schema((Column("key", BIGINT), Column("value", BIGINT)))
TEXTS = Schema((Column("key", BIGINT), Column("value", TEXT)))


@pytest.mark.parametrize("schema", [NUMBERS, TEXTS], ids=["numbers", "texts"])
@pytest.mark.parametrize("order", [(), (1,)], ids=["", "ordered"])
@pytest.mark.parametrize("keys", [60, 3000, 50_000, 2**40])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("mask", [FULL_HASH, 0xFF << 56])
def test_sealing_many_is_the_sum(schema: Schema, order: tuple[int, ...], keys: int, times: int, mask: int) -> None:
    random = np.random.default_rng(keys + times)
    size = 1100 if JIT_OFF else 12_000
    key = pa.array(random.integers(0, keys, size), mask=random.random(size) < 0.01)
    value = pa.array([str(v) for v in random.integers(0, 3, size)], pa.large_string())
    if schema is NUMBERS:
        value = value.cast(pa.int64())
    when = random.integers(0, times, size)
    diffs = random.integers(-1, 2, size) if times > 1 else np.ones(size, np.int64)
    rows = pa.RecordBatch.from_arrays([key, value], schema=schema.arrow)
    expected: Counter[tuple[object, ...]] = Counter()
    for one, two, time, diff in zip(key.to_pylist(), value.to_pylist(), when.tolist(), diffs.tolist(), strict=True):
        expected[one, two, time] += diff

    layout = Layout(schema, (0,), order, hash_mask=mask)
    made = Batch.seal(layout, Updates(rows, when, diffs), Description.epochs(0, times))
    made.check_order()
    found = made.updates()
    columns = (*(column.to_pylist() for column in found.rows.columns), found.times.tolist())
    entries = list(zip(*columns, strict=True))
    assert dict(zip(entries, found.diffs.tolist(), strict=True)) == {row: n for row, n in expected.items() if n}
    assert len(set(entries)) == len(entries)
    assert made.distinct == len({entry[:2] for entry in entries})
    assert made.fingerprints[0].shape == (len(entries),)
    if keys == 2**40 and mask == FULL_HASH:
        assert not len(made.ids[3]), "fingerprints of rows that are told apart by their keys"
