"""A view's output, gathered from all shards.

Invariant: the result is to the byte what one dataflow would give. Equal rows of several shards are added up; an error that
several shards report counts once. The driver calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.output import Emitted
from headrace.engine.dataflow.overflow import OVERFLOWED
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.schema import Schema
from headrace.sidecar.execution.dataflow_host import Sides


class Gathered(Emitted):
    """What all shards emitted of a view. `content`: what each holds of it. Single writer: the driver."""

    def __init__(self, name: str, schema: Schema, content: Callable[[str, int], Sequence[Delta]]) -> None:
        super().__init__(name, schema)
        self._content = content

    def take(self) -> Sides:
        """As `Output.take`."""
        rows, errors = super().take()
        return rows, _said_once(errors)

    def snapshot(self, as_of: int) -> Sides:
        """As `Output.snapshot`."""
        whole = Gathered(self.name, self.schema, self._content)
        for delta in self._content(self.name, as_of):
            whole.receive(delta)
        return whole.take()


def _said_once(errors: Updates) -> Updates:
    """A node that failed says so in each shard in which it did: once is enough."""
    same = pc.equal(errors.rows.column(0), pa.scalar(OVERFLOWED, MESSAGE)).to_numpy(zero_copy_only=False)
    return Updates(errors.rows, errors.times, np.where(same, 1, errors.diffs)) if same.any() else errors
