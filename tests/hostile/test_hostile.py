"""Two minutes of twenty hostile views beside five ordinary ones: the sidecar lives, memory stays flat, views are right. `make
hostile` does it for half an hour, and judges how fast it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.crash.soak import Sample
from tests.hostile.run import swollen


def samples(*memory: float) -> list[Sample]:
    return [{"at": float(i), "memory_mib": m, "files": 9.0, "threads": 9.0} for i, m in enumerate(memory)]


def test_memory_that_grows_is_named() -> None:
    assert swollen(samples(100, 200, 300, 301, 299, 390, 380, 300, 310)) == []
    assert swollen(samples(100, 200, 300, 301, 299, 390, 400, 420, 410)) == ["memory went from 301 to 410 MiB"]
    assert swollen(samples(100, 200)) != []


@pytest.mark.servers
@pytest.mark.timeout(900)
def test_two_minutes_of_hostile_views() -> None:
    run = [sys.executable, "-m", "tests.hostile.run", "--seconds", "120", "--alone", "10", "--warm-up", "5"]
    told = subprocess.run(run, capture_output=True, text=True, check=False, timeout=880)
    sys.stdout.write(told.stdout)
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
    assert "hostile: held" in told.stdout
