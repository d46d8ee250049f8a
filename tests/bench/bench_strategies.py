"""Recursion by state beside the rounds of history: the same views, changes and answers, one strategy a process.

The closure of a random graph, and same generation in a tree, as WITH RECURSIVE: first all edges at one epoch, then epochs in
which 1, 100 and 1,000 edges go and come back. Figures are processor seconds of the whole process, and bytes resident a row of
the recursion beyond what the process began with, the view's edges among them. Every epoch's answer has one checksum in all
processes. Writes build/bench/strategies.json. Run it as `make bench-strategies`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import INSERT, RETRACT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.kernels import warm
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_models import RecursionModel
from tests.bench.peers.columns import Lane
from tests.bench.peers.laps import Answer, resident
from tests.bench.peers.program_data import random_graph, tree
from tests.bench.report import FOLDER, Row, publish, row

STRATEGIES = ("auto", "update", "bootstrap", "history")
EPOCHS = {1: 5, 100: 2, 1000: 1}
"""How often so many edges go, and come back."""
EDGES = Schema((Column("key", BIGINT, nullable=False), Column("value", BIGINT, nullable=False)))
CLOSURE = (
    "with recursive t(a, b) as (select key, value from edges union select t.a, e.value from t join edges e on e.key = t.b) "
    "select a, b from t"
)
GENERATION = (
    "with recursive t(a, b) as (select x.value, y.value from edges x join edges y on x.key = y.key and x.value <> y.value "
    "union select x.value, y.value from t join edges x on x.key = t.a join edges y on y.key = t.b) select a, b from t"
)


class Case(NamedTuple):
    """A view over edges."""

    name: str
    sql: str
    nodes: int

    def edges(self, scale: float) -> Lane:
        """Its graph."""
        nodes = max(int(self.nodes * scale), 60)
        return (random_graph if self.sql is CLOSURE else tree)(nodes)["edge"].facts.T


CASES = {
    "closure": Case("closure of a random graph", CLOSURE, 2_000),
    "generation": Case("same generation", GENERATION, 2**12 - 1),
}


class Kept:
    """One view, and what it cost."""

    def __init__(self, sql: str, strategy: str) -> None:
        self.flow = Dataflow()
        self.flow.table("public.edges", EDGES)
        spec = ViewSpec("v", sql, recursion=RecursionModel(strategy=strategy))  # type: ignore[arg-type]
        [view] = compile_views([spec], Catalog({"public.edges": EDGES}))
        self.output = render(view, self.flow, {}).output("v")
        self.epoch = 0
        self.rows = 0

    def change(self, edges: Lane, sign: int, answer: Answer) -> None:
        """One epoch, as one lap."""
        kinds = np.full(edges.shape[1], INSERT if sign > 0 else RETRACT, np.uint8)
        rows = pa.RecordBatch.from_arrays([pa.array(lane) for lane in edges], schema=EDGES.arrow)
        self.flow.push("public.edges", Upserts(rows, np.full(edges.shape[1], self.epoch), kinds))

        def step() -> None:
            self.flow.step(self.epoch + 1)
            self.flow.advance_since(self.epoch)

        answer.lap(step)
        found, _ = self.output.take()
        self.epoch += 1
        self.rows += int(found.diffs.sum())
        one, two = (c.to_numpy().astype(np.uint64) for c in found.rows.columns)
        mixed = one * np.uint64(0x9E3779B97F4A7C15) ^ two * np.uint64(0xC2B2AE3D27D4EB4F)
        answer.add(int((mixed * found.diffs.astype(np.uint64)).sum()), len(found))


def measured(case: Case, strategy: str, scale: float) -> dict[str, Any]:
    """Seconds of the first computation and of changes by their size, bytes a row, and the checksum of all answers."""
    warm()
    edges = case.edges(scale)
    # What is compiled and imported at first use is not of the view.
    Kept(case.sql, strategy).change(edges[:, :20], 1, Answer())
    base = resident()
    kept, first = Kept(case.sql, strategy), Answer()
    kept.change(edges, 1, first)
    sums = [first.checksum, first.out]
    told: dict[str, Any] = {"first": first.cpu[0], "bytes": (resident() - base) / kept.rows, "rows": kept.rows}
    chosen = np.random.default_rng(31)
    for size, epochs in EPOCHS.items():
        if size * 2 > edges.shape[1]:
            continue
        answer = Answer()
        for _ in range(epochs):
            some = edges[:, chosen.choice(edges.shape[1], size, replace=False)]
            kept.change(some, -1, answer)
            kept.change(some, 1, answer)
        told[str(size)] = statistics.median(answer.cpu)
        sums += [answer.checksum, answer.out]
    return told | {"after": (resident() - base) / kept.rows, "sums": sums}


def rows_of(case: Case, found: dict[str, dict[str, Any]]) -> list[Row]:
    """The table's lines of one case: each strategy beside history."""
    titles = {"first": ("first", "s", 1.0)} | {
        str(size): (f"{size:,} changed edge{'s' if size > 1 else ''}, p50", "ms", 1e3) for size in EPOCHS
    }
    titles |= {"bytes": ("resident at first", "B/row", 1.0), "after": ("resident after all changes", "B/row", 1.0)}
    made = []
    for key, (title, unit, by) in titles.items():
        for strategy in STRATEGIES[:-1] if key in found["history"] else ():
            name = f"{case.name}, {found['history']['rows']:,} rows, {title}: {strategy}"
            ours, theirs = found[strategy][key] * by, found["history"][key] * by
            made.append(row(name, unit, ours, peer="history", peer_value=theirs))
    return made


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the graphs; 1 is the full size")
    parser.add_argument("--case", choices=CASES, help="one of them alone")
    parser.add_argument("--strategy", choices=STRATEGIES, help="this one, in this process; what it cost as JSON")
    chosen = parser.parse_args()
    if chosen.strategy:
        told = measured(CASES[chosen.case or "closure"], chosen.strategy, chosen.scale)
        sys.stdout.write(json.dumps(told) + "\n")
        return
    rows: list[Row] = []
    for name in [chosen.case] if chosen.case else CASES:
        found = {}
        for strategy in STRATEGIES:
            command = [sys.executable, "-m", "tests.bench.bench_strategies", "--case", name, "--strategy", strategy]
            ran = subprocess.run(
                [*command, "--scale", str(chosen.scale)], check=True, stdout=subprocess.PIPE, text=True
            )
            found[strategy] = json.loads(ran.stdout)
            if found[strategy]["sums"] != found["auto"]["sums"]:
                raise SystemExit(f"{name}: {strategy} answers differently")
        rows += rows_of(CASES[name], found)
    whole = chosen.scale == 1 and not chosen.case
    arguments = "" if whole else " ".join(sys.argv[1:])
    publish("strategies", rows, folder=FOLDER if whole else FOLDER / "partial", arguments=arguments)


if __name__ == "__main__":
    main()
