"""A broker that answers late how far its partitions go, and one that is killed once it has decided a transaction, takes it for
complete when it is back, and has written none of its markers (seen of Kafka 4.3.0).

Always: what it has decided stands nowhere then, until the next end of the same producer, which ends that too, as it is itself.
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
class Late:
    """`after`: how often an answer is asked for before it is there, of which one is drawn. `rate`: how often markers of sinks are
    lost, at a door; `lost`: how often they were."""

    draw: random.Random
    after: tuple[int, ...]
    rate: float
    lost: int = 0

    def begin(self, world: World) -> None:
        """See `Fate`."""
        world.broker.late = lambda: self.draw.choice(self.after)

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""
        if self.draw.random() >= self.rate:
            return
        for name in sorted(world.broker.producers.keys() - world.shops.keys()):
            if world.broker.unmarked(name):
                world.broker.lose_markers(name)
                world.trace.append(f"markers of {name} are lost")
                self.lost += 1
                for one in world._alive():
                    one.excuses |= {"sink"}  # again and again, it is as if the broker did not answer

    def befall(self, world: World) -> None:
        """See `Fate`."""

    def mend(self, world: World) -> None:
        """See `Fate`."""

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """It is no cause of any."""
        return False


def drawn_late(draw: random.Random) -> Late | None:
    """Of one life, if it has this."""
    after = draw.choice([(0,), (0,), (0, 1), (0, 1, 3), (3, 10)])
    rate = draw.choice([0.0, 0.0, 0.0, 0.003, 0.03])
    return Late(draw, after, rate) if rate or after != (0,) else None
