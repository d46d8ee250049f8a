"""Filling a table by `headrace load` from Parquet, beside a dataflow in one process and beside the same table through topics.

All three end with a checkpoint of the table and take turns; the dataflow and the topics work out a view, too, which a load leaves
to `headrace run`. The topics are read from a real Kafka as an initial snapshot, by default a million rows of it: a rate is
compared. Last, the memory of Spark's processes is watched while a table of three times the rows is loaded. Writes
build/bench/spark-load.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.connectors.commands import MemoryCommands
from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.kernels import warm
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import load
from headrace.sidecar.devstack.stack import Stack
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.lake.inputs import parquet_shares
from headrace.sidecar.lake.load import Origin
from headrace.sidecar.state.batch_store import BatchStore
from headrace.sidecar.state.checkpoint import Capture, CheckpointStore, table_facts
from headrace.sidecar.state.generation import take_generation
from headrace.sidecar.wiring import build as wiring
from headrace.sidecar.wiring.build import build
from headrace.sidecar.wiring.factories import program
from headrace.sidecar.wiring.project import read_project
from tests.bench.bench_memory import TABLE, Bench
from tests.bench.loads import FILE_ROWS, MemoryWatch, check, configure, loaded, session, write_parquet
from tests.bench.report import FOLDER, Row, publish, row
from tests.doubles.memory import MemorySink, MemoryStore

ROWS, TOPIC_ROWS, ROUNDS, TASKS, TIMES = 20_000_000, 1_000_000, 2, 2, 3
CHUNK = 1_000_000
"""Rows of an epoch of the dataflow."""
DATAFLOW, TOPICS = "a dataflow on one core", "through topics"
OVER_DATAFLOW, OVER_TOPICS, MEMORY = 1.5, 5.0, 1.1
WARM, PATIENCE = 200_000, 600.0


def dataflow(config: Path, data: Path, rows: int) -> float:
    """The rows through a dataflow of this process, on one core, to a checkpoint; seconds."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    settings = load(config, {})
    project = read_project(settings)
    plans = Plans.of(project.compile(), project.tables)
    run = take_generation(settings.state)[0]
    run.begin()
    flow = KeptDataflow(BatchStore(run.place))
    flow.build(plans, plans.schemas)
    begun, epoch = time.perf_counter(), 0
    for epoch, some in enumerate(_chunks(data, project.tables[TABLE]), 1):
        kinds = np.full(len(some), UPSERT, np.uint8)
        flow.push(TABLE, Upserts(some, np.full(len(some), epoch, np.int64), kinds))
        flow.step(epoch + 1)
        flow.advance_since(epoch)
        flow.outputs["v"].take()
    capture = Capture(epoch=epoch, write=flow.hold(), tables=table_facts(project.tables))
    CheckpointStore(run, program()).write(capture)
    seconds = time.perf_counter() - begun
    check(rows, _listed(flow.outputs["v"].snapshot(epoch)[0].rows))
    return seconds


def _chunks(data: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The files' rows, CHUNK at a time."""
    held: list[pa.RecordBatch] = []
    for share in parquet_shares(str(data), TABLE, 1):
        for batch in share.batches(TABLE, schema):
            held.append(batch)
            if sum(map(len, held)) >= CHUNK:
                yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
                held = []
    if held:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _listed(rows: pa.RecordBatch) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def through_topics(config: Path, rows: int) -> float:
    """An initial snapshot in Kafka through a sidecar whose sink is in memory, to a checkpoint; seconds since it was ready."""
    store = MemoryStore()
    wiring.make_sink = lambda _s, c, *_: MemorySink(c.name, store)  # type: ignore[assignment,misc]
    wiring.make_commands = lambda _: MemoryCommands()  # type: ignore[assignment,return-value]
    running = build(read_project(load(config, {})))
    begun = time.perf_counter()
    while True:
        assert time.perf_counter() < begun + PATIENCE, f"the snapshot is not in: {running.runtime.ready}"
        if running.runtime.turn(0.01):
            found = running.runtime.parts.flow.outputs["v"].snapshot(running.runtime.epoch)[0].rows
            if len(found) and sum(found.column(1).to_pylist()) >= rows:
                break
    left = running.runtime.drain()
    seconds = time.perf_counter() - begun
    assert not left, left
    check(rows, list(store.rows["v"]))
    running.close()
    return seconds


def apart(part: str, folder: Path, *arguments: object) -> float:
    """A part in a process of its own, with an empty state; its seconds."""
    shutil.rmtree(folder / "state", ignore_errors=True)
    command = [sys.executable, "-m", "tests.bench.bench_spark_load", "--part", part, str(folder / "headrace.yaml")]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    shutil.rmtree(folder / "state")
    return float(json.loads(done.stdout.splitlines()[-1]))


def _part(asked: list[str]) -> float:
    warm()
    name, config, *rest = asked
    if name == "dataflow":
        return dataflow(Path(config), Path(rest[0]), int(rest[1]))
    return through_topics(Path(config), int(rest[0]))


def data_of(folder: Path, rows: int) -> tuple[Path, Path]:
    """Folders with the files of so many rows, and of TIMES as many; they share files where they can."""
    whole, part = folder / "whole", folder / "part"
    made = write_parquet(whole, rows * TIMES)
    if rows % FILE_ROWS:
        write_parquet(part, rows)
        return part, whole
    part.mkdir()
    for path in made[: rows // FILE_ROWS]:
        os.link(path, part / path.name)
    return part, whole


def measured(
    rows: int, topic_rows: int, found: dict[str, list[float]], memory: dict[int, MemoryWatch], large: float
) -> list[Row]:
    """Rates beside one another, and memory."""
    seconds = {name: statistics.median(some) for name, some in found.items()}
    ours = rows / seconds["load"]
    slow, slower = rows / seconds[DATAFLOW], topic_rows / seconds[TOPICS]
    name = f"{rows:,} rows from Parquet, {TASKS} tasks"
    out = [
        row(f"{name}, beside {DATAFLOW}", "rows/s", ours, OVER_DATAFLOW * slow, peer=DATAFLOW, peer_value=slow,
            note="its view included"),
        row(f"{name}, beside the same table {TOPICS}", "rows/s", ours, OVER_TOPICS * slower, peer=TOPICS,
            peer_value=slower, note=f"{topic_rows:,} rows of it, its view included"),
        row(f"{rows * TIMES:,} rows from Parquet, {TASKS} tasks", "rows/s", rows * TIMES / large),
    ]  # fmt: skip
    less, more = memory[rows], memory[rows * TIMES]
    for what, shown in (("whole", "Spark's processes, the JVM included"), ("tasks", "the processes of the tasks")):
        mine, base = getattr(more, what), getattr(less, what)
        goal = MEMORY * base if what == "tasks" else None
        out.append(row(f"{rows * TIMES:,} rows: peak memory of {shown}", "MiB", mine, goal, peer=f"{rows:,} rows",
                       peer_value=base, note="mapped files apart"))  # fmt: skip
    return out


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--topic-rows", type=int, default=TOPIC_ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--shards", type=int, default=1, help="of the state that is filled")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part:
        print(json.dumps(_part(chosen.part)))
        return
    with tempfile.TemporaryDirectory(prefix="headrace-load-") as text, ExitStack() as undo:
        folder = Path(text)
        part, whole = data_of(folder, chosen.rows)
        few = write_parquet(folder / "few", WARM)
        stack = Stack(folder / "stack")
        undo.callback(stack.stop)
        stack.kafka.start()
        for name, shards in (("load", chosen.shards), ("dataflow", 1)):
            configure(folder / name, {"type": "spark"}, shards=shards)
        configure(folder / "topics", {}, stack.kafka.bootstrap)
        Bench(folder / "topics", stack.kafka.bootstrap, "").snapshot(chosen.topic_rows)
        spark = undo.enter_context(session(folder / "spark", TASKS))
        config = folder / "load" / "headrace.yaml"
        loaded(config, Origin("parquet", str(few[0].parent)), WARM, TASKS, spark)
        found: dict[str, list[float]] = {"load": [], DATAFLOW: [], TOPICS: []}
        memory = {}
        for turn in range(chosen.rounds):
            for name in sorted(found, reverse=bool(turn % 2)):
                if name == "load":
                    with MemoryWatch() as memory[chosen.rows]:
                        found[name].append(loaded(config, Origin("parquet", str(part)), chosen.rows, TASKS, spark))
                elif name == DATAFLOW:
                    found[name].append(apart("dataflow", folder / "dataflow", part, chosen.rows))
                else:
                    found[name].append(apart("topics", folder / "topics", chosen.topic_rows))
        with MemoryWatch() as memory[chosen.rows * TIMES]:
            large = loaded(config, Origin("parquet", str(whole)), chosen.rows * TIMES, TASKS, spark)
    report(chosen, measured(chosen.rows, chosen.topic_rows, found, memory, large))


def report(chosen: argparse.Namespace, rows: list[Row]) -> None:
    """Where the figures go: those of a run with other sizes stay apart."""
    sizes = {"rows": ROWS, "topic-rows": TOPIC_ROWS, "rounds": ROUNDS, "shards": 1}
    asked = vars(chosen)
    given = [f"--{name} {value}" for name, of in sizes.items() if (value := asked[name.replace("-", "_")]) != of]
    publish("spark-load", rows, folder=FOLDER / "partial" if given else FOLDER, arguments=" ".join(given))


if __name__ == "__main__":
    main()
