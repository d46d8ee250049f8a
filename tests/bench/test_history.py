"""The checker of the freshness benchmark sees a torn state, and the arithmetic of latencies is right."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.bench.bench_freshness import latencies
from tests.bench.history import broken
from tests.bench.report import row, table

WHOLE: dict[str, Any] = {
    "epoch": 7, "lsn": 70, "orders": 2, "off_balance": 0, "balance": Decimal(0), "lines": Decimal(5), "total": Decimal("9.50"),
    "city_lines": Decimal(5), "city_revenue": Decimal("9.50"), "shares": Decimal("9.5"), "payments": 2, "paid": Decimal("9.50"),
}  # fmt: skip


def test_a_whole_state_is_right() -> None:
    assert broken(WHOLE) == []
    assert broken(WHOLE, WHOLE) == []
    assert broken(WHOLE | {"epoch": 8, "lsn": 80}, WHOLE) == []


@pytest.mark.parametrize(
    "torn",
    [
        {"off_balance": 2},
        {"balance": Decimal("0.01")},
        {"city_lines": Decimal(4)},
        {"total": Decimal("9.51")},
        {"shares": Decimal(9)},
        {"paid": Decimal(9)},
        {"payments": 3},
        {"orders": 1},
    ],
)
def test_a_torn_state_is_seen(torn: dict[str, Any]) -> None:
    assert broken(WHOLE | torn)


def test_going_back_and_two_states_of_one_epoch_are_seen() -> None:
    assert broken(WHOLE | {"epoch": 6}, WHOLE)
    assert broken(WHOLE | {"lsn": 69}, WHOLE)
    other = {"lines": Decimal(6), "city_lines": Decimal(6)}
    assert broken(WHOLE | other, WHOLE)


def test_a_sample_is_visible_at_the_first_frontier_beyond_it() -> None:
    seen = [(10.0, 100), (11.0, 200), (12.0, 300)]
    samples = [(9.5, 90), (9.9, 100), (10.5, 101), (11.9, 301), (99.0, 1)]
    found, lost = latencies(samples, seen, 9.0, 50.0, 13.0)
    assert found == pytest.approx([0.5, 0.1, 0.5, 1.1])
    assert lost == 1


def test_ratios_above_one_say_that_ours_is_better() -> None:
    assert row("a", "ms", 10.0, 20.0, peer="p", peer_value=30.0)["ratio"] == 3.0
    assert row("a", "rows/s", 10.0, 20.0, peer="p", peer_value=5.0)["ratio"] == 2.0
    assert row("a", "rows/s", 10.0, 20.0)["met"] is False
    assert row("a", "states", 0.0, 0.0)["met"] is True
    assert "MISSED" in table([row("a", "rows/s", 10.0, 20.0)])
