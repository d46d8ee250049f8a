"""How long no step is done while `headrace rescale` goes from two workers to four and back, on this machine and on Spark.

Two whole sidecars, whose source and sink are in memory, hold the same table, and transactions come all the while. The rescaling
is the product's own, asked for by another thread. They take turns. Writes build/bench/spark-rescale.json. Run it as
`make bench-spark-rescale`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import orjson

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.engine.kernels import warm
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.rescale import Rescaling
from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.devstack.spark import EmbeddedSpark
from tests.bench.bench_recovery import GROUPS, TABLE, TOPIC, opened
from tests.bench.report import FOLDER, Row, publish, row
from tests.doubles.memory import MemoryLog, MemoryStore
from tests.sidecar.control.busy import turning

ROWS, ROUNDS, FEW, MANY = 10_000_000, 3, 2, 4
GOAL = 2.0
EVENTS, EVERY = 10, 0.02
"""Events of a transaction, and seconds between two."""
BEFORE = 3.0
"""Seconds for which steps are watched before and after."""
LOCAL, SPARK = "local workers", "Spark"
_STEP = 7919
_SETTLED = 600.0


class Sidecar:
    """A sidecar over the state in `folder`, and who commits to its source. Its loop turns wherever a method is called."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._rows, self._sent, self._next = rows, 0, 0.0
        self._log, self._steps = MemoryLog(), list[float]()
        for topic in (TOPIC, "shop.transaction"):
            self._log.create(topic)
        self.running = opened(folder, self._log, MemoryStore())
        self._watch(BEFORE)

    def _commit(self) -> None:
        """One transaction of the source: each event adds one to the amount of a row, spread over all."""
        txid, lsn = 5000 + self._sent, 2000 + 2 * self._sent
        for order in range(EVENTS):
            i = (self._sent + order) * _STEP % self._rows
            body = {"id": i, "customer": i % GROUPS, "amount": i % 1_000_003 + 1, "status": "paid"}
            self._log.append(TOPIC, orjson.dumps({
                "op": "u", "before": None, "after": body,
                "transaction": {"id": f"{txid}:{lsn}", "total_order": order + 1, "data_collection_order": order + 1},
                "source": {"schema": "public", "table": "orders", "txId": txid, "lsn": lsn, "ts_us": 5, "snapshot": None},
            }), key=orjson.dumps({"id": i}))  # fmt: skip
        self._log.append("shop.transaction", orjson.dumps({
            "status": "END", "id": f"{txid}:{lsn}", "event_count": EVENTS, "ts_ms": 2,
            "data_collections": [{"data_collection": TABLE, "event_count": EVENTS}],
        }))  # fmt: skip
        self._sent += EVENTS

    def _turn(self) -> None:
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + EVERY
            self._commit()
        if self.running.runtime.turn(0.0):
            self._steps.append(time.perf_counter())
        else:
            time.sleep(0.001)

    def _watch(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self._turn()

    def _checkpoint(self) -> None:
        """Have a checkpoint written, as one is now and then: what changed since is what a rescaling writes."""
        runtime = self.running.runtime
        begun, until = runtime.epoch, time.perf_counter() + _SETTLED
        while runtime.checkpoints.epoch < begun:
            assert time.perf_counter() < until, "no checkpoint was written"
            self._turn()
            runtime.checkpoint(force=True)

    def rescale(self, workers: int) -> dict[str, float]:
        """Seconds: of the longest pause, of the longest one before, of the switch on the loop, and of all of it."""
        self._checkpoint()
        self._steps.clear()
        self._watch(BEFORE)
        asked = time.perf_counter()
        changing = Rescaling(self.running, ViewChanger(self.running))
        done = turning(lambda: changing.rescale(workers), self._turn)
        ended = time.perf_counter()
        self._watch(BEFORE)
        assert self.running.runtime.parts.flow.count == workers
        ends = np.array(self._steps)
        gaps = np.diff(ends)
        during = gaps[ends[1:] >= asked]
        return {"pause": float(during.max()), "before": float(gaps[ends[1:] < asked].max()),
                "switch": float(done["pause_seconds"]), "all": ended - asked}  # fmt: skip

    def check(self) -> None:
        """Every row is there, and is what it should be. Raises AssertionError."""
        runtime = self.running.runtime
        while runtime.turn(0.0):
            pass
        whole = runtime.parts.flow.outputs["v"].snapshot(runtime.epoch)[0]
        given = np.arange(self._rows, dtype=np.int64) % 1_000_003
        assert sum(whole.rows.column(1).to_pylist()) == self._rows
        assert sum(map(int, whole.rows.column(2).to_pylist())) == int(given.sum()) + min(self._sent, self._rows)


def configured(folder: Path, engine: dict[str, Any]) -> None:
    """Have the sidecar of a folder run on such workers."""
    path = folder / "headrace.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "engine": {"workers": FEW, **engine}}))


def begun(folder: Path, rows: int, undo: ExitStack) -> dict[str, Sidecar]:
    """The two sidecars, by host."""
    base = folder / LOCAL
    base.mkdir()
    subprocess.run([sys.executable, "-m", "tests.bench.bench_recovery", "--make", str(base), str(rows)], check=True)
    shutil.copytree(base, folder / SPARK)
    cluster = EmbeddedSpark(folder, pick(1)[0], workers=2, cores=(FEW + MANY) // 2, memory_mb=600)
    undo.callback(cluster.stop)
    master = cluster.start().master
    conf = {"spark.executor.memory": "512m", "spark.executor.cores": str((FEW + MANY) // 2),
            "spark.driver.memory": "512m", "spark.cores.max": str(FEW + MANY)}  # fmt: skip
    hosts: dict[str, dict[str, Any]] = {
        LOCAL: {},
        SPARK: {"host": "spark", "spark": {"master": master, "conf": conf}},
    }
    undo.callback(_stop_session)
    sides = {}
    for name, engine in hosts.items():
        configured(folder / name, engine)
        sides[name] = Sidecar(folder / name, rows)
        undo.callback(sides[name].running.close)
    return sides


def _stop_session() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def measured(rows: int, found: dict[tuple[str, int], list[dict[str, float]]]) -> list[Row]:
    """The longest pause of each host, both ways, of all rounds, and medians of what belongs to it."""

    def median(host: str, workers: int, what: str) -> float:
        return statistics.median(one[what] for one in found[host, workers])

    out = []
    for workers, name in ((MANY, f"rescale {FEW} → {MANY}"), (FEW, f"rescale {MANY} → {FEW}")):
        goal = GOAL if workers == MANY else None
        shown, pauses = (
            f"{name} at {rows:,} rows",
            {host: max(one["pause"] for one in found[host, workers]) for host in (LOCAL, SPARK)},
        )
        for host, pause in pauses.items():
            before, switch = median(host, workers, "before"), median(host, workers, "switch")
            peer = (None, None) if host == LOCAL else (LOCAL, pauses[LOCAL])
            out.append(row(f"{shown}: longest pause, {host}", "s", pause, goal, peer=peer[0], peer_value=peer[1],
                           note=f"the switch took {switch:.2f} s; the longest pause before was {before:.2f} s"))  # fmt: skip
        out.append(
            row(f"{shown}: from the request to the end, Spark", "s", median(SPARK, workers, "all"),
                peer=LOCAL, peer_value=median(LOCAL, workers, "all"),
                note="new workers start meanwhile, and steps go on")
        )  # fmt: skip
    return out


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="that the workers hold")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    warm()
    found: dict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="headrace-rescale-") as text, ExitStack() as undo:
        sides = begun(Path(text), chosen.rows, undo)
        for turn in range(chosen.rounds):
            for workers in (MANY, FEW):
                for host in sorted(sides, reverse=bool(turn % 2)):
                    found[host, workers].append(sides[host].rescale(workers))
        for side in sides.values():
            side.check()
    given = [] if chosen.rows == ROWS else [f"--rows {chosen.rows}"]
    given += [] if chosen.rounds == ROUNDS else [f"--rounds {chosen.rounds}"]
    publish("spark-rescale", measured(chosen.rows, found), folder=FOLDER / "partial" if given else FOLDER,
            arguments=" ".join(given))  # fmt: skip


if __name__ == "__main__":
    main()
