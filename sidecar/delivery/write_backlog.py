"""What waits for one sink, and why it waits: the changes of whole epochs, added up by view until they are written.

Invariant: the sink writer's backlog holds the changes of every epoch after the sink's own up to the frontier, in order. A view's
whole content replaces the changes that waited. Small changes are merged while they wait, so that `bytes` is what they take. For
a sink that does not ask for each transaction the merged changes are one range, in which a row that came and went is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.connectors.sink import EpochStamp, Frontier, SinkError, SinkState, ViewChanges
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.output import canonical
from headrace.engine.operators.delta import Delta
from headrace.engine.schema import Schema

ENTRY_BYTES = 3 << 10
"""Bytes that a change takes beside its rows, as measured: a record batch of few rows is mostly objects."""
STAMP_BYTES = 300
"""What the stamp of an epoch costs, likewise."""
RUN = 64
"""So many changes of a view that wait, one behind the other, become one."""


def size(changes: ViewChanges) -> int:
    """The bytes that they take."""
    return ENTRY_BYTES + int(changes.rows.nbytes) + changes.epochs.nbytes + changes.diffs.nbytes


@dataclass
class Backlog:
    """`bytes`: the memory that everything here takes at most. `merging`: the views whose changes may become one range."""

    merging: Mapping[str, Schema] = field(default_factory=dict)
    changes: dict[str, list[ViewChanges]] = field(default_factory=dict)
    stamps: dict[int, EpochStamp] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    frontier: Frontier | None = None
    bytes: int = 0
    _loose: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp],
        errors: Mapping[str, str],
    ) -> None:
        """What changed up to `frontier`, behind what waits."""
        for name, change in changes.items():
            self._put(name, change)
        self._stamp(stamps)
        self.errors.update(errors)
        self.frontier = frontier

    def before(self, later: Backlog) -> Backlog:
        """This backlog and, behind it, a later one."""
        for name, parts in later.changes.items():
            for change in parts:
                self._put(name, change)
        self._stamp(later.stamps)
        self.errors |= later.errors
        self.frontier = later.frontier or self.frontier
        return self

    def _put(self, name: str, change: ViewChanges) -> None:
        parts = self.changes.setdefault(name, [])
        self._loose[name] += 1
        if change.whole:
            self.bytes -= sum(map(size, parts))
            parts.clear()
            self._loose[name] = 0
        parts.append(change)
        self.bytes += size(change)
        if self._loose[name] == RUN:
            run = parts[-RUN:]
            parts[-RUN:] = [self._together(name, run)]
            self.bytes += size(parts[-1]) - sum(map(size, run))
            self._loose[name] = 0

    def _stamp(self, stamps: Mapping[int, EpochStamp]) -> None:
        self.bytes += STAMP_BYTES * len(stamps.keys() - self.stamps.keys())
        self.stamps.update(stamps)

    def merged(self) -> dict[str, ViewChanges]:
        """Each view's changes as one."""
        return {name: self._together(name, parts) for name, parts in self.changes.items()}

    def _together(self, name: str, parts: Sequence[ViewChanges]) -> ViewChanges:
        made = _merge(parts)
        return _one_range(made, self.merging[name]) if name in self.merging and len(parts) > 1 else made


@dataclass
class Detachment:
    """Why a sink is detached, `since` when (wall seconds), how often it was opened again. Written under the group's lock.

    `lost`: nothing is kept for it; else `attempted` is the write whose end is not known. `back`: it is open again.
    """

    error: SinkError
    since: float
    lost: bool = False
    attempted: Backlog | None = None
    tries: int = 0
    next_try: float = 0.0
    back: bool = False


@dataclass(frozen=True)
class Returned:
    """A sink that was detached is open again; `lost`: all of its views must be given whole."""

    state: SinkState
    lost: bool


def _merge(parts: Sequence[ViewChanges]) -> ViewChanges:
    if len(parts) == 1:
        return parts[0]
    return ViewChanges(
        pa.concat_batches([p.rows for p in parts]),
        np.concatenate([p.epochs for p in parts]),
        np.concatenate([p.diffs for p in parts]),
        whole=parts[0].whole,
    )


def _one_range(changes: ViewChanges, schema: Schema) -> ViewChanges:
    """What is left of the changes once all of them have the last one's epoch."""
    if not len(changes.epochs):
        return changes
    last = np.full(len(changes.epochs), changes.epochs[-1], np.int64)
    rows, _ = canonical(Delta(Updates(changes.rows, last, changes.diffs), None), layout_of(schema, ()))
    return ViewChanges(rows.rows, rows.times, rows.diffs, whole=changes.whole)


def after(changes: ViewChanges, epoch: int) -> ViewChanges | None:
    """The changes of epochs > `epoch`: what the sink does not hold yet. Whole contents pass."""
    if changes.whole or not len(changes.epochs) or changes.epochs[0] > epoch:
        return changes
    keep = np.flatnonzero(changes.epochs > epoch)
    if not len(keep):
        return None
    return ViewChanges(changes.rows.take(pa.array(keep)), changes.epochs[keep], changes.diffs[keep])
