"""Updates as buffers: what is read is what was sent, of every lane, whatever they were slices of."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.batch.exchange_codec import NOTHING, compact, received, sent
from headrace.engine.batch.gather_rows import without_columns
from headrace.engine.batch.updates import Updates

LANES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int16": (pa.int16(), [1, -2, None]),
    "int64": (pa.int64(), [2**62, -1, None]),
    "float": (pa.float32(), [0.5, -0.0, None]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-99.00"), None]),
    "text": (pa.large_string(), ["", "é", "long enough to be somewhere", None]),
    "short": (pa.string(), ["", "abc", None]),
    "bytes": (pa.large_binary(), [b"", b"\x00\x01", None]),
    "uuid": (pa.binary(16), [bytes(16), bytes(range(16)), None]),
    "stamp": (pa.timestamp("us"), [0, 10**15, None]),
}


def copied(message: Any) -> list[bytes]:
    """As it comes out at the other end: other memory."""
    return [bytes(memoryview(part).cast("B")) for part in message]


@given(seed=st.integers(0, 2**32), size=st.integers(1, 40), begin=st.integers(0, 9))
def test_what_is_read_is_what_was_sent(seed: int, size: int, begin: int) -> None:
    rng = random.Random(seed)
    columns = []
    for arrow, values in LANES.values():
        chosen = values if rng.random() < 0.6 else values[:-1]
        columns.append(pa.array([rng.choice(chosen) for _ in range(size + begin + 5)], arrow))
    rows = pa.RecordBatch.from_arrays(columns, names=list(LANES)).slice(begin, size)
    lanes = [np.array([rng.choice([3, one]) for _ in range(size)], np.int64) for one in (3, rng.randrange(-9, 9))]
    updates = Updates(rows, *lanes)
    for made in (updates, compact(updates)):
        found = received(copied(sent(made)), rows.schema)
        assert found is not None
        found.rows.validate(full=True)
        assert found.rows.equals(rows)
        assert found.times.tolist() == lanes[0].tolist()
        assert found.diffs.tolist() == lanes[1].tolist()


def test_a_large_slice_sends_no_more_than_itself() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(100_000)), pa.array(["x" * 9] * 100_000)], names=["a", "b"])
    part = Updates(rows.slice(0, 10), np.zeros(10, np.int64), np.ones(10, np.int64))
    assert sum(len(buffer) for buffer in copied(sent(part))) < 500


@pytest.mark.parametrize("size", [1, 1000])
def test_rows_without_columns(size: int) -> None:
    rows = without_columns(pa.schema([]), size)
    found = received(copied(sent(Updates(rows, np.full(size, 7), np.ones(size, np.int64)))), rows.schema)
    assert found is not None
    assert (len(found), found.times[0], found.rows.num_rows) == (size, 7, size)


def test_nothing_is_no_buffer() -> None:
    none = np.empty(0, np.int64)
    assert (
        sent(None) == sent(Updates(pa.RecordBatch.from_pydict({"a": pa.array([], pa.int64())}), none, none)) == NOTHING
    )
    assert received(NOTHING, pa.schema([])) is None
