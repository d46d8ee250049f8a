"""Sifting against its plain twin, and look-ups that rest on it against dictionaries."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.kernels import entries as lies
from headrace.engine.kernels.key_prefilter import _LEAST_BITS, _NEAR, _ROOM, _ROOMY, sift
from headrace.engine.trace import Spine
from headrace.engine.trace import lookup as module
from tests.engine.strategies import rows_of, schema_of

_WORDS = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 63).map(lambda n: n << 58), max_size=30)


def _table(sides: list[list[int]]) -> tuple[np.ndarray, list[Any]]:
    """Batches of these hashes, and what must be kept for as long as they are read."""
    table, kept = np.zeros((len(sides), lies.COLUMNS), np.int64), []
    for row, words in zip(table, sides, strict=True):
        lane, facts = np.array(sorted(words), np.uint64), np.zeros(len(words), np.int64)
        lies.locate((lane,) * 5, (facts,) * 3, 0, np.zeros((0, 4), np.int64), 0, row)
        kept += [lane, facts]
    return table, kept


@given(st.lists(_WORDS, max_size=3), _WORDS)
def test_those_stay_whose_top_bits_an_entry_has(sides: list[list[int]], asked: list[int]) -> None:
    table, _kept = _table(sides)
    total = sum(map(len, sides))
    bits = next(b for b in range(_LEAST_BITS, 64) if 1 << b >= max(total * _ROOM, min(total * _ROOMY, _NEAR)))
    tops = {word >> (64 - bits) for words in sides for word in words}
    places, count = sift(table, np.array(asked, np.uint64))
    assert places[:count].tolist() == [k for k, word in enumerate(asked) if word >> (64 - bits) in tops]


@pytest.mark.parametrize("mask", [2**64 - 1, 1 << 63, 0])
@pytest.mark.parametrize("stored", [0, 1, 7])
def test_many_keys_are_looked_up_among_few_updates(mask: int, stored: int) -> None:
    layout = Layout(schema_of(("bigint", "text")), (0,), hash_mask=mask)
    spine, wanted = Spine(layout), []
    for epoch in range(3):
        values = [(k * 3, f"row {k} {epoch}") for k in range(stored)]
        rows = rows_of(("bigint", "text"), values)
        updates = Updates(rows, np.full(stored, epoch), np.ones(stored, np.int64))
        spine.insert(Batch.seal(layout, updates, Description.epochs(epoch, epoch + 1)))
        wanted += [(row, epoch) for row in values]
    asked = np.random.default_rng(5).permutation(400) // 2  # each key twice, in no order
    keys = layout.keys(rows_of(("bigint", "text"), [(int(k), None) for k in asked]))
    with mock.patch.object(module, "_MANY", 100), mock.patch.object(module, "sift", wraps=sift) as sifted:
        found = spine.gather(keys, 0, 2)
    assert sifted.called
    rows = zip(*(column.to_pylist() for column in found.rows().columns), strict=True)
    got = sorted(zip(found.probe.tolist(), rows, found.times.tolist(), found.diffs.tolist(), strict=True))
    assert got == sorted((k, row, t, 1) for k, key in enumerate(asked) for row, t in wanted if row[0] == key and t < 2)
    assert found.probe.tolist() == sorted(found.probe.tolist())


def test_few_keys_are_not_sifted() -> None:
    layout = Layout(schema_of(("bigint",)), (0,))
    spine = Spine(layout)
    keys = layout.keys(rows_of(("bigint",), [(k,) for k in range(20)]))
    with mock.patch.object(module, "sift", side_effect=AssertionError):
        assert not len(spine.gather(keys))
