"""Shutdown: ends a run in time, at once while it starts, drained while it serves.

Invariant: after the first SIGTERM or SIGINT the process is gone within the seconds it was given, with 0; what it did not
write is written by the next run. A second signal ends it at once. A thread listens, as the main one may hang in the answer of
a server or a disk. The command makes it before anything else is loaded.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable

from headrace.sidecar.process.event_log import say

DRAINING = 0.8
"""The share of the time that the sinks and the last checkpoint have; the rest is for closing."""
_ENDING = (signal.SIGTERM, signal.SIGINT)


class ShutdownDeadline:
    """Owned by the process. `exit`: ends it as it stands."""

    def __init__(self, *, exit: Callable[[int], object] = os._exit) -> None:
        self._exit = exit
        self._lock = threading.Lock()
        self._stop: tuple[Callable[[float], None], float] | None = None
        self._here, self._there = socket.socketpair()

    def listen(self) -> None:
        """Hear signals from here on. On the main thread."""
        self._there.setblocking(False)
        signal.set_wakeup_fd(self._there.fileno(), warn_on_full_buffer=False)
        for number in _ENDING:
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._hear, name="shutdown", daemon=True).start()

    def serve(self, stop: Callable[[float], None], seconds: float) -> None:
        """From here on there is something to drain: `stop(seconds)` asks for that within a time, and returns at once.

        `seconds`: how long the shutdown may take in all.
        """
        with self._lock:
            self._stop = stop, seconds

    def starts_anew(self) -> None:
        """There is nothing to drain, until the next `serve`."""
        with self._lock:
            self._stop = None

    def _hear(self) -> None:
        self._next(None)
        with self._lock:
            if self._stop is None:
                say("stopped", why="told to while it started: there is nothing to drain")
                self._exit(0)
                return
        stop, seconds = self._stop
        end = time.monotonic() + seconds
        stop(seconds * DRAINING)
        again = self._next(end)
        if again is None:
            say("cut_off", seconds=seconds, why="something hangs; what was not written is written by the next start")
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
