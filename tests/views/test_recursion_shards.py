"""Recursions by state in several shards, and over restarts: together they put out and answer what one does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow import Dataflow, Output
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.recursive import RecursiveNode
from headrace.engine.dataflow.shard import Shard
from headrace.engine.recursion.switching import Strategy
from headrace.sidecar.execution.workers.shard_router import Dealer
from headrace.views.compile import CompiledView, compile_query
from headrace.views.errors import ViewError
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.engine.dataflow.shards import in_shards
from tests.oracle import datalog, recursive_cases
from tests.oracle.test_views import Shop, upserts
from tests.views.shop import TABLES, catalog, schema_of

EPOCHS = 10
RESTART = 4
_RESTARTED = (RESTART, RESTART + 1)
"""At these epochs the past is not asked: a restart forgets it."""
Told = Counter[tuple[object, ...]]


def views_of(seed: int) -> list[CompiledView]:
    """A few queries that can be kept, and others."""
    found = []
    for k, sql in enumerate(recursive_cases.queries_of(seed, 6)):
        try:
            found.append(compile_query(ViewSpec(f"q{k}", sql), catalog(), {}))
        except ViewError:
            continue
    return found


def begun(views: Sequence[CompiledView], shard: Shard) -> tuple[Dataflow, list[Output]]:
    flow = Dataflow(shard)
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    return flow, [render(view, flow, {}).output(view.name) for view in views]


def groups(outputs: Iterable[Output]) -> list[RecursiveNode]:
    nodes = reachable(output.collection.node for output in outputs)
    return sorted((n for n in nodes if isinstance(n, RecursiveNode)), key=lambda n: n.fingerprint)


def told(sides: tuple[Updates, Updates], what: str) -> Told:
    found: Told = Counter()
    for side, updates in zip(("rows", "errors"), sides, strict=True):
        columns = [c.to_pylist() for c in updates.rows.columns]
        for *row, time, diff in zip(*columns, updates.times.tolist(), updates.diffs.tolist(), strict=True):
            found[what, side, *map(repr, row), time] += diff
    return found


def story(seed: int, shard: Shard, restart: int, strategy: Strategy | None) -> tuple[list[Told], list[int]]:
    """What each view put out and answered, step by step; the groups' Bootstraps since the last restart."""
    views, shop, rng = views_of(seed), Shop(random.Random(seed)), random.Random(seed)
    flow, outputs = begun(views, shard)
    dealers = {table: Dealer(schema_of(table), shard.count) for table in TABLES}
    found: list[Told] = []
    for epoch in range(EPOCHS):
        changes = shop.transaction()
        for node in groups(outputs) if strategy else ():
            node.state.strategy = strategy or node.state.strategy
        for table in TABLES:
            some = [(epoch, change) for change in changes if change.table == table]
            mine = dealers[table].dealt(upserts(table, some))[shard.index] if some else None
            if mine is not None:
                flow.push(f"public.{table}", mine)
        flow.step(epoch + 1)
        asked = rng.randrange(max(epoch - 1, 0), epoch + 1)
        here: Told = Counter()
        for output in outputs:
            here.update(told(output.take(), f"{output.name} put out"))
            here.update(told(output.snapshot(epoch), f"{output.name} holds"))
            if epoch not in _RESTARTED:
                here.update(told(output.snapshot(asked), f"{output.name} held"))
        found.append(here)
        flow.advance_since(epoch - 1)
        if rng.random() < 0.5:
            # A checkpoint that nobody reads: what follows is written beside it.
            flow.arrangements()
        if epoch == restart:
            held = {name: arranged.spine.batches() for name, arranged in flow.arrangements().items()}
            flow, outputs = begun(views, shard)
            flow.restore(epoch + 1, held)
    return found, [node.state.account.bootstraps for node in groups(outputs)]


def together(parts: Sequence[object]) -> list[Told]:
    """What all shards told."""
    found: list[Told] = [Counter() for _ in range(EPOCHS)]
    for part in parts:
        if isinstance(part, BaseException):
            raise part
        for whole, some in zip(found, part[0], strict=True):  # type: ignore[index]
            whole.update(some)
    return [Counter({k: n for k, n in some.items() if n}) for some in found]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_shards_put_out_what_one_does(seed: int, count: int) -> None:
    alone = in_shards(1, lambda shard: story(seed, shard, -2, None))
    several = in_shards(count, lambda shard: story(seed, shard, RESTART, None))
    assert together(several) == together(alone)


@pytest.mark.parametrize("seed", range(4))
def test_a_restart_goes_on_from_the_state(seed: int) -> None:
    never = story(seed, Shard(), -2, Strategy.UPDATE)
    again = story(seed, Shard(), RESTART, Strategy.UPDATE)
    assert together([again]) == together([never])


def test_a_restart_makes_no_bootstrap() -> None:
    kept = [again for seed in range(4) for again in story(seed, Shard(), RESTART, Strategy.UPDATE)[1]]
    assert kept
    assert kept.count(0) > len(kept) // 2, "those whose derivations fail begin anew at each change"


def test_a_program_is_whole_in_several_shards() -> None:
    seeds = [seed for seed in range(40) if "count" not in datalog.Drawn(random.Random(seed)).program()][:4]

    def run(seed: int, shard: Shard) -> tuple[list[Told], int]:
        rng = random.Random(seed)
        text = datalog.Drawn(rng).program()
        flow = Dataflow(shard)
        for name in datalog.TABLES:
            flow.table(f"public.{name}", datalog.schema_of(name))
        rendered = {}
        outputs = []
        for view in datalog.compiled(text):
            rendered[view.name] = render(view, flow, rendered)
            outputs.append(rendered[view.name].output(view.name))
        found = []
        for epoch, changes in enumerate(datalog.drawn_changes(rng, EPOCHS)):
            for name in datalog.TABLES:
                due = [(epoch, c) for c in changes if c[0] == name]
                if due:
                    dealer = Dealer(datalog.schema_of(name), shard.count)
                    mine = dealer.dealt(datalog.upserts(name, due))[shard.index]
                    if mine is not None:
                        flow.push(f"public.{name}", mine)
            flow.step(epoch + 1)
            here: Told = Counter()
            for output in outputs:
                here.update(told(output.take(), output.name))
            found.append(here)
        return found, 0

    for seed in seeds:
        alone = in_shards(1, lambda shard, seed=seed: run(seed, shard))
        several = in_shards(2, lambda shard, seed=seed: run(seed, shard))
        assert together(several) == together(alone), seed
