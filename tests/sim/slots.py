"""A connector's slot is lost: it reads all tables anew, and what it missed is known by that alone.

Always: a state before, and the one that was read, are prefixes of the same commits; nothing between them that the connector
did not send whole is published, as it would be torn.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

OTHER = "the source gives other transactions than the log has bound"
AGAIN = "a snapshot that the log has was begun again"
LACKS = "a transaction that the log has lacks events, and a later snapshot has come"


@dataclass
class Slots:
    """`rate`: how often, a step. `lost`: how often it came."""

    draw: random.Random
    rate: float
    lost: int = 0

    def at_door(self, world: World, process: Process) -> None:
        """See `ViewAction`."""

    def begin(self, world: World) -> None:
        """See `ViewAction`."""

    def mend(self, world: World) -> None:
        """See `ViewAction`."""

    def befall(self, world: World) -> None:
        """See `ViewAction`."""
        if self.draw.random() < self.rate:
            self.lost += 1
            world.trace.append("a slot is lost")
            self.draw.choice(list(world.shops.values())).lose_slot()

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """See `is_of_another`."""
        return self.lost > 0 and is_of_another(world, error)


def is_of_another(world: World, error: HeadraceError) -> bool:
    """Whether a start is refused for another snapshot: one that the log has, and no checkpoint, cannot be read again once
    another has begun. Of one without rows the log has nothing, and is seen to have other transactions after it. What lacks
    events is not all in Kafka."""
    if error.what == LACKS:
        return not world.shops[str(error.where["source"])].is_there(int(str(error.where["upto"])))
    if error.what != OTHER:
        return error.what == AGAIN
    bound, found = str(error.where["bound"]), str(error.where["found"])
    rowless = world.shops[str(error.where["source"])].rowless
    last, now = (int(at.split(":")[1]) for at in (bound, found))
    between = any(last < lsn < now for lsn in rowless)  # it gives nothing, and what was before it is passed over
    return bound.startswith("-1:") or between or (found.startswith("-1:") and bool(rowless))


def drawn_slots(draw: random.Random) -> Slots | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.02, 0.06])
    return Slots(draw, rate) if rate else None
