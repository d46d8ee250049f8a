"""How much a spine does at each insert: a constant times what came times the levels, however much it holds.

Counted are updates that merges read and rows that they copy, in the merger's own fuel, and updates of small batches that
are merged at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.batch import Batch, Description, Layout, Updates
from engine.batch.merger import Merger
from engine.kernels import merge as kernels
from engine.kernels.compiler import JIT_OFF
from engine.lattice import Frontier
from engine.schema import BIGINT, Column, Schema
from engine.trace import Spine
from engine.trace import spine as module

pytestmark = pytest.mark.skipif(JIT_OFF, reason="too much for plain Python")

LAYOUT = Layout(Schema((Column("k", BIGINT), Column("v", BIGINT))), (0,))
A_LEVEL = 8
"""Updates that may be handled for each one inserted, for each level."""
OVERHEAD = 256
"""What an insert may do for a level though it is small."""


class Counted:
    """Work done since the last look: updates `merged` with fuel and at once when `small`, and fuel for rows `copied`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.merged = self.small = self.copied = 0
        work, merge, merge_small = Merger.work, kernels.merge, module.merge_small

        def counted_merge(*args: Any) -> int:
            left: int = merge(*args)
            self.merged += args[-1] - left
            self.copied -= args[-1] - left
            return left

        def counted_work(merger: Merger, fuel: int) -> int:
            left = work(merger, fuel)
            self.copied += fuel - left
            return left

        def counted_small(layout: Layout, batches: Sequence[Batch], since: Frontier) -> Batch:
            self.small += sum(len(b) for b in batches)
            return merge_small(layout, batches, since)

        monkeypatch.setattr(kernels, "merge", counted_merge)
        monkeypatch.setattr(Merger, "work", counted_work)
        monkeypatch.setattr(module, "merge_small", counted_small)

    def taken(self) -> tuple[int, int, int]:
        found = self.merged, self.small, self.copied
        self.merged = self.small = self.copied = 0
        return found


def inserted(spine: Spine, rng: np.random.Generator, size: int, epoch: int, keys: int) -> None:
    columns: list[Any] = [pa.array(rng.integers(0, keys, size)), pa.array(rng.integers(0, 1 << 40, size))]
    rows = pa.RecordBatch.from_arrays(columns, schema=LAYOUT.arrow)
    updates = Updates(rows, np.full(size, epoch), np.ones(size, np.int64))
    spine.insert(Batch.seal(LAYOUT, updates, Description.epochs(epoch, epoch + 1)))


def levels(stored: int) -> int:
    return 1 + math.ceil(math.log2(max(stored, 2)))


@pytest.mark.parametrize("seed", range(2))
def test_no_insert_merges_more_than_its_share(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    source, rng = random.Random(seed), np.random.default_rng(seed)
    spine = Spine(LAYOUT)
    came = total = copies = 0
    for epoch in range(900):
        size = source.choice([1, 1, 3, 10, 40, 200, 600, 2000])
        inserted(spine, rng, size, epoch, 1 << 30)
        came += size
        merged, small, copied = counted.taken()
        share = (size * A_LEVEL + OVERHEAD) * levels(came)
        assert merged <= share, f"an insert of {size} into {came} merged {merged}"
        assert small <= 16 * module.SMALL, "small merges are of small batches"
        assert len(spine.batches()) <= 2 * levels(came)
        total += merged + small
        copies += copied
    assert spine.merging or total > came, "there was something to count"
    # A column of a merge is copied at once, so that only the sum over many inserts is bounded.
    assert total <= came * levels(came)
    assert copies <= came * levels(came)


def test_idle_effort_is_bounded_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """`exert` merges about what it is given, and then finds nothing more to do: its work is not done twice."""
    counted = Counted(monkeypatch)
    rng = np.random.default_rng(7)
    spine = Spine(LAYOUT)
    for epoch in range(200):
        inserted(spine, rng, 700, epoch, 1 << 30)
    counted.taken()
    before, fuel, total = len(spine.batches()), 5000, 0
    for _ in range(2000):
        spine.exert(fuel)
        merged, small, copied = counted.taken()
        assert merged + small <= fuel * levels(len(spine)) + 16 * module.SMALL
        total += merged
        if not merged + small + copied:
            break
    assert not spine.merging
    assert total <= len(spine) * levels(len(spine))
    assert len(spine.batches()) < min(before, 6)
    spine.exert(1 << 40)
    assert counted.taken() == (0, 0, 0)
