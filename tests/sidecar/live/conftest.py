"""The little shop, started, with a few rows in each table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sidecar.little import CUSTOMERS, ORDERS, VISITS, Little


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Little:
    little = Little(tmp_path, monkeypatch)
    little.snapshot({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1), (2, 1), (3, 2)], VISITS: [(1, 1), (1, 1)]})
    little.show_all()
    little.start()
    little.turn(3)
    return little
