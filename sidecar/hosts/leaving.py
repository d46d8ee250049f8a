"""How a run leaves when it is told to: at once while it starts, drained while it serves, and in time whatever hangs.

Always: from the first SIGTERM or SIGINT on the process is gone within the seconds it was given, with 0: a run may end at any
instant, and what it did not write is written by the next one. A second signal ends it at once. A thread listens, since the
main one may hang in a server's or a disk's answer. Made by the command before anything else is loaded; the host says what
to stop.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable

from sidecar.hosts.say import say

DRAINING = 0.8
"""The share of the time that the sinks and the last checkpoint have; the rest is for closing."""
_ENDING = (signal.SIGTERM, signal.SIGINT)


class Leaving:
    """Owned by the process. `exit`: ends it as it stands."""

    def __init__(self, *, as_json: bool = False, exit: Callable[[int], object] = os._exit) -> None:
        self._as_json, self._exit = as_json, exit
        self._lock = threading.Lock()
        self._stop: tuple[Callable[[float], None], float] | None = None
        self._here, self._there = socket.socketpair()

    def listen(self) -> None:
        """Hear signals from here on. On the main thread."""
        self._there.setblocking(False)
        signal.set_wakeup_fd(self._there.fileno(), warn_on_full_buffer=False)
        for number in _ENDING:
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._hear, name="leaving", daemon=True).start()

    def serve(self, stop: Callable[[float], None], seconds: float) -> None:
        """From here on there is something to drain: `stop` asks it to, within the time it is told, and returns at once.

        `seconds`: how long leaving may take in all.
        """
        with self._lock:
            self._stop = stop, seconds

    def _hear(self) -> None:
        self._next(None)
        with self._lock:
            if self._stop is None:
                say(self._as_json, event="stopped", why="told to while it started: there is nothing to drain")
                self._exit(0)
                return
        stop, seconds = self._stop
        end = time.monotonic() + seconds
        stop(seconds * DRAINING)
        again = self._next(end)
        if again is None:
            say(self._as_json, event="cut off", seconds=seconds,
                why="something hangs; what was not written is written by the next start")  # fmt: skip
        self._exit(0 if again is None else 128 + again)

    def _next(self, end: float | None) -> int | None:
        """The next signal that is to end us; None where none came before `end`."""
        while True:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._here.settimeout(left)
            try:
                (number,) = self._here.recv(1)  # one at a time: a second signal may be there already
            except TimeoutError:
                return None
            if number in _ENDING:
                return int(number)
