"""A thread of a sidecar that asks its loop for things and waits, as `apply` does, as the simulator has it: it runs only while the
scheduler lets it, and wherever it waits, or stands at a door of its own, everybody else may go on.

Always: exactly one of all threads runs, so that a life is the same each time; that of a dead process is unwound, and reaches
nothing while it is. The simulator patches `Asked` in for the future of the desk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.sim.process import Killed, Process


class Strand:
    """`work`: what the thread does. `waits`: whether there is nothing that it could do now."""

    def __init__(self, process: Process, work: Callable[[], None]) -> None:
        self.process, self._work = process, work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="strand", daemon=True)
        self._running = self.done = False
        self._depth = 0
        self._failure: BaseException | None = None
        self.waits: Callable[[], bool] = lambda: False

    @property
    def idle(self) -> bool:
        """Whether it cannot go on now."""
        return self._running or self.done or self.waits()

    def run(self) -> None:
        """Let it go on until it waits. Raises what it raised."""
        self._running, self._depth = True, len(self.process.world.current)
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()
        self._running = False
        if self.done:
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:  # the scheduler hears of it
            self._failure = failure
        self.done = True
        self._back.release()

    @property
    def here(self) -> bool:
        """Whether it is what runs now, and nobody else in its place."""
        mine = threading.current_thread() is self._thread
        return mine and len(self.process.world.current) == self._depth

    def pause(self) -> None:
        """Let others go on; called by it. Raises Killed."""
        assert self.here, "only what runs can let others go on"
        if self.process.dead:
            raise Killed
        self._back.release()
        self._go.acquire()
        if self.process.dead:
            raise Killed

    def end(self) -> None:
        """Its process is dead: unwind it, unless that is under way."""
        if self._running or self.done or self._thread.ident is None:
            return
        try:
            self.run()
        except Killed:
            return


class Alone:
    """A lock of the process's loop and its strands: the loop lets a strand that holds it go on. `here`: the strand that runs."""

    def __init__(self, here: Callable[[], Strand | None]) -> None:
        self._here = here
        self._held = False
        self._by: Strand | None = None

    def __enter__(self) -> None:
        here = self._here()
        while self._held:
            if here is None:
                assert self._by is not None, "the loop does not wait for itself"
                self._by.run()
            else:
                here.waits = lambda: self._held
                here.pause()
                here.waits = lambda: False
        self._held, self._by = True, here

    def __exit__(self, *_: object) -> None:
        self._held, self._by = False, None


class Asked(Future[Any]):
    """What a strand asked the loop for: it waits, and lets others go on, until the loop has done that or time is up."""

    def __init__(self, strand: Strand | None) -> None:
        super().__init__()
        self._strand = strand

    def result(self, timeout: float | None = None) -> Any:
        strand = self._strand
        if strand is not None:
            world = strand.process.world
            until = None if timeout is None else world.clock + timeout
            late = lambda: until is not None and world.clock >= until  # noqa: E731
            strand.waits = lambda: not (self.done() or late())
            while strand.waits():
                strand.pause()
            strand.waits = lambda: False
        return super().result(0)
