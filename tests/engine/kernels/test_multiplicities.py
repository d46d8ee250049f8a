"""Counting off an arrangement against a dictionary: every cut into batches, any since, keys that are not there."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.kernels import multiplicities
from headrace.engine.lattice import Frontier
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.engine.trace import Spine

_FOREVER = 2**63 - 1
LAYOUT = Layout(Schema((Column("key", BIGINT),)), (0,))
EPOCHS = 12
Change = tuple[int, int, int]
"""Key, time, diff."""


def arranged(random: np.random.Generator, since: int) -> tuple[Spine, list[Change]]:
    """Random changes of few keys in batches of some epochs each."""
    spine, changes, lower = Spine(LAYOUT), [], 0
    while lower < EPOCHS:
        upper = min(EPOCHS, lower + int(random.integers(1, 5)))
        size = int(random.integers(0, 30))
        times, diffs = random.integers(lower, upper, size), random.choice([-1, 1, 2], size)
        keys = random.integers(0, 7, size)
        rows = pa.RecordBatch.from_arrays([pa.array(keys)], schema=LAYOUT.arrow)
        description = Description.epochs(lower, upper)
        spine.insert(Batch.seal(LAYOUT, Updates(rows, times, diffs), description))
        spine.advance(Frontier.at(min(since, upper - 1)))
        changes += zip(keys.tolist(), times.tolist(), diffs.tolist(), strict=True)
        lower = upper
    return spine, changes


def naive(changes: list[Change], key: int, since: int, until: int, how: tuple[int, bool, bool]) -> Counter[Change]:
    """(time, diff, copies) of what is shown of a key."""
    least, exact, whole = how
    found: Counter[Change] = Counter()
    before = 0 if whole else sum(d for k, t, d in changes if k == key and t <= since)
    for time in range(since if whole else since + 1, until):
        copies = sum(d for k, t, d in changes if k == key and t <= time)
        was, now = before >= least, copies >= least
        if was != now or (exact and was and copies != before):
            found += Counter({(time, -1, before): int(was)}) + Counter({(time, 1, copies): int(now)})
        before = copies
    return found


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_shown_is_what_counting_shows(least: int, exact: bool, whole: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    since = int(random.integers(0, EPOCHS))
    until = int(random.integers(since + 1, EPOCHS + 1))
    spine, changes = arranged(random, since)
    asked = random.permutation(np.repeat(np.arange(9), 2))
    keys = LAYOUT.keys(pa.RecordBatch.from_arrays([pa.array(asked)], schema=LAYOUT.arrow))
    how = (least, exact, whole)
    block, size, overflow = multiplicities.tally(spine.view.table, keys.hash, keys.check, since, until, *how)
    assert not overflow
    asked_for, when = block[multiplicities.PROBE, :size], block[multiplicities.TIME, :size]
    assert (np.lexsort((when, asked_for)) == np.arange(size)).all()
    places = block[multiplicities.BATCH : multiplicities.POSITION + 1, :size]
    rows = LAYOUT.assembly().rows(spine.view.structs, places[:1].copy(), places[1:].copy()).column(0).to_pylist()
    for key in range(9):
        at = [k for k in range(size) if rows[k] == key]
        found = block[multiplicities.TIME :, at].T.tolist()
        once = Counter((t, d, c) for t, d, c in map(tuple, found))
        wanted = naive(changes, key, since, until, how)
        assert once == Counter({k: n * (2 if whole else 1) for k, n in wanted.items()}), (key, since, until)


def test_copies_are_added_up_and_told_where_they_do_not_fit() -> None:
    random = np.random.default_rng(9)
    spine, changes = arranged(random, 3)
    keys = LAYOUT.keys(pa.RecordBatch.from_arrays([pa.array(range(9))], schema=LAYOUT.arrow))
    copies, overflow = multiplicities.copies_of(spine.view.table, keys.hash, keys.check)
    assert copies.tolist() == [sum(d for k, _, d in changes if k == key) for key in range(9)]
    assert not overflow
    spine = Spine(LAYOUT)
    row = pa.RecordBatch.from_arrays([pa.array([1])], schema=LAYOUT.arrow)
    for epoch in range(2):
        updates = Updates(row, np.array([epoch]), np.array([2**62]))
        spine.insert(Batch.seal(LAYOUT, updates, Description.epochs(epoch, epoch + 1)))
    keys = LAYOUT.keys(row)
    table = spine.view.table
    assert multiplicities.copies_of(table, keys.hash, keys.check)[1]
    assert multiplicities.tally(table, keys.hash, keys.check, 0, _FOREVER, 1, False, False)[2]
    assert not multiplicities.tally(table, keys.hash, keys.check, 0, 1, 1, False, False)[2]
