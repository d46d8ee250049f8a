"""What records hold in memory, beside what they say."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa

from headrace.connectors.json_rows import json_rows
from headrace.engine.schema import Column, DataType

ROWS = 2000


def test_a_record_holds_what_it_says_and_not_the_room_that_it_was_written_in() -> None:
    """Found by tracemalloc in a soak: each key and each value of a record held 4 KiB until its write was over."""
    columns = [Column("id", DataType.parse("bigint"), False)]
    rows = pa.record_batch({"id": pa.array(np.arange(ROWS))})
    tracemalloc.start()
    try:
        found = json_rows(columns, rows)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found[7] == b'{"id":7}'
    assert held < 200 * ROWS
