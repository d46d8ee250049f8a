"""Values of enums that their tables do not declare: ALTER TYPE … ADD VALUE came first.

Invariant: a value that is not among the declared labels has no place in their order, and is never taken in. Called by the intake.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.changes import LATER, Event, TableChanges, Undecodable
from headrace.engine.schema import Schema

_HINT = (
    "add the value to `labels:` of the column, in its place, and start again; with `database:` of the source the table "
    "is then read from there"
)


def undeclared(changes: TableChanges, schema: Schema) -> Iterator[tuple[int, Undecodable]]:
    """The rows of a run that hold an enum label which is not declared: the place in the run, and the record."""
    seen: set[int] = set()
    for column in schema.columns:
        at = changes.rows.schema.get_field_index(column.name)
        if column.type.labels is None or at < 0:
            continue
        values = changes.rows.column(at)
        known = pc.or_kleene(pc.is_in(values, pa.array(column.type.labels, values.type)), pc.is_null(values))
        for row in np.flatnonzero(~known.to_numpy(zero_copy_only=False)).tolist():
            if row not in seen:
                seen.add(row)
                reason = f"column {column.name}: {column.type} has a value that is not declared"
                yield row, _record(changes, row, reason)


def _record(changes: TableChanges, at: int, reason: str) -> Undecodable:
    order = int(changes.orders[at]) if changes.metadata[at] else -1
    event = Event(int(changes.transactions[at]), order, int(changes.lsns[at]), bool(changes.snapshot[at] == 1))
    sent = LATER if changes.sent_ms is None else int(changes.sent_ms[at])
    return Undecodable(
        changes.table, changes.topic, changes.partition, int(changes.offsets[at]), reason, _HINT, event, sent_ms=sent
    )
