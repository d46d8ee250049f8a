"""Arranged: one collection indexed once, and the handles by which its readers hold it.

Invariant: the spine's since is the meet of its handles' since, so that every reader may ask from its own since on. Without a
handle it does not advance until the registry drops it. A reader that never asks for the past costs the others nothing.
Dataflows and the registry call it.
"""

from __future__ import annotations

from headrace.engine.batch.sort_layout import Layout
from headrace.engine.errors import InvariantBroken
from headrace.engine.lattice import CLOSED, Frontier
from headrace.engine.trace.spine import Spine


class TraceHandle:
    """A reader's hold on an arrangement. Single writer: the reader that took it."""

    def __init__(self, arranged: Arranged, reader: str, since: Frontier) -> None:
        self.arranged = arranged
        self.reader = reader
        self._since = since
        self._held = True

    @property
    def since(self) -> Frontier:
        """The times at which this reader still asks: those ≥ it."""
        return self._since

    @property
    def held(self) -> bool:
        """False once released."""
        return self._held

    def advance(self, since: Frontier) -> None:
        """Give up the times that are not ≥ `since`; an earlier frontier changes nothing. Raises after `release`."""
        if not self._held:
            raise InvariantBroken("a released handle was used", reader=self.reader, arrangement=self.arranged.name)
        joined = CLOSED if since.closed else self._since.join(since)
        if joined != self._since:
            self._since = joined
            self.arranged.moved(self)

    def release(self) -> None:
        """Let go; further calls change nothing."""
        if self._held:
            self._held = False
            self.arranged.forget(self)


class Arranged:
    """An arrangement: its `layout`, its trace `spine`, and a `name` that is stable over restarts.

    `collection`: what it indexes, as the registry knows it.
    """

    def __init__(self, layout: Layout, spine: Spine, name: str, collection: str) -> None:
        self.layout = layout
        self.spine = spine
        self.name = name
        self.collection = collection
        self._handles: dict[TraceHandle, None] = {}
        self._holding: dict[TraceHandle, None] = {}
        """The handles that hold since: all but those of readers that never ask for the past."""

    @property
    def handles(self) -> tuple[TraceHandle, ...]:
        """The live handles, oldest first."""
        return tuple(self._handles)

    @property
    def read(self) -> bool:
        """True while a handle is left."""
        return bool(self._handles)

    @property
    def readers(self) -> tuple[str, ...]:
        """Who holds it."""
        return tuple(h.reader for h in self._handles)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.spine.nbytes

    def __len__(self) -> int:
        return len(self.spine)

    def __bool__(self) -> bool:
        return True

    def hold(self, reader: str, since: Frontier | None = None) -> TraceHandle:
        """A new handle at the trace's since, or at the later `since`. Raises InvariantBroken for an earlier one."""
        at = self.spine.since if since is None else since
        if not self.spine.since.before(at):
            raise InvariantBroken("the past was compacted", arrangement=self.name, asked=at, since=self.spine.since)
        handle = TraceHandle(self, reader, at)
        self._handles[handle] = None
        if not at.closed:
            self._holding[handle] = None
        return handle

    def moved(self, handle: TraceHandle) -> None:
        """Called when a handle gave up times."""
        if handle.since.closed:
            del self._holding[handle]
        self._settle()

    def forget(self, handle: TraceHandle) -> None:
        """Called by a handle's release."""
        del self._handles[handle]
        if handle in self._holding:
            del self._holding[handle]
            self._settle()

    def _settle(self) -> None:
        """Advance the spine to the meet of the handles' since."""
        meet = CLOSED
        for handle in self._holding:
            meet = meet.meet(handle.since)
        if self._handles:
            self.spine.advance(meet)
