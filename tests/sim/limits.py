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

from sidecar import emit, lulls, runtime, wiring
from sidecar.backlog import ENTRY_BYTES
from sidecar.ingest import Intake
from sidecar.portions import ROWS
from sidecar.spill import DEFAULT_BYTES, Spill

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
        patch.setattr(runtime, "LOG_BYTES", self.log_bytes)
        patch.setattr(runtime, "LOG_EPOCHS", self.log_epochs)
        patch.setattr(emit, "MAX_BACKLOG_BYTES", self.backlog_bytes)
        patch.setattr(runtime, "ROWS", self.portion_rows)
        patch.setattr(lulls, "LULL_MS", LULL_MS)
        patch.setattr(wiring, "Intake", partial(Intake, portion_rows=self.portion_rows))
        with tempfile.TemporaryDirectory() as folder:
            patch.setattr(wiring, "make_spill", lambda *_: Spill(Path(folder), self.spill_bytes))
            yield
