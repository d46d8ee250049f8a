"""Two workers against one: bulk arrange, counting and joining, rows exchanged by key among processes.

Each worker begins with a share of the rows that says nothing of their keys. One worker and two take turns on the same
rows, and their outputs must have one checksum. A rate is of the busiest worker: by its processor time, which other
programs of the machine change little, and by the clock, which they do change. Writes build/bench/workers.json. Run it
as `make bench-workers`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from headrace.engine.kernels import warm
from headrace.sidecar.execution.workers.channel import moved
from headrace.sidecar.execution.workers.local_pool import LocalPool
from headrace.sidecar.execution.workers.pool import Work
from headrace.sidecar.execution.workers.protocol import message, opened
from tests.bench.report import FOLDER, Row, publish, row
from tests.bench.workers import work

GOAL = 1.6
ONE = "one worker"

SESSIONS = (
    ("arrange", 10_000_000, 10_000_000, "bulk arrange, {:.3g}M of (u64, u64)"),
    ("arrange", 1_000_000, 1_000_000, "bulk arrange, {:.3g}M of (u64, u64)"),
    ("count", 10_000_000, 10_000_000, "count of {:.3g}M rows, first"),
    ("count", 1_000_000, 10_000_000, "count, epoch of {:.3g}M changes"),
    ("join", 1_000_000, 10_000_000, "join of {:.3g}M keys with ten times as many rows"),
)
"""(what, rows of a lap, rows of the whole, its name)."""


class Side:
    """So many workers, asked together."""

    def __init__(self, crew: LocalPool) -> None:
        self._crew = crew

    def ask(self, **head: Any) -> list[dict[str, Any]]:
        """One command to all, and their answers by worker."""
        channels = self._crew.channels
        for channel in channels:
            channel.put(message(head))
        moved(channels, lambda: not all(channel.arrived for channel in channels), lambda: None)
        return [opened(channel.arrived.popleft())[0] for channel in channels]

    def close(self) -> None:
        """End them."""
        self._crew.close()


def contest(
    session: str, size: int, whole: int, rounds: int, crew: Callable[[int, str, Work], LocalPool] = LocalPool
) -> dict[str, dict[int, list[float]]]:
    """Seconds of each round, by clock and count of workers. Raises AssertionError for different outputs."""
    found: dict[str, dict[int, list[float]]] = {"cpu": {1: [], 2: []}, "wall": {1: [], 2: []}}
    sides = {count: Side(crew(count, session, work)) for count in (1, 2)}
    kept = session == "count" and size < whole  # counts go on from round to round, the first of which loads
    try:
        for side in sides.values():
            side.ask(do="begin", whole=whole)
            if kept:
                side.ask(do="prepare", size=whole, seed=1000, whole=whole)
                side.ask(do="lap")
                side.ask(do="answer")
        for seed in range(rounds + 1):
            sums = set()
            for count in (1, 2) if seed % 2 else (2, 1):
                side = sides[count]
                if session == "arrange" or (session == "count" and not kept):
                    side.ask(do="begin", whole=whole)
                side.ask(do="prepare", size=size, seed=seed, whole=whole)
                begun = time.perf_counter()
                laps = side.ask(do="lap")
                wall = time.perf_counter() - begun
                answers = side.ask(do="answer")
                sums.add((sum(a["checksum"] for a in answers) % 2**64, sum(a["rows"] for a in answers)))
                if seed:  # the first round warms up
                    found["cpu"][count].append(max(lap["cpu"] for lap in laps))
                    found["wall"][count].append(wall)
            assert len(sums) == 1, f"{session}: one worker and two differ: {sums}"
    finally:
        for side in sides.values():
            side.close()
    return found


def measured(name: str, size: int, found: dict[str, dict[int, list[float]]]) -> list[Row]:
    """Rates by processor time and by the clock."""
    rows = []
    for clock, words in (("cpu", "processor time of the busiest"), ("wall", "by the clock")):
        one, two = (size / statistics.median(found[clock][count]) for count in (1, 2))
        rows.append(row(f"{name}, two workers, {words}", "rows/s", two, GOAL * one, peer=ONE, peer_value=one))
    return rows


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the standing data; 1 is the full size")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="one of arrange, count, join")
    chosen = parser.parse_args()
    warm()
    rows: list[Row] = []
    for session, size, whole, name in SESSIONS:
        if chosen.only in ("", session):
            size, whole = (max(int(n * chosen.scale), 1000) for n in (size, whole))
            rows += measured(name.format(size / 1e6), size, contest(session, size, whole, chosen.rounds))
    given = [] if chosen.scale == 1 else [f"--scale {chosen.scale:g}"]
    given += [] if chosen.rounds == 5 else [f"--rounds {chosen.rounds}"]
    given += [f"--only {chosen.only}"] if chosen.only else []
    publish("workers", rows, folder=FOLDER / "partial" if given else FOLDER, arguments=" ".join(given))


if __name__ == "__main__":
    main()
