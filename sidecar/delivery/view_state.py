"""A running view: its output, the errors that live in it, and what of it a sink is given.

Single writer: the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from headrace.connectors.sink import SinkView, ViewChanges
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Int64s
from headrace.engine.dataflow.output import canonical
from headrace.engine.operators.delta import Delta
from headrace.engine.recursion.late import LATE
from headrace.sidecar.execution.dataflow_host import ViewOutput
from headrace.sidecar.execution.live_errors import add_errors
from headrace.views.lineage import WHOLE


@dataclass
class ViewState:
    """A running view: its output and the errors that live in it now. Single writer: the runtime.

    `names`: the (table, column) pairs that it names; `lost`: those of them that records no longer have, or that are
    unproven, each with its error. `mended`: it was suspended, and goes on since the last take. `rows`: how many it has, None
    where nobody counted. `shown`: how many errors its metric says.
    """

    view: SinkView
    output: ViewOutput
    sinks: tuple[str, ...]
    errors: dict[str, int] = field(default_factory=dict)
    mended: bool = False
    frontier: int = 0
    names: frozenset[tuple[str, str]] = frozenset()
    lost: Mapping[tuple[str, str], str] = field(default_factory=dict)
    rows: int | None = None
    shown: int = -1
    _stood: bool = False

    @property
    def error(self) -> str:
        """The first of the live errors, in order of their messages, that of what is late last; "" where there is none."""
        return min([*self.errors, *self.lost.values()], key=lambda text: (text.startswith(LATE), text), default="")

    @property
    def broken(self) -> str:
        """As `error`, without those of unproven tables and of what is late: of the view's data, or of a column that it names."""
        columns = [text for (_, column), text in self.lost.items() if column != WHOLE]
        return min([*(e for e in self.errors if not e.startswith(LATE)), *columns], default="")

    @property
    def stands(self) -> bool:
        """Whether the view is suspended, marked."""
        return bool(self.errors or self.lost)

    @property
    def failing(self) -> int:
        """How many errors live in it, and columns and tables that it names are lost or unproven; what is late is no error."""
        return sum(count for text, count in self.errors.items() if not text.startswith(LATE)) + len(self.lost)

    @property
    def late(self) -> bool:
        """Whether it is suspended for nothing but a recursion that is evaluated between steps: it comes back by itself."""
        return bool(self.errors) and not self.lost and all(text.startswith(LATE) for text in self.errors)

    def pause(self, lost: Mapping[tuple[str, str], str]) -> None:
        """`lost`: every column for which views are suspended now, with its error; those that the view names count."""
        self._stood |= self.stands
        self.lost = {c: text for c, text in lost.items() if c in self.names} if lost else {}

    def take(self, ends: Int64s) -> ViewChanges | None:
        """What changed since the last take, told at `ends`; None where nothing did, the view is suspended, or was until now:
        what changed meanwhile was given to nobody.

        `ends` [e] int64, ascending: the epochs at which a sink may be told something. What happened at another one, an error
        too, counts as of the next of them: it is of a portion of a transaction that ends there.
        """
        rows, errors = self.output.take()
        if self.rows is not None and len(rows):
            self.rows += int(rows.diffs.sum())
        stood = self._stood or self.stands
        if len(errors):
            add_errors(self.errors, errors)
        self._stood = self.stands
        self.mended = stood and not self.stands
        if self.stands or self.mended or not len(rows):
            return None
        times = _told_at(rows.times, ends)
        if len(errors):
            times = _when_whole(times, _told_at(errors.times, ends), errors.diffs)
        if times is not rows.times:
            rows, _ = canonical(Delta(rows.at(times), None), layout_of(self.view.schema, ()))
        return ViewChanges(rows.rows, rows.times, rows.diffs) if len(rows) else None

    def recount(self, epoch: int) -> None:
        """Count the rows and errors alive at `epoch` from the engine's state: for a view that no checkpoint knew."""
        rows, errors = self.output.snapshot(epoch)
        self.rows = int(rows.diffs.sum())
        add_errors(self.errors, errors)

    def whole(self, epoch: int) -> ViewChanges | None:
        """The view's whole content at `epoch`, to replace what a sink holds; None where it is in error after all."""
        rows, errors = self.output.snapshot(epoch)
        if len(errors):
            add_errors(self.errors, errors)
            return None
        return ViewChanges(rows.rows, np.full(len(rows), epoch, np.int64), rows.diffs, whole=True)


def _told_at(epochs: Int64s, ends: Int64s) -> Int64s:
    """For each epoch the first of `ends` that is not before it; the epochs themselves where that changes none."""
    at = ends[np.searchsorted(ends, epochs)]
    return epochs if np.array_equal(at, epochs) else at


def _when_whole(epochs: Int64s, failed: Int64s, diffs: Int64s) -> Int64s:
    """For each epoch of a change the first one, from it on, at whose end the view is not in error. `failed`, `diffs`: at which
    epochs errors come and go."""
    known, back = np.unique(failed, return_inverse=True)
    live = np.zeros(len(known), np.int64)
    np.add.at(live, back, diffs)
    whole = np.append(np.flatnonzero(np.cumsum(live) == 0), len(known))
    at = np.searchsorted(known, epochs, side="right") - 1
    ends = whole[np.searchsorted(whole, at)]
    return np.where((at < 0) | (ends == at), epochs, known[np.minimum(ends, len(known) - 1)])
