"""Commands of `headrace` as processes of their own that start at once: forked from one that has imported everything already.

Always: a child shares nothing with its parent but memory that neither writes, and runs the command as a shell would have it;
when the nursery ends, its children are killed. Run as `python -m tests.sidecar.support.nursery`; `Nursery` is its client.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any


def main() -> None:
    """A line {words, out, err, environment, folder} in, a line pid out; a line {of: pid} in, its exit code out, or null."""
    import headrace.sidecar.process.bootstrap

    headrace.sidecar.process.bootstrap.forgo("pandas")
    import headrace.sidecar.cli.app
    import headrace.sidecar.process.serve
    from headrace.engine.kernels import warm

    warm()
    gc.freeze()
    codes: dict[int, int] = {}
    alive: set[int] = set()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "words" in asked:
            pid = os.fork()
            if not pid:
                _run(asked)
            codes.pop(pid, None)  # numbers come again
            alive.add(pid)
            print(pid, flush=True)
            continue
        pid = asked["of"]
        if pid not in codes:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                codes[pid] = os.waitstatus_to_exitcode(status)
                alive.discard(pid)
        print(json.dumps(codes.get(pid)), flush=True)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _run(asked: Mapping[str, Any]) -> None:
    """The child: the command, with its output in the files."""
    for number, path in ((1, asked["out"]), (2, asked["err"])):
        with open(path, "ab") as file:
            os.dup2(file.fileno(), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = ["headrace", *asked["words"]]
    code = 70
    try:
        from headrace.sidecar.cli import app

        app.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Nursery:
    """The client: starts commands, and says how they ended."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.sidecar.support.nursery"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ready = False
        self._one = threading.Lock()

    def launch(
        self, words: Sequence[str], out: Path, err: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Forked:
        """A command, which appends what it says to `out` and `err` (the same unless named)."""
        told = {
            "words": [*words], "out": str(out.absolute()), "err": str((err or out).absolute()),
            "environment": dict(os.environ if environment is None else environment), "folder": str(Path.cwd()),
        }  # fmt: skip
        return Forked(self, int(self._ask(told)))

    def start(self, config: Path, log: Path, environment: Mapping[str, str]) -> int:
        """A sidecar's process id; `environment`: beside our own."""
        return self.launch(["run", "--config", str(config)], log, environment={**os.environ, **environment}).pid

    def ended(self, pid: int) -> int | None:
        """The exit code (negative: the signal) of a process that has ended, None of one that runs."""
        found: int | None = json.loads(self._ask({"of": pid}))
        return found

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.ended(pid) is None:
            os.kill(pid, signal.SIGKILL)
            self.await_end(pid, None)

    def stop(self, pid: int, seconds: float) -> int | None:
        """SIGTERM, and its exit code; None where it did not end in time."""
        os.kill(pid, signal.SIGTERM)
        return self.await_end(pid, seconds)

    def await_end(self, pid: int, seconds: float | None) -> int | None:
        """Its exit code once it has ended; None where it has not in time."""
        with suppress(ProcessLookupError):  # it has ended, and the nursery knows how
            process = os.pidfd_open(pid)
            try:
                select.select([process], [], [], seconds)
            finally:
                os.close(process)
        return self.ended(pid)

    def _ask(self, body: Mapping[str, Any]) -> str:
        assert self._process.stdin is not None
        with self._one:
            if not self._ready:
                assert self._read() == "ready"
                self._ready = True
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


class Forked:
    """A process of a nursery, as `subprocess.Popen` would have it."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        if self.returncode is None:
            self.returncode = self._nursery.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Its exit code. Raises TimeoutExpired."""
        if self.poll() is None:
            self.returncode = self._nursery.await_end(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """As Popen does: nothing where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


@cache
def nursery() -> Nursery:
    """The one of this process, which ends with it."""
    made = Nursery()
    atexit.register(made.close)
    return made


if __name__ == "__main__":
    main()
