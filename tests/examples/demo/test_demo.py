"""The demo's end: a signal ends it in order, with every process it started; and no command line shows a password."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data folder for all runs: the second starts warm."""
    return tmp_path_factory.mktemp("demo")


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "examples.demo", "--duration", "0", "--no-spark", "--folder", str(folder)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )  # fmt: skip


@dataclass
class Family:
    """A demo's children and theirs, with their command lines."""

    processes: list[psutil.Process]
    lines: list[str]

    def has(self, mark: str) -> bool:
        return any(mark in line for line in self.lines)


def family(demo: subprocess.Popen[str]) -> Family:
    found = Family([], [])
    for process in psutil.Process(demo.pid).children(recursive=True):
        with suppress(psutil.Error):  # it may have ended meanwhile
            found.lines.append(" ".join(process.cmdline()))
            found.processes.append(process)
    return found


def wait_for(demo: subprocess.Popen[str], what: Callable[[], bool]) -> None:
    end = time.monotonic() + 180
    while not what():
        assert demo.poll() is None, demo.stdout and demo.stdout.read()
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "seen", "all_of_them"),
    [
        pytest.param(
            signal.SIGTERM, "examples.demo.writer", False, marks=pytest.mark.long, id="SIGTERM while it plays"
        ),
        pytest.param(signal.SIGINT, "headrace.sidecar.cli.app", True, id="Ctrl-C while it starts"),
    ],
)
def test_a_signal_ends_the_demo_and_all_that_it_started(
    folder: Path, number: signal.Signals, seen: str, all_of_them: bool
) -> None:
    demo = start(folder)
    try:
        wait_for(demo, lambda: family(demo).has(seen))
        there = family(demo)
        password = (folder / "postgres.password").read_text()
        assert not there.has(password)
        # a terminal sends Ctrl-C to the whole foreground group, not to the demo alone
        os.killpg(demo.pid, number) if all_of_them else demo.send_signal(number)
        said, _ = demo.communicate(timeout=60)
        _, alive = psutil.wait_procs(there.processes, timeout=10)
        assert alive == []
        assert demo.returncode in (0, 1)
        assert said.splitlines()[-1].startswith("demo: "), said[-2000:]
        assert ("stopped before" in said) == all_of_them
        assert "Traceback" not in said
    finally:
        demo.kill()
        demo.communicate()
