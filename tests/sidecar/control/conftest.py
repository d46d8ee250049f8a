"""The little shop, started, with a few rows in each table: kept by one dataflow, and by two workers; `reading` has workers that
read the topics too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.sidecar.wiring import build as wiring
from tests.sidecar.execution.workers.threads import Threads
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VISITS, Little


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    monkeypatch.setattr(wiring, "make_pool", lambda *_: Threads)
    yield from begun(Little(tmp_path, monkeypatch, workers=request.param))


def begun(little: Little) -> Iterator[Little]:
    """Running, until the test ends."""
    little.snapshot({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1), (2, 1), (3, 2)], VISITS: [(1, 1), (1, 1)]})
    little.show_all()
    little.start()
    little.turn(3)
    yield little
    little.close()
