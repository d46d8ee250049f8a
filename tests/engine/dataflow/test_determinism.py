"""The same input gives the same output of every epoch, to the byte, however it is cut into steps and when merges run."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.engine.batch import Updates
from tests.engine.dataflow.pairs import Pair, World, cuts_of
from tests.engine.dataflow.test_random import SHAPES, world

Sides = dict[str, tuple[bytes, bytes]]


def everything(tables: Mapping[str, Pair]) -> Mapping[str, Pair]:
    """Every operator in one dataflow, arrangements shared among them."""
    return {f"{shape} {name}": view for shape, make in SHAPES.items() for name, view in make(tables).items()}


def as_bytes(parts: Sequence[Updates]) -> bytes:
    """What was emitted, in the order in which it was: rows, times and diffs, step after step."""
    rows = pa.Table.from_batches([p.rows for p in parts])
    # A take writes buffers anew, so that slices and unused bytes under nulls do not count.
    whole = rows.take(pa.array(np.arange(len(rows)))).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    times, diffs = (np.concatenate([getattr(p, lane) for p in parts]).tobytes() for lane in ("times", "diffs"))
    return sink.getvalue().to_pybytes() + times + diffs


def emitted(seed: int, cuts_seed: int | None) -> Sides:
    """Rows and errors of every view; without a seed in one step."""
    made: World = world(everything, seed, epochs=5, rate=5)[0]
    made.build()
    if cuts_seed is None:
        made.run([made.end])
    else:
        rng = random.Random(cuts_seed)
        made.run(cuts_of(rng, made.end), rng=rng)
    return {
        name: (as_bytes([rows for rows, _ in seen]), as_bytes([errors for _, errors in seen]))
        for name, seen in made.seen.items()
    }


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 2**32), min_size=2, max_size=2))
def test_output_does_not_depend_on_how_epochs_are_cut(seed: int, cuts: list[int]) -> None:
    whole = emitted(seed, None)
    for cut in cuts:
        found = emitted(seed, cut)
        different = [name for name in whole if whole[name] != found[name]]
        assert not different


def test_other_input_gives_other_bytes() -> None:
    """The bytes that are compared say something."""
    one, two = emitted(1, None), emitted(2, None)
    assert sum(one[name] != two[name] for name in one) > len(one) // 2
