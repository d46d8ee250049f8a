"""Deaths on purpose: `HEADRACE_FAILPOINT=STEP:N` ends the process by SIGKILL when a durable step is reached the Nth time,
`STEP:N:stop` freezes it there by SIGSTOP, and `STEP:N:hang` keeps the thread that reached it, as a server or a disk does that
never answers.

Always: wiring reads the variable once; where it is not set, every part calls a function that does nothing. `STEPS` lists
every step that a part announces; another name is refused. Called by wiring; used by tests/crash.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping

from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.errors import HeadraceError

VARIABLE = "HEADRACE_FAILPOINT"

STEPS = (
    "generation taken", "generation linked", "generation copied", "generation ready", "generation swept",
    "injected", "reclock append", "reclock written", "reclock synced", "reclock trimmed", "reclock replaced",
    "range stepped",
    "batch written", "batch named", "manifest written", "manifest named", "checkpoint swept", "offsets committed",
    "postgres claim", "postgres claimed", "postgres write", "postgres moved", "postgres applied", "postgres committed",
    "kafka fenced", "kafka claimed", "kafka begun", "kafka sent", "kafka flushed", "kafka committed",
)  # fmt: skip
"""In the order in which a run reaches them first; a name ending in a past participle comes after what it names."""
_SIGNALS = {"": signal.SIGKILL, "stop": signal.SIGSTOP, "hang": None}


class FailpointError(HeadraceError):
    """The failpoint that the environment names is none."""

    code = "config"


def failpoints(environment: Mapping[str, str]) -> Reached:
    """What parts are to tell of their steps. Raises FailpointError."""
    wanted = environment.get(VARIABLE, "")
    if not wanted:
        return unwatched
    step, count, how = (*wanted.split(":"), "", "")[:3]
    if step not in STEPS or not (count or "1").isdecimal() or wanted.count(":") > 2 or how not in _SIGNALS:
        hint = "STEP:N, STEP:N:stop or STEP:N:hang, " + ", ".join(STEPS)
        raise FailpointError("no such failpoint", variable=VARIABLE, value=wanted, hint=hint)
    return _signal_at(step, int(count or "1"), _SIGNALS[how])


def _signal_at(step: str, count: int, number: signal.Signals | None) -> Reached:
    left, lock = itertools.count(1), threading.Lock()

    def reached(name: str) -> None:
        if name == step:
            with lock:
                last = next(left) == count
            if last and number is None:
                sys.stderr.write(f"failpoint: hangs at {step}\n")
                while True:
                    time.sleep(60)
            elif last and number is not None:
                os.kill(os.getpid(), number)

    return reached
