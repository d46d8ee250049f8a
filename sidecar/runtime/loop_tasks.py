"""Tasks that other threads leave for the loop, which does them between two turns.

Invariant: the loop's own thread does them one by one, in the order in which they were left. Whoever left one gets its result
or its error. The runtime serves; control threads ask.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimedOut
from typing import Any, TypeVar

from headrace.engine.errors import HeadraceError

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds for which a job waits for its turn."""


class LoopClosed(HeadraceError):
    """The loop takes no more jobs, or did not come to this one in time."""

    code = "control"


class LoopTaskQueue:
    """A queue of jobs. Single server: the loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._closed = False

    def ask(self, job: Callable[[], T], patience: float = PATIENCE) -> T:
        """Have the loop do `job`; its result. Raises what it raised, and LoopClosed."""
        future: Future[T] = Future()
        with self._lock:
            self.check()
            self._jobs.append((job, future))
        try:
            return future.result(patience)
        except TimedOut:
            if future.cancel():
                raise LoopClosed("the sidecar is too busy", seconds=patience, hint="ask again") from None
            return future.result()

    def check(self) -> None:
        """Raise LoopClosed once no more jobs are taken: whoever waits for the loop waits in vain."""
        if self._closed:
            raise LoopClosed("the sidecar is stopping, or begins anew", hint="ask again once it runs")

    def serve(self) -> None:
        """Do what was left so far. Called by the loop between two turns."""
        while self._jobs:
            with self._lock:
                job, future = self._jobs.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except BaseException as failure:  # whoever asked must hear of it; the loop goes on
                future.set_exception(failure)
                if not isinstance(failure, HeadraceError):
                    raise

    def close(self) -> None:
        """Take no more jobs; those that wait are refused."""
        with self._lock:
            self._closed = True
            waiting, self._jobs = self._jobs, deque()
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(LoopClosed("the sidecar is stopping", hint="ask again once it runs"))
