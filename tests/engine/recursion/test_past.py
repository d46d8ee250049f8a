"""What a recursive group keeps of its past: no more than somebody may still ask about."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.dataflow.recursive import RecursiveNode, recursive
from headrace.engine.schema import Schema
from tests.engine.recursion.histories import translated
from tests.reference.elastic import PROGRAMS


def test_changes_are_forgotten_without_a_checkpoint() -> None:
    flow, program = Dataflow(), translated(PROGRAMS["closure"])
    schemas = [program.schemas[relation] for relation in program.outside]
    tables = [flow.table(f"t{k}", Schema(s.columns, tuple(range(len(s.columns))))) for k, s in enumerate(schemas)]
    found, *_ = recursive(flow, program, tables)
    output = found.output("v")
    for k in range(40):
        rows = pa.RecordBatch.from_arrays([pa.array([k]), pa.array([k + 1])], schema=schemas[0].arrow)
        flow.push("t0", Upserts(rows, np.array([k]), np.array([UPSERT], np.uint8)))
        flow.step(k + 1)
        flow.advance_since(k)
        output.take()
    node = found.node
    assert isinstance(node, RecursiveNode)
    assert sum(map(len, node._past.changes)) <= 1
    assert sum(output.snapshot(39)[0].diffs) == 40 * 41 // 2
