"""Keys that collide on their hash are told apart by their values, in every operator that looks by key.

The hash is weakened for every layout of the dataflow, to one bit or to none: then all keys of an arrangement stand in two
places, or in one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from headrace.engine.batch import sort_layout as module
from headrace.engine.batch.sort_layout import Layout
from tests.engine.dataflow.standard import any_cut, seeds
from tests.engine.dataflow.test_random import SHAPES, world


def _forget_layouts() -> None:
    """Layouts that are made once and kept would keep their hash."""
    for name in dir(module):
        clear = getattr(getattr(module, name), "cache_clear", None)
        if clear is not None:
            clear()


@pytest.fixture(scope="module", params=[0, 1], ids=["no bit", "one bit"])
def weakened(request: pytest.FixtureRequest) -> Iterator[int]:
    patch = pytest.MonkeyPatch()
    patch.setattr(Layout.__init__, "__defaults__", ((), request.param))
    _forget_layouts()
    yield request.param
    patch.undo()
    _forget_layouts()


@pytest.mark.parametrize("shape", SHAPES)
@seeds()
def test_colliding_keys_change_nothing(weakened: int, shape: str, seed: int) -> None:
    made, rng = world(SHAPES[shape], seed)
    any_cut(made, rng)
    hashes = [b.keys.hash for a in made.flow.arrangements().values() for b in a.spine.batches() if len(b)]
    if hashes:
        assert set(np.concatenate(hashes).tolist()) <= set(range(weakened + 1)), "the hash was weakened"
