"""What stands of groups in a round against the differences that define it: any cut into batches, one round and two."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.kernels import loop_groups
from headrace.engine.kernels.times import EPOCH_BITS, OUTER_BITS, ROUNDS
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.engine.trace.lookup import View

COUNTED = Layout(Schema((Column("key", BIGINT),)), (0,))
ORDERED = Layout(Schema((Column("key", BIGINT), Column("value", BIGINT))), (0,), (1,))
OUTER = ((1 << OUTER_BITS) - 1) << EPOCH_BITS
EPOCHS, SINCE, KEYS, LAST = 6, 1, 5, 4
GREATEST = 2**63 - 1
Change = tuple[int, int | None, int, int, int, int]
"""Key, value, epoch, outer round, inner round, diff."""


def arranged(
    layout: Layout, random: np.random.Generator, rounds: tuple[int, int], size: int
) -> tuple[View, list[Change]]:
    """Random changes in several batches, none of them with a time beyond `rounds`."""
    view = View(layout, [])
    changes: list[Change] = []
    for _ in range(4):
        keys = random.integers(0, KEYS, size)
        some = [None, 1, 2, 3, GREATEST] if layout is ORDERED else [None]
        values = [some[k] for k in random.integers(0, len(some), size)]
        epochs, outers, inners = (random.integers(0, most, size) for most in (EPOCHS, rounds[0], rounds[1]))
        diffs = random.choice([-1, 1, 2], size)
        columns = [pa.array(keys), pa.array(values, pa.int64())][: len(layout.arrow)]
        times = epochs | outers << EPOCH_BITS | inners << (EPOCH_BITS + OUTER_BITS)
        rows = pa.RecordBatch.from_arrays(columns, schema=layout.arrow)
        view.append(Batch.seal(layout, Updates(rows, times, diffs), Description.epochs(0, EPOCHS)))
        sums: Counter[tuple[int, int | None, int, int, int]] = Counter()
        lanes = [lane.tolist() for lane in (epochs, outers, inners, diffs)]
        for k, v, e, o, i, d in zip(keys.tolist(), values, *lanes, strict=True):
            sums[k, v, e, o, i] += d
        changes += [(*what, diff) for what, diff in sums.items() if diff]
    return view, changes


def shown(changes: list[Change], at: tuple[int, int, int], asked: tuple[int, int, int, int]) -> Counter[int | None]:
    """What stands of one key when all before and at (epoch, outer, inner) has come."""
    what, least, exact, _ = asked
    there = [(v, d) for _, v, e, o, i, d in changes if e <= at[0] and o <= at[1] and i <= at[2]]
    if what == loop_groups.COPIES_OF:
        copies = sum(d for _, d in there)
        return Counter({copies if exact else 1: 1} if copies >= least else {})
    counts: Counter[int | None] = Counter()
    for value, diff in there:
        counts[value] += diff
    live = [value for value, count in counts.items() if count > 0]
    values = [value for value in live if value is not None]
    best = (min(values) if what == loop_groups.LEAST else max(values)) if values else None
    return Counter([best] if live else [])


def naive(
    changes: list[Change], moment: tuple[int, int], asked: tuple[int, int, int, int]
) -> Counter[tuple[int, int | None]]:
    """(epoch, what stands) → how often more or less, at that epoch and the moment's round: the difference in all three."""
    found: Counter[tuple[int, int | None]] = Counter()
    for epoch in range(SINCE + 1, EPOCHS):
        for back in product((0, 1), repeat=3):
            at = (epoch - back[0], moment[0] - back[1], moment[1] - back[2])
            for value, count in shown(changes, at, asked).items():
                found[epoch, value] += count * (-1) ** sum(back)
    return Counter({what: count for what, count in found.items() if count})


ASKED = [
    (loop_groups.COPIES_OF, 1, 0, 0), (loop_groups.COPIES_OF, 2, 0, 0), (loop_groups.COPIES_OF, 1, 1, 0),
    (loop_groups.LEAST, 1, 0, 1), (loop_groups.GREATEST, 1, 0, 1),
]  # fmt: skip


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_sent_is_the_difference_in_epoch_and_rounds(asked: tuple[int, int, int, int], seed: int) -> None:
    random = np.random.default_rng(seed)
    layout = COUNTED if asked[0] == loop_groups.COPIES_OF else ORDERED
    nested = seed % 2 == 1
    # Many of one key call for more than insertion and for a tree of its values.
    view, changes = arranged(layout, random, (LAST, LAST if nested else 1), (12, 12, 400, 1200)[seed])
    rows = pa.RecordBatch.from_arrays([pa.array([*range(KEYS), 0, 99])], names=["key"])
    keys = COUNTED.keys(rows)
    for outer, inner in product(range(LAST), range(LAST if nested else 1)):
        now = outer << EPOCH_BITS | inner << (EPOCH_BITS + OUTER_BITS)
        moment = (now, OUTER if nested else ROUNDS, SINCE, SINCE)
        block, size, later, due, overflow = loop_groups.stand(view.table, keys.hash, keys.check, moment, asked)
        assert not overflow
        found: dict[int, Counter[tuple[int, int | None]]] = {key: Counter() for key in range(KEYS)}
        for batch, place, epoch, diff, copies in block[:, :size].T.tolist():
            row = list(view.batches[batch].payload.slice(place, 1).to_pylist()[0].values())
            value = row[1] if asked[0] != loop_groups.COPIES_OF else copies if asked[2] else 1
            found[row[0]][epoch, value] += diff
        again = {(int(probe) % KEYS, int(time)) for probe, time in later[:, :due].T}
        for key in range(KEYS):
            mine = [change for change in changes if change[0] == key]
            assert found[key] == naive(mine, (outer, inner), asked)
            reached = {(max(o, outer), max(i, inner)) for _, _, _, o, i, _ in mine} - {(outer, inner)}
            expected = reached if nested else set(sorted(reached)[:1])
            assert {time for k, time in again if k == key} == {
                o << EPOCH_BITS | i << (EPOCH_BITS + OUTER_BITS) for o, i in expected
            }


@pytest.mark.parametrize("asked", ASKED)
def test_copies_that_do_not_fit_are_told(asked: tuple[int, int, int, int]) -> None:
    layout = COUNTED if asked[0] == loop_groups.COPIES_OF else ORDERED
    rows = pa.RecordBatch.from_arrays([pa.array([1, 1])] * len(layout.arrow), schema=layout.arrow)
    changes = Updates(rows, np.array([0, 1]), np.array([2**62, 2**62]))
    view = View(layout, [Batch.seal(layout, changes, Description.epochs(0, 2))])
    keys = layout.keys(rows.slice(0, 1))
    *_, overflow = loop_groups.stand(view.table, keys.hash, keys.check, (0, ROUNDS, -1, -1), asked)
    assert overflow
