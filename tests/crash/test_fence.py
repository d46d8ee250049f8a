"""Old sidecars, frozen where it hurts most and woken beside a new one, write nothing and end with the error that says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sidecar.wiring.failpoints import STEPS as ALL
from tests.crash import counts
from tests.crash.fence import STEPS, run


@pytest.mark.long
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_a_frozen_sidecar_that_wakes_up_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "PROOFS", tmp_path / "proof")
    line, problems = run(2.0, tmp_path / "scene", ("postgres moved", "kafka flushed", "manifest written"))
    assert problems == []
    assert line.startswith("fence: ok frozen=3"), line


def test_every_step_of_a_write_is_one_at_which_an_old_sidecar_is_frozen() -> None:
    once = {"postgres claim", "postgres claimed", "kafka fenced", "kafka claimed"}
    writes = {s for s in ALL if s.startswith(("postgres", "kafka", "manifest"))} - once
    assert writes <= set(STEPS) <= set(ALL)
