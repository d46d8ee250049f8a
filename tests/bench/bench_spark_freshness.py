"""Commit in Postgres → visible in the sink's table, with two workers on Spark and with two workers of this machine, in turns.

The parts are real: Postgres, Kafka, Connect with Debezium, a standalone Spark of two executors. Each turn starts a sidecar of
its own over the same topics, with the views, the writer, the watcher and the checker of the freshness contest; the two
configurations differ in `engine` alone, and the cluster runs during the turns of both. Writes
build/bench/spark-freshness.json. Run it as `make bench-spark-freshness`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.connectors.debezium.settings import Tuning
from headrace.sidecar.devstack.stack import Stack
from headrace.sidecar.telemetry.metrics import quantile
from tests.bench.bench_freshness import Bench
from tests.bench.freshness_contest import Outcome, System, headrace_of, turn
from tests.bench.report import FOLDER, Row, publish, row
from tests.bench.spark_cluster import engine_on, standalone

LOCAL, SPARK = "local workers", "workers on Spark"
WORKERS = 2
GOALS = {50: 1.2, 99: 1.3}
"""Percentile → how many times the local workers' figure that on Spark may be."""
DEFAULTS = {"seconds": 25.0, "warm_up": 10.0, "rate": 200.0, "rounds": 2}


def measured(outcomes: Mapping[str, Sequence[Outcome]], rate: float) -> list[Row]:
    """The report: what is seen from outside, and whether any state was seen that never was."""
    here, there = outcomes[LOCAL], outcomes[SPARK]
    ours, peers = (sorted(one for out in some for one in out.latencies) for some in (there, here))
    name, note = f"{rate:g} transactions/s", f"{len(ours)} sampled transactions"
    rows = []
    for q in (50, 95, 99):
        local = 1000 * quantile(peers, q / 100)
        goal = GOALS[q] * local if q in GOALS else None
        rows.append(row(f"{name}, {SPARK}: commit → visible, p{q}", "ms", 1000 * quantile(ours, q / 100), goal,
                        peer=LOCAL, peer_value=local, note=note))  # fmt: skip
    rows.append(row(f"{name}, {SPARK}: from the start until the views are right", "s", min(o.load for o in there),
                    peer=LOCAL, peer_value=min(o.load for o in here)))  # fmt: skip
    for side, some in outcomes.items():
        states = f"of {sum(out.states for out in some)} states read"
        wrong = sum(out.off_balance + out.torn for out in some)
        rows += [
            row(f"{side}: states that never were", "states", wrong, 0.0, note=states),
            row(f"{side}: sampled commits not visible at the end", "commits", sum(out.lost for out in some)),
        ]
    return rows


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=DEFAULTS["seconds"], help="of each turn that are measured")
    parser.add_argument("--warm-up", type=float, default=DEFAULTS["warm_up"], help="seconds of writing before them")
    parser.add_argument("--rate", type=float, default=DEFAULTS["rate"], help="transactions a second")
    parser.add_argument("--rounds", type=int, default=DEFAULTS["rounds"], help="turns of each side")
    parser.add_argument("--poll-ms", type=int, default=20, help="Debezium's poll.interval.ms")
    parser.add_argument("--linger-ms", type=int, default=5, help="Debezium's producer.override.linger.ms")
    parser.add_argument("--watch-ms", type=float, default=4.0, help="between two looks of the watcher")
    parser.add_argument("--check-ms", type=float, default=20.0, help="between two reads of the checker")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="keep data and logs here")
    return parser.parse_args(arguments)


def main() -> int:
    """Run all of it; 1 where a state was wrong."""
    chosen = parse()
    with ExitStack() as undo:
        folder = chosen.folder or Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
        stack = undo.enter_context(Stack(folder))
        master = undo.enter_context(standalone(folder / "cluster", WORKERS))
        bench = Bench(stack, stack.folder, "hosts")
        bench.children = {}
        bench.make_all(Tuning(poll_ms=chosen.poll_ms, linger_ms=chosen.linger_ms))
        sides = [
            System(LOCAL, "hosts_local", headrace_of(("warehouse",), engine={"workers": WORKERS})),
            System(SPARK, "hosts_spark", headrace_of(("warehouse",), engine=engine_on(master, WORKERS, WORKERS))),
        ]
        outcomes: dict[str, list[Outcome]] = {side.name: [] for side in sides}
        for number in range(chosen.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                folder = bench.folder / f"{side.tables}_{number}"
                outcomes[side.name].append(turn(bench, side, chosen, folder, chosen.rate, chosen.seed + number))
    rows = measured(outcomes, chosen.rate)
    given = " ".join(
        f"--{n.replace('_', '-')} {getattr(chosen, n):g}" for n, v in DEFAULTS.items() if getattr(chosen, n) != v
    )
    publish("spark-freshness", rows, folder=FOLDER / "partial" if given else FOLDER, arguments=given)
    return 1 if any(out.off_balance or out.torn for some in outcomes.values() for out in some) else 0


if __name__ == "__main__":
    raise SystemExit(main())
