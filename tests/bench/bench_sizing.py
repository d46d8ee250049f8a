"""What a worker holds: memory a million rows, by the type of a column; and how many connections and slots workers take.

Each figure is of a process of its own that holds one table of a key and one column, and a view that counts it: the bytes of its
arrangements, and how much its resident memory grew, mapped files included. Run as `make bench-sizing`; writes
build/bench/sizing.json.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.kernels import warm
from headrace.engine.operators.expressions.core.ir import Aggregate
from headrace.engine.schema import BIGINT, Column, DataType, Schema
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.execution.malloc import give_back, share_one_heap
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.process_facts import memory_of
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.state.batch_store import BatchStore
from tests.bench.report import Row, publish, row
from tests.sidecar.execution.workers.built import TABLES, VIEWS, built

MILLION = 1_000_000
PIECE = 100_000
EPOCH = datetime.datetime(2024, 1, 1)


COUNTED = Schema((Column("count", BIGINT),))
VALUES: Mapping[str, Callable[[int], Any]] = {
    "boolean": lambda k: k % 3 == 0,
    "integer": lambda k: k * 7 % 100_003,
    "bigint": lambda k: k * 7919,
    "double precision": lambda k: k / 7,
    "numeric(12,2)": lambda k: Decimal(k * 7 % 10_000_000) / 100,
    "date": lambda k: (EPOCH + datetime.timedelta(days=k % 3000)).date(),
    "timestamp": lambda k: EPOCH + datetime.timedelta(seconds=k),
    "text, 10 characters": lambda k: f"{k:010d}",
    "text, 100 characters": lambda k: f"{k:0100d}",
}
"""By type, as a user names it, what a row's column holds: different in most rows."""


def schema_of(kind: str) -> Schema:
    """A table of a key and a column of this type."""
    return Schema.of([Column("id", BIGINT), Column("value", DataType.parse(kind.partition(",")[0]
                      if kind.startswith("text") else kind))], ["id"])  # fmt: skip


def counting(schema: Schema, flow: Dataflow) -> Mapping[str, Collection]:
    """A table, and a view that counts it."""
    return {"all": flow.table("t", schema).reduce([], [Aggregate("count", None, BIGINT)], COUNTED)}


def hold(kind: str, count: int) -> dict[str, int]:
    """Held bytes and grown memory of this process, once it has taken in so many rows."""
    share_one_heap()
    warm()
    schema = schema_of(kind)
    with tempfile.TemporaryDirectory() as folder:
        flow = KeptDataflow(BatchStore(Path(folder)))
        flow.build(partial(counting, schema), {})
        before = memory_of("self")
        for epoch, first in enumerate(range(0, count, PIECE), 1):
            ids = range(first, min(count, first + PIECE))
            columns = [pa.array(ids, pa.int64()), pa.array([VALUES[kind](k) for k in ids], schema.arrow.field(1).type)]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
            flow.push("t", Upserts(rows, np.full(len(ids), epoch), np.full(len(ids), UPSERT, np.uint8)))
            flow.step(epoch + 1)
            flow.advance_since(epoch)
            for output in flow.outputs.values():
                output.take()
        del rows, columns
        for _ in range(200):
            flow.exert(1 << 20)
        gc.collect()
        give_back()
        after = memory_of("self")
        return {
            "held": sum(facts.bytes for facts in flow.facts().values()),
            "resident": after["VmRSS"] - before["VmRSS"],
            "peak": after["VmHWM"] - before["VmRSS"],
        }


def by_type(count: int) -> list[Row]:
    """A process a type, one after the other."""
    found = []
    for kind in VALUES:
        command = [sys.executable, "-m", "tests.bench.bench_sizing", "--hold", kind, "--rows", str(count)]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        scale = MILLION / count / 2**20
        found.append(row(f"a million rows of bigint key and {kind}: held", "MiB", told["held"] * scale,
                         note=f"resident memory grew by {told['resident'] * scale:.0f} MiB, "
                         f"at its most by {told['peak'] * scale:.0f}"))  # fmt: skip
    return found


def by_workers(counts: tuple[int, ...] = (1, 2, 4)) -> list[Row]:
    """What workers take that hold nothing: memory and connections."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            with Workers.start(count, Task(built, Path(folder)), TABLES, VIEWS) as workers:
                time.sleep(0.5)
                pids = [pid for pid in workers.pids if pid is not None]
                sockets = sum(len(psutil.Process(pid).net_connections("all")) for pid in pids)
                anonymous = max(memory_of(pid).get("RssAnon", 0) for pid in pids)
                found += [
                    row(f"{count} workers: ends of connections, all together", "sockets", sockets),
                    row(f"{count} workers that hold nothing: memory of each", "MiB", anonymous / 2**20),
                ]
    return found


def main() -> None:
    """Run all of it, or one type in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=MILLION)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.hold is not None:
        sys.stdout.write(json.dumps(hold(chosen.hold, chosen.rows)))
        return
    warm()
    rows = [*by_type(chosen.rows), *by_workers()]
    publish("sizing", rows, arguments="" if chosen.rows == MILLION else f"--rows {chosen.rows}")


if __name__ == "__main__":
    main()
