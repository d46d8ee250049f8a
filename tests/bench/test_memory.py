"""The memory benchmark's own check notices a wrong row."""

from __future__ import annotations

import numpy as np

from tests.bench.bench_memory import Written, amounts


def test_a_wrong_row_would_be_noticed() -> None:
    one, other = (Written(amounts(np.arange(5000, dtype=np.int64))) for _ in range(2))
    assert one.answer() == other.answer()
    other.amount[4321] += 1
    assert one.answer() != other.answer()
