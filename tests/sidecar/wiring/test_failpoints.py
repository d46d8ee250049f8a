"""A failpoint ends the process exactly where it says, costs nothing when off, and cannot be misspelt."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path

import pytest

from headrace.connectors.step_hooks import unwatched
from headrace.sidecar.wiring.failpoints import STEPS, VARIABLE, FailpointError, failpoints

ROOT = Path(__file__).parents[3]


def test_unset_it_is_the_function_that_does_nothing() -> None:
    assert failpoints({}) is unwatched
    assert failpoints({VARIABLE: ""}) is unwatched


@pytest.mark.parametrize(("how", "number"), [("", signal.SIGKILL), (":stop", signal.SIGSTOP)])
def test_the_process_dies_or_freezes_the_nth_time(
    monkeypatch: pytest.MonkeyPatch, how: str, number: signal.Signals
) -> None:
    deaths: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *told: deaths.append(told))
    reached = failpoints({VARIABLE: f"batch named:2{how}"})
    for step in ("batch named", "kafka sent"):
        reached(step)
    assert deaths == []
    reached("batch named")
    reached("batch named")
    assert deaths == [(os.getpid(), number)]


def test_the_thread_that_comes_to_it_hangs_and_the_others_go_on(capfd: pytest.CaptureFixture[str]) -> None:
    reached = failpoints({VARIABLE: "batch named:2:hang"})
    reached("batch named")
    hanging = threading.Thread(target=reached, args=("batch named",), daemon=True)
    hanging.start()
    hanging.join(0.1)
    assert hanging.is_alive()
    reached("batch named")
    assert "hangs at batch named" in capfd.readouterr().err


@pytest.mark.parametrize(
    "value", ["no such step", "batch named:x", "batch named:-1", ":1", "batch named:1:no", "batch named:1:stop:1"]
)
def test_a_failpoint_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(FailpointError, match="no such failpoint"):
        failpoints({VARIABLE: value})


def test_every_step_that_parts_tell_is_known_and_told_somewhere() -> None:
    text = "".join(p.read_text() for folder in ("sidecar", "connectors") for p in (ROOT / folder).rglob("*.py"))
    assert set(re.findall(r'reached\("([a-z ]+)"\)', text)) == set(STEPS)
