"""Servers of a run whose owner was killed: they are ending by themselves, and a new run waits until they have.

It always holds that only processes whose own command line names the stack's folder are waited for or ended, so that a
pid the system has given to another program meanwhile is left alone. Called by the stack before it starts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.02


def is_ours(pid: int, folder: Path) -> bool:
    """Whether process `pid` runs and was started for `folder`."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended, or ends while we look
        return False
    return any(os.fsencode(folder) in word for word in words)


def wait_for_end(folder: Path, state: Mapping[str, Any] | None, seconds: float = _PATIENCE_SECONDS) -> None:
    """Return when no server that `state` names runs for `folder` any more; what has not ended by then is killed.

    `state` is what the killed owner wrote (None: it wrote nothing); `seconds` how long its servers are given.
    """
    pids = [part["pid"] for part in state["parts"].values() if part["pid"] is not None] if state else []
    end = time.monotonic() + seconds
    while left := [pid for pid in pids if is_ours(pid, folder)]:
        if time.monotonic() > end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            end += seconds
        time.sleep(_POLL_SECONDS)
