"""A record that cannot be decoded stops its table, as nobody said that it may become a dead letter: its views stand, marked, and
the others go on, until an operator names the record under `skip:` and starts again.

Always: a view over such a table is marked from the record's transaction on until somebody has skipped the record, and keeps
rows that it had; one over other tables never is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.shop import OVER, Shop

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

AGAIN = "a second snapshot began"


@dataclass
class Stands:
    """`rate`: how often the operator skips, a step. `skipped`: the END up to which that was done, of each source; `named`: how
    many sidecars had started then, none of which knows it."""

    draw: random.Random
    rate: float
    skipped: dict[str, int]
    named: int = 0

    def begin(self, world: World) -> None:
        """See `Fate`."""
        world.lettered = False
        world.tell(undecodable="stop")
        for shop in world.shops.values():
            shop.broken = 0.08

        def stands(view: str, at: tuple[int, ...] | None) -> bool:
            over = [(t, i, s) for i, s in enumerate(world.shops.values()) for t in OVER[view] & s.tables.keys()]
            if at is None:
                return any(s.broke[t] for t, _, s in over)
            named = world.told.get("skip", frozenset())
            return any(
                self.skipped.get(s.name, -1) < n <= at[i] and not bad_in(s, t) <= named
                for t, i, s in over
                for n in s.broken_at[t]
            )

        def bad_in(shop: Shop, table: str) -> set[str]:
            """Where the bad records of a table are: in a topic made anew, perhaps at a place that was named for the old one."""
            return {place for place in shop.undecodable() if place.startswith(f"{shop.name}.{table}/")}

        world.judge.causes.append(stands)

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        if self.draw.random() < self.rate:
            self._skip(world)

    def _skip(self, world: World) -> None:
        """What is seen of them now is named; what is not seen may be passed over all the same if it comes again there."""
        self._name(world)
        for process in world.ready():
            world.end(process)

    def _name(self, world: World) -> None:
        world.trace.append("bad records are skipped")
        world.tell(skip=frozenset(world.undecodable()))
        self.skipped = {name: shop.lsn for name, shop in world.shops.items()}
        self.named = world.started_count

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """A later snapshot comes while a table stands still."""
        if error.what != AGAIN or not any(shop.base for shop in world.shops.values()):
            return False
        self._name(world)
        return True

    def mend(self, world: World) -> None:
        """See `Fate`."""
        if world.told.get("skip") != frozenset(world.undecodable()):
            self._skip(world)
        for process in world.ready():
            if process.number <= self.named:
                world.end(process)


def drawn_stands(draw: random.Random) -> Stands | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.02, 0.1])
    return Stands(draw, rate, {}) if rate else None
