"""The little shop, started, with a few rows in each table: kept by one dataflow, and by two workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.workers import driver
from tests.sidecar.little import CUSTOMERS, ORDERS, VISITS, Little
from tests.sidecar.workers.threads import Threads


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    little = Little(tmp_path, monkeypatch, workers=request.param)
    monkeypatch.setattr(driver, "Crew", Threads)
    little.snapshot({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1), (2, 1), (3, 2)], VISITS: [(1, 1), (1, 1)]})
    little.show_all()
    little.start()
    little.turn(3)
    yield little
    little.close()
