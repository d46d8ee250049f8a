"""What a change of one large group costs: its least, greatest and summed values kept, against the group read anew.

Writes build/bench/group.json. Run it as `python -m tests.bench.bench_group [--rows N]`. The peer gathers every value of
the group from the same arrangement and takes its extremes and its sum with numpy, which is what a reduce that computes
changed groups anew must do at the very least. Both take turns within a round; times are processor time, medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import DELETE, UPSERT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.kernels import warm
from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef
from headrace.engine.schema import BIGINT, INTEGER, Column, DataType, Kind, Schema
from headrace.engine.trace import Spine
from tests.bench.report import publish, row

ITEMS = Schema.of([Column("id", BIGINT), Column("group", INTEGER), Column("value", BIGINT)], ["id"])
SUM = DataType(Kind.NUMERIC, scale=0)
CHANGES = ("a value in the middle", "the least value retracted", "a least value added, then retracted")


class Group:
    """One group of `size` rows in a view of its least, greatest, summed and counted values."""

    def __init__(self, size: int) -> None:
        self.flow = Dataflow()
        value = ColumnRef(2, BIGINT)
        aggregates = [Aggregate("min", value, BIGINT), Aggregate("max", value, BIGINT), Aggregate("sum", value, SUM)]
        columns = [Column("group", INTEGER), Column("low", BIGINT), Column("high", BIGINT), Column("sum", SUM)]
        view = self.flow.table("items", ITEMS).reduce([1], aggregates, Schema(tuple(columns)))
        self.output, self.node = view.output("view"), view.node
        self.size = size
        self.low = 0
        self.push(np.arange(size), np.arange(size), UPSERT)
        self.flow.step(1)

    def push(self, ids: np.ndarray[tuple[int], np.dtype[np.int64]], values: object, kind: int) -> None:
        n = len(ids)
        columns = [pa.array(ids), pa.array(np.zeros(n, np.int32)), pa.array(values)]
        rows = pa.RecordBatch.from_arrays(columns, schema=ITEMS.arrow)
        self.flow.push("items", Upserts(rows, np.full(n, self.flow.frontier), np.full(n, kind, np.uint8)))

    def change(self, what: str) -> float:
        """Seconds that the reduce itself takes for one change."""
        if what == CHANGES[0]:
            return self.step(self.size // 2 + self.flow.frontier % 100, self.size // 2, UPSERT)
        if what == CHANGES[1]:
            self.low += 1
            return self.step(self.low - 1, 0, DELETE)
        return (self.step(-1, -1, UPSERT) + self.step(-1, 0, DELETE)) / 2

    def step(self, key: int, value: int, kind: int) -> float:
        """One change of one row."""
        self.push(np.array([key]), np.array([value]), kind)
        epoch = self.flow.frontier
        taken = 0.0
        run = self.node.run

        def timed(lower: int, upper: int):  # type: ignore[no-untyped-def]
            nonlocal taken
            start = time.thread_time()
            delta = run(lower, upper)
            taken += time.thread_time() - start
            return delta

        self.node.run = timed  # type: ignore[method-assign]
        self.flow.step(epoch + 1)
        self.node.run = run  # type: ignore[method-assign]
        self.flow.advance_since(epoch)
        self.output.take()
        return taken

    def anew(self) -> float:
        """Seconds to read the group whole and to take its extremes and its sum."""
        spine: Spine = next(a.spine for name, a in self.flow.arrangements().items() if "^" in name)
        keys = spine.layout.keys(pa.record_batch([pa.array([0], pa.int32()), pa.array([0])], schema=spine.layout.arrow))
        start = time.thread_time()
        matches = spine.gather(keys, self.flow.frontier - 1)
        values = matches.rows([1]).column(0).to_numpy()
        found = (values.min(), values.max(), (values * matches.diffs).sum())
        assert found[0] <= self.low
        return time.thread_time() - start


def main() -> None:
    """Print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the group")
    chosen = parser.parse_args()
    warm()
    group = Group(chosen.rows)
    rows = []
    for what in CHANGES:
        ours, theirs = [], []
        for k in range(60):
            ours.append(group.change(what))
            if k % 6 == 0:
                theirs.append(group.anew())
        peer = statistics.median(theirs) * 1000
        rows.append(
            row(f"a group of {chosen.rows:,} rows: {what}", "ms", statistics.median(ours) * 1000, 2.0,
                peer="the group read anew", peer_value=peer)
        )  # fmt: skip
    publish("group", rows, arguments="" if chosen.rows == 1_000_000 else f"--rows {chosen.rows}")


if __name__ == "__main__":
    main()
