"""`python -m tests.hostile.run --seconds S`: twenty hostile views beside five ordinary ones; does anything run away?

First the ordinary views alone are measured, then both kinds. Invariant of a good run: the sidecar lives, memory stays flat,
every commit becomes visible, and in the end every view is what Postgres answers to its SQL. The ordinary views' p99 (commit to
visible) should be at most `SLOWER` times what it is alone: that is judged with `--timing` alone, as it needs a quiet machine.
Called by `make hostile`, `make proof` and a test.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import yaml

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from examples.demo import shop
from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config
from headrace.sidecar.devstack.stack import Stack
from headrace.sidecar.setup.introspection import reflect
from headrace.sidecar.telemetry.metrics import quantile
from tests.bench.bench_freshness import CUSTOMERS, ORDERS, PRODUCTS, Bench, latencies, read_samples, watch
from tests.bench.report import publish, row
from tests.crash.soak import Sample, grown, sample
from tests.hostile import traffic

HERE = Path(__file__).parent
ORDINARY = ("revenue_by_city", "order_totals", "bestsellers", "vip_customers", "payment_methods")
SLOWER = 2.0
PATIENCE = 120.0
"""Seconds within which all that was written must be visible, once nothing is written any more."""
SWELLS = 1.3
"""So much more may the sidecar have in the last third of a run than in the second."""
RATE, HOT_RATE = 140.0, 60.0
STEADY = 5_000
"""Orders that the shop holds: what is stored does not grow, so that memory must not."""


@dataclass
class Phase:
    """What was measured of a while: seconds from commit to visible, memory, and how many transactions were written."""

    latencies: list[float]
    lost: int
    samples: list[Sample]

    @property
    def p99(self) -> float:
        """In milliseconds."""
        return 1000 * quantile(sorted(self.latencies), 0.99)

    @property
    def p50(self) -> float:
        """In milliseconds."""
        return 1000 * quantile(sorted(self.latencies), 0.5)


class Hostile(Bench):
    """The shop and the hot tables of one database, and two sinks: one of ordinary views, one of hostile ones."""

    def make_tables(self) -> None:
        """Databases, tables and the connector."""
        with psycopg.connect(self.stack.postgres.url(), autocommit=True) as admin:
            for suffix in ("src", "dst"):
                admin.execute(f'create database "{self.name}_{suffix}"')
        with psycopg.connect(self.source_url) as db:
            shop.create(db, customers=CUSTOMERS, products=PRODUCTS, orders=ORDERS)
            db.execute(traffic.DDL)
            for statement in HEARTBEAT_DDL:
                db.execute(statement)
        host, port = self.stack.postgres_address
        facts = psycopg.conninfo.conninfo_to_dict(self.source_url)
        connection = Connection(host, port, str(facts["user"]), f"{self.name}_src", str(facts.get("password", "")))
        tables = (*shop.TABLES, *traffic.TABLES)
        register(
            self.stack.connect.url, self.name, connector_config(self.name, connection, tables, tuning=Tuning(poll_ms=5))
        )

    def configure_views(self, *, hostile: bool) -> None:
        """The configuration, with the ordinary views and, if wanted, the hostile ones."""
        views = self.folder / "views"
        views.mkdir(exist_ok=True)
        all_of_shop = yaml.safe_load((Path(shop.__file__).parent / "views" / "shop.yaml").read_text())
        ordinary = [{**v, "sinks": ["warehouse"]} for v in all_of_shop["views"] if v["name"] in ORDINARY]
        (views / "shop.yaml").write_text(yaml.safe_dump({"version": 1, "views": ordinary}))
        if hostile:
            (views / "hostile.yaml").write_text((HERE / "hostile.yaml").read_text())
        tables = [
            {"name": t.name, "key": list(t.key),
             "columns": [{"name": c.name, "data_type": c.data_type, "nullable": c.nullable} for c in t.columns]}
            for t in reflect(self.source_url, [*shop.TABLES, *traffic.TABLES]).tables
        ]  # fmt: skip
        sink = {"type": "postgres", "url": self.sink_url}
        body = {
            "version": 1, "name": self.name, "kafka": {"bootstrap.servers": self.stack.kafka.bootstrap},
            "sources": [{"name": "shop", "type": "debezium", "topic_prefix": self.name, "tables": tables}],
            "sinks": [{"name": "warehouse", "schema": "headrace", **sink}, {"name": "pit", "schema": "pit", **sink}],
            "http": self.http, "checkpoint": {"interval_seconds": 10.0},
        }  # fmt: skip
        (self.folder / "headrace.yaml").write_text(json.dumps(body))

    def measure(self, seconds: float, warm_up: float) -> Phase:
        """Both writers for a while; the first seconds do not count."""
        noted = self.folder / "samples"
        writer = self.child(
            "writer", "examples.demo.writer", str(RATE), "7", str(noted), "4", str(STEADY), url=self.source_url
        )
        hot = self.child("traffic", "tests.hostile.traffic", str(HOT_RATE), "7", url=self.source_url)
        watch(self.sink_url, warm_up, 0.1)
        begin, found, samples = time.monotonic(), list[tuple[float, int]](), list[Sample]()
        while time.monotonic() - begin < seconds:
            found += watch(self.sink_url, min(2.0, seconds), 0.004)
            samples.append(sample(self.children["sidecar"].pid, begin))
            for child in (self.children["sidecar"], writer, hot):
                child.check_alive()
        end = time.monotonic()
        for child in (writer, hot):
            child.stop(20)
        written = [s for s in read_samples(noted) if begin <= s[0] < end]
        while found[-1][1] < written[-1][1] and time.monotonic() < end + PATIENCE:
            found += watch(self.sink_url, 0.5, 0.004)
        waited, lost = latencies(written, found, begin, end, time.monotonic())
        return Phase(waited, lost, samples)

    def audit(self) -> dict[str, Any]:
        """Every view against Postgres's own answers, nothing being written any more."""
        command = [
            sys.executable,
            "-m",
            "headrace.sidecar.cli.app",
            "audit",
            "--config",
            str(self.folder / "headrace.yaml"),
        ]
        done = subprocess.run(
            [*command, "--from", self.source_url, "--json"], capture_output=True, text=True, check=False, timeout=300
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, f"the audit said nothing: {done.stderr[-2000:]}"
        found: dict[str, Any] = json.loads(lines[-1])
        return found


def swollen(samples: Sequence[Sample]) -> list[str]:
    """What is wrong with the memory: its median in the last third of a run against that in the second."""
    third = len(samples) // 3
    if not third:
        return ["the run was too short to see its memory"]
    second, last = (
        float(np.median([s["memory_mib"] for s in part])) for part in (samples[third : 2 * third], samples[-third:])
    )
    return [f"memory went from {second:.0f} to {last:.0f} MiB"] if last > SWELLS * second else []


def run(folder: Path, seconds: float, warm_up: float, alone_seconds: float) -> tuple[Phase, Phase, list[str]]:
    """The ordinary views alone, then beside the hostile ones; and what is wrong, whatever the machine does."""
    with Stack(folder) as stack:
        bench = Hostile(stack, stack.folder, "hostile")
        bench.children = {}
        try:
            bench.make_tables()
            bench.configure_views(hostile=False)
            bench.run_sidecar()
            alone = bench.measure(alone_seconds, warm_up)
            bench.children["sidecar"].stop(60)
            # The hot tables were not read before: the topics are read anew.
            shutil.rmtree(bench.folder / "state")
            bench.configure_views(hostile=True)
            bench.run_sidecar()
            sys.stderr.write("hostile: both kinds of views run\n")
            beside = bench.measure(seconds, warm_up)
            verdict = bench.audit()
        finally:
            for child in bench.children.values():
                child.stop(20)
    problems = swollen(beside.samples)
    problems += [f"{beside.lost} commits were not visible in the end"] if beside.lost else []
    wrong = [v["view"] for v in verdict["views"] if v["state"] != "equal"]
    problems += [f"{', '.join(wrong)}: not what Postgres answers"] if wrong else []
    return alone, beside, problems


def main() -> int:
    """Entry point; 1 where something ran away."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long the hostile views are measured")
    parser.add_argument("--alone", type=float, help="how long the ordinary views alone; default: a quarter of that")
    parser.add_argument("--warm-up", type=float, default=10.0)
    parser.add_argument("--timing", action="store_true", help="judge latencies and slow growth too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-hostile-") as folder:
        alone, beside, problems = run(Path(folder), asked.seconds, asked.warm_up, asked.alone or asked.seconds / 4)
    if asked.timing:
        slower = beside.p99 / alone.p99
        problems += grown(beside.samples)
        problems += [f"p99 is {slower:.1f} times what it is alone"] if slower > SLOWER else []
    memory = [s["memory_mib"] for s in beside.samples]
    rows = [
        row("ordinary views alone, p50", "ms", alone.p50),
        row("ordinary views alone, p99", "ms", alone.p99),
        row("beside twenty hostile views, p50", "ms", beside.p50),
        row("beside twenty hostile views, p99", "ms", beside.p99, SLOWER * alone.p99),
        row("sidecar's peak memory", "MiB", max(memory)),
    ]
    if asked.timing:
        publish("hostile", rows, command=f"make hostile HOSTILE={asked.seconds:g}")
    else:
        sys.stdout.writelines(f"hostile: {r['name']}: {r['ours']} {r['unit']}\n" for r in rows)
    for problem in problems:
        sys.stdout.write(f"hostile: {problem}\n")
    sys.stdout.write(f"hostile: {'failed' if problems else 'held'}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
