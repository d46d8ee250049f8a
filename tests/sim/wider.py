"""Partitions are added to the topic of a table while everybody runs: its keys go to other partitions from then on.

Always: what was sent stays where it is, and what waits to be sent goes where its producer meant it to; a transaction may have
events in partitions that no sidecar knows yet. Where rows of an incremental snapshot wait to be sent, it comes more often, and a
partition of before may be slow from then on: changes of the same keys overtake them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.shop import Shop

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
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

    def mend(self, world: World) -> None:
        """See `Fate`."""
        for shop in self._shops(world):
            shop.slow.clear()

    def befall(self, world: World) -> None:
        """See `Fate`."""
        if self.draw.random() < self.rate:
            self._widen(world)
        for shop in self._shops(world):
            rows = sorted(p for p, q in shop.queues.items() if any(b'"incremental"' in (v or b"") for _, _, _, v in q))
            if rows and self.draw.random() < 3 * self.rate:
                place = self.draw.choice(rows)
                self._add(world, shop, place[0].removeprefix(f"{shop.name}."))
                shop.slow = {place}
            elif shop.slow and self.draw.random() < 0.2:
                shop.slow.clear()

    @staticmethod
    def _shops(world: World) -> list[Shop]:
        return [s for s in world.shops.values() if isinstance(s, Shop)]

    def _widen(self, world: World) -> None:
        shop = self.draw.choice(self._shops(world))
        self._add(world, shop, self.draw.choice(list(shop.tables)))

    def _add(self, world: World, shop: Shop, table: str) -> None:
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
