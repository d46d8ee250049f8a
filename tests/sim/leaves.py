"""A table of a shop is partitioned: each leaf has a topic, counts in END and a scan in a snapshot of its own.

Always: a row that moves to another leaf is deleted in one and
inserted in the other, and a TRUNCATE of the table is an event of every leaf, as Debezium sends it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.sim.shop import ORDERS

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

LEAVES = (f"{ORDERS}_low", f"{ORDERS}_high")


@dataclass
class Leaves:
    """Of the orders."""

    def begin(self, world: World) -> None:
        """See `Fate`."""
        shop = next(iter(world.shops.values()))
        shop.leaves = {ORDERS: LEAVES}
        for leaf in LEAVES:
            world.broker.create(f"{shop.name}.{leaf}")
        world.tell(leaves=True)

    def befall(self, world: World) -> None:
        """See `Fate`."""

    def mend(self, world: World) -> None:
        """See `Fate`."""

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def ends(self, world: World, process: Process, error: HeadraceError) -> Any:
        """Never."""
        return False


def drawn_leaves(draw: random.Random) -> Leaves | None:
    """Of one life, if it has this."""
    return Leaves() if draw.random() < 0.08 else None
