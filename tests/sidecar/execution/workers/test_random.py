"""Random histories through workers: each epoch's changes are the twin's and one dataflow's, for any count of shards."""

from __future__ import annotations

from functools import partial

import pytest

from tests.engine.dataflow import test_extremes, test_partners, test_random, test_top
from tests.engine.dataflow.pairs import Shape, cuts_of
from tests.engine.dataflow.standard import Make, seeds
from tests.engine.dataflow.test_determinism import as_bytes
from tests.sidecar.execution.workers.worlds import Kept, Shared

WORLDS: dict[str, tuple[Make, Shape]] = {
    **{name: (test_random.world, shape) for name, shape in test_random.SHAPES.items()},
    **{name: (test_partners.world, shape) for name, shape in test_partners.SHAPES.items()},
    **{f"top {name}": (partial(test_extremes.world, epochs=7, rate=6), shape)
       for name, shape in test_top.SHAPES.items()},
}  # fmt: skip


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", WORLDS)
@seeds(4)
def test_changes_of_each_epoch_in_any_cut(name: str, count: int, seed: int) -> None:
    check(name, count, seed, Shared)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", WORLDS)
@seeds(2)
def test_the_same_of_rows_that_workers_have_read(name: str, count: int, seed: int) -> None:
    check(name, count, seed, Kept)


def check(name: str, count: int, seed: int, kind: type[Shared]) -> None:
    make, shape = WORLDS[name]
    world, rng = make(shape, seed)
    with kind(world, count) as shared:
        shared.run(cuts_of(rng, world.end), rng=rng)
        shared.check_changes()
        if isinstance(shared, Kept):
            shared.check_let_go()
    world.build()
    world.run([world.end])
    for view, seen in world.seen.items():
        for side in (0, 1):
            parts = [one[side] for one in shared.seen[view]] or [seen[0][side]]
            assert len(seen) == 1
            if len(seen[0][side]) or any(len(p) for p in parts):
                assert as_bytes(parts) == as_bytes([seen[0][side]]), (view, side)
