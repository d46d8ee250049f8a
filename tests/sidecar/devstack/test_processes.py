"""Children and their end: tied to the parent, quoted when they fail, stopped, and only ours are ever touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.sidecar.devstack import processes, stale_processes
from headrace.sidecar.devstack.errors import DevstackError, log_tail

SLEEP = Path("/bin/sleep")
SHELL = Path("/bin/sh")


def gone(pid: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_child_is_the_program_itself_and_stops_when_asked(tmp_path: Path) -> None:
    child = processes.spawn("sleeper", [SLEEP, "60"], tmp_path / "log")
    child.wait_until(lambda: os.readlink(f"/proc/{child.pid}/exe").endswith(("sleep", "coreutils", "busybox")), 5)
    child.stop()
    assert gone(child.pid)
    child.stop()


def test_a_child_that_will_not_hear_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = processes.spawn(
        "deaf", [SHELL, "-c", f"trap '' TERM; touch {ready}; sleep 60 & wait; wait"], tmp_path / "log"
    )
    child.wait_until(ready.exists, 5)
    begin = time.monotonic()
    child.stop(seconds=0.3)
    assert time.monotonic() - begin < 5
    assert not child.alive


def test_a_child_that_ends_is_an_error_that_quotes_its_log(tmp_path: Path) -> None:
    child = processes.spawn("broken", [SHELL, "-c", "echo the disk is full; exit 3"], tmp_path / "log")
    with pytest.raises(DevstackError, match=r"broken ended by itself \(exit_code=3(.|\n)*the disk is full"):
        child.wait_until(lambda: False, 5)


def test_a_child_that_is_never_ready_is_an_error(tmp_path: Path) -> None:
    child = processes.spawn("slow", [SLEEP, "60"], tmp_path / "log")
    with pytest.raises(DevstackError, match=r"slow was not ready in 0\.1 seconds"):
        child.wait_until(lambda: False, 0.1)
    child.stop()


def test_a_killed_parent_takes_its_child_along(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from headrace.sidecar.devstack import processes\n"
        f"child = processes.spawn('c', ['{SLEEP}', '60'], Path('{tmp_path}/log'))\n"
        "child.wait_until(lambda: 'sleep' in Path(f'/proc/{child.pid}/cmdline').read_text().split(chr(0))[0], 5)\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid, 0.2)
        parent.kill()
        assert gone(pid)


def test_a_child_of_a_parent_already_gone_never_starts(tmp_path: Path) -> None:
    made = tmp_path / "made"
    command = processes.shim([Path("/usr/bin/touch"), made], death=signal.SIGTERM, parent=os.getppid())
    assert subprocess.run(command, check=False).returncode == 127
    assert not made.exists()


def test_a_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    assert processes.run("echo", [SHELL, "-c", "echo hello"], folder=tmp_path) == "hello\n"
    with pytest.raises(DevstackError, match=r"the tool failed \(exit_code=2(.|\n)*no such thing"):
        processes.run("the tool", [SHELL, "-c", "echo no such thing >&2; exit 2"], folder=tmp_path)


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert log_tail(log) == ""
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert log_tail(log, 2) == "line 9998\nline 9999"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its identity")
def test_root_becomes_nobody_and_keeps_no_more_than_the_passage(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    file = closed / "file"
    file.write_text("inside")
    file.chmod(0o644)
    assert processes.unprivileged([Path("/bin/sh")]) == processes.Identity(65534, 65534)
    identity = processes.unprivileged([file])
    assert identity is not None
    said = processes.run("id", [SHELL, "-c", f"id -u; cat {file}"], identity=identity, folder=Path("/"))
    assert said == "65534\ninside"
    caps = processes.run("caps", [SHELL, "-c", "grep CapEff /proc/self/status"], identity=identity, folder=Path("/"))
    assert int(caps.split()[1], 16) == 1 << identity.capability


def test_only_processes_of_the_folder_are_waited_for_and_ended(tmp_path: Path) -> None:
    other = processes.spawn("other", [SLEEP, "60"], tmp_path / "log")
    state = {"parts": {"kafka": {"pid": other.pid}, "connect": {"pid": None}}}
    stale_processes.wait_for_end(tmp_path, state, seconds=0.2)
    assert other.alive, "its command line does not name the folder: the pid was given to another program"
    other.stop()
    ours = processes.spawn("ours", [SHELL, "-c", "trap '' TERM; sleep 60; true", str(tmp_path)], tmp_path / "log")
    shim = os.readlink("/proc/self/exe")
    # While the shim becomes the shell it has no command line for a moment.
    ours.wait_until(
        lambda: os.readlink(f"/proc/{ours.pid}/exe") != shim and stale_processes.is_ours(ours.pid, tmp_path), 5
    )
    stale_processes.wait_for_end(tmp_path, {"parts": {"kafka": {"pid": ours.pid}}}, seconds=0.2)
    # A killed process gives its command line up a moment before its exit can be read.
    assert gone(ours.pid)
    assert not ours.alive
