"""SIGTERM at any moment: exit 0 within the stated time, whatever hangs, and the next start writes what was left."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.sidecar.wiring.failpoints import VARIABLE
from tests.sidecar.support.channel import Channel, Traffic, channel
from tests.sidecar.support.nursery import Nursery

SECONDS = 2.0
SLACK = 15.0
"""What a busy machine may take beyond, to run a thread and to say that a process is gone."""
HANGING = {
    "generation taken": "while it started", "postgres claim": "while it started", "reclock written": "cut_off",
    "postgres applied": "left_for_the_next_start=warehouse", "kafka sent:2": "left_for_the_next_start=bus",
    "batch written": "left_for_the_next_start=checkpoint",
}  # fmt: skip
"""Steps at which a server, or the disk, never answers, and what the log then says."""


def process(body: str) -> subprocess.Popen[str]:
    """A process that leaves so, once it has said that it listens."""
    made = "from headrace.sidecar.process.shutdown import ShutdownDeadline; it = ShutdownDeadline()"
    text = f"import time; {made}; it.listen(); {body}"
    made = subprocess.Popen([sys.executable, "-u", "-c", text + "; print(1, flush=True); time.sleep(60)"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert made.stdout is not None
    assert made.stdout.readline() == "1\n"
    return made


@pytest.mark.parametrize(
    ("body", "signals", "codes", "least", "said"),
    [
        ("pass", [signal.SIGTERM], {0}, 0.0, "while it started"),
        ("it.serve(print, 1.0)", [signal.SIGTERM], {0}, 1.0, "cut_off"),
        # Both wait at once: the system says in which order they are heard.
        (
            "it.serve(print, 60.0)",
            [signal.SIGINT, signal.SIGTERM],
            {128 + signal.SIGINT, 128 + signal.SIGTERM},
            0.0,
            "",
        ),
    ],
    ids=["starting", "hanging", "twice"],
)
def test_it_is_gone_in_time(body: str, signals: list[int], codes: set[int], least: float, said: str) -> None:
    made, begun = process(body), time.monotonic()
    for number in signals:
        made.send_signal(number)
    out, told = made.communicate(timeout=20)
    assert made.returncode in codes, told
    assert least <= time.monotonic() - begun < least + SLACK
    assert said in told
    assert out == ("" if body == "pass" else f"{0.8 if codes == {0} else 48.0}\n"), "so long may draining take"


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Channel]:
    with channel(stack, tmp_path, unique) as made:
        yield made


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_a_signal_at_any_moment_ends_it_in_time_and_loses_nothing(shop: Channel, nursery: Nursery) -> None:
    shop.configure(shutdown={"seconds": SECONDS})
    config, log, draw = shop.folder / "headrace.yaml", shop.folder / "sidecar.log", random.Random(2)
    traffic = Traffic(shop.source_url, 2)

    def start(failpoint: str) -> tuple[int, int]:
        log.touch()
        at = log.stat().st_size
        return nursery.start(config, log, {VARIABLE: failpoint}), at

    def reach(pid: int, at: int, line: str) -> None:
        until = time.monotonic() + 90
        while line not in shop.log()[at:]:
            traffic.transact(1)
            assert nursery.ended(pid) is None, shop.log()[-2000:]
            assert time.monotonic() < until, f"not in time: {line}: {shop.log()[-2000:]}"

    def end(pid: int, what: str) -> None:
        begun = time.monotonic()
        code = nursery.stop(pid, SECONDS + SLACK + 5)
        assert code == 0, f"{what}: {code}: {shop.log()[-2000:]}"
        assert time.monotonic() - begun < SECONDS + SLACK, what

    pid, at = start("")
    reach(pid, at, "event=running")
    end(pid, "running")
    for place, said in HANGING.items():
        step, _, count = place.partition(":")
        pid, at = start(f"{step}:{count or 1}:hang")
        reach(pid, at, f"hangs at {step}")
        end(pid, step)
        assert said in shop.log()[at:], f"{step}: {shop.log()[at:]}"
    for _ in range(2):
        pid, at = start("")
        reach(pid, at, "event=unchecked")
        after = draw.uniform(0.0, 1.5)
        time.sleep(after)
        end(pid, f"after {after:.2f} s")
        traffic.transact(2)
    pid, at = start("")
    reach(pid, at, "event=running")
    traffic.close()
    assert shop.compare_final().differences == []
    end(pid, "at last")
