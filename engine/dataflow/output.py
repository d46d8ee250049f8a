"""Outputs: what a collection emitted, until its owner takes it, in the canonical form.

Always: what is taken depends on the changes of each epoch alone, in their own order, however they came. Called by the
dataflow and by those who take views out of it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.gather_rows import Loose, conformed
from headrace.engine.batch.sort_layout import Layout, layout_of
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.node import Node
from headrace.engine.dataflow.overflow import overflowed
from headrace.engine.operators.delta import ERRORS, QUIET, Delta, concat
from headrace.engine.schema import Schema


class Readable(Protocol):
    """What an output is of: a collection, as far as outputs know one."""

    @property
    def schema(self) -> Schema:
        """Of its rows."""

    @property
    def node(self) -> Node:
        """Where its changes come from."""

    def snapshot(self, as_of: int) -> tuple[Updates, Updates]:
        """(rows, errors) at an epoch."""


class Emitted:
    """What steps emitted and nobody took yet. Single writer: who steps; single reader: its owner. `schema`: of its rows."""

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema
        self._layout = layout_of(schema, ())
        self._pending: list[Delta] = []
        self._failed = False
        self._nothing = canonical(QUIET, self._layout)

    def receive(self, delta: Delta) -> None:
        """Called at the end of a step."""
        self._pending.append(delta)

    def take(self) -> tuple[Updates, Updates]:
        """(rows, errors) emitted since the last take: consolidated, by epoch, then in the canonical order of rows.

        After a multiplicity that does not fit, which is an error that stays, there are no rows any more.
        """
        if not self._pending:
            return self._nothing
        pending, self._pending = self._pending, []
        rows = None if self._failed else concat([d.rows for d in pending])
        errors = concat([d.errors for d in pending])
        try:
            return canonical(Delta(rows, errors), self._layout)
        except DiffOverflow:
            self._failed = True
            last = max(int(u.times.max()) for u in (rows, errors) if u is not None)
            return canonical(Delta(None, overflowed(last)), self._layout)


class Output(Emitted):
    """What a collection emitted. Single writer: the dataflow."""

    def __init__(self, name: str, collection: Readable) -> None:
        super().__init__(name, collection.schema)
        self.collection = collection

    def snapshot(self, as_of: int) -> tuple[Updates, Updates]:
        """The collection at `as_of`."""
        return self.collection.snapshot(as_of)


_ERRORS = layout_of(ERRORS, ())


def canonical(delta: Delta, layout: Layout) -> tuple[Updates, Updates]:
    """Both sides consolidated, the rows under the names of `layout`."""
    return _canonical(delta.rows, layout), _canonical(delta.errors, _ERRORS)


def _canonical(updates: Updates | None, layout: Layout) -> Updates:
    if updates is None:
        none = np.empty(0, np.int64)
        return Updates(layout.schema.empty(), none, none)
    found = consolidate(updates, layout.image_plan)
    struct = found.struct
    rows = struct.under(layout.arrow) if isinstance(struct, Loose) else conformed(struct.rows, layout.arrow)
    return Updates(rows, found.times, found.diffs)
