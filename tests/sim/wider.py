"""Partitions are added to the topic of a table while everybody runs: its keys go to other partitions from then on.

Always: what was sent stays where it is, and what waits to be sent goes where its producer meant it to; a transaction may have
events in partitions that no sidecar knows yet. Not in lives with incremental snapshots: of these, a row that is read after a
change of its key, from another partition, has nothing that tells it is older (docs/debezium.md names it).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.beside import Incremental
from tests.sim.shop import Shop

if TYPE_CHECKING:
    from engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

MOST = 5
"""Partitions of one topic."""


@dataclass
class Wider:
    """`rate`: how often, a step."""

    draw: random.Random
    rate: float

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""
        if self.rate and self.draw.random() < self.rate / 20:
            self._widen(world)

    def begin(self, world: World) -> None:
        """See `Fate`."""
        if any(isinstance(fate, Incremental) for fate in world.fates):
            self.rate = 0.0

    def mend(self, world: World) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        if self.draw.random() < self.rate:
            self._widen(world)

    def _widen(self, world: World) -> None:
        shop = self.draw.choice([s for s in world.shops.values() if isinstance(s, Shop)])
        table = self.draw.choice(list(shop.tables))
        shop.partitions[table] = min(MOST, shop.partitions[table] + self.draw.choice([1, 2]))
        world.broker.create(f"{shop.name}.{table}", shop.partitions[table])
        world.trace.append("a topic is wider")

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """Never."""
        return False


def drawn_wider(draw: random.Random) -> Wider | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.03, 0.1])
    return Wider(draw, rate) if rate else None
