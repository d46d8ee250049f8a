"""What each real part costs in start time and memory: Postgres, Kafka, Connect with Debezium, and the sidecar.

Cold is a folder never used (databases, topics and connector are made), warm the same folder again. Both have the machine's
caches of jars and machine code filled, as after `make setup jars kernels`. Run as `python -m tests.bench.bench_stack`;
writes build/bench/stack.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.engine.kernels import warm
from headrace.sidecar.devstack.stack import Stack
from tests.bench.bench_freshness import Bench
from tests.bench.report import Row, publish, row

PARTS = ("postgres", "kafka", "connect")
SETTLE = 3.0


def memory(processes: Mapping[str, psutil.Process]) -> dict[str, float]:
    """MiB of each part, its children included: the share of pages that would be freed with it (PSS)."""
    out = {}
    for name, process in processes.items():
        family = [process, *process.children(recursive=True)]
        out[name] = sum(p.memory_full_info().pss for p in family if p.is_running()) / 2**20
    return out


def start(folder: Path, *, first: bool, patience: float) -> tuple[dict[str, float], dict[str, float]]:
    """Start everything in `folder`, wait until views are fresh, settle, stop. Seconds and MiB by part."""
    begin = time.monotonic()
    with Stack(folder) as stack:
        seconds = {name: stack.timings[name] for name in PARTS}
        bench = Bench(stack, stack.folder, "bench")
        bench.children = {}
        try:
            if first:
                bench.make_all()
            else:
                bench.configure_all()
            launched = time.monotonic()
            bench.run_sidecar(patience)
            seconds["sidecar"] = time.monotonic() - launched
            seconds["all"] = time.monotonic() - begin
            time.sleep(SETTLE)
            found = memory(bench.processes())
        finally:
            for child in bench.children.values():
                child.stop(20)
        return seconds, found


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_stack", description=__doc__)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds the sidecar may take until it is ready")
    chosen = parser.parse_args()
    warm()
    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch:
        runs = {}
        for number, how in enumerate(("cold", "warm")):
            runs[how] = start(Path(scratch), first=number == 0, patience=chosen.patience)
    rows: list[Row] = []
    for how, (seconds, _) in runs.items():
        rows += [row(f"{name} ready, {how}", "s", seconds[name]) for name in (*PARTS, "sidecar")]
        goal = 60.0 if how == "cold" else 30.0
        rows.append(row(f"all parts and first fresh view, {how}", "s", seconds["all"], goal))
    note = "PSS, idle after its start"
    for how, (_, found) in runs.items():
        for name, mib in found.items():
            rows.append(row(f"{name} memory, {how}", "MiB", mib, 400.0 if name == "sidecar" else None, note=note))
        rows.append(row(f"all memory, {how}", "MiB", sum(found.values()), note=note))
    publish("stack", rows, arguments=" ".join(sys.argv[1:]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
