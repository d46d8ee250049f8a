"""How small the limits of one life are: what takes years or gigabytes elsewhere happens in it every few steps.

Always: drawn once a life, and the same for each of its sidecars; what spills goes to a folder of the life's own, the one
thing of a life that touches a real disk. Called by the world.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from headrace.sidecar.delivery import sink_writer
from headrace.sidecar.delivery.write_backlog import ENTRY_BYTES
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.runtime import checkpointer, loop
from headrace.sidecar.state.spill import DEFAULT_BYTES, Spill
from headrace.sidecar.transactions import snapshot_barrier
from headrace.sidecar.transactions.splitting import ROWS
from headrace.sidecar.wiring import intakes

LULL_MS = 10
"""A snapshot takes that long by a shop's clock."""


@dataclass(frozen=True)
class Limits:
    """`log_bytes`, `log_epochs`: of a reclock log that is trimmed, and what is left of it; `backlog_bytes`: what may wait for a
    sink; `portion_rows`: of a transaction in one epoch; `spill_bytes`: what may wait in memory of what is not whole."""

    log_bytes: int
    log_epochs: int
    backlog_bytes: int
    portion_rows: int
    spill_bytes: int

    @classmethod
    def drawn(cls, draw: random.Random) -> Limits:
        """The limits of a life."""
        return cls(
            draw.choice([1500, 0]),
            draw.choice([12, 2]),
            draw.choice([64 << 20, 64 << 20, 8 * ENTRY_BYTES]),
            draw.choice([ROWS, ROWS, 4, 1]),
            draw.choice([DEFAULT_BYTES, DEFAULT_BYTES, 800, 0]),
        )

    @contextmanager
    def in_place(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """While a life is played."""
        patch.setattr(checkpointer, "LOG_BYTES", self.log_bytes)
        patch.setattr(checkpointer, "LOG_EPOCHS", self.log_epochs)
        patch.setattr(sink_writer, "MAX_BACKLOG_BYTES", self.backlog_bytes)
        patch.setattr(loop, "ROWS", self.portion_rows)
        patch.setattr(snapshot_barrier, "LULL_MS", LULL_MS)
        patch.setattr(intakes, "Intake", partial(Intake, portion_rows=self.portion_rows))
        with tempfile.TemporaryDirectory() as folder:
            patch.setattr(intakes, "make_spill", lambda *_: Spill(Path(folder), self.spill_bytes))
            yield
