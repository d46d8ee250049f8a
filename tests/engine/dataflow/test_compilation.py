"""Nothing is compiled once the kernels are warm: not by installing views, not by stepping, merging, restoring or dropping."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import pytest
from numba.core import event

from headrace.engine.kernels import warm
from headrace.engine.kernels.compiler import JIT_OFF
from tests.engine.dataflow.pairs import cuts_of
from tests.engine.dataflow.test_random import SHAPES, world

pytestmark = pytest.mark.skipif(JIT_OFF, reason="nothing is ever compiled")


@contextmanager
def compilations() -> Iterator[list[Any]]:
    """What numba compiles meanwhile; loading from the cache is none."""
    found: list[Any] = []

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, told: Any) -> None:
            found.append(told.data)

        def on_end(self, told: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield found


def test_a_compilation_would_be_noticed() -> None:
    with compilations() as found:
        numba.njit("int64(int64)")(lambda value: value + 1)
    assert len(found) == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_installs_and_steps_compile_nothing(shape: str) -> None:
    warm()
    with compilations() as found:
        for seed in range(3):
            made, rng = world(SHAPES[shape], seed, epochs=8)
            made.tables()
            made.run([made.end // 2], rng=rng)
            made.build()
            cuts = [made.end // 2 + c for c in cuts_of(random.Random(seed), made.end - made.end // 2)]
            made.run(cuts, start=made.end // 2)
            made.check_snapshots([made.end - 1])
            made.flow.advance_since(made.end - 1)
            made.flow.exert(1 << 30)
            made.restart()
            for output in made.outputs.values():
                made.flow.drop(output)
    assert found == []
