"""A column is dropped, and comes back: the view that names it stands still, marked, and no other does, until a resync.

Always: that view is marked from the first row without the column on; when it goes on, it has each row's own value again,
those that were written without it among them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.sidecar.operations.resync import Resync, ResyncError, TableRead
from tests.sim.shop import BROKEN, CUSTOMERS, Shop, _Step, weight

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

VIEW = "weights"


def read(shop: Shop, lacking: list[int]) -> TableRead:
    """The customers as the source has them now: none is `lacking` any more. Raises ResyncError while there is no column."""
    if not shop.weighed:
        raise ResyncError("column w does not exist", table=CUSTOMERS)
    lacking.clear()
    rows = sorted((+shop.state[CUSTOMERS]).elements())
    return TableRead(shop.lsn, pa.array([f"{id_}\t{v}\t{weight((id_, v))}" for id_, v in rows], pa.large_string()))


def _lacks(topic: str, value: bytes | None) -> bool:
    """Whether a record brings a customer, where none has the column."""
    text = (value or b"").decode()
    return topic.endswith(CUSTOMERS) and '"after": {' in text and str(BROKEN) not in text


@dataclass
class Resyncs:
    """An operator who has a table of the first source read anew. `asked`: the run that was, last, and whether that is under
    way."""

    table: str
    asked: tuple[Process, bool] | None = None

    def ask(self, world: World, read: Callable[[], TableRead]) -> None:
        """A run that is there is asked; none is under way in it."""
        for process in world.ready()[-1:]:
            if process.running is None or self.asked == (process, True):
                continue
            runtime = process.running.runtime
            world.trace.append(f"{process.number} is to resync {self.table}")
            self.asked = (process, True)
            runtime.jobs.append(
                Resync(self.table, process._executor("resync"), partial(self._ended, process),
                       runtime.parts.intakes[0], process.running.schemas[self.table], read)
            )  # fmt: skip

    def _ended(self, process: Process, _told: object) -> None:
        self.asked = (process, False)


@dataclass
class Columns:
    """`rate`: how often it goes or comes back, a step. `lacking`: the LSNs at which rows were written without it, and that no
    resync has read since; `ever`: whether there were any."""

    draw: random.Random
    rate: float
    lacking: list[int] = field(default_factory=list)
    ever: bool = False
    resyncs: Resyncs = field(default_factory=lambda: Resyncs(CUSTOMERS))

    def begin(self, world: World) -> None:
        """See `Fate`."""
        shop = next(iter(world.shops.values()))
        shop.weighed = {CUSTOMERS}
        world.tell(weighed=True)
        committed: Callable[..., None] = shop._committed

        def noting(step: _Step) -> None:
            if not shop.weighed:
                self.ever = True
                self.lacking += [shop.lsn for topic, _, _, value in step.records if _lacks(topic, value)]
            committed(step)

        def stands(view: str, at: tuple[int, ...] | None) -> bool:
            if view != VIEW or at is None:
                return view == VIEW and self.ever
            return any(shop.read_after < lsn <= at[0] for lsn in self.lacking)

        shop._committed = noting  # type: ignore[method-assign]
        world.judge.causes.append(stands)

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        shop = next(iter(world.shops.values()))
        if self.draw.random() < self.rate:
            shop.weighed ^= {CUSTOMERS}
            world.trace.append("a column comes or goes")
        if shop.weighed and self.ever and self.draw.random() < 0.2:
            self._resync(world, shop)

    def _resync(self, world: World, shop: Shop) -> None:
        self.resyncs.ask(world, partial(read, shop, self.lacking))

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """Never."""
        return False

    def mend(self, world: World) -> None:
        """See `Fate`."""
        shop = next(iter(world.shops.values()))
        shop.weighed = {CUSTOMERS}
        if any(VIEW in views for views in world.judge.standing.values()):
            self._resync(world, shop)


def drawn_columns(draw: random.Random) -> Columns | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.03, 0.1])
    return Columns(draw, rate) if rate else None
