"""Every supported view, and some made at random, on two shards: what one dataflow publishes at each epoch, to the byte."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from headrace.engine.dataflow import Dataflow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.worker import Task
from headrace.views.compile import compile_views
from headrace.views.spec import ViewSpec
from tests.engine.dataflow.test_determinism import as_bytes
from tests.oracle.test_views import Change, Shop, upserts
from tests.sidecar.execution.workers.threads import Threads
from tests.views.corpus import SUPPORTED
from tests.views.queries import query
from tests.views.shop import TABLES, catalog, schema_of

EPOCHS = 12
RANDOM = 25


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_two_shards_publish_what_one_does(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    specs = [ViewSpec(s.name, s.sql) for s in SUPPORTED]
    specs += [ViewSpec(f"random{k}", query(chance)) for k in range(RANDOM)]
    views = compile_views(specs, catalog())
    flow = Dataflow()
    plans = Plans.of(views, {f"public.{table}": schema_of(table) for table in TABLES}, {v.name for v in views})
    outputs = {name: collection.output(name) for name, collection in plans(flow).items()}
    shop = Shop(chance)

    with Workers(Threads(2, Task(plans, tmp_path)), plans.tables, plans.schemas) as workers:
        published = 0
        while flow.frontier < EPOCHS:
            upper = min(EPOCHS, flow.frontier + chance.randint(1, 4))
            changed: dict[str, list[tuple[int, Change]]] = {}
            for epoch in range(flow.frontier, upper):
                for change in (c for _ in range(3) for c in shop.transaction()):
                    changed.setdefault(change.table, []).append((epoch, change))
            for table, changes in changed.items():
                flow.push(f"public.{table}", upserts(table, changes))
                workers.push(f"public.{table}", upserts(table, changes))
            flow.step(upper)
            workers.step(upper)
            for name, output in outputs.items():
                rows, errors = output.take()
                mine = workers.outputs[name].take()
                sql = next(v.spec.sql for v in views if v.name == name)
                assert as_bytes([mine[0]]) == as_bytes([rows]), (name, sql)
                assert as_bytes([mine[1]]) == as_bytes([errors]), (name, sql)
                published += len(rows)
            flow.advance_since(upper - 1)
            workers.advance_since(upper - 1)
        for name, output in outputs.items():
            if chance.random() < 0.3:
                whole, shared = output.snapshot(EPOCHS - 1), workers.outputs[name].snapshot(EPOCHS - 1)
                assert [as_bytes([side]) for side in whole] == [as_bytes([side]) for side in shared], name
        sizes = workers.sizes()
        assert min(sizes) > sum(sizes) / 4, "one shard has it all"
    assert published > 1000


def test_every_shard_gives_back_what_its_allocators_keep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[str] = []
    for module in ("headrace.sidecar.execution.local", "headrace.sidecar.execution.workers.coordinator"):
        monkeypatch.setattr(f"{module}.give_back", partial(given.append, module))
    views = compile_views([ViewSpec(SUPPORTED[0].name, SUPPORTED[0].sql)], catalog())
    plans = Plans.of(views, {f"public.{table}": schema_of(table) for table in TABLES}, {v.name for v in views})
    with Workers(Threads(2, Task(plans, tmp_path)), plans.tables, plans.schemas) as workers:
        workers.give_back()
        workers.step(1)
        workers.outputs[views[0].name].take()
    assert sorted(given) == ["headrace.sidecar.execution.local"] * 2 + [
        "headrace.sidecar.execution.workers.coordinator"
    ]
