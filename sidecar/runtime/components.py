"""The parts that a runtime is given by wiring.

Invariant: the owner of a part closes it; the runtime only uses it. Wiring makes the parts, and a change of views replaces
some of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.schema import Schema
from headrace.sidecar.delivery.sink_writer import SinkWriter
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.epochs.reclock import Reclock
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.intake.schema_drift import Column
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.state.checkpoint import CheckpointStore
from headrace.sidecar.state.command_log import CommandLog
from headrace.sidecar.telemetry.memory_budget import Memory
from headrace.sidecar.telemetry.metrics import Metrics
from headrace.views.lineage import WHOLE


@dataclass(kw_only=True)
class RuntimeComponents:
    """What the loop works with, made by wiring."""

    name: str
    intakes: Sequence[Intake]
    reclock: Reclock
    log_size: Callable[[], int]
    forget: Callable[[int, int], None]
    flow: Flow
    tables: Mapping[str, Schema]
    views: Sequence[ViewState]
    writers: Sequence[SinkWriter]
    store: CheckpointStore
    metrics: Metrics
    executor: Executor
    fingerprints: Mapping[str, str]
    checkpoint_seconds: float
    program: str
    generation: int
    table_facts: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    reached: Reached = unwatched
    memory: Memory = field(default_factory=Memory)
    commands: CommandLog = field(default_factory=CommandLog)

    @property
    def lost(self) -> Mapping[Column, str]:
        """The columns for which views are suspended, each with the error that they show; and the tables (`WHOLE`)."""
        tables = {(t, WHOLE): one.error for t, one in self.commands.open.items() if one.stands}
        return tables | {column: text for i in self.intakes for column, text in i.lost.pauses().items()}
