"""Flat map: each row becomes what a function makes of it, as often as it is there, at every epoch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from engine.batch.updates import Int64s
from engine.dataflow import flat_map
from engine.schema import BIGINT, Column, Schema
from tests.engine.dataflow.pairs import Pair, World, cuts_of, keyless_ops
from tests.engine.dataflow.test_random import QUICK
from tests.reference.dataflow import Content, Twin

RANGES = Schema((Column("first", BIGINT), Column("count", BIGINT)))
NUMBERS = Schema((Column("number", BIGINT),))


def counted(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
    """first, first + 1 … of each row, `count` of them."""
    first, count = (column.to_numpy() for column in rows.columns)
    places = np.repeat(np.arange(len(first)), count)
    starts = np.cumsum(count) - count
    numbers = first[places] + np.arange(len(places)) - starts[places]
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=NUMBERS.arrow), places


def views(tables: Mapping[str, Pair]) -> Mapping[str, Pair]:
    ranges = tables["ranges"]

    def at(epoch: int) -> Content:
        rows, errors = ranges.twin.at(epoch)
        found: Counter[tuple[int]] = Counter()
        for (first, count), n in rows.items():
            for k in range(count):
                found[(first + k,)] += n
        return found, errors

    made = flat_map(ranges.real, "counted", counted, NUMBERS)
    return {"numbers": Pair(made, Twin(NUMBERS, at))}


@QUICK
@given(seed=st.integers(0, 2**32))
def test_each_row_becomes_its_rows(seed: int) -> None:
    rng = random.Random(seed)
    ops = keyless_ops(rng, lambda r: (r.randrange(4), r.randrange(4)), 7, 4)
    made = World({"ranges": RANGES}, views, {"ranges": ops})
    made.build()
    made.run(cuts_of(rng, made.end), rng=rng)
    made.check_changes()
    made.check_snapshots([made.end - 1])
