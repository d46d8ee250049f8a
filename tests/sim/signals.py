"""SIGTERM at any door: in the middle of a write, of a checkpoint, of a turn. Unlike a kill, what is there is closed in order.

Always: who was told to stop drains when its turn ends, however little time it is given, and ends without an error.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World


@dataclass
class Signals:
    """`rate`: how often, a door."""

    draw: random.Random
    rate: float

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""
        if self.draw.random() < self.rate and process.turning and not process.told_to_stop:
            world.trace.append(f"{process.number} is told to stop")
            process.terminate()

    def begin(self, world: World) -> None:
        """See `Fate`."""

    def mend(self, world: World) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """Never."""
        return False


def drawn_signals(draw: random.Random) -> Signals | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.002, 0.01])
    return Signals(draw, rate) if rate else None
