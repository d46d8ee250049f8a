"""Random histories through workers: each epoch's changes are the twin's and one dataflow's, for any count of shards."""

from __future__ import annotations

from functools import partial

import pytest

from tests.engine.dataflow import test_extremes, test_partners, test_random, test_top
from tests.engine.dataflow.pairs import Shape, cuts_of
from tests.engine.dataflow.standard import Make, seeds
from tests.engine.dataflow.test_determinism import as_bytes
from tests.sidecar.workers.worlds import Shared

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
    make, shape = WORLDS[name]
    world, rng = make(shape, seed)
    with Shared(world, count) as shared:
        shared.run(cuts_of(rng, world.end), rng=rng)
        shared.check_changes()
    world.build()
    world.run([world.end])
    for view, seen in world.seen.items():
        for side in (0, 1):
            parts = [one[side] for one in shared.seen[view]] or [seen[0][side]]
            assert len(seen) == 1
            if len(seen[0][side]) or any(len(p) for p in parts):
                assert as_bytes(parts) == as_bytes([seen[0][side]]), (view, side)
