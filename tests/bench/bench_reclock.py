"""The log of epochs in a file beside the log in a topic: commit in Postgres → visible in the sink, turn by turn.

Two shops with the same load on one stack, of which one sidecar at a time runs: they differ in `reclock` alone. The time is
the writer's and a watcher's, as in `bench_freshness`. Run as `make bench-reclock`; writes build/bench/reclock.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.connectors.debezium.settings import Tuning
from headrace.sidecar.devstack.stack import Stack
from headrace.sidecar.telemetry.metrics import quantile
from tests.bench import history
from tests.bench.bench_freshness import Bench, latencies, read_samples, watch
from tests.bench.report import Row, publish, row

FILE = "the log in a file"
MORE_MS = 10.0
"""By how much the topic may be slower at p50."""


class Shop(Bench):
    """A bench of its own databases, folder and connector, with the log of epochs in one place."""

    reclock = "file"

    def configure_all(self) -> None:
        """As `Bench.configure_all`."""
        (self.folder / "views").mkdir(exist_ok=True)
        (self.folder / "views" / "books.yaml").write_text(history.VIEW)
        self.configure(checkpoint={"interval_seconds": 10.0}, reclock=self.reclock)


def shop(stack: Stack, folder: Path, reclock: str) -> Shop:
    """Made, not started."""
    (folder / reclock).mkdir(parents=True)
    made = Shop(stack, folder / reclock, f"log_{reclock}")
    made.children, made.reclock = {}, reclock
    made.make_all(Tuning(poll_ms=5, linger_ms=0))
    return made


def turn(bench: Shop, rate: float, seconds: float, number: int) -> list[float]:
    """One run of its sidecar under load: seconds of each sampled commit."""
    bench.run_sidecar()
    samples = bench.folder / f"samples{number}"
    writer = bench.child(
        "writer", "examples.demo.writer", str(rate), str(number), str(samples), "4", url=bench.source_url
    )
    try:
        watch(bench.sink_url, 6.0, 0.1)
        begin = time.monotonic()
        seen = watch(bench.sink_url, seconds, 0.004)
        end = time.monotonic()
    finally:
        writer.stop(20)
        bench.children["sidecar"].stop(30)
    found, lost = latencies(read_samples(samples), seen, begin, end - 1, end)
    assert not lost, "a commit was never seen"
    return found


def report(found: dict[str, list[float]]) -> list[Row]:
    """By the place of the log."""
    rows = []
    for q, goal in ((0.5, MORE_MS), (0.95, None), (0.99, None)):
        here, there = (1000 * quantile(sorted(found[place]), q) for place in ("file", "kafka"))
        rows.append(row(f"reclock: kafka, commit → visible, p{q * 100:.0f}", "ms", there,
                        None if goal is None else here + goal, peer=FILE, peer_value=here,
                        note=f"{len(found['kafka'])} sampled transactions; {there - here:+.1f} ms"))  # fmt: skip
    return rows


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=100.0, help="transactions a second")
    chosen = parser.parse_args()
    found: dict[str, list[float]] = {"file": [], "kafka": []}
    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch, Stack(Path(scratch) / "stack") as stack:
        sides = {reclock: shop(stack, Path(scratch), reclock) for reclock in found}
        for number in range(chosen.turns):
            for reclock in sorted(found, reverse=bool(number % 2)):
                found[reclock] += turn(sides[reclock], chosen.rate, chosen.seconds, number)
    given = " ".join(sys.argv[1:])
    publish("reclock", report(found), arguments=given)


if __name__ == "__main__":
    main()
