"""Churn: an arrangement under endless change of the same keys stays as large as its live rows.

Ten million updates, or two where the kernels check their bounds; HEADRACE_CHURN says otherwise.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.kernels.compiler import JIT_OFF, config
from headrace.engine.lattice import Frontier
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.engine.trace import Spine

LAYOUT = Layout(Schema((Column("k", BIGINT), Column("v", BIGINT))), (0,))
CHURN = int(os.environ.get("HEADRACE_CHURN", "2000000" if config.BOUNDSCHECK else "10000000"))
KEYS = 100_000
A_BATCH = KEYS // 5


@pytest.mark.skipif(JIT_OFF, reason="too much for plain Python")
def test_size_stays_proportional_to_the_live_rows() -> None:
    rng = np.random.default_rng(11)
    spine = Spine(LAYOUT)
    values = np.zeros(KEYS, np.int64)
    everything = np.arange(KEYS)

    def insert(keys: np.ndarray, held: np.ndarray, epoch: int, diffs: np.ndarray) -> None:
        rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(held)], schema=LAYOUT.arrow)
        updates = Updates(rows, np.full(len(keys), epoch), diffs)
        spine.insert(Batch.seal(LAYOUT, updates, Description.epochs(epoch, epoch + 1)))

    insert(everything, values, 0, np.ones(KEYS, np.int64))
    bytes_a_row = spine.nbytes / KEYS
    most = most_bytes = churned = 0
    epoch = 1
    while churned < CHURN:
        chosen = rng.choice(KEYS, A_BATCH // 2, replace=False)
        old, new = values[chosen], rng.integers(1, 1 << 40, len(chosen))
        values[chosen] = new
        ones = np.ones(len(chosen), np.int64)
        insert(np.concatenate([chosen, chosen]), np.concatenate([old, new]), epoch, np.concatenate([-ones, ones]))
        churned += 2 * len(chosen)
        spine.advance(Frontier.at(epoch))
        most, most_bytes = max(most, len(spine)), max(most_bytes, spine.nbytes)
        epoch += 1
    assert churned >= 10 * KEYS, "many times what is live came and went"
    # Levels grow by two, and what waits to be merged is as much again.
    assert most <= 5 * KEYS
    assert most_bytes <= 6 * KEYS * bytes_a_row
    live = spine.snapshot(epoch - 1)
    order = np.argsort(live.rows.column(0).to_numpy())
    assert live.rows.column(0).to_numpy()[order].tolist() == everything.tolist()
    assert live.rows.column(1).to_numpy()[order].tolist() == values.tolist()
    assert set(live.diffs.tolist()) == {1}
