"""Where a sidecar's resident memory is: libraries, arrangements of 400,000 rows, and the rest, with six views and with a hundred.

Real Postgres, Kafka and Connect; the sidecar is a process of its own with its defaults and one Postgres sink. First the
program's libraries are loaded one after the other in a process that does nothing else. Writes build/bench/resident.json. Run it
as `make bench-resident`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.connectors.debezium.settings import Tuning
from headrace.sidecar.devstack.processes import Child, spawn
from headrace.sidecar.devstack.stack import Stack
from tests.bench.bench_freshness import Bench
from tests.bench.freshness_contest import VIEWS, System, child_of, headrace_of, load
from tests.bench.libraries import resident
from tests.bench.report import FOLDER, Row, publish, row

GOALS = {len(VIEWS): 350.0, 100: 450.0}
"""Views → megabytes."""
MB = 1e6


def of_libraries() -> Iterator[Row]:
    """What loading them takes, a line each."""
    told = subprocess.run([sys.executable, "-m", "tests.bench.libraries"], capture_output=True, text=True, check=True)
    before = 0.0
    for name, anonymous, files in json.loads(told.stdout):
        yield row(f"libraries: {name}", "MB", (anonymous + files - before) / MB,
                  note=f"{anonymous / MB:.0f} MB of all so far are its own, {files / MB:.0f} mapped files")  # fmt: skip
        before = anonymous + files


def hundred() -> dict[str, tuple[str, dict[str, str], str]]:
    """The contest's views, and others that differ in a constant."""
    more = {
        f"of_customer_{k}": ("status", {}, f"""
            select o.status, count(*) as lines, sum(l.quantity * l.price) as revenue
            from order_lines l join orders o on o.id = l.order_id join customers c on c.id = o.customer_id
            where c.id = {k} group by o.status""")
        for k in range(1, 101 - len(VIEWS))
    }  # fmt: skip
    return VIEWS | more


def of_sidecar(bench: Bench, views: Mapping[str, Any], seconds: float, rate: float) -> Iterator[Row]:
    """A sidecar that has loaded everything, and then follows a writer for a while."""
    system = System("Headrace", f"resident_{len(views)}", headrace_of(("warehouse",), views))
    folder = bench.folder / system.tables
    folder.mkdir()
    line, environment = system.start(bench, folder, system.tables)
    child: Child = spawn(system.tables, line, folder / "system.log", environment={**os.environ, **environment})
    name = f"{len(views)} views, 400,000 rows"
    try:
        load(bench, system, child)
        http = json.loads((folder / "headrace.yaml").read_text())["http"]
        (own, files), held = resident(child.pid), _arrangements(http)
        writer = child_of(bench, folder, "examples.demo.writer", str(rate), "7", url=bench.source_url)
        try:
            time.sleep(seconds)
            later = sum(resident(child.pid))
        finally:
            writer.stop(20)
        after = f"{name}: resident after {seconds:g} s at {rate:g} transactions/s"
        yield row(after, "MB", later / MB, GOALS.get(len(views)))
        yield row(f"{name}: resident once loaded", "MB", (own + files) / MB)
        yield row(f"{name}: of it mapped files", "MB", files / MB)
        yield row(f"{name}: of it arrangements", "MB", sum(held.values()) / MB)
        for table, size in sorted(held.items(), key=lambda one: -one[1])[:6]:
            yield row(f"{name}: the arrangement {table}", "MB", size / MB)
    finally:
        child.stop(30)


def _arrangements(http: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{http}/status", timeout=10) as answer:
        return {a["name"]: float(a["bytes"]) for a in json.load(answer)["arrangements"]}


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the writer writes")
    parser.add_argument("--rate", type=float, default=200.0, help="transactions a second")
    parser.add_argument("--orders", type=int, default=80_000, help="so that 400,000 rows are loaded")
    chosen = parser.parse_args()
    rows = list(of_libraries())
    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch, Stack(Path(scratch)) as stack:
        bench = Bench(stack, stack.folder, "resident")
        bench.children = {}
        bench.make_all(Tuning(), more=chosen.orders)
        for views in (VIEWS, hundred()):
            rows += of_sidecar(bench, views, chosen.seconds, chosen.rate)
    publish(
        "resident", rows, folder=FOLDER if len(sys.argv) == 1 else FOLDER / "partial", arguments=" ".join(sys.argv[1:])
    )


if __name__ == "__main__":
    main()
