"""What waits for one sink, and why it waits: the changes of whole epochs, added up by view until they are written.

Always: the changes are those of every epoch after the sink's own up to the frontier, in order; a whole content replaces
what waited of its view. Owned by a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from connectors.sink import EpochStamp, Frontier, SinkError, SinkState, ViewChanges


@dataclass
class Backlog:
    """`bytes`: of the rows that wait, as a bound on memory."""

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
        """What changed up to `frontier`, behind what waits."""
        for name, change in changes.items():
            if change.whole:
                self.changes[name] = [change]
            else:
                self.changes.setdefault(name, []).append(change)
            self.bytes += change.rows.nbytes
        self.stamps.update(stamps)
        self.errors.update(errors)
        self.frontier = frontier

    def before(self, later: Backlog) -> Backlog:
        """This backlog and, behind it, a later one."""
        for name, parts in later.changes.items():
            for change in parts:
                if change.whole:
                    self.changes[name] = [change]
                else:
                    self.changes.setdefault(name, []).append(change)
        self.stamps |= later.stamps
        self.errors |= later.errors
        self.frontier = later.frontier or self.frontier
        self.bytes += later.bytes
        return self

    def merged(self) -> dict[str, ViewChanges]:
        """Each view's changes as one."""
        return {name: _merge(parts) for name, parts in self.changes.items()}


@dataclass
class Trouble:
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


def after(changes: ViewChanges, epoch: int) -> ViewChanges | None:
    """The changes of epochs > `epoch`: what the sink does not hold yet. Whole contents pass."""
    if changes.whole or not len(changes.epochs) or changes.epochs[0] > epoch:
        return changes
    keep = np.flatnonzero(changes.epochs > epoch)
    if not len(keep):
        return None
    return ViewChanges(changes.rows.take(pa.array(keep)), changes.epochs[keep], changes.diffs[keep])
