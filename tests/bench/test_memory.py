"""The memory benchmark in little, on real servers: what it writes is taken in right, and its peaks are within its goal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.bench.bench_memory import GOAL, Bench, Written, amounts, measure


@pytest.mark.servers
@pytest.mark.timeout(300)
def test_a_table_and_a_transaction_go_through_a_sidecar_within_its_budget(
    tmp_path: Path, kafka: str, database: str
) -> None:
    bench = Bench(tmp_path, kafka, database, settle_seconds=1.0)
    try:
        found = measure(bench, 60_000, 20_000, 120.0, lambda _: None)
    finally:
        bench.close()
    assert 50 < found["held"] <= found["table"] < GOAL / 2
    assert 50 < found["transaction"] < GOAL / 2


def test_a_wrong_row_would_be_noticed() -> None:
    one, other = (Written(amounts(np.arange(5000, dtype=np.int64))) for _ in range(2))
    assert one.answer() == other.answer()
    other.amount[4321] += 1
    assert one.answer() != other.answer()
