"""A sidecar as a process of a test: started, asked, killed, and waited for while it must not end. It is forked from a process
that has imported everything, so that a test does not wait for imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.sidecar.devstack.ports import pick
from tests.canary import Canary
from tests.sidecar.support.nursery import Forked, nursery

PATIENCE = 240.0


class Sidecar:
    """Its configuration is `headrace.yaml` in `folder`, which must name `http`; its log stands beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "headrace.yaml"
        self.http = f"127.0.0.1:{pick(1)[0]}"
        self.process: Forked | subprocess.Popen[bytes] | None = None
        self._started: list[Forked | subprocess.Popen[bytes]] = []
        self.module = ""
        self.canary = Canary()

    def start(self, *, wait: bool = True) -> Forked | subprocess.Popen[bytes]:
        """`module`: what is run instead of the command, as a process that begins with nothing imported."""
        words, log = ["run", "--config", str(self.config)], self.folder / "sidecar.log"
        if self.module:
            with log.open("ab") as out:
                line = [sys.executable, "-m", self.module, *words]
                self.process = subprocess.Popen(line, stdout=out, stderr=out, env=dict(os.environ))
        else:
            self.process = nursery().launch(words, log)
        self._started.append(self.process)
        if wait:
            self.until(lambda: self.get("/readyz") is not None, "the sidecar is ready")
        return self.process

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def log(self) -> str:
        return (self.folder / "sidecar.log").read_text()

    def get(self, path: str) -> bytes | None:
        with suppress(OSError), urllib.request.urlopen(f"http://{self.http}{path}", timeout=5) as answer:
            found: bytes = answer.read()
            self.canary.look(found, path)
            return found
        return None

    def status(self) -> dict[str, Any]:
        found = self.get("/status")
        assert found is not None
        body: dict[str, Any] = json.loads(found)
        return body

    def until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(
                    f"the sidecar ended with {self.process.returncode} before {what}: {self.log()[-3000:]}"
                )
            assert time.monotonic() < end, f"not in time: {what}: {self.log()[-3000:]}"
            time.sleep(0.05)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of `headrace` over this configuration; no password stands in what it says."""
        line = [*words, "--config", str(self.config)]
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            code = nursery().launch(line, out, err).wait(PATIENCE)
            told = subprocess.CompletedProcess(line, code, out.read_text(), err.read_text())
        self.canary.look(f"{told.stdout} {told.stderr}".encode(), f"headrace {words[0]}")
        return told

    def command_json(self, *words: str) -> dict[str, Any]:
        """The same with `--json`: what it says, and its exit `code`."""
        told = self.command(*words, "--json")
        body: dict[str, Any] = json.loads(told.stdout)
        return body | {"code": told.returncode}

    def in_error(self) -> set[str]:
        """The views that stand still."""
        return {v["name"] for v in self.status()["views"] if v["errors"]}

    def end(self) -> None:
        """Killed where it runs, after all that it answers was looked at; and so are those that were started before it."""
        if self.process is not None and self.process.poll() is None:
            for path in ("/status", "/metrics", "/readyz", "/healthz"):
                self.get(path)
        for process in self._started:
            process.kill()
            process.wait(10)


def wait(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Until it holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)
