"""What recovery makes of a view's errors: as recorded, or counted anew where the state behind them was not kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors.sink import SinkView
from headrace.engine.batch.updates import INSERT, Upserts
from headrace.engine.dataflow import OVERFLOWED
from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Literal
from headrace.engine.schema import INTEGER, Column, Schema
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.runtime.recovery import recover_errors
from headrace.sidecar.state.batch_store import BatchStore
from headrace.sidecar.state.checkpoint import Manifest, ViewRecord

ONE = Schema.of([Column("a", INTEGER)])
ZERO = "division by zero"


def recovered(recorded: Mapping[str, int], fingerprint: str, kept: bool) -> dict[str, int]:
    """The errors of a view of which one row divides by zero, after a recovery at epoch 1."""
    flow = KeptDataflow(BatchStore(Path()))
    share = Call("/(integer,integer)", (Literal(1, INTEGER), ColumnRef(0, INTEGER)), INTEGER)
    flow.build(lambda made: {"v": made.table("t", ONE).project([share], ONE)}, {"v": ONE})
    output = flow.outputs["v"]
    rows = pa.RecordBatch.from_arrays([pa.array([0, 5], pa.int32())], schema=ONE.arrow)
    flow.push("t", Upserts(rows, np.ones(2, np.int64), np.full(2, INSERT, np.uint8)))
    flow.step(2)
    resumed = flow.arrangements_of(output) if kept else frozenset()
    manifest = Manifest(epoch=1, views={"v": ViewRecord(fingerprint, recorded)}, program="p")
    state = ViewState(SinkView("v", ONE, None, "f"), output, ("s",))
    recover_errors([state], manifest, flow, resumed)
    return state.errors


@pytest.mark.parametrize(
    ("recorded", "fingerprint", "kept", "found"),
    [
        ({"as recorded": 2}, "f", True, {"as recorded": 2}),
        ({}, "f", True, {}),
        ({"as recorded": 2}, "another plan", True, {ZERO: 1}),
        ({}, "f", False, {ZERO: 1}),
        ({OVERFLOWED: 1}, "f", True, {ZERO: 1}),
    ],
)
def test_errors_are_taken_from_the_checkpoint_or_counted(
    recorded: dict[str, int], fingerprint: str, kept: bool, found: dict[str, int]
) -> None:
    assert recovered(recorded, fingerprint, kept) == found
