"""Change history: the last changes of every view, kept in memory so that a follower may go on where it stopped.

Invariant: for a view it keeps every change after its `since`, in whole epochs. A view that was in error, or was changed,
begins anew. The loop writes; the threads that follow views read.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.connectors.sink import ViewChanges
from headrace.sidecar.delivery.write_backlog import size
from headrace.sidecar.runtime.loop import Runtime


@dataclass
class Kept:
    """A view's changes of the epochs > `since`. `error`: why it is suspended, or "". `forgotten`: the last epoch whose changes
    were dropped because there were too many."""

    fingerprint: str
    since: int
    error: str = ""
    forgotten: int = 0
    entries: deque[ViewChanges] = field(default_factory=deque)
    bytes: int = 0

    def add(self, changes: ViewChanges, most: int) -> None:
        """The next changes; the oldest go where there are more than `most` bytes."""
        self.entries.append(changes)
        self.bytes += size(changes)
        while self.bytes > most and self.entries:
            gone = self.entries.popleft()
            self.bytes -= size(gone)
            self.since = self.forgotten = int(gone.epochs[-1])

    def cut(self, epoch: int, error: str) -> None:
        """Nothing before `epoch` can be told any more."""
        self.entries.clear()
        self.bytes, self.since, self.error = 0, epoch, error


@dataclass(frozen=True)
class Seen:
    """What a follower at one epoch is given: the changes after it up to `epoch`, or that it must begin anew."""

    epoch: int
    changes: tuple[ViewChanges, ...] = ()
    fingerprint: str | None = None
    since: int = 0
    error: str = ""
    forgotten: int = 0


class ChangeHistory:
    """The changes of a runtime's views, at most `most` bytes each. `closed` once the sidecar ends."""

    def __init__(self, runtime: Runtime, most: int) -> None:
        self._runtime = runtime
        self._most = most
        self._moved = threading.Condition()
        self._views: dict[str, Kept] = {}
        self._epoch = runtime.epoch
        self.closed = False
        self.renew()
        runtime.told.append(self.tell)

    def renew(self) -> None:
        """The views in force changed: those that are new begin here. Called by the loop."""
        with self._moved:
            before, self._views = self._views, {}
            for state in self._runtime.parts.views:
                kept = before.get(state.view.name)
                if kept is None or kept.fingerprint != state.view.fingerprint:
                    kept = Kept(state.view.fingerprint, self._runtime.epoch, state.error)
                self._views[state.view.name] = kept
            self._moved.notify_all()

    def tell(self, epoch: int, changes: Mapping[str, ViewChanges]) -> None:
        """What a step changed. Called by the loop."""
        with self._moved:
            for state in self._runtime.parts.views:
                kept = self._views[state.view.name]
                if state.stands or state.mended:
                    kept.cut(epoch, state.error)
                elif (change := changes.get(state.view.name)) is not None:
                    kept.add(change, self._most)
            self._epoch = epoch
            self._moved.notify_all()

    def close(self) -> None:
        """Let every follower end."""
        with self._moved:
            self.closed = True
            self._moved.notify_all()

    def wait(self, view: str, at: int, seconds: float) -> Seen:
        """What happened to `view` after the epoch `at`, once anything did or the time is over."""
        with self._moved:
            self._moved.wait_for(lambda: self.closed or self._epoch > at or self._is_news(view, at), seconds)
            kept = self._views.get(view)
            if kept is None:
                return Seen(self._epoch)
            fresh = tuple(c for c in kept.entries if int(c.epochs[-1]) > at)
            return Seen(self._epoch, fresh, kept.fingerprint, kept.since, kept.error, kept.forgotten)

    def _is_news(self, view: str, at: int) -> bool:
        kept = self._views.get(view)
        return kept is None or kept.since > at
