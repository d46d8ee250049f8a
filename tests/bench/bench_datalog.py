"""Recursive programs as data change: points-to beside its peers, series of 13 epochs, worst cases, questions, facts taken out.

A series is the first computation, six small changes, a large one, four small ones, a large one. It is run by whatever strategy
the sidecar chooses, by Updates alone and by Bootstraps alone, and by each peer: incremental ones follow each epoch, batch
libraries begin anew. All take turns epoch by epoch, and what they hold after each has one checksum. Figures are processor
seconds. Writes build/bench/datalog.json. Run it as `make bench-datalog`; `--scale 1` has the full sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.bench.peers.contest import OURS, Round, contest_of, lap, own
from tests.bench.peers.program_data import GENERATORS, Changes, Data, Relation, chain, grid, random_graph, tree
from tests.bench.report import Row, publish, row
from tests.bench.sides import (
    DIFFERENTIAL,
    FLOWLOG,
    PEERS,
    Chosen,
    beside,
    chosen_of,
    commands,
    held,
    seconds,
)

SCALE = 0.2
SIZES = {"closure": 2_000, "generation": 2**12 - 1, "points_to": 1_000_000, "editor": 100_000, "ontology": 20_000}
"""Of each program at full size: nodes, facts, characters, classes."""
TITLES = {
    "closure": "closure of a random graph",
    "generation": "same generation",
    "points_to": "points-to",
    "editor": "text editor",
    "ontology": "ontology",
}
SMALL, LARGE = 10, 0.2
"""Changed facts of a small epoch, and the part of all facts of a large one."""
SERIES = (*[SMALL] * 6, LARGE, *[SMALL] * 4, LARGE)
FORCED = {"Updates alone": "update", "Bootstraps alone": "bootstrap"}
CHANGES = {1: 9, 10: 5, 100: 3, 1000: 3}
"""Changed facts of an epoch → how many such epochs."""


def sized(chosen: Chosen, program: str) -> Data:
    """A program's relations at this scale."""
    # Of same generation and closure the derived rows grow with the square of the size.
    scale = chosen.scale**0.5 if program in ("closure", "generation") else chosen.scale
    return GENERATORS[program](max(int(SIZES[program] * scale), 64))


def points_to(chosen: Chosen) -> list[Row]:
    """First all facts, then changes of each size; then facts that leave one by one."""
    changes = Changes(chosen.data / "points-to", sized(chosen, "points_to"))
    title = f"points-to, {changes.size:,} facts"
    with contest_of(commands(chosen, "points_to")) as sides:
        first = sides.ask("run", changes.first())
        at_first = held(sides, first)
        goals = {"batch": 2.0, DIFFERENTIAL: 0.5}
        rows = beside(f"{title}, first", "s", {side: seconds(first, side) for side in first}, goals)
        found: dict[int, list[Round]] = {}
        for size, epochs in CHANGES.items():
            found[size] = [sides.ask("run", changes.next(size)) for _ in range(epochs)]
        after = held(sides, found[1000][-1])
    own_first = seconds(first, OURS)
    for size, rounds in found.items():
        if size < 100:
            p50 = {side: lap(rounds, side) for side in rounds[0]}
            goals = {DIFFERENTIAL: 2.0 if size == 1 else 1.0}
            rows += beside(f"{title}, {size} changed, p50", "µs", p50, goals)
        else:
            worst = {side: lap(rounds, side, 1.0) for side in rounds[0]}
            limit = own_first * 1.25e6
            rows += beside(f"{title}, {size:,} changed, the worst", "µs", worst, {DIFFERENTIAL: 1.0}, limit=limit)
    for when, of in {"at first": at_first, "after changes": after}.items():
        megabytes = {side: value / 1e6 for side, value in of.items()}
        rows += beside(f"{title}, resident {when}", "MB", megabytes, {FLOWLOG: 0.5})
    return rows


def removals(chosen: Chosen) -> list[Row]:
    """Points-to: facts that leave, each in an epoch of its own."""
    changes = Changes(chosen.data / "removals", sized(chosen, "points_to"), whole=True)
    count = min(1000, int(5000 * chosen.scale))
    at = np.random.default_rng(41).choice(np.flatnonzero(changes.there["assign"]), count, replace=False).tolist()
    with contest_of(commands(chosen, "points_to", (DIFFERENTIAL, FLOWLOG))) as sides:
        sides.ask("run", changes.first())
        told = [sides.ask("run", changes.take_out("assign", at[k : k + 50])) for k in range(0, count, 50)]
    rows = []
    for name, share, limit in (("p50", 0.5, 2_000.0), ("max", 1.0, 250_000.0)):
        values = {side: lap(told, side, share) for side in told[0]}
        rows += beside(f"points-to, each of {count:,} facts removed, {name}", "µs", values, {}, limit=limit)
    return rows


def series(chosen: Chosen, program: str) -> list[Row]:
    """The 13 epochs of a program, on all sides; the first line carries what the picture shows."""
    data = sized(chosen, program)
    changes = Changes(chosen.data / f"series-{program}", data)
    # FlowLog's plan of the ontology had not followed the large epoch after eight minutes.
    peers = [peer for peer in PEERS if program != "ontology" or peer != FLOWLOG]
    sides_of = commands(chosen, program, peers) | {name: own(f"{program}/{way}") for name, way in FORCED.items()}
    title = f"{TITLES[program]}, {changes.size:,} facts, 13 epochs"
    with contest_of(sides_of) as sides:
        told = [sides.ask("run", changes.first())]
        told += [sides.ask("run", changes.next(int(s if s >= 1 else s * changes.size))) for s in SERIES]
    totals = {side: seconds(told, side) for side in told[0]}
    best = sum(min(seconds(r, name) for name in FORCED) for r in told)
    goals = {DIFFERENTIAL: 0.5, FLOWLOG: 0.5, "batch": 1.1 if program == "closure" else 1.0}
    rows = [
        row(
            f"{title}: the better strategy of each epoch",
            "s",
            totals[OURS],
            1.1 * best,
            peer="the better strategy",
            peer_value=best,
        )
    ]
    rows += beside(title, "s", totals, goals)
    rows.append(_dearest(title, told[1:]))
    rows[0]["series"] = {side: [round(seconds(r, side), 5) for r in told] for side in told[0]}
    rows[0]["ways"] = [r[OURS].ways[0] for r in told]
    rows[0]["panel"] = f"{TITLES[program]}, {changes.size:,} facts"
    return rows


def worst(chosen: Chosen, program: str) -> list[Row]:
    """Every epoch changes a large part of all facts, of a size that nothing foretells."""
    changes = Changes(chosen.data / f"worst-{program}", sized(chosen, program))
    random = np.random.default_rng(43)
    with contest_of({OURS: own(program), "Bootstraps alone": own(f"{program}/bootstrap")}) as sides:
        told = [sides.ask("run", changes.first())]
        shares = random.choice([0.01, 0.03, 0.05, 0.1, 0.2], 12).tolist()
        told += [sides.ask("run", changes.next(int(share * changes.size))) for share in shares]
    ours, anew = (seconds(told, side) for side in (OURS, "Bootstraps alone"))
    title = f"{TITLES[program]}, every epoch large, 13 epochs"
    return [row(title, "s", ours, 1.25 * anew, peer="Bootstraps alone", peer_value=anew), _dearest(title, told[1:])]


def _dearest(title: str, told: Sequence[Round]) -> Row:
    """Of all epochs behind the first the dearest one, measured by what beginning anew takes in it."""
    by = max(seconds(r, OURS) / seconds(r, "Bootstraps alone") for r in told)
    return row(f"{title}: the dearest epoch : beginning anew", "×", by, 1.25)


def questions(chosen: Chosen) -> list[Row]:
    """Questions with one argument, each in an epoch of its own, beside the whole relation and the peer's rules by hand."""
    many = 100 if chosen.scale == 1 else 20
    graphs: Mapping[str, Data] = {
        "tree-11": tree(2**12 - 1),
        "grid-150": grid(chosen.size(150, 40)),
        "random graph": random_graph(chosen.size(2_000)),
    }
    rows = []
    for graph, data in graphs.items():
        edges = data["edge"].facts
        nodes = np.unique(edges)
        arguments = np.random.default_rng(47).choice(nodes, min(many, len(nodes)), replace=False)
        for asked, whole in {"closure_from": "closure", "closure_to": "closure", "generation_of": "generation"}.items():
            if graph == "grid-150" and asked == "generation_of":
                continue
            values, all_of_it = _asked(chosen, asked, whole, data, arguments)
            spelled = {"closure_from": "tc(x,?)", "closure_to": "tc(?,x)", "generation_of": "sg(x,?)"}[asked]
            title = f"{spelled} on {graph}, {len(edges):,} edges, p50"
            rows += beside(title, "µs", values, {DIFFERENTIAL: 1.0})
            ours = values[OURS]
            assert ours is not None
            rows.append(row(f"{title}: a hundredth of the whole", "µs", ours, all_of_it / 100))
    return rows


def _asked(
    chosen: Chosen, asked: str, whole: str, data: Data, arguments: np.ndarray
) -> tuple[dict[str, float | None], float]:
    """Microseconds of a question on each side, and of the whole relation on ours."""
    given = {"edge": data["edge"], "asked": Relation(arguments.reshape(-1, 1))}
    changes = Changes(chosen.data / f"asked-{asked}", given, whole=True)
    changes.there["asked"][:] = False
    with contest_of(commands(chosen, asked, (DIFFERENTIAL,))) as sides:
        sides.ask("run", changes.first())
        told = []
        for at in range(len(arguments)):
            told.append(sides.ask("run", changes.put_back("asked", [at])))
            sides.ask("run", changes.take_out("asked", [at]))
    alone = Changes(chosen.data / f"whole-{asked}", {"edge": data["edge"]}, whole=True)
    with contest_of({OURS: own(whole)}) as sides:
        all_of_it = seconds(sides.ask("run", alone.first()), OURS) * 1e6
    return {side: lap(told, side) for side in told[0]}, all_of_it


def churn(chosen: Chosen) -> list[Row]:
    """Resident bytes of a closure's rows at first, and after epochs in which edges come and go."""
    epochs = max(int(1000 * chosen.scale), 50)
    rows = []
    for graph, data in {
        "random": random_graph(int(2_000 * chosen.scale**0.5)),
        "chain": chain(int(2_000 * chosen.scale**0.5)),
    }.items():
        changes = Changes(chosen.data / f"churn-{graph}", data)
        with contest_of(commands(chosen, "closure", (DIFFERENTIAL, FLOWLOG))) as sides:
            first = sides.ask("run", changes.first())
            pairs, at_first = first[OURS].out, held(sides, first)
            for _ in range(epochs):
                told = sides.ask("run", changes.next(2))
            after = held(sides, told)
        title = f"closure of a {graph} graph, {pairs:,} rows, resident a row"
        a_row = {side: value / pairs for side, value in at_first.items()}
        rows += beside(f"{title}, at first", "B", a_row, {FLOWLOG: 0.5}, limit=48.0 + 12.0)
        later = {side: value / pairs for side, value in after.items()}
        goals = {FLOWLOG: 0.5, DIFFERENTIAL: 0.5}
        rows += beside(f"{title}, after {epochs:,} epochs", "B", later, goals, limit=1.1 * a_row[OURS])
    return rows


def main() -> None:
    """Run all of it."""
    chosen = chosen_of("datalog", __doc__, SCALE)
    parts = {
        **{f"series {p}": lambda p=p: series(chosen, p) for p in TITLES},  # type: ignore[misc]
        "points-to": lambda: points_to(chosen),
        "removals": lambda: removals(chosen),
        **{f"worst {p}": lambda p=p: worst(chosen, p) for p in ("closure", "points_to")},  # type: ignore[misc]
        "questions": lambda: questions(chosen),
        "churn": lambda: churn(chosen),
    }
    rows: list[Row] = []
    try:
        for name, part in parts.items():
            if chosen.wants(name):
                rows += part()
    finally:
        # What was measured before an interrupt, or before sides that are unequal, is not lost.
        publish("datalog", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
