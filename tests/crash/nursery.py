"""Sidecars as processes of their own that start at once: forked from one that has imported everything already.

Always: a child shares nothing with its parent but memory that neither writes, and runs the command as `headrace run` does;
when the nursery ends, its children are killed. Run as `python -m tests.crash.nursery`; `Nursery` is its client.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

START_SECONDS = 180.0


def main() -> None:
    """A line {config, log, environment} in, a line {pid} out; a line {wait: pid} in, its exit code out; {ask}: None."""
    import headrace.sidecar.process.bootstrap

    headrace.sidecar.process.bootstrap.forgo("pandas")
    import headrace.sidecar.cli.app
    import headrace.sidecar.process.serve
    from headrace.engine.kernels import warm

    warm()
    codes: dict[int, int] = {}
    alive: set[int] = set()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "config" in asked:
            pid = os.fork()
            if not pid:
                _run(asked)
            codes.pop(pid, None)  # numbers come again
            alive.add(pid)
            print(pid, flush=True)
            continue
        pid = asked["of"]
        if pid not in codes:
            found, status = os.waitpid(pid, 0 if asked["wait"] else os.WNOHANG)
            if found:
                codes[pid] = os.waitstatus_to_exitcode(status)
                alive.discard(pid)
        print(json.dumps(codes.get(pid)), flush=True)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _run(asked: Mapping[str, Any]) -> None:
    """The child: the command, with its output in the log."""
    with open(asked["log"], "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(asked["environment"])
    sys.argv = ["headrace", "run", "--config", asked["config"]]
    code = 70
    try:
        from headrace.sidecar.cli import app

        app.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Nursery:
    """The client: starts sidecars, and says how they ended. Single user."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.nursery"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ready = False

    def start(self, config: Path, log: Path, environment: Mapping[str, str]) -> int:
        """A sidecar's process id."""
        if not self._ready:
            assert self._read() == "ready"
            self._ready = True
        return int(self._ask({"config": str(config), "log": str(log), "environment": dict(environment)}))

    def ended(self, pid: int) -> int | None:
        """The exit code (negative: the signal) of a sidecar that has ended, None of one that runs."""
        found: int | None = json.loads(self._ask({"of": pid, "wait": False}))
        return found

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.ended(pid) is None:
            os.kill(pid, signal.SIGKILL)
            self._ask({"of": pid, "wait": True})

    def stop(self, pid: int, seconds: float) -> int | None:
        """SIGTERM, and its exit code; None where it did not end in time."""
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + seconds
        while self.ended(pid) is None and time.monotonic() < end:
            time.sleep(0.02)
        return self.ended(pid)

    def _ask(self, body: Mapping[str, Any]) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(body) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the nursery ended"
        return line.strip()

    def close(self) -> None:
        """End it, and what it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


if __name__ == "__main__":
    main()
