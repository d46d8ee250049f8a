"""What arranging costs: bulk loads, small steady batches, lookups. Prints a table; writes build/bench/engine.json.

Run as `python -m tests.bench.bench_engine [--rows N] [--json FILE]`. The peer of a bulk load is numpy's own sort of the
same identities in the same round; the latencies have none and stand against their goals. Medians of alternating rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from engine.batch import Batch, Description, Layout, Updates
from engine.kernels import warm
from engine.lattice import Frontier
from engine.schema import Column, DataType, Schema
from engine.trace import Spine

ROUNDS = 5
WIDE = Schema(
    (
        Column("id", DataType.parse("bigint")),
        *(Column(f"n{k}", DataType.parse("bigint")) for k in range(4)),
        *(Column(f"s{k}", DataType.parse("text")) for k in range(4)),
        Column("amount", DataType.parse("numeric(12,2)")),
    )
)
"""Ten columns, as tables have them."""

PAIRS = Schema((Column("key", DataType.parse("bigint")), Column("value", DataType.parse("bigint"))))

Result = dict[str, Any]


def wide_rows(ids: np.ndarray[Any, Any]) -> pa.RecordBatch:
    numbers = pa.array(ids)
    texts = pa.array([f"text {k % 1000}" for k in range(len(ids))], pa.large_string())
    amounts = pa.array(ids % 100_000).cast(pa.decimal128(38, 2))
    return pa.RecordBatch.from_arrays([numbers] * 5 + [texts] * 4 + [amounts], schema=WIDE.arrow)


def seconds(run: Callable[[], object], times: int = 1) -> float:
    """Wall seconds a call."""
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def result(name: str, unit: str, ours: float, goal: float, peer: str = "", peer_value: float | None = None) -> Result:
    """One line of the report; rates (`/s`) are to be at least their goal, times at most."""
    rate = unit.endswith("/s")
    ratio = None if peer_value is None else (ours / peer_value if rate else peer_value / ours)
    return {
        "name": name,
        "unit": unit,
        "ours": ours,
        "peer": peer,
        "peer_value": peer_value,
        "ratio": ratio,
        "goal": goal,
        "met": ours >= goal if rate else ours <= goal,
    }


def bulk(size: int) -> list[Result]:
    """Arranging (u64, u64) rows at once, against numpy.lexsort of their identities."""
    random = np.random.default_rng(1)
    columns = [pa.array(random.integers(0, size, size)), pa.array(random.integers(0, size, size))]
    layout = Layout(PAIRS, (0,))
    rows = pa.RecordBatch.from_arrays(columns, schema=PAIRS.arrow)
    ours, theirs = [], []
    for _ in range(3):
        updates = Updates(rows, np.zeros(size, np.int64), np.ones(size, np.int64))
        ours.append(seconds(lambda updates=updates: Batch.seal(layout, updates, Description.epochs(0, 1))))  # type: ignore[misc]
        ids = layout.ids(updates)
        theirs.append(seconds(lambda ids=ids: np.lexsort((ids[4], ids[3], ids[0]))))  # type: ignore[misc]
    peer = size / statistics.median(theirs)
    return [
        result(f"arrange {size:,} pairs", "rows/s", size / statistics.median(ours), 3e6, "numpy.lexsort alone", peer)
    ]


def steady(size: int) -> list[Result]:
    """Sealing and inserting small batches into an arrangement of `size` rows, and looking keys up in it."""
    random = np.random.default_rng(2)
    layout = Layout(WIDE, (0,))
    spine = Spine(layout)
    rows = wide_rows(np.arange(size))
    spine.insert(
        Batch.seal(layout, Updates(rows, np.zeros(size, np.int64), np.ones(size, np.int64)), Description.epochs(0, 1))
    )
    found: list[Result] = []
    epoch = 1
    for changes, repeats, goal in ((1, 300, 150.0), (10, 300, 150.0), (100, 100, 500.0), (10_000, 5, 20_000.0)):
        batches = [wide_rows(random.integers(0, size, changes)) for _ in range(10)]
        diffs = np.ones(changes, np.int64)
        rounds = []
        for _ in range(ROUNDS):

            def step(batches: list[pa.RecordBatch] = batches, diffs: Any = diffs) -> None:
                nonlocal epoch
                updates = Updates(batches[epoch % 10], np.full(len(diffs), epoch), diffs)
                spine.insert(Batch.seal(layout, updates, Description.epochs(epoch, epoch + 1)))
                spine.advance(Frontier.at(epoch))
                epoch += 1

            rounds.append(seconds(step, repeats))
        found.append(result(f"seal and insert {changes:,} changes", "µs", statistics.median(rounds) * 1e6, goal))
    for probes, goal in ((1, 100.0), (10, 100.0), (10_000, 20_000.0)):
        keys = layout.keys(wide_rows(random.integers(0, size, probes)))
        name = f"gather {probes:,} keys from {len(spine.batches())} batches"
        lookups = [seconds(lambda keys=keys: spine.gather(keys), max(3, 1000 // probes)) for _ in range(ROUNDS)]  # type: ignore[misc]
        found.append(result(name, "µs", statistics.median(lookups) * 1e6, goal))
        fetches = [
            seconds(lambda keys=keys: spine.gather(keys, epoch).rows([0, 5]), max(3, 1000 // probes))  # type: ignore[misc]
            for _ in range(ROUNDS)
        ]
        found.append(result(f"{name}, two columns", "µs", statistics.median(fetches) * 1e6, goal * 3))
    return found


def report(results: list[Result]) -> str:
    """The results as a table."""
    lines = [f"{'':44} {'ours':>14} {'peer':>14} {'ratio':>7} {'goal':>12}  met"]
    for r in results:
        peer = "" if r["peer_value"] is None else f"{r['peer_value']:,.0f}"
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.2f}"
        met = "yes" if r["met"] else "no"
        lines.append(f"{r['name']:44} {r['ours']:14,.0f} {peer:>14} {ratio:>7} {r['goal']:12,.0f}  {met}  {r['unit']}")
    return "\n".join(lines)


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the bulk load")
    parser.add_argument("--standing", type=int, default=1_000_000, help="rows of the arrangement that is changed")
    parser.add_argument("--json", type=Path, default=Path("build/bench/engine.json"))
    chosen = parser.parse_args()
    warm()
    results = bulk(chosen.rows) + steady(chosen.standing)
    print(platform.platform())
    print(report(results))
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
