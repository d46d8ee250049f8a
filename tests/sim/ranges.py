"""What makes ranges long, and readers stand inside them: bursts of transactions that are read at once, checkpoints that are held
back while sinks go on, and a Kafka sink that asks for each transaction, or does not any more after a restart.

Always: drawn apart, as every fate. A checkpoint that is held back is none that fails: the next one is whole.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from headrace.sidecar.runtime.checkpointer import Checkpointer

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World


@dataclass
class Ranges:
    """`each`: whether the Kafka sink asks for each transaction, which may change at a start; `bursts`: how often, a step;
    `hold`: how often checkpoints begin or end to be held back."""

    draw: random.Random
    each: bool
    bursts: float
    hold: float
    held: bool = False

    def begin(self, world: World) -> None:
        """See `Fate`."""
        world.tell(each=self.each)
        world.patches.append(self._in_place)

    def _in_place(self, patch: pytest.MonkeyPatch) -> None:
        real = Checkpointer.due

        def due(checkpoints: Checkpointer, epoch: int, *, force: bool = False) -> bool:
            return (force or not self.held) and real(checkpoints, epoch, force=force)

        patch.setattr(Checkpointer, "due", due)

    def befall(self, world: World) -> None:
        """See `Fate`."""
        if self.draw.random() < self.hold:
            self.held = not self.held
        if self.draw.random() < 0.05:
            world.tell(each=self.draw.random() < 0.5)
        if self.draw.random() < self.bursts:
            shop = self.draw.choice(list(world.shops.values()))
            for _ in range(self.draw.choice([2, 5, 9])):
                shop.transact()
            shop.show(self.draw.choice([20, 200]))

    def mend(self, world: World) -> None:
        """See `Fate`."""
        self.held = False

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def ends(self, world: World, process: Process, error: HeadraceError) -> Any:
        """Never."""
        return False


def drawn_ranges(draw: random.Random) -> Ranges | None:
    """Of one life, if it has this."""
    if draw.random() >= 0.2:
        return None
    return Ranges(draw, draw.random() < 0.5, draw.choice([0.05, 0.2]), draw.choice([0.1, 0.3]))
