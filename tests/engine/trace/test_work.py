"""How much a spine does at each insert: a constant times what came times the levels, however much it holds.

Counted are updates that merges read, rows that they copy and entries of lanes that they fill in, each where it is done, and
whatever is sealed or put in order at once.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.batch.merge_buffers import Growing, Lanes
from headrace.engine.kernels import merge as kernels
from headrace.engine.kernels import merge_output as appending
from headrace.engine.kernels.compiler import JIT_OFF
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.engine.trace import Spine
from headrace.engine.trace import spine as module

pytestmark = pytest.mark.skipif(JIT_OFF, reason="too much for plain Python")

LAYOUT = Layout(Schema((Column("k", BIGINT), Column("v", BIGINT))), (0,))
A_LEVEL = 8
"""Updates that may be handled for each one inserted, for each level."""
OVERHEAD = 256
"""What an insert may do for a level though it is small."""
PIECE = 1 << 12
"""Rows that were merged may be copied together."""


class Counted:
    """Work since the last look: updates `merged`, rows `copied`, entries `filled` in, and updates made a batch at `once`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.merged = self.copied = self.filled = self.once = 0
        merge, append, catch_up, of = kernels.merge, appending.append, Lanes.catch_up, Batch.of

        def counted_merge(*args: Any) -> int:
            left: int = merge(*args)
            self.merged += args[-1] - left
            return left

        def counted_append(*args: Any) -> int:
            state = args[-2]
            before = int(state[kernels.ROWS])
            lane: int = append(*args)
            self.copied += int(state[kernels.ROWS]) - before
            return lane

        def counted_catch_up(lanes: Lanes, rows: Growing, fuel: int) -> int:
            before = sum(lanes._filled.values())
            begun = dict(lanes._owed)
            left = catch_up(lanes, rows, fuel)
            self.filled += sum(lanes._filled.get(lane, owed) for lane, owed in begun.items()) - before
            return left

        def counted_of(*args: Any) -> Batch:
            self.once += args[-2].num_rows
            return of(*args)

        monkeypatch.setattr(kernels, "merge", counted_merge)
        monkeypatch.setattr(appending, "append", counted_append)
        monkeypatch.setattr(Lanes, "catch_up", counted_catch_up)
        monkeypatch.setattr(Batch, "of", counted_of)

    def taken(self) -> tuple[int, int, int, int]:
        found = self.merged, self.copied, self.filled, self.once
        self.merged = self.copied = self.filled = self.once = 0
        return found


def sealed(rng: np.random.Generator, size: int, epoch: int, keys: int) -> Batch:
    columns: list[Any] = [pa.array(rng.integers(0, keys, size)), pa.array(rng.integers(0, 1 << 40, size))]
    rows = pa.RecordBatch.from_arrays(columns, schema=LAYOUT.arrow)
    updates = Updates(rows, np.full(size, epoch), np.ones(size, np.int64))
    return Batch.seal(LAYOUT, updates, Description.epochs(epoch, epoch + 1))


def levels(stored: int) -> int:
    return 1 + math.ceil(math.log2(max(stored, 2)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("keys", [1 << 30, 3000])
def test_no_insert_does_more_than_its_share(seed: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    source, rng = random.Random(seed), np.random.default_rng(seed)
    spine = Spine(LAYOUT)
    came = total = 0
    batches = [sealed(rng, source.choice([1, 1, 3, 10, 40, 200, 600, 2000]), epoch, keys) for epoch in range(900)]
    counted.taken()
    for batch in batches:
        spine.insert(batch)
        came += len(batch)
        merged, copied, filled, once = counted.taken()
        share = (len(batch) * A_LEVEL + OVERHEAD + module.WORTH) * levels(
            came
        )  # what was saved up is worked off at once
        assert merged <= share, f"an insert of {len(batch)} into {came} merged {merged}"
        assert copied <= share + PIECE * levels(came), f"an insert of {len(batch)} into {came} copied {copied} rows"
        assert filled <= 16 * share, f"an insert of {len(batch)} into {came} filled {filled} entries in"
        assert once <= 16 * module.SMALL, "what is made at once is made of small batches"
        assert len(spine.batches()) <= 2 * levels(came)
        total += merged + copied
    assert total > came, "there was something to count"
    assert total <= 2 * came * levels(came)
    assert sum(spine.snapshot(899).diffs) == came


def test_idle_effort_is_bounded_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """`exert` merges about what it is given, and then finds nothing more to do: its work is not done twice."""
    counted = Counted(monkeypatch)
    rng = np.random.default_rng(7)
    spine = Spine(LAYOUT)
    for epoch in range(200):
        spine.insert(sealed(rng, 700, epoch, 1 << 30))
    counted.taken()
    before, fuel, total = len(spine.batches()), 5000, 0
    for _ in range(2000):
        spine.exert(fuel)
        merged, copied, _, once = counted.taken()
        assert merged + once <= fuel * levels(len(spine)) + 16 * module.SMALL
        total += merged
        if not merged + copied + once:
            break
    assert not spine.merging
    assert total <= len(spine) * levels(len(spine))
    assert len(spine.batches()) < min(before, 6)
    spine.exert(1 << 40)
    assert counted.taken() == (0, 0, 0, 0)
