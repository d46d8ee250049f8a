"""The sink writer: writes the changes of all views of one sink, whole epochs, in order, on a thread of its own.

Invariant: a sink is offered every epoch once, in order, without what it already holds. A view with live errors is marked and
left out, and given whole once it has none (decision 18). A sink that fails stops no other. The runtime waits for a writer whose
backlog has passed its bound, for a limited time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace.connectors.sink import (
    EpochStamp,
    Fenced,
    Frontier,
    Sink,
    SinkAway,
    SinkError,
    SinkState,
    SinkView,
    ViewChanges,
)
from headrace.engine.errors import InvariantBroken
from headrace.sidecar.delivery.write_backlog import Backlog, Detachment, Returned, after

Written = Callable[[str, Frontier, Mapping[int, EpochStamp], float], None]

MAX_BACKLOG_BYTES = 64 << 20
"""Bytes that may wait for one sink before the intake is slowed."""
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 60.0
"""How long a detached sink is left alone before it is opened again: doubled each time until a write succeeds."""


class SinkWriter:
    """The views of one sink: one frontier, written by one thread, at most once in `interval` seconds.

    A sink that refuses a write, does not answer, or holds the intake up for more than `limit` seconds is *detached*: the
    loop goes on without it, and it is opened again now and then (decision 18). What waited for it is kept up to
    MAX_BACKLOG_BYTES; once that is lost, or the sink may hold other rows than were written, all of its views are
    given whole when it is back. `each`: it asks for each transaction by itself.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        threaded: bool = True,
        interval: float = 0.0,
        limit: float = 60.0,
        each: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.sink = sink
        self.name, self.each = sink.name, each
        self.epoch = 0
        self.frontier: Frontier | None = None  # what the sink holds, as far as it is known
        self.detachment: Detachment | None = None
        self._written: Written = lambda *_: None
        self._rested: Callable[[], None] = lambda: None
        self._clock, self._wall = clock, wall
        self._interval, self._limit, self._pause_until = interval, limit, float("-inf")
        self._backlog = Backlog()
        self._told: dict[str, str] = {}
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._closing = self._leaving = self._shut = False
        self._writing, self._writing_bytes = False, 0
        self._views: Sequence[SinkView] | None = None
        self._generation = 0
        self._incarnation = 1
        self._returned: Returned | None = None
        self._again: Detachment | None = None
        self._thread = threading.Thread(target=self._run, name=f"sink-{self.name}", daemon=True) if threaded else None

    def on_written(self, written: Written, rested: Callable[[], None] = lambda: None) -> None:
        """Call `written(sink, frontier, stamps, seconds)` after each durable write, and `rested()` once the sink is idle after
        one, or one has failed, on the writing thread."""
        self._written, self._rested = written, rested

    def open(self, views: Sequence[SinkView]) -> SinkState:
        """Open the sink, which must answer. Raises SinkError. A sink opened otherwise is never opened again by us."""
        state = self.sink.open(views)
        self._views, self._generation, self.frontier = views, state.generation, state.frontier
        self._backlog = self._empty()
        return state

    def _empty(self) -> Backlog:
        """A backlog in which nothing waits."""
        return Backlog() if self.each else Backlog({view.name: view.schema for view in self._views or ()})

    def change(self, views: Sequence[SinkView]) -> SinkState | None:
        """Go on with other views once everything offered is written, and give what the sink says then, as `open` does. A sink
        that was set back meanwhile lacks all of them.

        None where it is detached, or now is: when it is back it is opened with these views and given all of them whole.
        Raises Fenced, and InvariantBroken while something waits to be written.
        """
        with self._changed:
            self._raise()
            if self.detachment is None and (self._writing or self._backlog.frontier is not None):
                raise InvariantBroken("the views of a sink were changed before it was drained", sink=self.name)
            self._views, self._told = views, {}
            self._backlog = self._empty() if self._backlog.frontier is None else self._backlog
            if self.detachment is not None:
                self._let_go()
                return None
        try:
            state = self.sink.open(views, self._generation)
        except Fenced as failure:
            self._failure = failure
            raise
        except SinkError as failure:
            with self._changed:
                self._detach(failure, lost=True)
            return None
        self._generation, self.frontier = state.generation, state.frontier
        at = self._found_at(state.frontier)
        if at != self.epoch:
            self.epoch, state = at, replace(state, missing=frozenset(view.name for view in views))
        return state

    def start(self, epoch: int, incarnation: int = 1) -> None:
        """Begin; the sink already holds every epoch ≤ `epoch`."""
        self.epoch, self._incarnation = epoch, incarnation
        if self._thread:
            self._thread.start()

    def set_back(self) -> None:
        """The sink holds what its sources do not tell of any more: what is offered from here on is of a new incarnation."""
        with self._changed:
            self._incarnation += 1

    @property
    def attached(self) -> bool:
        """Whether the sink takes part."""
        return self.detachment is None

    @property
    def busy(self) -> bool:
        """Whether the sink writes, or is about to: not while it pauses between two writes."""
        return self._writing or (self._backlog.frontier is not None and self._clock() >= self._pause_until)

    @property
    def backlog_bytes(self) -> int:
        """Bytes of rows that the sink does not hold yet: those that it is writing, and those that wait."""
        return self._waiting_bytes + self._writing_bytes

    @property
    def _waiting_bytes(self) -> int:
        attempted = self.detachment.attempted if self.detachment is not None else None
        return self._backlog.bytes + (attempted.bytes if attempted is not None else 0)

    def offer(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp],
        errors: Mapping[str, str] | None = None,
    ) -> None:
        """Hand over what changed up to `frontier`; blocks while the backlog is over its bound, `limit` seconds at most.

        `errors`: the state of every view at `frontier`, its error or ""; what the sink was told already is left out.
        """
        frontier = replace(frontier, incarnation=self._incarnation)
        with self._changed:
            if not self._room():
                return
            fresh = {n: c for n, c in ((n, after(c, self.epoch)) for n, c in changes.items()) if c is not None}
            marks = {} if frontier.epoch < self.epoch else self._untold(errors or {})
            if frontier.epoch <= self.epoch and not fresh and not marks:
                return
            self._told.update(marks)
            self._backlog.add(fresh, frontier, stamps, marks)
            self._changed.notify_all()
        if self._thread is None and self.detachment is None:
            self._write_once()
            self._raise()

    @property
    def lost(self) -> bool:
        """Whether the sink is detached and nothing is kept for it."""
        return self.detachment is not None and self.detachment.lost

    def _room(self) -> bool:
        """Wait for room; a sink that makes none in time is detached. Whether something may be offered.

        Who leaves waits no more: what finds no room then is not written by this run, nor is anything behind it.
        """

        def heard() -> bool:
            waits = self._backlog.bytes >= MAX_BACKLOG_BYTES
            return not waits or self._leaving or self._failure is not None or self.detachment is not None

        full = not self._changed.wait_for(heard, self._limit)
        self._raise()
        self._shut |= self._leaving and self._backlog.bytes >= MAX_BACKLOG_BYTES
        if self._shut:
            return False
        if full:
            slow = SinkAway(
                "the sink is slower than its sources", sink=self.name, seconds=self._limit,
                hint="it goes on by itself once its write is done; make it faster, or raise detach_seconds",
            )  # fmt: skip
            self._detach(slow, lost=True)
        if self.detachment is not None and self._waiting_bytes >= MAX_BACKLOG_BYTES:
            self._let_go()
        return not self.lost

    def _untold(self, errors: Mapping[str, str]) -> dict[str, str]:
        return {name: error for name, error in errors.items() if self._told.get(name) != error}

    def check(self) -> Returned | None:
        """Raise what stops the sidecar; tells once that the sink is back, and then waits for `resume`."""
        with self._changed:
            self._raise()
            due = self._thread is None and self._due()
        if due:
            self._reopen()
        with self._changed:
            self._raise()
            found, self._returned = self._returned, None
            return found

    def resume(self) -> None:
        """Take part again: what the sink lacks is offered from now on."""
        with self._changed:
            self.detachment = None
            self._told = {}
            self._changed.notify_all()
            waits = self._backlog.frontier is not None
        if self._thread is None and waits:
            self._write_once()
            self._raise()

    def drain(self, timeout: float) -> bool:
        """Wait until everything offered is written, and tell whether it is. A detached sink is not waited for."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: (
                    (self._backlog.frontier is None and not self._writing)
                    or self._failure is not None
                    or self.detachment is not None
                ),
                timeout,
            )
            self._raise()
            return done and self.detachment is None

    def leave(self) -> None:
        """The loop is to end: whoever waits for room waits no more. Called by any thread."""
        with self._changed:
            self._leaving = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the thread after the write in flight, then the sink."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread and self._thread.is_alive():
            self._thread.join(timeout=30)
        self.sink.close()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _due(self) -> bool:
        """Whether the sink is to be opened again now."""
        detachment = self.detachment
        if detachment is None or detachment.back or self._writing:
            return False
        return self._clock() >= detachment.next_try

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:  # whatever it is, the loop must hear of it: this thread is gone
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, None if self.detachment is None else RETRY_SECONDS)
                pause = self._pause_until - self._clock()
                if pause > 0 and self.detachment is None:
                    self._changed.wait_for(lambda: self._closing, pause)
                if self._closing or self._failure is not None:
                    return
                due, ready = self._due(), self.detachment is None and self._backlog.frontier is not None
            if due:
                self._reopen()
            elif ready:
                self._pause_until = self._clock() + self._interval
                self._write_once()

    def _has_work(self) -> bool:
        return self._closing or self._due() or (self.detachment is None and self._backlog.frontier is not None)

    def _write_once(self) -> None:
        with self._changed:
            backlog = self._backlog
            if backlog.frontier is None:  # the sink was detached meanwhile
                return
            self._backlog, self._writing, self._writing_bytes = self._empty(), True, backlog.bytes
        started = self._clock()
        try:
            self.sink.write(backlog.merged(), backlog.frontier, backlog.stamps, backlog.errors)
        except BaseException as failure:  # whatever it is, the loop must hear of it
            self._failed(failure, backlog)
            return
        self._written(self.name, backlog.frontier, backlog.stamps, self._clock() - started)
        with self._changed:
            self.epoch, self.frontier = max(self.epoch, backlog.frontier.epoch), backlog.frontier
            self._writing, self._writing_bytes = False, 0
            self._again = None
            if self.detachment is not None:  # slow, and now done: nothing need be opened again
                self.detachment.back = True
                self._returned = Returned(SinkState(self._generation, backlog.frontier, frozenset()), lost=True)
            self._changed.notify_all()
        self._rested()

    def _failed(self, failure: BaseException, backlog: Backlog) -> None:
        with self._changed:
            self._writing, self._writing_bytes = False, 0
            if self._views is None or not isinstance(failure, SinkError) or isinstance(failure, Fenced):
                self._failure = failure
            else:
                self._detach(failure, lost=not isinstance(failure, SinkAway) or self.lost, attempted=backlog)
            self._changed.notify_all()
        self._rested()

    def _detach(self, error: SinkError, *, lost: bool, attempted: Backlog | None = None) -> None:
        """The loop goes on without the sink. With the lock held."""
        again = self._again or Detachment(error, self._wall())
        self.detachment = self._again = replace(again, error=error, lost=lost, back=False, attempted=attempted)
        self._plan_try()
        if lost:
            self._let_go()
        self._changed.notify_all()

    def _let_go(self) -> None:
        """Drop what waits: the sink will be given its views whole."""
        assert self.detachment is not None, "only of a detached sink"
        self.detachment.lost, self.detachment.attempted, self._backlog = True, None, self._empty()

    def _plan_try(self) -> None:
        assert self.detachment is not None, "only of a detached sink"
        self.detachment.next_try = self._clock() + min(RETRY_SECONDS * 2**self.detachment.tries, LONGEST_RETRY_SECONDS)
        self.detachment.tries = min(self.detachment.tries + 1, 16)

    def _reopen(self) -> None:
        """Try to open a detached sink; what it lacks then is left to the loop."""
        detachment, views = self.detachment, self._views
        assert detachment is not None, "only a detached sink is opened again"
        assert views is not None, "only a sink that the group opened is detached"
        try:
            state = self.sink.open(views, self._generation)
        except BaseException as failure:  # whatever it is, the loop must hear of it
            with self._changed:
                if isinstance(failure, SinkError) and not isinstance(failure, Fenced):
                    detachment.error = failure
                    self._plan_try()
                else:
                    self._failure = failure
                self._changed.notify_all()
            return
        with self._changed:
            self._generation = state.generation
            if views is not self._views:  # they were changed meanwhile
                detachment.next_try = self._clock()
                return
            self._stand_at(state.frontier, detachment)
            self.frontier = state.frontier
            detachment.back = True
            self._returned = Returned(state, detachment.lost)
            self._changed.notify_all()

    def _stand_at(self, frontier: Frontier | None, detachment: Detachment) -> None:
        """Keep of the backlog what the sink lacks by its frontier now, if that can be told."""
        at, attempted = self._found_at(frontier), detachment.attempted
        if at == self.epoch and attempted is not None:
            self._backlog = attempted.before(self._backlog)
        elif at != self.epoch and (attempted is None or attempted.frontier is None or at != attempted.frontier.epoch):
            self._let_go()
        detachment.attempted = None
        self.epoch = at

    def _found_at(self, frontier: Frontier | None) -> int:
        """The epoch at which the sink was found; one that went back begins a new incarnation."""
        at = 0 if frontier is None else frontier.epoch
        if at < self.epoch:
            self._incarnation = max(self._incarnation, frontier.incarnation if frontier else 0) + 1
        return at
