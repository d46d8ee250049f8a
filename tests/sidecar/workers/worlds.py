"""A world of tables and views, run by workers: what they publish is checked against the twin as one dataflow's is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import TracebackType

from engine.dataflow import Dataflow, Output
from sidecar.workers.driver import Workers
from tests.engine.dataflow.pairs import Pair, World, upserts
from tests.reference.dataflow import TwinTable
from tests.sidecar.workers.threads import Threads


class Shared(World):
    """The world's views, whose tables' changes go to so many shards."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(world.schemas, world.shape, world.ops)
        self.twins = {name: TwinTable(name, schema, list(self.ops[name])) for name, schema in self.schemas.items()}
        self.build()
        columns = {name: view.real.schema for name, view in self.views.items()}
        self.workers = Workers(count, self._built, self.schemas, columns, crew=Threads(count, self._built))

    def _built(self, flow: Dataflow) -> dict[str, Output]:
        tables = {n: Pair(flow.table(n, s), self.twins[n]) for n, s in self.schemas.items()}
        return {n: v.real.output(n) for n, v in self.shape(tables).items()}

    def push(self, start: int, stop: int) -> None:
        for name, some in self.ops.items():
            at = [i for i, o in enumerate(some) if start <= o.epoch < stop]
            if at:
                self.workers.push(name, upserts(self.schemas[name], some, at))

    def step(self, upper: int) -> None:
        for name, sides in self.workers.step(upper).items():
            self.seen[name].append(sides)

    def run(self, cuts: Sequence[int], *, restart_after: int | None = None, rng: random.Random | None = None) -> None:
        last = 0
        for upper in cuts:
            self.push(last, upper)
            self.step(upper)
            last = upper
            if rng is not None and rng.random() < 0.5:
                self.workers.advance_since(rng.randrange(upper + 1))
                self.workers.exert(100)

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.workers.close()


Made = Callable[[int], tuple[World, random.Random]]
"""A world of a seed, and what chooses further."""
