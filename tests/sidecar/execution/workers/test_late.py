"""Recursions that are late in several workers: other views are those of one dataflow that takes all work, and they come back."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.engine.dataflow import Dataflow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.worker import Task
from headrace.views.view_models import RecursionModel
from tests.oracle.test_views import Shop, upserts
from tests.seeds import seeds
from tests.sidecar.execution.workers.threads import Threads
from tests.views.shop import TABLES, schema_of
from tests.views.test_late_recursion import Held, held, late
from tests.views.test_recursion_shards import views_of

EPOCHS = 14


@pytest.mark.parametrize("how", [RecursionModel(strategy=s) for s in ("auto", "history")], ids=str)
@pytest.mark.parametrize("step_work", [1, 400])
@pytest.mark.parametrize("seed", seeds(4))
def test_other_views_are_as_ever_and_late_ones_come_back_whole(
    tmp_path: Path, seed: int, step_work: int, how: RecursionModel
) -> None:
    views = [replace(view, spec=replace(view.spec, recursion=how)) for view in views_of(seed)]
    shop, rng = Shop(random.Random(seed)), random.Random(f"{seed}/{step_work}")
    plans = Plans.of(views, {f"public.{table}": schema_of(table) for table in TABLES}, {v.name for v in views})
    flow = Dataflow()
    outputs = {name: collection.output(name) for name, collection in plans(flow).items()}

    def begun() -> Workers:
        flow = Workers(Threads(2, Task(plans, tmp_path)), plans.tables, plans.schemas)
        flow.limit_steps(step_work)
        return flow

    workers, told, was = begun(), {name: Counter[tuple[object, ...]]() for name in outputs}, set[str]()
    lates = returns = 0
    try:
        for epoch in range(EPOCHS + 5):
            back = epoch >= EPOCHS or (workers.is_late and workers.evaluate(1) and rng.random() < 0.8)
            changes = [] if back else shop.transaction()
            for table in TABLES:
                some = [(epoch, change) for change in changes if change.table == table]
                for one in (flow, workers) if some else ():
                    one.push(f"public.{table}", upserts(table, some))
            flow.step(epoch + 1)
            workers.step(epoch + 1)
            for name, output in workers.outputs.items():
                told[name].update(held(output.take()))
            if rng.random() < 0.2:
                before = {f.standing.since for f in workers.late_groups()}
                files = workers.hold()()
                workers.close()
                workers = begun()
                workers.recover(epoch + 1, files, 2)
                assert {f.standing.since for f in workers.late_groups()} == before
            workers.evaluate(0 if epoch >= EPOCHS else rng.choice([1, 10_000, 100_000]))
            for name, output in workers.outputs.items():
                mine: Held = held(output.snapshot(epoch))
                assert mine == Counter({row: n for row, n in told[name].items() if n}), (
                    "what was put out is what is held"
                )
                assert late(mine) or mine == held(outputs[name].snapshot(epoch)), name
                assert late(mine) == any(name in facts.views for facts in workers.late_groups())
                lates, returns = lates + late(mine), returns + (name in was and not late(mine))
                was = was | {name} if late(mine) else was - {name}
            flow.advance_since(epoch - 1)
            workers.advance_since(epoch - 1)
        assert not workers.is_late
    finally:
        workers.close()
    assert lates > 2
    assert returns
