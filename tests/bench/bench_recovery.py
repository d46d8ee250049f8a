"""How long a sidecar takes from nothing in memory to ready, against rows stored and against changes since its checkpoint.

A state folder is made with so many rows in a table's arrangement and a checkpoint of it; each measurement is a process of its
own, which takes a generation, carries the state over, maps it, checks its bytes and opens its parts (all that `headrace run`
does after its imports), with a source and a sink in memory: what is measured is ours. Then it replays what came after the
checkpoint, transactions of ten events. Its view must answer what the rows were made to give. The state's files are in the
page cache. Run as `python -m tests.bench.bench_recovery`; writes build/bench/recovery.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.connectors.commands import MemoryCommands
from headrace.connectors.commit_place import Lsn
from headrace.connectors.sink import Frontier, SourceFrontier
from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.kernels import warm
from headrace.sidecar.config.config import load
from headrace.sidecar.state.checkpoint import Capture, ViewRecord
from headrace.sidecar.telemetry.metrics import memory
from headrace.sidecar.wiring import build as wiring
from headrace.sidecar.wiring import intakes
from headrace.sidecar.wiring.build import Running, build
from headrace.sidecar.wiring.project import read_project, sink_view
from tests.bench.report import FOLDER, Row, publish, row
from tests.doubles.memory import MemoryLog, MemorySink, MemorySource, MemoryStore

ROWS, CHANGES, GOAL = (1_000_000, 2_000_000, 5_000_000, 10_000_000), (10_000, 50_000, 100_000, 200_000), 2.0
CHUNK = 1_000_000
EVENTS = 10
"""Events of a transaction that is replayed."""
TABLE, TOPIC, GROUPS, SINK = "public.orders", "shop.public.orders", 1000, "s"
VIEW = "select customer, count(*) as n, sum(amount) as amount from orders group by customer"
COLUMNS = (("id", "bigint"), ("customer", "integer"), ("amount", "bigint"), ("status", "text"))


def configure(folder: Path) -> None:
    """Configuration and view."""
    table = {"name": TABLE, "key": ["id"], "columns": [{"name": n, "data_type": t} for n, t in COLUMNS]}
    (folder / "headrace.yaml").write_text(json.dumps({
        "version": 1, "name": "recovery", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "http": None,
        "sources": [{"name": "shop", "type": "debezium", "topic_prefix": "shop", "tables": [table]}],
        "sinks": [{"name": SINK, "type": "postgres", "url": "postgresql://nobody@127.0.0.1:9/x"}],
        "checkpoint": {"interval_seconds": 1e6},
    }))  # fmt: skip
    (folder / "views").mkdir()
    (folder / "views" / "v.yaml").write_text(
        json.dumps({"version": 1, "views": [{"name": "v", "sinks": [SINK], "sql": VIEW}]})
    )


def opened(folder: Path, log: MemoryLog, store: MemoryStore) -> Running:
    """A sidecar over what lies in memory and the state in `folder`, recovered."""
    intakes.make_source = lambda _s, _c, f: MemorySource(log, wants=f.wants, name="shop")  # type: ignore[assignment,return-value]
    wiring.make_sink = lambda _s, c, *_: MemorySink(c.name, store)  # type: ignore[assignment,misc]
    wiring.make_commands = lambda _: MemoryCommands()  # type: ignore[assignment,return-value]
    return build(read_project(load(folder / "headrace.yaml", {})))


def chunk(first: int, size: int, epoch: int) -> Upserts:
    """Rows `first` … of the table, written at one epoch."""
    ids = np.arange(first, first + size, dtype=np.int64)
    status = pa.array(["new", "paid", "shipped"]).take(pa.array(ids % 3))
    columns = [pa.array(ids), pa.array((ids % GROUPS).astype(np.int32)), pa.array(ids % 1_000_003), status]
    schema = pa.schema(
        [("id", pa.int64()), ("customer", pa.int32()), ("amount", pa.int64()), ("status", pa.large_string())]
    )
    rows = pa.RecordBatch.from_arrays([*columns[:3], columns[3].cast(pa.large_string())], schema=schema)
    return Upserts(rows, np.full(size, epoch, np.int64), np.full(size, UPSERT, np.uint8))


def make(folder: Path, rows: int) -> None:
    """A checkpoint of so many rows."""
    configure(folder)
    log = MemoryLog()
    for topic in (TOPIC, "shop.transaction"):
        log.create(topic)
    running = opened(folder, log, MemoryStore())
    parts, epoch = running.runtime.parts, 0
    for first in range(0, rows, CHUNK):
        epoch += 1
        parts.flow.push(TABLE, chunk(first, min(CHUNK, rows - first), epoch))
        parts.flow.step(epoch + 1)
        parts.flow.advance_since(epoch)
        parts.flow.outputs["v"].take()
    parts.flow.exert(1 << 40)
    views = {v.name: ViewRecord(v.fingerprint, {}) for v in running.views}
    at = {"shop": SourceFrontier({TOPIC: {0: 0}, "shop.transaction": {0: 0}}, Lsn(1000), 1)}
    parts.store.write(
        Capture(
            epoch=epoch, sources=at, write=parts.flow.hold(), views=views, tables=parts.table_facts, sinks={SINK: epoch}
        )
    )
    running.close()


def replayed(log: MemoryLog, rows: int, changes: int) -> None:
    """Transactions after the checkpoint: each event adds one to the amount of a row, spread over all."""
    spread = max(rows // max(changes, 1), 1)
    for at in range(0, changes, EVENTS):
        txid, lsn = 5000 + at, 2000 + 2 * at
        for order in range(EVENTS):
            i = (at + order) * spread % rows
            body = {"id": i, "customer": i % GROUPS, "amount": i % 1_000_003 + 1, "status": "paid"}
            log.append(TOPIC, orjson.dumps({
                "op": "u", "before": None, "after": body,
                "transaction": {"id": f"{txid}:{lsn}", "total_order": order + 1, "data_collection_order": order + 1},
                "source": {"schema": "public", "table": "orders", "txId": txid, "lsn": lsn, "ts_us": 5, "snapshot": None},
            }), key=orjson.dumps({"id": i}))  # fmt: skip
        log.append("shop.transaction", orjson.dumps({
            "status": "END", "id": f"{txid}:{lsn}", "event_count": EVENTS, "ts_ms": 2,
            "data_collections": [{"data_collection": TABLE, "event_count": EVENTS}],
        }))  # fmt: skip


def recover(folder: Path, rows: int, changes: int) -> dict[str, float]:
    """Seconds until ready, seconds until the changes are in too, bytes of the state and in memory."""
    warm()
    log, store = MemoryLog(), MemoryStore()
    for topic in (TOPIC, "shop.transaction"):
        log.create(topic)
    replayed(log, rows, changes)
    epoch = (rows + CHUNK - 1) // CHUNK
    [view] = read_project(load(folder / "headrace.yaml", {})).compile()
    store.frontier, store.views, store.filled = Frontier(epoch), {"v": sink_view(view)}, {"v"}
    store.rows = {"v": Counter()}  # as if the rows were there: what the sink holds is not looked at
    begun, worked = time.perf_counter(), time.process_time()
    running = opened(folder, log, store)
    ready, processor = time.perf_counter() - begun, time.process_time() - worked
    held = memory()
    runtime = running.runtime
    while runtime.epoch < epoch + changes // EVENTS:
        runtime.turn(0.0)
    caught_up = time.perf_counter() - begun
    whole = runtime.parts.flow.outputs["v"].snapshot(runtime.epoch)[0].rows
    given = np.arange(rows, dtype=np.int64) % 1_000_003
    assert int(np.sum(whole.column(1).to_numpy())) == rows, "every row is there"
    assert sum(map(int, whole.column(2).to_pylist())) == int(given.sum()) + changes, "and is what it should be"
    facts = sum(f.bytes for f in runtime.parts.flow.facts().values())
    running.close()
    return {
        "ready": ready,
        "processor": processor,
        "caught_up": caught_up,
        "stored": float(facts),
        "anonymous": float(held["RssAnon"]),
    }


def measure(folder: Path, rows: int, changes: int, rounds: int) -> dict[str, float]:
    """Medians of so many processes."""
    command = [sys.executable, "-m", "tests.bench.bench_recovery", "--recover", str(folder), str(rows), str(changes)]
    found: list[dict[str, Any]] = []
    for _ in range(rounds):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: statistics.median(f[name] for f in found) for name in found[0]}


def run(sizes: Sequence[int], changes: Sequence[int], rounds: int, base: int) -> list[Row]:
    """Against rows with nothing to replay, and against changes since with `base` rows stored."""
    out: list[Row] = []
    for size in sorted({*sizes, base}):
        with tempfile.TemporaryDirectory(prefix="headrace-recovery-") as scratch:
            folder = Path(scratch)
            making = [sys.executable, "-m", "tests.bench.bench_recovery", "--make", scratch, str(size)]
            subprocess.run(making, check=True)
            if size in sizes:
                found = measure(folder, size, 0, rounds)
                goal = GOAL if size == max(ROWS) else None
                note = f"{found['stored'] / 2**20:,.0f} MiB stored"
                out.append(
                    row(f"{size:,} rows, ready", "s", found["ready"], goal, note=note) | {"x": size, "of": "rows"}
                )
                if size == max(sizes):
                    out.append(row(f"{size:,} rows, processor time until ready", "s", found["processor"]))
                    name = f"{size:,} rows, memory when ready, mapped files apart"
                    out.append(row(name, "MiB", found["anonymous"] / 2**20))
            for count in changes if size == base else ():
                found = measure(folder, size, count, rounds)
                name = f"{size:,} rows and {count:,} changes since, caught up"
                out.append(row(name, "s", found["caught_up"]) | {"x": count, "of": "changes"})
    return out


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_recovery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and changes; 1 is the full size")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--recover", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.make:
        make(Path(asked.make[0]), int(asked.make[1]))
    elif asked.recover:
        print(json.dumps(recover(Path(asked.recover[0]), int(asked.recover[1]), int(asked.recover[2]))))
    else:
        sizes, changes = ([max(int(n * asked.scale), 1000) for n in found] for found in (ROWS, CHANGES))
        rows = run(sizes, changes, asked.rounds, sizes[0])
        given = [] if asked.scale == 1 else [f"--scale {asked.scale:g}"]
        given += [] if asked.rounds == 3 else [f"--rounds {asked.rounds}"]
        publish("recovery", rows, folder=FOLDER / "partial" if asked.scale != 1 else FOLDER, arguments=" ".join(given))


if __name__ == "__main__":
    main()
