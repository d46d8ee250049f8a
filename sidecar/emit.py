"""From outputs to sinks: what each view changed goes to its sinks as one group a sink, whole epochs, in order.

Always: a sink is offered every epoch once and in order; what it already holds is left out; a view with live errors leaves
its groups, marked, and comes back whole when mended (DECISIONS.md 18). A group writes on a thread of its own, so that a
slow sink delays no other; the runtime waits once a group's backlog passes its bound.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from connectors.sink import EpochStamp, Frontier, Sink, SinkView, ViewChanges
from engine.batch.updates import Updates
from engine.dataflow import Output

Written = Callable[[str, Frontier, Mapping[int, EpochStamp], float], None]

MAX_BACKLOG_BYTES = 64 << 20
"""Bytes that may wait for one sink before the intake is slowed."""


@dataclass
class ViewState:
    """A running view: its output and the errors that live in it now. Single writer: the runtime."""

    view: SinkView
    output: Output
    sinks: tuple[str, ...]
    errors: dict[str, int] = field(default_factory=dict)
    mended: bool = False
    frontier: int = 0

    @property
    def error(self) -> str:
        """The first of the live errors, in order of their messages; "" where there is none."""
        return min(self.errors, default="")

    def take(self) -> ViewChanges | None:
        """What changed since the last take; None where nothing did or the view is in error."""
        rows, errors = self.output.take()
        was = bool(self.errors)
        if len(errors):
            self._count(errors)
        self.mended = was and not self.errors
        if self.errors or self.mended or not len(rows):
            return None
        return ViewChanges(rows.rows, rows.times, rows.diffs)

    def _count(self, errors: Updates) -> None:
        for text, diff in zip(errors.rows.column(0).to_pylist(), errors.diffs.tolist(), strict=True):
            left = self.errors.get(text, 0) + diff
            if left:
                self.errors[text] = left
            else:
                self.errors.pop(text, None)

    def recount(self, epoch: int) -> None:
        """Count the errors alive at `epoch` from the engine's state: for a view that no checkpoint knew."""
        self._count(self.output.snapshot(epoch)[1])

    def whole(self, epoch: int) -> ViewChanges | None:
        """The view's whole content at `epoch`, to replace what a sink holds; None where it is in error after all."""
        rows, errors = self.output.snapshot(epoch)
        if len(errors):
            self._count(errors)
            return None
        return ViewChanges(rows.rows, np.full(len(rows), epoch, np.int64), rows.diffs, whole=True)


@dataclass
class _Backlog:
    changes: dict[str, list[ViewChanges]] = field(default_factory=dict)
    stamps: dict[int, EpochStamp] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    frontier: Frontier | None = None
    bytes: int = 0

    def add(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp],
        errors: Mapping[str, str],
    ) -> None:
        for name, change in changes.items():
            if change.whole:
                self.changes[name] = [change]
            else:
                self.changes.setdefault(name, []).append(change)
            self.bytes += change.rows.nbytes
        self.stamps.update(stamps)
        self.errors.update(errors)
        self.frontier = frontier

    def merged(self) -> dict[str, ViewChanges]:
        return {name: _merge(parts) for name, parts in self.changes.items()}


def _merge(parts: Sequence[ViewChanges]) -> ViewChanges:
    if len(parts) == 1:
        return parts[0]
    return ViewChanges(
        pa.concat_batches([p.rows for p in parts]),
        np.concatenate([p.epochs for p in parts]),
        np.concatenate([p.diffs for p in parts]),
        whole=parts[0].whole,
    )


class Group:
    """The views of one sink: one frontier, written by one thread, at most once in `interval` seconds."""

    def __init__(
        self,
        sink: Sink,
        *,
        threaded: bool = True,
        interval: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.sink = sink
        self.name = sink.name
        self.epoch = 0
        self._written: Written = lambda *_: None
        self._clock = clock
        self._interval = interval
        self._backlog = _Backlog()
        self._told: dict[str, str] = {}
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._closing = False
        self._writing = False
        self._thread = threading.Thread(target=self._run, name=f"sink-{self.name}", daemon=True) if threaded else None

    def on_written(self, written: Written) -> None:
        """Call `written(sink, frontier, stamps, seconds)` after each durable write, on the writing thread."""
        self._written = written

    def start(self, epoch: int) -> None:
        """Begin; the sink already holds every epoch ≤ `epoch`."""
        self.epoch = epoch
        if self._thread:
            self._thread.start()

    def offer(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp],
        errors: Mapping[str, str] | None = None,
    ) -> None:
        """Hand over what changed up to `frontier`; blocks while the backlog is over its bound. Raises the sink's error.

        `errors`: the state of every view at `frontier`, its error or ""; what the sink was told already is left out.
        """
        fresh = {n: c for n, c in ((n, _after(c, self.epoch)) for n, c in changes.items()) if c is not None}
        with self._changed:
            self._changed.wait_for(lambda: self._backlog.bytes < MAX_BACKLOG_BYTES or self._failure is not None)
            self._raise()
            marks = {} if frontier.epoch < self.epoch else self._untold(errors or {})
            if frontier.epoch <= self.epoch and not fresh and not marks:
                return
            self._told.update(marks)
            self._backlog.add(fresh, frontier, stamps, marks)
            self._changed.notify_all()
        if self._thread is None:
            self._write_once()
            self._raise()

    def _untold(self, errors: Mapping[str, str]) -> dict[str, str]:
        return {name: error for name, error in errors.items() if self._told.get(name) != error}

    def check(self) -> None:
        """Raise what the writing thread met."""
        with self._changed:
            self._raise()

    def drain(self, timeout: float) -> bool:
        """Wait until everything offered is written; whether it is."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: (self._backlog.frontier is None and not self._writing) or self._failure is not None, timeout
            )
            self._raise()
            return done

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

    def _run(self) -> None:
        written = float("-inf")
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._backlog.frontier is not None or self._closing)
                pause = written + self._interval - self._clock()
                if pause > 0:
                    self._changed.wait_for(lambda: self._closing, pause)
                if self._closing:
                    return
            written = self._clock()
            try:
                self._write_once()
            except BaseException as failure:
                with self._changed:
                    self._failure = failure
                    self._changed.notify_all()
                return

    def _write_once(self) -> None:
        with self._changed:
            backlog, self._backlog = self._backlog, _Backlog()
            self._writing = True
        assert backlog.frontier is not None, "a write needs a frontier"
        started = self._clock()
        self.sink.write(backlog.merged(), backlog.frontier, backlog.stamps, backlog.errors)
        self._written(self.name, backlog.frontier, backlog.stamps, self._clock() - started)
        with self._changed:
            self.epoch = max(self.epoch, backlog.frontier.epoch)
            self._writing = False
            self._changed.notify_all()


def _after(changes: ViewChanges, epoch: int) -> ViewChanges | None:
    """The changes of epochs > `epoch`: what the sink does not hold yet. Whole contents pass."""
    if changes.whole or not len(changes.epochs) or changes.epochs[0] > epoch:
        return changes
    keep = np.flatnonzero(changes.epochs > epoch)
    if not len(keep):
        return None
    return ViewChanges(changes.rows.take(pa.array(keep)), changes.epochs[keep], changes.diffs[keep])
