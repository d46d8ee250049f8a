"""Merger: a resumable merge of two batches, the second right after the first.

Always: the inputs stay as they are and readable until the result is taken; fuel counts updates read; the result is
sorted, consolidated and advanced to `since`. Single writer: the spine that owns it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from engine.batch.batch import Batch, DiffOverflow, Facts
from engine.batch.description import Description
from engine.batch.layout import Ids, shortened
from engine.batch.payload import concat_rows
from engine.batch.updates import Int64s
from engine.errors import InvariantBroken
from engine.kernels import merge as kernels
from engine.kernels.times import EPOCHS, ROUNDS
from engine.lattice import Frontier

_FOREVER = np.iinfo(np.int64).max
_ROWS_A_FUEL = 4
"""Payload rows of one column that count as one update: copying is that much cheaper than merging."""


class Merger:
    """Merge `earlier` and `later` under `since`; call `work` until `done`, then take `result`."""

    def __init__(self, earlier: Batch, later: Batch, since: Frontier) -> None:
        self.earlier = earlier
        self.later = later
        description = earlier.description.followed_by(later.description)
        self._description = Description(description.lower, description.upper, description.since.join(since))
        self._state = merge_state(earlier.payload.num_rows, self._description.since)
        size = len(earlier) + len(later)
        self._ids, self._facts = room(earlier.ids, later.ids, size)
        self._total = size
        self._columns: list[pa.Array] = []
        self._merged = size == 0

    def widen(self, upper: Frontier) -> None:
        """Let the result reach to `upper`, where nothing happened between."""
        self._description = Description(self._description.lower, upper, self._description.since)

    @property
    def size(self) -> int:
        """Updates of both inputs."""
        return self._total

    @property
    def done(self) -> bool:
        """True when `result` may be taken."""
        return self._merged and len(self._columns) == self.earlier.payload.num_columns

    def work(self, fuel: int) -> int:
        """Go on for about `fuel` updates; returns the fuel left, negative after a step that could not be parted.

        Raises DiffOverflow.
        """
        if not self._merged:
            a, b = self.earlier, self.later
            fuel = kernels.merge(a.ids, a.facts, b.ids, b.facts, self._ids, self._facts, self._state, fuel)
            if self._state[kernels.OVERFLOW]:
                raise DiffOverflow
            self._merged = bool(self._state[kernels.LEFT] + self._state[kernels.RIGHT] == self._total)
        while self._merged and not self.done and fuel > 0:
            fuel -= self._copy_column() // _ROWS_A_FUEL
        return fuel

    def result(self) -> Batch:
        """The merged batch. Raises InvariantBroken unless `done`."""
        if not self.done:
            raise InvariantBroken("a merge is taken when it is done")
        written = int(self._state[kernels.WRITTEN])
        a, b, c, d, e = (shortened(lane, written) for lane in self._ids)
        self._ids = a, b, c, d, e
        self._facts = (
            shortened(self._facts[0], written),
            shortened(self._facts[1], written),
            shortened(self._facts[2], written),
        )
        layout = self.earlier.layout
        if self._columns:
            payload = pa.RecordBatch.from_arrays(self._columns, schema=layout.arrow)
        else:
            payload = concat_rows([self.earlier.payload, self.later.payload])
        return Batch.of(layout, self._description, self._ids, self._facts, payload, int(self._state[kernels.DISTINCT]))

    def _copy_column(self) -> int:
        k = len(self._columns)
        column = pa.concat_arrays([self.earlier.payload.column(k), self.later.payload.column(k)])
        self._columns.append(column)
        return len(column)


def merge_state(shift: int, since: Frontier, until: int = _FOREVER, kept: int = ROUNDS) -> Int64s:
    """The state of a merge that has not begun: the later side's positions move by `shift`, rounds keep the bits `kept`."""
    state = np.zeros(9, np.int64)
    state[kernels.SINCE] = EPOCHS if since.closed else since.epoch
    state[kernels.KEPT] = kept
    state[kernels.UNTIL] = until
    state[kernels.SHIFT] = shift
    return state


def room(left: Ids, right: Ids, size: int) -> tuple[Ids, Facts]:
    """Lanes to merge into; where both inputs have one and the same value throughout, so has the output's lane."""
    ids = []
    for a, b in zip(left, right, strict=True):
        constant = all(len(x) == 0 or x.strides[0] == 0 for x in (a, b))
        values = {int(x[0]) for x in (a, b) if len(x)}
        if constant and len(values) <= 1:
            ids.append(np.ndarray((size,), np.uint64, np.zeros(1, np.uint64).data, 0, (0,)))
        else:
            ids.append(np.empty(size, np.uint64))
    facts = (np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64))
    return (ids[0], ids[1], ids[2], ids[3], ids[4]), facts
