"""What `headrace dev up|down|status` do, as plain functions without any printing; and the supervisor of `up --detach`.

It always holds that one process owns a stack and its servers end with it: in the foreground that is the command itself,
detached it is this module run as a program (`python -m headrace.sidecar.devstack.cli FOLDER`). Called by
headrace.sidecar.cli.app.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.errors import DevstackError, log_tail
from headrace.sidecar.devstack.stack import Stack, owner_pid, read_state
from headrace.sidecar.devstack.stale_processes import is_ours

_WATCH_SECONDS = 0.5
_POLL_SECONDS = 0.05
_DETACH_SECONDS = 300.0  # the first start ever fetches the jars
_DOWN_SECONDS = 30.0


# supervisors this process has started: kept, as a forgotten Popen of a running process is reported as a leak
_supervisors: list[subprocess.Popen[bytes]] = []


def up(
    folder: Path, *, detach: bool = False, spark: bool = False, ready: Callable[[dict[str, Any]], None] | None = None
) -> None:
    """Run a stack in `folder` until SIGINT or SIGTERM; with `detach` return as soon as a supervisor has it running.

    `spark`: with a standalone Spark.

    `ready` is called once, with `status(folder)`, when all parts are up. DevstackError when a part cannot be started,
    or ends by itself later, and when another process runs a stack in `folder` already.
    """
    if detach:
        _detach(folder, spark=spark)
        if ready is not None:
            ready(status(folder))
        return
    with _end_signal() as ended, Stack(folder, spark=spark) as stack:
        ended.starting = False
        if ready is not None:
            ready(status(folder))
        while not ended.event.wait(_WATCH_SECONDS):
            stack.check_alive()


def down(folder: Path, seconds: float = _DOWN_SECONDS) -> bool:
    """End the stack that runs in `folder`, whoever started it; False where none runs.

    DevstackError when its owner has not ended after `seconds`.
    """
    folder = folder.resolve()
    owner, state = owner_pid(folder), read_state(folder)
    if owner is None:
        return False
    os.kill(owner, signal.SIGTERM)
    parts = state["parts"].values() if state is not None else ()
    end = time.monotonic() + seconds
    while owner_pid(folder) == owner or any(_runs(part, folder) for part in parts):
        if time.monotonic() > end:
            raise DevstackError(
                f"the stack's owner did not end it in {seconds:g} seconds",
                pid=owner,
                folder=folder,
                hint="kill -9 the pid: its servers end with it",
            )
        time.sleep(_POLL_SECONDS)
    _supervisors[:] = [supervisor for supervisor in _supervisors if supervisor.poll() is None]
    return True


def status(folder: Path) -> dict[str, Any]:
    """What runs in `folder`, as JSON values.

    `running`, `ready`, `folder`; where something runs also `pid` (of the owner), `uptime_seconds`, the addresses
    `postgres` (host, port, user, password_file), `kafka` (bootstrap.servers), `connect` (URL), `spark` (master)
    where it runs, `memory_mb` of all, and
    `parts`: name → pid, port, log, running, memory_mb (proportional set size: shared pages are counted once).
    """
    folder = folder.resolve()
    state = read_state(folder)
    if state is None or owner_pid(folder) is None:
        return {"running": False, "ready": False, "folder": str(folder)}
    parts = {}
    for name, part in state["parts"].items():
        running = _runs(part, folder)
        parts[name] = {**part, "running": running, "memory_mb": memory_mb(part["pid"]) if running else 0.0}
    numbers = {name: part["port"] for name, part in parts.items()}
    spark = {"spark": f"spark://{ports.HOST}:{numbers['spark']}"} if "spark" in numbers else {}
    return {
        "running": True,
        "ready": state["ready"] and all(part["running"] for part in parts.values()),
        "folder": str(folder),
        "pid": state["pid"],
        "uptime_seconds": round(time.time() - state["started"], 1),
        "postgres": {
            "host": ports.HOST,
            "port": numbers["postgres"],
            "user": "postgres",
            "password_file": str(folder / "postgres.password"),
        },
        "kafka": f"{ports.HOST}:{numbers['kafka']}",
        "connect": f"http://{ports.HOST}:{numbers['connect']}",
        **spark,
        "memory_mb": round(sum(part["memory_mb"] for part in parts.values()), 1),
        "parts": parts,
    }


def memory_mb(pid: int) -> float:
    """The proportional set size of process `pid` and everything below it, in MB; 0 where it has ended."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_full_info().pss
    return round(total / 1e6, 1)


def _runs(part: dict[str, Any], folder: Path) -> bool:
    return part["pid"] is not None and is_ours(part["pid"], folder)


class _Ended:
    """Set by the first signal. Before the stack is up a signal raises KeyboardInterrupt instead of waiting for it."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.starting = True

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        again = self.event.is_set()
        self.event.set()
        if self.starting and not again:
            raise SystemExit(0)


@contextlib.contextmanager
def _end_signal() -> Iterator[_Ended]:
    ended = _Ended()
    before = {number: signal.signal(number, ended.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _detach(folder: Path, *, spark: bool) -> None:
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "supervisor.log"
    with log.open("wb") as output:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "headrace.sidecar.devstack.cli", str(folder), *(["--spark"] if spark else [])],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _supervisors.append(supervisor)
    end = time.monotonic() + _DETACH_SECONDS
    while True:
        state = read_state(folder)
        if state is not None and state["pid"] == supervisor.pid and state["ready"]:
            return
        if supervisor.poll() is not None:
            raise DevstackError("the embedded stack did not start", log=log, hint=log_tail(log))
        if time.monotonic() > end:
            supervisor.terminate()
            raise DevstackError("the embedded stack did not start in time", log=log, hint=log_tail(log))
        time.sleep(_POLL_SECONDS)


def main() -> None:
    """The supervisor: run the stack in the folder named by the first argument, with Spark where `--spark` follows.

    An error is the log's last line.
    """
    try:
        up(Path(sys.argv[1]), spark="--spark" in sys.argv[2:])
    except DevstackError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
