"""The benches' data files and checksums against plain Python integers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.peers.columns import checksum, read, texts, write

WORD = 2**64


def mixed_naive(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % WORD
    return x ^ (x >> 31)


def checksum_naive(rows: Sequence[Sequence[int]], diffs: Sequence[int]) -> int:
    total = 0
    for row, diff in zip(rows, diffs, strict=True):
        found = 0x9E3779B97F4A7C15
        for word in row:
            found = mixed_naive((found + word) % WORD)
        total += found * diff
    return total % WORD


words = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(words, words, st.integers(-3, 3)), max_size=20), st.randoms())
def test_checksum_is_that_of_the_twin_in_any_order(rows: list[tuple[int, int, int]], random: object) -> None:
    def found(order: list[tuple[int, int, int]]) -> int:
        table = np.array(order, np.int64).reshape(-1, 3)
        return checksum([table[:, 0].copy(), table[:, 1].copy()], table[:, 2].copy())

    wanted = checksum_naive([(a % WORD, b % WORD) for a, b, _ in rows], [d for *_, d in rows])
    assert found(rows) == wanted
    assert found(rows[::-1]) == wanted


def test_checksum_tells_words_epochs_and_diffs_apart() -> None:
    one, two = np.array([1]), np.array([2])
    plus = np.array([1])
    assert len({checksum([one, two], plus), checksum([two, one], plus), checksum([one], plus)}) == 3
    assert checksum([one], plus) != checksum([one], 2 * plus)
    assert checksum([np.array([1, 1])], np.array([1, -1])) == 0


def test_columns_are_raw_little_endian_words(tmp_path: Path) -> None:
    write(tmp_path / "some", key=np.array([1, 2**64 - 1], np.uint64), diff=np.array([1, -1]), epoch=np.array([3, 4]))
    assert (tmp_path / "some.key").read_bytes() == struct.pack("<QQ", 1, 2**64 - 1)
    assert (tmp_path / "some.diff").read_bytes() == struct.pack("<qq", 1, -1)
    found = read(str(tmp_path / "some"), "epoch")
    assert found is not None
    assert found.tolist() == [3, 4]
    write(tmp_path / "some", key=np.array([5]))
    assert read(str(tmp_path / "some"), "epoch") is None


def test_columns_of_other_widths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        write(tmp_path / "some", key=np.array([1], np.int32))


def test_texts_are_different_and_of_32_bytes() -> None:
    some = texts(1000, 7)
    assert some.dtype.itemsize == 32
    assert len(set(some.tolist())) == 1000
    assert all(len(text) == 32 for text in some.tolist())
