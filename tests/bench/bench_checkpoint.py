"""A checkpoint to an S3 server beside one to the local disk, by the clock, and what steps notice of it meanwhile.

Two dataflows hold the same table in this process and take the same epochs, turn by turn; one keeps its state in a folder, the
other in a bucket of a server that is a process of its own. Checkpoints are written by another thread while steps go on, as in
the sidecar. Last, the server is stopped in the middle of a checkpoint. Writes build/bench/checkpoint.json.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.kernels import warm
from headrace.sidecar.config.config import load
from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.processes import Child, spawn
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.state.batch_store import BatchStore
from headrace.sidecar.state.checkpoint import Capture, CheckpointStore, Manifest, table_facts
from headrace.sidecar.state.generation import RunState, take_generation
from headrace.sidecar.state.object_generation import take_run
from headrace.sidecar.state.objects import S3Access, S3Objects
from headrace.sidecar.telemetry.metrics import quantile
from headrace.sidecar.wiring.factories import program
from headrace.sidecar.wiring.project import read_project
from tests.bench.bench_recovery import CHUNK, GROUPS, TABLE, chunk, configure
from tests.bench.report import FOLDER, Row, publish, row

ROWS, ROUNDS, STEPS, STEP_ROWS = 5_000_000, 12, 50, 2_000
GOAL = 2.0
PAUSE, LONGEST = 3.0, 2.0
"""Seconds for which the server answers nobody, and how many times its usual longest a step may take meanwhile."""
EVERY = 0.01
"""Seconds between the begins of two steps while a checkpoint is written."""
BUCKET, DISK = "headrace-bench", "local disk"


class Server:
    """An S3 server as a process of its own, with a bucket."""

    def __init__(self, folder: Path) -> None:
        self._port = ports.pick(1)[0]
        command = [sys.executable, "-m", "moto.server", "-H", ports.HOST, "-p", str(self._port)]
        self.child: Child = spawn("s3", command, folder / "s3.log", environment=dict(os.environ))
        self.child.wait_until(lambda: ports.is_open(self._port), 60.0)
        self._url = f"http://{ports.HOST}:{self._port}"
        client = boto3.client("s3", endpoint_url=self._url, region_name="us-east-1", aws_access_key_id="key",
                              aws_secret_access_key="secret")  # fmt: skip
        client.create_bucket(Bucket=BUCKET)

    def objects(self) -> S3Objects:
        """Its bucket."""
        return S3Objects(S3Access(BUCKET, "state", self._url, "us-east-1", "key", "secret"))


@dataclass
class Written:
    """One checkpoint: seconds by the clock, milliseconds of each step meanwhile, bytes that its manifest names anew, and what was
    asked of the store."""

    seconds: float
    steps: list[float]
    bytes: int
    requests: int


@dataclass
class Side:
    """A dataflow and where its state goes."""

    folder: Path
    run: RunState
    epoch: int = 0
    taken: list[Written] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run.begin()
        project = read_project(load(self.folder / "headrace.yaml", {}))
        plans = Plans.of(project.compile(), project.tables)
        self._facts, self._named = table_facts(project.tables), frozenset[str]()
        self.flow = KeptDataflow(BatchStore(self.run.place))
        self.flow.build(plans, plans.schemas)
        self._store = CheckpointStore(self.run, program())
        self._executor = ThreadPoolExecutor(1)

    def fill(self, rows: int) -> None:
        """So many rows, then all merges."""
        for first in range(0, rows, CHUNK):
            self.epoch += 1
            self._step(chunk(first, min(CHUNK, rows - first), self.epoch))
        self.flow.exert(1 << 40)

    def step(self, rows: int) -> float:
        """One epoch of changes spread over all rows; milliseconds."""
        self.epoch += 1
        ids = np.unique(np.random.default_rng(self.epoch).integers(0, rows, STEP_ROWS))
        made = chunk(0, len(ids), self.epoch).rows
        columns = [pa.array(ids), pa.array((ids % GROUPS).astype(np.int32)), *made.columns[2:]]
        changed = pa.RecordBatch.from_arrays(columns, schema=made.schema)
        at, kinds = np.full(len(ids), self.epoch, np.int64), np.full(len(ids), UPSERT, np.uint8)
        begun = time.perf_counter()
        self._step(Upserts(changed, at, kinds))
        return 1000 * (time.perf_counter() - begun)

    def _step(self, upserts: Upserts) -> None:
        self.flow.push(TABLE, upserts)
        self.flow.step(self.epoch + 1)
        self.flow.advance_since(self.epoch)
        self.flow.outputs["v"].take()

    def checkpoint(self, rows: int, stopped: Child | None = None) -> Written:
        """Write one while steps go on; `stopped`: who answers nobody for the first PAUSE seconds."""
        capture, asked = Capture(epoch=self.epoch, write=self.flow.hold(), tables=self._facts), self._requests()
        if stopped is not None:
            os.kill(stopped.pid, signal.SIGSTOP)
        begun, steps = time.perf_counter(), list[float]()
        try:
            writing: Future[tuple[Manifest, float]] = self._executor.submit(self._write, capture)
            while not writing.done():
                due = time.perf_counter() + EVERY
                steps.append(self.step(rows))
                if stopped is not None and time.perf_counter() > begun + PAUSE:
                    os.kill(stopped.pid, signal.SIGCONT)
                    stopped = None
                time.sleep(max(0.0, due - time.perf_counter()))
        finally:
            if stopped is not None:
                os.kill(stopped.pid, signal.SIGCONT)
        manifest, ended = writing.result()
        files = {f.name: f.bytes for some in manifest.arrangements.values() for f in some}
        fresh = sum(size for name, size in files.items() if name not in self._named)
        self._named = frozenset(files)
        return Written(ended - begun, steps, fresh, self._requests() - asked)

    def _requests(self) -> int:
        return self.run.place.counts.requests

    def _write(self, capture: Capture) -> tuple[Manifest, float]:
        manifest = self._store.write(capture)
        return manifest, time.perf_counter()

    def close(self) -> None:
        """End what writes."""
        self._executor.shutdown()
        self.flow.close()


def sides_of(folder: Path, server: Server) -> list[Side]:
    """The local one first."""
    places = [folder / "disk", folder / "store"]
    for place in places:
        place.mkdir()
        configure(place)
    return [Side(places[0], take_generation(places[0] / "state")[0]),
            Side(places[1], take_run(server.objects(), places[1] / "state"))]  # fmt: skip


def measured(rows: int, first: list[Written], sides: list[Side], away: Written) -> list[Row]:
    """The two by the clock, and the steps."""
    here, there = first
    found = [row(f"first checkpoint of {rows:,} rows", "s", there.seconds, GOAL * here.seconds, peer=DISK,
                 peer_value=here.seconds, note=f"{there.bytes / 2**20:,.0f} MiB")]  # fmt: skip
    here_ms, there_ms = (1000 * statistics.median(w.seconds for w in side.taken) for side in sides)
    size, asked = (
        statistics.median(some) for some in zip(*((w.bytes, w.requests) for w in sides[1].taken), strict=True)
    )
    name = f"checkpoint after {STEPS * STEP_ROWS:,} changes"
    found.append(row(f"{name}, p50", "ms", there_ms, GOAL * here_ms, peer=DISK, peer_value=here_ms,
                     note=f"{size / 2**20:,.1f} MiB in {asked:.0f} requests"))  # fmt: skip
    alone = sorted(sides[1].alone)
    found.append(row(f"step of {STEP_ROWS:,} rows, nothing is written, p50", "ms", quantile(alone, 0.5)))
    for q in (0.5, 0.99):
        meanwhile = [
            sorted([ms for w in side.taken for ms in w.steps] + once.steps)
            for side, once in zip(sides, first, strict=True)
        ]
        here_ms, there_ms = (quantile(some, q) for some in meanwhile)
        found.append(row(f"the same while a checkpoint is written to the store, p{q * 100:.0f}", "ms", there_ms,
                         peer=DISK, peer_value=here_ms, note=f"alone {quantile(alone, q):.1f} ms"))  # fmt: skip
    found.append(row(f"longest step while the store does not answer for {PAUSE:.0f} s", "ms", max(away.steps),
                     LONGEST * alone[-1], peer="nothing is written", peer_value=alone[-1],
                     note=f"{len(away.steps)} steps in {away.seconds:.1f} s"))  # fmt: skip
    return found


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="that are held")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="checkpoints of each side")
    chosen = parser.parse_args()
    warm()
    with tempfile.TemporaryDirectory(prefix="headrace-checkpoint-") as text, ExitStack() as undo:
        server = Server(Path(text))
        undo.callback(server.child.stop, 20.0)
        sides = sides_of(Path(text), server)
        for side in sides:
            undo.callback(side.close)
            side.fill(chosen.rows)
        first = [side.checkpoint(chosen.rows) for side in sides]
        for turn in range(chosen.rounds):
            for side in sides if turn % 2 else reversed(sides):
                side.alone += [side.step(chosen.rows) for _ in range(STEPS)]
                side.taken.append(side.checkpoint(chosen.rows))
        for _ in range(STEPS):
            sides[1].step(chosen.rows)
        away = sides[1].checkpoint(chosen.rows, server.child)
    given = [] if chosen.rows == ROWS else [f"--rows {chosen.rows}"]
    given += [] if chosen.rounds == ROUNDS else [f"--rounds {chosen.rounds}"]
    publish("checkpoint", measured(chosen.rows, first, sides, away), folder=FOLDER / "partial" if given else FOLDER,
            arguments=" ".join(given))  # fmt: skip


if __name__ == "__main__":
    main()
