"""Child processes of the embedded stack: started with their life tied to ours, watched, and stopped by their id.

It always holds that a child ends when the thread that spawned it ends (so spawn only from the main thread), that its
output goes to a log file, and that an error about it quotes the end of that log. Called by each embedded part.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.engine.errors import InvariantBroken
from headrace.sidecar.devstack.errors import DevstackError, log_tail

_SHIM = Path(__file__).with_name("exec_shim.py")
_POLL_SECONDS = 0.01
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2


@dataclass(frozen=True)
class Identity:
    """The user a child runs as; `capability` is a Linux capability it keeps (-1 for none)."""

    uid: int
    gid: int
    capability: int = -1


def unprivileged(paths: Sequence[Path]) -> Identity | None:
    """Who runs a server that refuses root: None (ourselves) unless we are root, else `nobody`.

    Where one of `paths` lies below a folder closed to others (root's home, pytest's temporary folders), the identity
    keeps the right to pass through folders, and no other right of root's.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
        uid, gid = entry.pw_uid, entry.pw_gid
    except KeyError:
        uid, gid = 65534, 65534
    if all(_open_to_others(path) for path in paths):
        return Identity(uid, gid)
    return Identity(uid, gid, _passage_capability())


def _open_to_others(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


def _passage_capability() -> int:
    """The weaker one of the two rights that open closed folders, of those this process has itself."""
    held = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
    for capability in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE):
        if held >> capability & 1:
            return capability
    return -1


def shim(
    command: Sequence[str | Path], *, death: signal.Signals, parent: int, identity: Identity | None = None
) -> list[str]:
    """The command line that runs `command` (its first word an absolute path) through the shim `exec_shim.py`."""
    line = [sys.executable, "-I", "-S", str(_SHIM), "--parent", str(parent), "--death", str(int(death))]
    if identity is not None:
        line += ["--uid", str(identity.uid), "--gid", str(identity.gid), "--capability", str(identity.capability)]
    return [*line, "--", *(str(word) for word in command)]


class Child:
    """One running server. The object that spawned it is the only one that stops it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, farewell: signal.Signals) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._farewell = farewell

    @property
    def pid(self) -> int:
        """The server's process id: the shim replaces itself by the server, so that there is no process between."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def check_alive(self) -> None:
        """Raise DevstackError with the log's tail if the server has ended."""
        code = self._process.poll()
        if code is not None:
            raise DevstackError(
                f"{self.name} ended by itself",
                exit_code=code,
                log=self.log,
                hint=f"the end of its log says:\n{log_tail(self.log)}",
            )

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Poll `ready` until it holds; DevstackError when the server ends first or `seconds` pass."""
        end = time.monotonic() + seconds
        while not ready():
            self.check_alive()
            if time.monotonic() > end:
                raise DevstackError(
                    f"{self.name} was not ready in {seconds:g} seconds",
                    log=self.log,
                    hint=f"the end of its log says:\n{log_tail(self.log)}",
                )
            time.sleep(_POLL_SECONDS)

    def farewell(self) -> None:
        """Ask it to end, without waiting."""
        if self.alive:
            self._process.send_signal(self._farewell)

    def stop(self, seconds: float = 10.0) -> None:
        """Ask it to end, wait up to `seconds`, then kill it. Idempotent; returns with the process reaped."""
        self.farewell()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL) and reap it."""
        self._process.kill()
        self._process.wait()


def spawn(
    name: str,
    command: Sequence[str | Path],
    log: Path,
    *,
    farewell: signal.Signals = signal.SIGTERM,
    death: signal.Signals | None = None,
    identity: Identity | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Child:
    """Start `command` as a child named `name`, its output appended to `log`; `farewell` is how it is asked to end.

    `death` is what the kernel sends it when we are gone; None: the farewell.
    Must be called from the main thread: the kernel ends the child together with the thread that spawned it.
    """
    if threading.current_thread() is not threading.main_thread():
        raise InvariantBroken("an embedded server must be spawned from the main thread", part=name)
    with log.open("ab") as output:
        process = subprocess.Popen(
            shim(command, death=death or farewell, parent=os.getpid(), identity=identity),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=None if environment is None else dict(environment),
            start_new_session=True,  # a Ctrl-C in the terminal reaches us alone: we decide who ends in what order
        )
    return Child(name, process, log, farewell)


def run(what: str, command: Sequence[str | Path], *, identity: Identity | None = None, folder: Path) -> str:
    """Run a short-lived tool to its end and return its output; DevstackError with that output when it fails."""
    done = subprocess.run(
        shim(command, death=signal.SIGTERM, parent=os.getpid(), identity=identity),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        raise DevstackError(f"{what} failed", exit_code=done.returncode, hint=f"it said:\n{done.stdout.strip()}")
    return done.stdout
