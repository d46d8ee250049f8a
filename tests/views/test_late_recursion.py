"""Views with recursions that take more than a step may, against the same views in a dataflow whose steps take all of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from headrace.engine.batch.batch import Batch
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow import Dataflow, Output
from headrace.engine.dataflow.shard import Shard
from headrace.engine.recursion.late import LATE
from headrace.views.compile import CompiledView
from headrace.views.view_models import RecursionModel
from tests.oracle.test_views import Change, Shop, upserts
from tests.seeds import seeds
from tests.views.shop import TABLES
from tests.views.test_recursion_shards import begun, views_of

EPOCHS = 14
Held = Counter[tuple[object, ...]]


def held(sides: tuple[Updates, Updates]) -> Held:
    """Rows and errors with their copies, whenever they came."""
    found: Held = Counter()
    for side, updates in zip(("rows", "errors"), sides, strict=True):
        columns = [c.to_pylist() for c in updates.rows.columns]
        for *row, diff in zip(*columns, updates.diffs.tolist(), strict=True):
            found[side, *map(repr, row)] += diff
    return Counter({k: n for k, n in found.items() if n})


def late(content: Held) -> bool:
    return any(side == "errors" and LATE in str(text[0]) for side, *text in content)


@dataclass
class Run:
    """A dataflow of some views, and what each of them put out so far, by epoch."""

    views: Sequence[CompiledView]
    step_work: int
    flow: Dataflow = field(init=False)
    outputs: list[Output] = field(init=False)
    told: list[list[Held]] = field(init=False)

    def __post_init__(self) -> None:
        self.flow, self.outputs = begun(self.views, Shard())
        self.flow.late.step_work = self.step_work
        self.told = [[] for _ in self.outputs]

    def step(self, epoch: int, changes: Sequence[Change]) -> None:
        for table in TABLES:
            some = [(epoch, change) for change in changes if change.table == table]
            if some:
                self.flow.push(f"public.{table}", upserts(table, some))
        self.flow.step(epoch + 1)
        for told, output in zip(self.told, self.outputs, strict=True):
            told.append(held(output.take()))

    def checkpoint(self) -> tuple[int, Mapping[str, Sequence[Batch]], list[list[Held]]]:
        batches = {name: arranged.spine.batches() for name, arranged in self.flow.arrangements().items()}
        return self.flow.frontier, batches, [list(some) for some in self.told]

    def resume(self, frontier: int, batches: Mapping[str, Sequence[Batch]], told: list[list[Held]]) -> None:
        self.flow, self.outputs = begun(self.views, Shard())
        self.flow.late.step_work = self.step_work
        self.flow.restore(frontier, batches)
        self.told = [list(some) for some in told]

    def content(self, epoch: int) -> list[Held]:
        return [held(output.snapshot(epoch)) for output in self.outputs]

    def sums(self, epoch: int) -> list[Held]:
        found = []
        for told in self.told:
            total: Held = Counter()
            for some in told[: epoch + 1]:
                total.update(some)
            found.append(Counter({k: n for k, n in total.items() if n}))
        return found


@pytest.mark.parametrize("how", [RecursionModel(strategy=s) for s in ("auto", "update", "history")], ids=str)
@pytest.mark.parametrize("step_work", [1, 40, 400])
@pytest.mark.parametrize("seed", seeds(6))
def test_other_views_are_as_ever_and_late_ones_come_back_whole(seed: int, step_work: int, how: RecursionModel) -> None:
    views = [replace(view, spec=replace(view.spec, recursion=how)) for view in views_of(seed)]
    shop, rng = Shop(random.Random(seed)), random.Random(f"{seed}/{step_work}")
    alone, beside = Run(views, 0), Run(views, step_work)
    history: list[Sequence[Change]] = []
    kept = None
    lates = returns = 0
    was = [False] * len(views)
    while len(history) < EPOCHS:
        epoch = len(history)
        back = beside.flow.late.ended and rng.random() < 0.8
        history.append([] if back else shop.transaction())
        for run in (alone, beside):
            run.step(epoch, history[-1])
        if rng.random() < 0.3:
            kept = beside.checkpoint()
        if kept is not None and rng.random() < 0.3:
            beside.resume(*kept)
            for again in range(kept[0], epoch + 1):
                beside.step(again, history[again])
        beside.flow.late.go_on(rng.choice([1, 10_000, 100_000]))
        for run in (alone, beside):
            assert run.content(epoch) == run.sums(epoch), "what was put out is what is held"
        for k, (mine, other) in enumerate(zip(beside.content(epoch), alone.content(epoch), strict=True)):
            lates += late(mine)
            returns += was[k] and not late(mine)
            was[k] = late(mine)
            assert late(mine) or mine == other, views[k].name
        since = max(epoch - 2, beside.flow.frontier - 1 if kept is not None else 0)
        for asked in range(since, epoch + 1):
            assert beside.content(asked) == beside.sums(asked)
    for epoch in range(EPOCHS, EPOCHS + 5):  # one may read another
        beside.flow.late.go_on(0)
        assert beside.flow.late.ended or not beside.flow.late
        for run in (alone, beside):
            run.step(epoch, [])
    assert beside.content(epoch) == alone.content(epoch) == beside.sums(epoch)
    assert lates > 5
    assert returns
