"""Topics are made anew while no sidecar runs: an operator deletes a connector with its offsets, slot and topics, and registers it
again, as errors tell him to; it reads all tables. He empties the state folder then, or once a start tells him to.

Always: a state of the old topics is refused by name, and what sinks hold of them is compared, whatever the lengths of
the new ones; a new incarnation may begin.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.odd import Odd
from tests.sim.shop import Shop

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

REMADE = {
    "the topic was deleted and made anew while it was not read",
    "the topic ends before the position: it was made anew or its log was cut",
    "the source gives other transactions than the log has bound",
    "a snapshot that the log has was begun again",
}
"""What a start says that has positions of the old topics, or bindings alone."""


@dataclass
class Remade:
    """`rate`: how often, a step without a sidecar. `prompt`: whether the operator empties the state folder himself. `letters`:
    the places of records that nobody could decode in the old topics; `count`: how often it came."""

    draw: random.Random
    rate: float
    prompt: bool
    letters: set[str] = field(default_factory=set)
    count: int = 0

    def begin(self, world: World) -> None:
        """See `Fate`."""
        if any(isinstance(fate, Odd) for fate in world.fates):
            self.rate = 0.0  # what it replays must be in its topic
        undecodable = world.undecodable
        world.undecodable = lambda: undecodable() | self.letters  # type: ignore[method-assign]
        self._undecodable = undecodable

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        if world._alive() or world.current or self.draw.random() >= self.rate:
            return
        shop = self.draw.choice([s for s in world.shops.values() if isinstance(s, Shop)])
        self._remake(world, shop)
        if self.prompt:
            world._wipe()

    def _remake(self, world: World, shop: Shop) -> None:
        world.trace.append(f"the topics of {shop.name} are made anew")
        self.count += 1
        letters = {letter.id for letter in world.letters.read()}
        self.letters |= {place for place in shop.undecodable() if place in letters}
        broker = world.broker
        if shop.exactly_once and shop._writer >= 0:
            shop._writer = broker.init(shop.name)
        for name in [n for n in broker.topics if n.startswith(f"{shop.name}.")]:
            old = broker.topics.pop(name)
            broker.create(name, len(old.partitions), old.config)
            broker.committed = {place: at for place, at in broker.committed.items() if place[0] != name}
        shop.lose_slot()
        world.judge.forgiven |= {"s", "k"}
        world.judge._forget(world.database.store.frontier)

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """A start that has a state of the old topics."""
        return self.count > 0 and error.what in REMADE

    def mend(self, world: World) -> None:
        """See `Fate`."""


def drawn_remade(draw: random.Random) -> Remade | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.2, 0.6])
    return Remade(draw, rate, draw.random() < 0.5) if rate else None
