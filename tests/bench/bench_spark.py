"""Workers on Spark beside workers of this machine: an epoch's time, processor time and waits, and a start.

Two pools of two workers stand side by side, one on an embedded standalone Spark of two executors, and take the same
epochs turn by turn; their outputs must be the same bytes. Other programs of the machine lengthen both sides' epochs,
so ratios count. Then a worker (here) and an executor (there) is killed that holds many rows, and what it takes until new
ones hold them again is timed. Writes build/bench/spark.json. Run it as `make bench-spark`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.kernels import warm
from headrace.sidecar.config.config import Settings, load_for_replay
from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.devstack.spark import EmbeddedSpark
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.local_pool import LocalPool
from headrace.sidecar.execution.workers.pool import Maker, WorkerLost
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.wiring.worker_pools import make_pool
from tests.bench.report import FOLDER, Row, publish, row
from tests.sidecar.execution.workers.built import ORDERS, TABLES, VIEWS, built, customers

GOALS = {1: 1.15, 1_000: 1.15, 100_000: 1.10}
EPOCHS = {1: 300, 1_000: 100, 100_000: 12}
"""How many epochs of so many rows are measured on each side."""
LOCAL = "local workers"
_WARM = 0.1
_NEW = 2_000_000

Counted = dict[str, float]


def settings_of(cluster: EmbeddedSpark, folder: Path) -> Settings:
    """What a user writes to have two workers there, on two executors."""
    path = folder / "headrace.yaml"
    conf = "{spark.executor.memory: 512m, spark.executor.cores: '1', spark.driver.memory: 512m, spark.cores.max: '2'}"
    path.write_text(
        "version: 1\nname: bench\nkafka: {bootstrap.servers: localhost}\n"
        "sources: [{name: s, type: debezium, topic_prefix: s}]\n"
        f"engine: {{host: spark, workers: 2, spark: {{master: '{cluster.master}', conf: {conf}}}}}\n"
    )
    return load_for_replay(path, {})


def orders(epoch: int, first: int, count: int) -> Upserts:
    """An epoch of orders: half of them new, the others changed."""
    ids = np.where(np.arange(count) % 2 == 0, np.arange(first, first + count), np.arange(count))
    amounts = (ids * 7 + epoch) % 1000
    rows = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids % 50), pa.array(amounts)], schema=ORDERS.arrow)
    return Upserts(rows, np.full(count, epoch), np.full(count, UPSERT, np.uint8))


class Side:
    """One pool of two workers that takes epoch after epoch."""

    def __init__(self, maker: Maker, folder: Path) -> None:
        begun = time.perf_counter()
        self.workers = Workers.start(2, Task(built, folder), TABLES, VIEWS, maker=maker)
        self.start_seconds = time.perf_counter() - begun
        self.epoch = 1
        self.workers.push("customers", customers(1))
        self.step(0)

    def step(self, count: int) -> tuple[float, bytes]:
        """One epoch of so many orders: seconds by the clock, and what it changed."""
        if count:
            self.workers.push("orders", orders(self.epoch, _NEW + self.epoch * 200_000, count))
        begun = time.perf_counter()
        self.workers.step(self.epoch + 1)
        seconds = time.perf_counter() - begun
        self.epoch += 1
        taken = [side for output in self.workers.outputs.values() for side in output.take()]
        return seconds, b"".join(bytes(t.rows.serialize()) + t.diffs.tobytes() for t in taken if len(t))

    def counted(self) -> Counted:
        """What the busiest worker has used so far: processor seconds, and how often it waited."""
        busiest: Counted = {"cpu": max(self.workers.cpu_seconds)}
        return busiest | {"waits": max(_waits(pid) for pid in self.workers.pids if pid is not None)}


def _waits(pid: int) -> float:
    """How often any thread of a process gave up the processor by itself."""
    found = 0.0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        found += float(lines["voluntary_ctxt_switches"])
    return found


def contest(sides: Sequence[Side], count: int, epochs: int) -> tuple[list[list[float]], list[Counted]]:
    """Seconds of each epoch by side, and what its busiest worker used an epoch. Raises AssertionError for other outputs."""
    seconds: list[list[float]] = [[] for _ in sides]
    for _ in range(max(2, int(epochs * _WARM))):
        for side in sides:
            side.step(count)
    before = [side.counted() for side in sides]
    for turn in range(epochs):
        changed = {}
        for k in range(len(sides)) if turn % 2 else reversed(range(len(sides))):
            took, changed[k] = sides[k].step(count)
            seconds[k].append(took)
        assert len(set(changed.values())) == 1, f"the two hosts differ in an epoch of {count} rows"
    after = [side.counted() for side in sides]
    used = [{n: (a[n] - b[n]) / epochs for n in b} for a, b in zip(after, before, strict=True)]
    return seconds, used


def measured(count: int, seconds: list[list[float]], used: list[Counted]) -> list[Row]:
    """By the clock with a goal, and what does not depend on other programs: processor time and waits."""
    here, there = (1000 * statistics.median(s) for s in seconds)
    name = f"epoch of {count:,} row{'s' if count > 1 else ''}, two workers"
    rows = [row(f"{name}, p50", "ms", there, GOALS[count] * here, peer=LOCAL, peer_value=here)]
    words = {"cpu": ("processor time of the busiest", "ms", 1000), "waits": ("waits of the busiest", "waits", 1)}
    for key, (what, unit, scale) in words.items():
        rows.append(row(f"{name}: {what}", unit, used[1][key] * scale, peer=LOCAL, peer_value=used[0][key] * scale))
    return rows


def held(sides: Sequence[Side]) -> Row:
    """Memory of the largest worker of each side; beside it the supervisor's, which is Spark's share."""
    here, there = (max(w.memory.get("RssAnon", 0) for w in side.workers.workers()) / 2**20 for side in sides)
    supervisor = psutil.Process(sides[1].workers.workers()[0].pid).parent()
    told = "" if supervisor is None else f"its supervisor {supervisor.memory_info().rss / 2**20:.0f} MiB besides"
    return row("resident memory of a worker", "MiB", there, 1.15 * here, peer=LOCAL, peer_value=here, note=told)


def killed(maker: Maker, folder: Path, rows: int) -> float:
    """Seconds from the kill of what holds a worker until new ones hold its rows and have taken one epoch more."""
    piece = 500_000
    folder.mkdir()
    with Workers.start(2, Task(built, folder), TABLES, VIEWS, maker=maker) as workers:
        workers.push("customers", customers(1))
        for epoch, first in enumerate(range(0, rows, piece), 1):
            ids = np.arange(first, min(rows, first + piece))
            batch = pa.RecordBatch.from_arrays(
                [pa.array(ids), pa.array(ids % 50), pa.array(ids % 1000)], schema=ORDERS.arrow
            )
            workers.push("orders", Upserts(batch, np.full(len(ids), epoch), np.full(len(ids), UPSERT, np.uint8)))
            workers.step(epoch + 1)
            workers.advance_since(epoch)
        files, frontier = workers.hold()(), workers.frontier
        victim = psutil.Process(workers.workers()[1].pid)
        victim = next((p for p in victim.parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline())), victim)
        begun = time.perf_counter()
        victim.kill()
        with suppress(WorkerLost):
            while True:
                workers.push("orders", orders(workers.frontier, 2 * rows, 10))
                workers.step(workers.frontier + 1)
    while True:
        try:
            with Workers.start(2, Task(built, folder), TABLES, VIEWS, maker=maker) as again:
                again.recover(frontier, files, 2)
                for _ in again.hydrating():
                    pass
                again.push("orders", orders(frontier, 2 * rows, 10))
                again.step(frontier + 1)
                return time.perf_counter() - begun
        except WorkerLost:
            continue


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of epochs; 1 is the full run")
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="that are held when an executor is killed; 0: leave out"
    )
    chosen = parser.parse_args()
    warm()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as text, ExitStack() as undo:
        folder = Path(text)
        begun = time.perf_counter()
        cluster = EmbeddedSpark(folder, pick(1)[0], workers=2, cores=1, memory_mb=600)
        undo.callback(cluster.stop)
        spark = make_pool(settings_of(cluster.start(), folder), 1)
        first = Side(spark, folder / "first")
        from_nothing = time.perf_counter() - begun
        undo.callback(_stop_session)
        first.workers.close()
        sides = [Side(LocalPool, folder / "local"), Side(spark, folder / "spark")]
        for side in sides:
            undo.callback(side.workers.close)
        rows += [
            row("start of two workers, session and kernels warm", "s", sides[1].start_seconds, 3.0, peer=LOCAL,
                peer_value=sides[0].start_seconds),
            row("start of two workers, cluster and session from nothing", "s", from_nothing, 15.0),
        ]  # fmt: skip
        for count, epochs in EPOCHS.items():
            rows += measured(count, *contest(sides, count, max(4, int(epochs * chosen.scale))))
        rows.append(held(sides))
        for side in sides:
            side.workers.close()
        if chosen.rows:
            here, there = (killed(m, folder / f"killed{k}", chosen.rows) for k, m in enumerate((LocalPool, spark)))
            rows.append(row(f"executor killed with {chosen.rows:,} rows: back and fresh", "s", there, min(12.0, 2 * here),
                            peer=LOCAL, peer_value=here))  # fmt: skip
    given = "" if chosen.scale == 1 else f"--scale {chosen.scale:g}"
    given += "" if chosen.rows == 10_000_000 else f" --rows {chosen.rows}"
    given = given.strip()
    publish("spark", rows, folder=FOLDER / "partial" if given else FOLDER, arguments=given)


def _stop_session() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


if __name__ == "__main__":
    main()
