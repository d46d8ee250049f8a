"""Recursive views beside their peers: closures of a tree, a random graph and a chain, same generation, and single subjects.

First all edges at one epoch, then epochs of 1, 10, 100 and 1,000 changed edges. Incremental peers follow each epoch, batch
libraries and Postgres begin anew. All sides read the same columns, take turns epoch by epoch, and what they hold after each has
one checksum. Figures are processor seconds unless the line says otherwise. Writes build/bench/recursion.json. Run it as
`make bench-recursion`; `--scale 1` has the full sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace.sidecar.config.hosting import STEP_WORK
from headrace.views.limits import Limits
from tests.bench import live_recursions, postgres_anew
from tests.bench.peers.contest import OURS, Round, Unequal, contest_of, lap
from tests.bench.peers.program_data import Changes, Data, Relation, chain, random_graph, reach, tree, unique
from tests.bench.peers.programs import PROGRAMS
from tests.bench.report import Row, publish, row
from tests.bench.sides import DIFFERENTIAL, Chosen, beside, chosen_of, commands, held, seconds

SCALE = 0.25
SIZES = (1, 10, 100, 1000)


@dataclass(frozen=True)
class Case:
    """`size` of its relations at full size; derived rows grow with its power `grows`. `epochs`: of each size of change."""

    title: str
    session: str
    size: int
    make: Callable[[int], Data]
    grows: int = 2
    epochs: tuple[int, int, int, int] = (5, 3, 3, 3)


CASES = (
    Case("closure of a tree", "closure", 2**18 - 1, tree, grows=1, epochs=(9, 5, 3, 3)),
    Case("closure of a random graph", "closure", 2_000, random_graph),
    Case("closure of a chain", "closure", 2_000, chain),
    Case("same generation", "generation", 2**12 - 1, tree),
)


def case(chosen: Chosen, of: Case, postgres: postgres_anew.Server) -> list[Row]:
    """First all edges, then changes of each size."""
    data = of.make(max(int(of.size * chosen.scale ** (1 / of.grows)), 64))
    changes = Changes(chosen.data / of.title.replace(" ", "-"), data)
    title = f"{of.title}, {changes.size:,} edges"
    with contest_of(commands(chosen, of.session)) as sides:
        told = sides.ask("run", changes.first())
        at_first = held(sides, told)
        first: dict[str, float | None] = {side: seconds(told, side) for side in told}
        postgres.load({"edge": data["edge"].facts[changes.there["edge"]]})
        anew = postgres.run(PROGRAMS[of.session].text)
        if postgres.checksum() != told[OURS].checksum:
            raise Unequal(f"{title}: Postgres answers differently")
        rounds: dict[int, list[Round]] = {}
        for size, epochs in zip(SIZES, of.epochs, strict=True):
            if size * 2 <= changes.size:
                rounds[size] = [sides.ask("run", changes.next(size)) for _ in range(epochs)]
        after = held(sides, rounds[max(rounds)][-1])
    rows = beside(f"{title}, first", "s", first, {"batch": 2.0, DIFFERENTIAL: 0.5})
    own = first[OURS]
    assert own is not None
    rows.append(row(f"{title}, first: Postgres", "s", own, 0.5 * anew, peer=postgres_anew.NAME, peer_value=anew))
    for size, some in rounds.items():
        share, word, limit = (0.5, "p50", None) if size < 100 else (1.0, "the worst", 1.25e6 * own)
        values = {side: lap(some, side, share) for side in some[0]}
        goals = {DIFFERENTIAL: 2.0 if size == 1 else 1.0}
        rows += beside(f"{title}, {size:,} changed, {word}", "µs", values, goals, limit=limit)
    for when, of_side in {"at first": at_first, "after changes": after}.items():
        rows += beside(f"{title}, resident {when}", "MB", {side: v / 1e6 for side, v in of_side.items()}, {})
    return rows


def distances(chosen: Chosen) -> list[Row]:
    """Distances in a large graph, in which edges are replaced."""
    nodes = chosen.size(1_000_000)
    edges = unique(*np.random.default_rng(17).integers(0, nodes, (2, 4 * nodes)))
    changes = Changes(chosen.data / "distances", {"edge": Relation(edges)})
    with contest_of(commands(chosen, "distances", (DIFFERENTIAL,))) as sides:
        first = sides.ask("run", changes.first())
        rounds = {
            s: [sides.ask("run", changes.next(s)) for _ in range(n)]
            for s, n in zip(SIZES, (20, 20, 10, 5), strict=True)
        }
    title = f"BFS, {changes.size:,} edges"
    rows = beside(f"{title}, first", "s", {side: seconds(first, side) for side in first}, {DIFFERENTIAL: 1.5})
    for size, some in rounds.items():
        values = {side: lap(some, side) for side in some[0]}
        rows += beside(f"{title}, {size:,} changed, p50", "µs", values, {DIFFERENTIAL: 3.0} if size >= 100 else {})
    return rows


def along(chosen: Chosen) -> list[Row]:
    """Reachability along nodes in a row: first, and when the row is cut near the root."""
    nodes = chosen.size(100_000)
    changes = Changes(chosen.data / "along", reach(nodes), whole=True)
    with contest_of(commands(chosen, "reach")) as sides:
        first = sides.ask("run", changes.first())
        cut = sides.ask("run", changes.take_out("edge", [10]))
        back = sides.ask("run", changes.put_back("edge", [10]))
    rows = []
    for name, told, limit in (("first", first, 6.0), ("cut near the root", cut, 3.0), ("whole again", back, None)):
        title = f"reachability along {nodes:,} nodes, {name}"
        values = {side: seconds(told, side) for side in told}
        rows += beside(title, "s", values, {}, limit=None if limit is None else limit * chosen.scale)
    return rows


def components(chosen: Chosen) -> list[Row]:
    """Strongly connected components, a loop in a loop: first, and 100 changes."""
    nodes = chosen.size(100_000)
    edges = unique(*np.random.default_rng(61).integers(0, nodes, (2, 2 * nodes)))
    changes = Changes(chosen.data / "components", {"edge": Relation(edges)})
    with contest_of(commands(chosen, "components", (DIFFERENTIAL,))) as sides:
        first = sides.ask("run", changes.first())
        rounds = [sides.ask("run", changes.next(100)) for _ in range(3)]
    title = f"strongly connected components, {changes.size:,} edges"
    goals = {DIFFERENTIAL: 1.5}
    rows = beside(f"{title}, first", "s", {side: seconds(first, side) for side in first}, goals)
    return rows + beside(f"{title}, 100 changed, p50", "µs", {side: lap(rounds, side) for side in first}, goals)


def tree_of_rows(chosen: Chosen, postgres: postgres_anew.Server) -> list[Row]:
    """WITH RECURSIVE over a tree, of which one row moves: the end of the step by the clock, and Postgres anew."""
    nodes = chosen.size(2**18 - 1)
    found = live_recursions.moved(nodes, 50)
    postgres.load({"nodes": found.nodes}, ("id", "parent"))
    anew = min(postgres.run(live_recursions.TREE) for _ in range(2))
    if postgres.checksum() != found.checksum:
        raise Unequal("a tree of which rows moved: Postgres answers differently")
    title = f"WITH RECURSIVE over a tree of {nodes - 1:,} rows, one row moved"
    cpu = float(np.median(found.cpu))
    return [
        row(f"{title}, end of step by the clock, p50", "ms", float(np.median(found.wall)) * 1e3, 5.0),
        row(
            f"{title}, p50: Postgres", "ms", cpu * 1e3, anew * 1e3 / 30, peer=postgres_anew.NAME, peer_value=anew * 1e3
        ),
    ]


def runaway(chosen: Chosen) -> list[Row]:
    """A recursion that does not end, and a large one, beside nine views: their steps by the clock, with it and without."""
    nodes, steps = chosen.size(100_000), 400
    alone = live_recursions.steps_beside(nodes, steps).wall
    endless, large = live_recursions.ENDLESS, live_recursions.ANCESTORS
    cases = {
        "a runaway recursion within the default limits": (endless, Limits(), STEP_WORK),
        "a runaway recursion within 1,000 rounds": (endless, Limits(rounds=1000), STEP_WORK),
        "a runaway recursion that never leaves its step": (endless, Limits(), 0),
        "a large recursion": (large, Limits(), STEP_WORK),
        "a large recursion that never leaves its step": (large, Limits(), 0),
    }
    rows = []
    for name, (recursion, limits, work) in cases.items():
        beside_it = live_recursions.steps_beside(nodes, steps, recursion, limits, work)
        for word, share in (("p99", 0.99), ("max", 1.0)):
            both = beside_it.wall, alone
            ours, peer = (sorted(laps)[min(int(len(laps) * share), len(laps) - 1)] * 1e3 for laps in both)
            goal = 1.5 * peer if word == "p99" and work else None
            title = f"nine views beside {name}, a step by the clock, {word}"
            rows.append(row(title, "ms", ours, goal, peer="without it", peer_value=peer))
        if work:
            rows.append(row(f"nine views beside {name}, steps in which it was late", "steps", beside_it.late))
    return rows


def install(chosen: Chosen) -> list[Row]:
    """A recursive view, and a question, on live tables: plan to first row."""
    nodes = chosen.size(2**18 - 1)
    found = {name: float(np.median(v)) * 1e3 for name, v in live_recursions.installs(nodes, 9).items()}
    rows = []
    for kind, title in {"view": "a recursive view", "question": "a question in Datalog"}.items():
        about = f"install of {title} over {nodes:,} rows"
        plan = found[f"{kind}, plan and build"]
        rows.append(row(f"{about}, plan and build", "ms", plan, 10.0))
        rows.append(row(f"{about}, deriving its rows", "ms", found[f"{kind}, its rows"]))
        rows.append(row(f"{about}, first answer", "ms", found[f"{kind}, first answer"]))
    return rows


def main() -> None:
    """Run all of it."""
    chosen = chosen_of("recursion", __doc__, SCALE)
    rows: list[Row] = []
    with postgres_anew.server() as postgres:
        parts: dict[str, Callable[[], list[Row]]] = {
            **{of.title: lambda of=of: case(chosen, of, postgres) for of in CASES},  # type: ignore[misc]
            "along": lambda: along(chosen),
            "components": lambda: components(chosen),
            "tree of rows": lambda: tree_of_rows(chosen, postgres),
            "install": lambda: install(chosen),
            "runaway": lambda: runaway(chosen),
            "BFS": lambda: distances(chosen),
        }
        try:
            for name, part in parts.items():
                if chosen.wants(name):
                    rows += part()
        finally:
            # What was measured before an interrupt, or before sides that are unequal, is not lost.
            publish("recursion", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
