"""Commit in Postgres → visible in the sink's table, on the real parts, at 200 transactions a second over five tables.

Durable epochs and both exactly-once sinks are on. Freshness is measured without the sidecar's clock: the writer notes the
time after COMMIT returned, a watcher on one connection notes when the sink's frontier passed that commit. The stages are the
sidecar's own account. A checker reads the sink's history all the while. Then the same work is done by Headrace with its
defaults, by Flink SQL and by Pathway, in turns (`freshness_contest`). Run as `python -m tests.bench.bench_freshness`; writes
build/bench/freshness.json.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from examples.demo import shop
from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config
from headrace.sidecar.devstack.processes import Child, spawn
from headrace.sidecar.devstack.stack import Stack
from headrace.sidecar.telemetry.metrics import STAGES, quantile
from tests.bench import history
from tests.bench.freshness_contest import contest, loads
from tests.bench.report import Row, publish, row
from tests.sidecar.support.channel import Channel

SAMPLES_PER_SECOND = 40.0
FRONTIER = (
    "select ((sources -> 'shop' ->> 'lsn')::pg_lsn - '0/0')::bigint from headrace.frontier where sink = 'warehouse'"
)
CUSTOMERS, PRODUCTS, ORDERS = 2_000, 200, 1_000


@dataclass
class Seen:
    """What a run gave. `latencies` in seconds; `histories`: the checker's accounts, with and without pauses."""

    latencies: list[float] = field(default_factory=list)
    lost: int = 0
    rate: float = 0.0
    written: int = 0
    stages: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    histories: list[dict[str, Any]] = field(default_factory=list)
    cores: dict[str, float] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


class Bench(Channel):
    """A channel of its own stack; the sidecar, writer and checker are children that end with this process."""

    children: dict[str, Child]

    def make_all(self, tuning: Tuning | None = None, *, whole: bool = False, more: int = 0) -> None:
        """Databases, tables, connector, configuration with one view more. `whole`: events have the whole row before; `more`:
        orders beside the first thousand."""
        with psycopg.connect(self.stack.postgres.url(), autocommit=True) as admin:
            for suffix in ("src", "dst"):
                admin.execute(f'create database "{self.name}_{suffix}"')
        with psycopg.connect(self.source_url) as db:
            shop.create(db, customers=CUSTOMERS, products=PRODUCTS, orders=ORDERS)
            shop.place_many(db, more)
            for statement in HEARTBEAT_DDL:
                db.execute(statement)
            for table in shop.TABLES if whole else ():
                db.execute(f"alter table {table} replica identity full")
        host, port = self.stack.postgres_address
        facts = psycopg.conninfo.conninfo_to_dict(self.source_url)
        connection = Connection(host, port, str(facts["user"]), f"{self.name}_src", str(facts.get("password", "")))
        config = connector_config(self.name, connection, shop.TABLES, tuning=tuning or Tuning(poll_ms=5))
        register(self.stack.connect.url, self.name, config)
        self.configure_all()

    def configure_all(self) -> None:
        """Write the configuration and the views."""
        (self.folder / "views").mkdir(exist_ok=True)
        (self.folder / "views" / "books.yaml").write_text(history.VIEW)
        self.configure(checkpoint={"interval_seconds": 10.0})

    def run_sidecar(self, patience: float = 120.0) -> None:
        """Start the sidecar and wait until it is ready."""
        child = self.child("sidecar", "headrace.sidecar.cli.app", "run", "--config", str(self.folder / "headrace.yaml"))
        child.wait_until(lambda: self.get("/readyz") is not None, patience)

    def child(self, name: str, module: str, *arguments: str, url: str = "") -> Child:
        """Start a Python module as a child; its output goes to NAME.log. `url`: of its database, by the environment."""
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", module, *arguments]
        started = self.children[name] = spawn(name, command, log, environment={**os.environ, shop.URL: url})
        return started

    def processes(self) -> dict[str, psutil.Process]:
        """The parts whose processor time counts."""
        parts = {n: getattr(self.stack, n).child.pid for n in ("postgres", "kafka", "connect")}
        parts |= {n: c.pid for n, c in self.children.items()}
        return {name: psutil.Process(pid) for name, pid in parts.items()}


def busy(processes: Mapping[str, psutil.Process]) -> dict[str, float]:
    """Processor seconds of each process and its living children (Postgres has one a connection), and of all others."""
    out = {}
    for name, process in processes.items():
        family = [process, *process.children(recursive=True)]
        out[name] = sum(sum(p.cpu_times()[:2]) for p in family if p.is_running())
    whole = psutil.cpu_times()
    out["bench"] = sum(psutil.Process().cpu_times()[:2])
    out["other programs"] = sum(whole) - whole.idle - whole.iowait - sum(out.values())
    return out


def watch(url: str, seconds: float, pause: float) -> list[tuple[float, int]]:
    """When which LSN was first seen as the sink's frontier: ascending. Each look is a transaction of its own."""
    found: list[tuple[float, int]] = []
    with psycopg.connect(url, autocommit=True) as db:
        last, end = -1, time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            answer = db.execute(FRONTIER, prepare=True).fetchone()
            lsn = -1 if answer is None or answer[0] is None else int(answer[0])
            if lsn > last:
                last = lsn
                found.append((time.monotonic(), lsn))
            if (left := pause - (time.monotonic() - now)) > 0:
                time.sleep(left)
    return found


def latencies(
    samples: list[tuple[float, int]], seen: list[tuple[float, int]], begin: float, end: float, until: float
) -> tuple[list[float], int]:
    """Seconds from each sample's commit in [begin, end) to the first sight of a frontier beyond it.

    One not seen when the watch ended at `until` counts with the time it waited so far; also how many these are.
    """
    lsns = [lsn for _, lsn in seen]
    found, lost = [], 0
    for committed, lsn in samples:
        if begin <= committed < end:
            at = bisect.bisect_left(lsns, lsn)
            lost += at == len(seen)
            found.append(max(0.0, (until if at == len(seen) else seen[at][0]) - committed))
    return found, lost


def read_samples(path: Path) -> list[tuple[float, int]]:
    """The writer's notes: (monotonic seconds after the commit, LSN that the commit lies beyond)."""
    return [(float(a), int(b)) for a, b, _ in (line.split() for line in path.read_text().splitlines())]


def measure(bench: Bench, chosen: argparse.Namespace) -> Seen:
    """Write, warm up, watch, then read the history as fast as possible, stop, compare everything once more."""
    out = Seen()
    samples = bench.folder / "samples"
    every = max(1, round(chosen.rate / SAMPLES_PER_SECOND))
    writer = bench.child(
        "writer", "examples.demo.writer", str(chosen.rate), str(chosen.seed), str(samples), str(every),
        url=bench.source_url,
    )  # fmt: skip
    watch(bench.sink_url, chosen.warm_up, 0.1)
    checker = bench.child("checker", "tests.bench.history", str(chosen.check_ms), url=bench.sink_url)
    time.sleep(0.5)
    processes = bench.processes()
    before, begin = busy(processes), time.monotonic()
    seen = watch(bench.sink_url, chosen.seconds, chosen.watch_ms / 1000)
    after, end = busy(processes), time.monotonic()
    out.cores = {name: (after[name] - before[name]) / (end - begin) for name in after}
    out.status = bench.status()
    out.stages = out.status["stages_ms"]
    checker.stop(20)
    out.histories.append(account(checker))
    bench.child("hunter", "tests.bench.history", "0", url=bench.sink_url)
    time.sleep(chosen.hunt)
    for child in bench.children.values():
        if child is not checker:
            child.check_alive()
    bench.children["hunter"].stop(20)
    out.histories.append(account(bench.children["hunter"]))
    writer.stop(20)
    out.written = int(writer.log.read_text().split()[-1])
    # what was committed in the last second may have become visible after the watch
    noted = read_samples(samples)
    out.latencies, out.lost = latencies(noted, seen, begin, end - 1, end)
    out.rate = every * sum(begin <= at < end for at, _ in noted) / (end - begin)
    out.differences = bench.compare_final().differences
    return out


def account(checker: Child) -> dict[str, Any]:
    """The checker's last line."""
    lines = checker.log.read_text().splitlines()
    assert lines, f"{checker.name} was ended before it had read anything: give it longer"
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def rows(seen: Seen, rate: float) -> list[Row]:
    """The report of a run that was to write `rate` transactions a second."""
    ordered = sorted(seen.latencies)
    note = f"{len(ordered)} sampled transactions"
    out = [
        row("commit → visible, p50", "ms", 1000 * quantile(ordered, 0.50), 40.0, note=note),
        row("commit → visible, p95", "ms", 1000 * quantile(ordered, 0.95)),
        row("commit → visible, p99", "ms", 1000 * quantile(ordered, 0.99), 150.0),
    ]
    warehouse = seen.stages.get("warehouse", {})
    for q in ("p50", "p95", "p99"):
        goal = 20.0 if q == "p50" else None
        out.append(row(f"own share (in Kafka → visible), {q}", "ms", warehouse["own"][q], goal,
                       note="the sidecar's account, warm-up included"))  # fmt: skip
    for stage in STAGES:
        if stage != "own":
            out += [row(f"leg {stage.replace('_', ', ')}, {q}", "ms", warehouse[stage][q]) for q in ("p50", "p99")]
    out += [
        row(f"leg sink of the Kafka topics, {q}", "ms", seen.stages.get("bus", {})["sink"][q]) for q in ("p50", "p99")
    ]
    wrong = sum(h["count"] for h in seen.histories)
    states = sum(h["states"] for h in seen.histories)
    distinct = sum(h["distinct"] for h in seen.histories)
    out += [
        row("transactions written", "commits/s", seen.rate, 0.95 * rate),
        row("visible states that never were", "states", wrong, 0.0, note=f"{states} states read, {distinct} distinct"),
        row("states read", "states", states),
        row("differences from Postgres at the end", "views", len(seen.differences), 0.0),
        row("sampled commits not yet visible at the end", "commits", seen.lost, 0.0),
        row("sidecar's peak memory", "MiB", seen.status["memory"].get("VmHWM", 0) / 2**20, 400.0),
    ]
    out += [row(f"processor: {name}", "cores", cores) for name, cores in seen.cores.items()]
    return out


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_freshness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long is measured, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds of writing before anything is measured")
    parser.add_argument("--rate", type=float, default=200.0, help="transactions a second")
    parser.add_argument("--poll-ms", type=int, default=20, help="Debezium's poll.interval.ms")
    parser.add_argument("--linger-ms", type=int, default=5, help="Debezium's producer.override.linger.ms")
    parser.add_argument(
        "--watch-ms", type=float, default=4.0, help="between two looks at the frontier; 0: a tight loop"
    )
    parser.add_argument(
        "--check-ms", type=float, default=20.0, help="the checker's pause between two reads while measuring"
    )
    parser.add_argument(
        "--hunt", type=float, default=8.0, help="seconds in which the checker reads without pause, after it"
    )
    parser.add_argument("--rounds", type=int, default=2, help="of the contest with peers; 0: none")
    parser.add_argument("--orders", type=int, default=4_000, help="of the contest, beside the first thousand")
    parser.add_argument(
        "--fast", type=float, default=600.0, help="transactions a second of the contest's last turns; 0: none"
    )
    parser.add_argument(
        "--many", type=int, default=75_000, help="orders of which each system is measured loading; 0: none"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="keep data and logs here")
    return parser.parse_args(arguments)


def _contest(stack: Stack, before: Bench, chosen: argparse.Namespace) -> list[Row]:
    """The contest, over databases and topics of its own, and the loads of many rows, over others."""
    found: list[Row] = []
    for name, orders, run in (("contest", chosen.orders, contest), ("many", chosen.many, loads)):
        if not orders:
            continue
        stack.connect.delete(before.name)
        bench = before = Bench(stack, stack.folder, name)
        bench.children = {}
        bench.make_all(Tuning(poll_ms=chosen.poll_ms, linger_ms=chosen.linger_ms), whole=True, more=orders)
        found += run(bench, chosen)
    return found


def main() -> int:
    """Measure, print, write; 1 where a state was wrong."""
    chosen = parse(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch, Stack(Path(chosen.folder or scratch)) as stack:
        bench = Bench(stack, stack.folder, "bench")
        bench.children = {}
        try:
            bench.make_all(Tuning(poll_ms=chosen.poll_ms, linger_ms=chosen.linger_ms))
            bench.run_sidecar()
            seen = measure(bench, chosen)
        finally:
            for child in bench.children.values():
                child.stop(20)
        beside = _contest(stack, bench, chosen) if chosen.rounds else []
    publish("freshness", [*rows(seen, chosen.rate), *beside], arguments=" ".join(sys.argv[1:]))
    others = seen.cores.get("other programs", 0.0)
    sys.stdout.write(f"{seen.written} transactions written; other programs used {others:.2f} cores meanwhile\n")
    for wrong in [*(v for h in seen.histories for v in h["violations"]), *seen.differences]:
        sys.stdout.write(f"WRONG {wrong}\n")
    return 1 if seen.differences or any(h["count"] for h in seen.histories) else 0


if __name__ == "__main__":
    raise SystemExit(main())
