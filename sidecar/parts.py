"""What a runtime is made of: the parts that wiring hands to it.

Always: who owns a part closes it; the runtime only uses them. Made by wiring, and replaced where views change while it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from connectors.durable import Reached, unwatched
from engine.schema import Schema
from sidecar.budget import Memory
from sidecar.checkpoint import CheckpointStore
from sidecar.emit import Group
from sidecar.flow import Flow
from sidecar.ingest import Intake
from sidecar.lost import Column
from sidecar.metrics import Metrics
from sidecar.reclock import Reclock
from sidecar.viewstate import ViewState


@dataclass
class Parts:
    """What the loop works with, made by wiring."""

    name: str
    intakes: Sequence[Intake]
    reclock: Reclock
    log_size: Callable[[], int]
    forget: Callable[[int, int], None]
    flow: Flow
    tables: Mapping[str, Schema]
    views: Sequence[ViewState]
    groups: Sequence[Group]
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

    @property
    def lost(self) -> Mapping[Column, str]:
        """The columns for which views stand still, each with the error that they show."""
        return {column: text for i in self.intakes for column, text in i.lost.pauses().items()}
