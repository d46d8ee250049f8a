"""What recovery makes of a view's errors: as recorded, or counted anew where the state behind them was not kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from connectors.sink import SinkView
from engine.batch.updates import INSERT, Upserts
from engine.dataflow import OVERFLOWED, Dataflow
from engine.operators.expressions.ir import Call, ColumnRef, Literal
from engine.schema import INTEGER, Column, Schema
from sidecar.checkpoint import BatchFile, Manifest, ViewRecord
from sidecar.emit import ViewState
from sidecar.recovery import recover_errors

ONE = Schema.of([Column("a", INTEGER)])
ZERO = "division by zero"


def recovered(recorded: Mapping[str, int], fingerprint: str, kept: bool) -> dict[str, int]:
    """The errors of a view of which one row divides by zero, after a recovery at epoch 1."""
    flow = Dataflow()
    table = flow.table("t", ONE)
    share = Call("/(integer,integer)", (Literal(1, INTEGER), ColumnRef(0, INTEGER)), INTEGER)
    output = table.project([share], ONE).output("v")
    rows = pa.RecordBatch.from_arrays([pa.array([0, 5], pa.int32())], schema=ONE.arrow)
    flow.push("t", Upserts(rows, np.ones(2, np.int64), np.full(2, INSERT, np.uint8)))
    flow.step(2)
    names = flow.arrangements_of(output)
    files: dict[str, list[BatchFile]] = {name: [] for name in names if kept}
    manifest = Manifest(1, {}, files, {"v": ViewRecord(fingerprint, recorded)}, {}, "p")
    state = ViewState(SinkView("v", ONE, None, "f"), output, ("s",))
    recover_errors([state], manifest, flow)
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
