"""Flat map: each row becomes what a function makes of it, as often as it is there, at every epoch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Int64s
from headrace.engine.dataflow import flat_map
from headrace.engine.schema import BIGINT, Column, Schema
from tests.engine.dataflow.pairs import Pair, Shape, World, keyless_ops
from tests.engine.dataflow.standard import any_cut, made_late, passes, restart
from tests.reference.dataflow import Content, Twin

RANGES = Schema((Column("first", BIGINT), Column("count", BIGINT)))
THREE = "three is no beginning"
NUMBERS = Schema((Column("number", BIGINT),))


def counted(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s, pa.Array | None]:
    """first, first + 1 … of each row, `count` of them; a row that begins at three fails."""
    first, count = (column.to_numpy() for column in rows.columns)
    bad = first == 3
    count = np.where(bad, 0, count)
    places = np.repeat(np.arange(len(first)), count)
    starts = np.cumsum(count) - count
    numbers = first[places] + np.arange(len(places)) - starts[places]
    messages = pa.array(np.where(bad, THREE, ""), pa.large_string(), mask=~bad) if bad.any() else None
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=NUMBERS.arrow), places, messages


def views(tables: Mapping[str, Pair]) -> Mapping[str, Pair]:
    ranges = tables["ranges"]

    def at(epoch: int) -> Content:
        rows, errors = ranges.twin.at(epoch)
        found: Counter[tuple[int]] = Counter()
        errors = Counter(errors)
        for (first, count), n in rows.items():
            if first == 3:
                errors[THREE] += n
                continue
            for k in range(count):
                found[(first + k,)] += n
        return found, errors

    made = flat_map(ranges.real, "counted", counted, NUMBERS)
    return {"numbers": Pair(made, Twin(NUMBERS, at))}


def world(shape: Shape, seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    ops = keyless_ops(rng, lambda r: (r.randrange(4), r.randrange(4)), 7, 4)
    return World({"ranges": RANGES}, shape, {"ranges": ops}), rng


SHAPES: dict[str, Shape] = {"ranges": views}

test_each_row_becomes_its_rows = passes(any_cut, SHAPES, world)
test_a_restart_changes_nothing = passes(restart, SHAPES, world)
test_a_view_made_late_is_hydrated = passes(made_late, SHAPES, world)
