"""A running view: its output, the errors that live in it, and what of it a sink is given.

Single writer: the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from connectors.sink import (
    SinkView,
    ViewChanges,
)
from engine.batch.updates import Updates
from sidecar.flow import ViewOutput


@dataclass
class ViewState:
    """A running view: its output and the errors that live in it now. Single writer: the runtime.

    `names`: the (table, column) pairs that it names; `lost`: those of them that records no longer have, each with its
    error. `mended`: it stood still, and goes on since the last take.
    """

    view: SinkView
    output: ViewOutput
    sinks: tuple[str, ...]
    errors: dict[str, int] = field(default_factory=dict)
    mended: bool = False
    frontier: int = 0
    names: frozenset[tuple[str, str]] = frozenset()
    lost: Mapping[tuple[str, str], str] = field(default_factory=dict)
    _stood: bool = False

    @property
    def error(self) -> str:
        """The first of the live errors, in order of their messages; "" where there is none."""
        return min([*self.errors, *self.lost.values()], default="")

    @property
    def stands(self) -> bool:
        """Whether the view stands still, marked."""
        return bool(self.errors or self.lost)

    def pause(self, lost: Mapping[tuple[str, str], str]) -> None:
        """`lost`: every column for which views stand still now, with its error; those that the view names count."""
        self._stood |= self.stands
        self.lost = {c: text for c, text in lost.items() if c in self.names} if lost else {}

    def take(self) -> ViewChanges | None:
        """What changed since the last take; None where nothing did, the view stands still, or stood until now: what changed
        meanwhile was given to nobody."""
        rows, errors = self.output.take()
        stood = self._stood or self.stands
        if len(errors):
            self._count(errors)
        self._stood = self.stands
        self.mended = stood and not self.stands
        if self.stands or self.mended or not len(rows):
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
