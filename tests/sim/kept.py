"""Retention: what the sidecar has said that it needs no more goes from the topics, at any time.

Always: a sidecar that has its state folder never misses it. Where the folder is lost too, nothing may be published of what is
left, until the operator has had the connectors read their tables anew. Dead letters that are cut cannot be replayed: lives in
which they are do not have this.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.odd import Odd
from tests.sim.oracle import positions_in
from tests.sim.shop import Shop
from tests.sim.slots import is_of_another

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World


@dataclass
class Kept:
    """`rate`: how often topics are cut, a step. `letters`: the places of records that nobody could decode, and that were cut;
    `lost`: whether a state folder was lost since, and no connector has read anew; `anew`: whether any ever has."""

    draw: random.Random
    rate: float
    cut: bool = False
    letters: set[str] = field(default_factory=set)
    lost: bool = False
    anew: bool = False
    _undecodable: Callable[[], set[str]] = set

    def begin(self, world: World) -> None:
        """See `Fate`."""
        if any(isinstance(fate, Odd) for fate in world.fates):
            self.rate = 0.0
        wipe, self._undecodable = world._wipe, world.undecodable

        def wiped() -> None:
            wipe()
            self.lost |= self.cut

        world._wipe = wiped  # type: ignore[method-assign]
        world.undecodable = lambda: self._undecodable() | self.letters  # type: ignore[method-assign]

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        if self.draw.random() < self.rate:
            self._cut(world)
        if self.lost and self.draw.random() < 0.2:
            self._anew(world)

    def _cut(self, world: World) -> None:
        """Up to where the newest run's last checkpoint is, if nobody else is there: an older one tells of its own."""
        alone = len(world.processes) == 1 and world.processes[0].number == world.started_count
        running = world.processes[0].running if alone else None
        if running is None:
            return
        world.trace.append("topics are cut")
        before = self._undecodable()
        for name, partitions in positions_in(world.disk.kept(running.generation.manifest)).items():
            if isinstance(world.shops.get(name.partition(".")[0]), Shop):
                for p, offset in partitions.items():
                    place = (name, int(p))
                    world.broker.truncate(place, max(offset, world.broker.partition(place).low))
                    self.cut = True
        self.letters |= before - self._undecodable()

    def _anew(self, world: World) -> list[Shop]:
        self.lost, self.anew = False, True
        shops = [shop for shop in world.shops.values() if isinstance(shop, Shop)]
        for shop in shops:
            shop.lose_slot()
        return shops

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """As where slots are lost, once connectors have read anew."""
        return self.anew and is_of_another(world, error)

    def mend(self, world: World) -> None:
        """See `Fate`."""
        if self.lost:
            for shop in self._anew(world):
                shop.show_all()


def drawn_kept(draw: random.Random) -> Kept | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.05, 0.3])
    return Kept(draw, rate) if rate else None
