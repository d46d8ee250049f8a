"""The arrangements that a table has, told without a running dataflow.

Always: they are those of a dataflow that reads the table. Called by a load, which writes their batches, and by whoever reads
them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from headrace.engine.batch import Layout
from headrace.engine.schema import Schema
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.state.batch_store import BatchStore


def table_traces(table: str, schema: Schema) -> tuple[tuple[str, Layout], tuple[str, Layout]]:
    """The arrangements of a table's rows and of its errors: their names in checkpoints, and their layouts."""
    with tempfile.TemporaryDirectory() as folder:
        flow = KeptDataflow(BatchStore(Path(folder)))
        flow.table(table, schema)
        names = [trace.name for trace in flow.table_node(table).traces()]
        made = flow.arrangements()
    return (names[0], made[names[0]].layout), (names[1], made[names[1]].layout)
