"""A column that is given another type, or goes, and is what it was again: what is done then is drawn for the life. `pause`: the
view that names it stands, marked, until a resync has read the table; `evolve`: so it does for another type, and where the column
is gone it goes on with NULLs; `fail`: the sidecar ends, until the operator has said `pause`.

Always: the view answers the same whether the column is NULL, where it may be, or what it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from headrace.sidecar.intake.schema_drift import EVOLVE, FAIL, PAUSE, SchemaChanged
from headrace.sidecar.operations.resync import ResyncError, TableRead
from tests.sim.columns import Resyncs
from tests.sim.declared import GRADE
from tests.sim.shop import BROKEN, GONE, NUMBER, ORDERS, TEXT, Shop, _Step, weight

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

VIEW = "grades"


@dataclass
class Kinds:
    """`rate`: how often the column changes, a step. `unlike`: (LSN, whether it was gone) of the commits that wrote rows that have
    it not as declared, and that no resync has read since; `ever`: whether a view may have stood for it."""

    draw: random.Random
    rate: float
    policy: str
    unlike: list[tuple[int, bool]] = field(default_factory=list)
    ever: bool = False
    resyncs: Resyncs = field(default_factory=lambda: Resyncs(ORDERS))

    def begin(self, world: World) -> None:
        """See `Fate`."""
        shop = next(iter(world.shops.values()))
        shop.graded = NUMBER
        world.tell(grade=GRADE[self.policy == EVOLVE], schema_changes=self.policy)
        committed: Callable[..., None] = shop._committed

        def noting(step: _Step) -> None:
            for topic, _, _, value in step.records:
                after = orjson.loads(value or b"{}").get("after") if topic.endswith(ORDERS) else None
                if after and after["id"] != BROKEN and not isinstance(after.get("g"), int):
                    self.unlike.append((shop.lsn, "g" not in after))
                    self.ever |= self._stops("g" not in after)
            committed(step)

        def stands(view: str, at: tuple[int, ...] | None) -> bool:
            if view != VIEW or at is None:
                return view == VIEW and self.ever
            return any(shop.read_after < lsn <= at[0] and self._stops(gone) for lsn, gone in self.unlike)

        shop._committed = noting  # type: ignore[method-assign]
        world.judge.causes.append(stands)

    def _stops(self, gone: bool) -> bool:
        return not (gone and self.policy == EVOLVE)

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        shop = next(iter(world.shops.values()))
        if self.draw.random() < self.rate:
            shop.graded = self.draw.choice([NUMBER, TEXT, GONE])
            world.trace.append(f"a column is {shop.graded}")
        if shop.graded == NUMBER and self.unlike and self.draw.random() < 0.2:
            self.resyncs.ask(world, partial(self._read, shop))

    def _read(self, shop: Shop) -> TableRead:
        """The orders as the source has them now. Raises ResyncError while the column is not as declared."""
        if shop.graded != NUMBER:
            raise ResyncError(f"column g is {shop.graded}", table=ORDERS)
        self.unlike.clear()
        rows = sorted((+shop.state[ORDERS]).elements())
        return TableRead(shop.lsn, pa.array([f"{i}\t{v}\t{weight((i, v))}" for i, v in rows], pa.large_string()))

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool | None:
        """The policy says so, and there was a row without it: the operator chooses another."""
        if not isinstance(error, SchemaChanged) or error.where.get("column") != "g" or not self.ever:
            return False
        self.policy = PAUSE
        world.tell(schema_changes=PAUSE)
        return None

    def mend(self, world: World) -> None:
        """See `Fate`."""
        shop = next(iter(world.shops.values()))
        shop.graded = NUMBER
        if any(VIEW in views for views in world.judge.standing.values()):
            self.resyncs.ask(world, partial(self._read, shop))


def drawn_kinds(draw: random.Random) -> Kinds | None:
    """Of one life, if it has this."""
    rate, policy = draw.choice([0.0, 0.0, 0.0, 0.0, 0.03, 0.1]), draw.choice([PAUSE, EVOLVE, EVOLVE, FAIL])
    return Kinds(draw, rate, policy) if rate else None
