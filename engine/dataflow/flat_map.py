"""The node that makes any number of rows of each: what no expression over a single row can say.

Always: the function is one of columns, and linear, for it sees rows and never their times or multiplicities: rows that
are equal give equal rows. Called by whoever builds plans: `flat_map`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.node import Node, fingerprint_of, merged
from headrace.engine.dataflow.stateless import StatelessNode
from headrace.engine.operators.delta import QUIET, Delta, errors_at
from headrace.engine.schema import Schema

Spread = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, Int64s, pa.Array | None]]
"""From rows to rows, of each of these the place of the one that it was made of, and the messages of rows that fail."""


def flat_map(collection: Collection, name: str, spread: Spread, schema: Schema) -> Collection:
    """The rows of `schema` that `spread` makes of each row. `name` stands for the function in the plan's fingerprint."""
    fingerprint = fingerprint_of("flat map", collection.fingerprint, name, *(c.type for c in schema.columns))
    schema = Schema(schema.columns)
    node = collection.flow.intern(fingerprint, lambda: FlatMapNode(fingerprint, collection.node, spread, schema))
    return Collection(collection.flow, node, schema)


class FlatMapNode(StatelessNode):
    """Each row replaced by what a function makes of it."""

    label = "flat map"

    def __init__(self, fingerprint: str, source: Node, spread: Spread, schema: Schema) -> None:
        super().__init__(fingerprint, schema, [source])
        self._spread = spread

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """The rows made, and the errors of those that fail, each with the time and the multiplicity of its row."""
        rows = deltas[0].rows
        if rows is None or not len(rows):
            return merged(QUIET, deltas[0])
        made, places, messages = self._spread(rows.rows)
        found = Updates(made, rows.times[places], rows.diffs[places]) if len(places) else None
        errors = None
        if messages is not None:
            failed = np.flatnonzero(messages.is_valid().to_numpy(zero_copy_only=False))
            errors = errors_at(messages.take(pa.array(failed)), rows.times[failed], rows.diffs[failed])
        return merged(Delta(found, errors), deltas[0])
