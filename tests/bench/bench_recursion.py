"""Recursion: distances in a large graph, closures of a tree, a random graph and a chain, and same generation in a tree.

First all edges at one epoch, then epochs of 1, 10, 100 and 1,000 changed edges, one a physical batch: in the large graph
edges are replaced by others, elsewhere some are taken out at one epoch and put back at the next. Both sides read the same
columns, take turns, and every round's output has one checksum. Figures are processor seconds, and bytes resident after
the first computation and after all changes. Writes build/bench/recursion.json. Run it as `make bench-recursion`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench.peers.columns import Lane, write
from tests.bench.peers.contest import OURS, Contest, Round, contest, lap, times
from tests.bench.peers.crate import NAME
from tests.bench.peers.options import Options, options
from tests.bench.report import Row, publish, row

Edges = Lane
"""int64[2, edges]: from, to."""


def random_edges(nodes: int, edges: int) -> Edges:
    """Edges between any two nodes."""
    return np.random.default_rng(17).integers(0, nodes, (2, edges))


def tree(nodes: int) -> Edges:
    """A binary tree, from parents to children."""
    children = np.arange(1, nodes)
    return np.stack([(children - 1) // 2, children])


def chain(nodes: int) -> Edges:
    """Each node before the next."""
    return np.stack([np.arange(nodes - 1), np.arange(1, nodes)])


class Case(NamedTuple):
    """`edges` of a number of nodes; `epochs`: of each size of change, so that a round is over in time.

    `first_factor`: the goal of the first computation as a multiple of the peer's time.
    """

    name: str
    session: str
    nodes: int
    edges: Callable[[int], Edges]
    epochs: tuple[int, int, int, int]
    first_factor: float = 1.5
    replaces: bool = False


SIZES = (1, 10, 100, 1000)

CASES = (
    Case("BFS", "distances", 1_000_000, lambda nodes: random_edges(nodes, 4 * nodes), (60, 60, 40, 20), replaces=True),
    Case("closure of a tree", "closure", 2**18 - 1, tree, (60, 60, 40, 10)),
    Case("closure of a random graph", "closure", 2_000, lambda nodes: random_edges(nodes, 2 * nodes), (4, 4, 2, 2)),
    Case("closure of a chain", "closure", 2_000, chain, (4, 4, 2, 2), 3.0),
    Case("same generation", "generation", 2**12 - 1, tree, (40, 20, 10, 4)),
)


class Changes:
    """A graph's edges as they change; writes them."""

    def __init__(self, path: Path, edges: Edges, nodes: int, *, replaces: bool) -> None:
        self._path = path
        self._edges = edges
        self._nodes = nodes
        self._replaces = replaces
        self._random = np.random.default_rng(31)
        self._epoch = 1

    def first(self) -> Path:
        """All of them."""
        return write(self._path, key=self._edges[0], value=self._edges[1])

    def next(self, size: int, epochs: int) -> Path:
        """`epochs` epochs of `size` changes."""
        chosen = [self._random.choice(self._edges.shape[1], size, replace=False) for _ in range(epochs)]
        parts: list[Edges] = []
        diffs: list[int] = []
        counts: list[int] = []
        for k in range(epochs):
            if self._replaces:
                old = self._edges[:, chosen[k]]
                new = self._random.integers(0, self._nodes, old.shape)
                self._edges[:, chosen[k]] = new
                parts += [old, new]
                diffs += [-1] * size + [1] * size
            else:
                parts.append(self._edges[:, chosen[k // 2 * 2]])
                diffs += [1 if k % 2 else -1] * size
            counts.append(len(diffs) - sum(counts))
        when = np.repeat(np.arange(self._epoch, self._epoch + epochs), counts)
        self._epoch += epochs
        keys, values = np.concatenate(parts, 1)
        return write(self._path, key=keys, value=values, epoch=when, diff=np.array(diffs))


def measured(chosen: Options, case: Case) -> list[Row]:
    """First all edges, each round in new processes; then, in the last, changes of each size."""
    nodes = max(int(case.nodes * chosen.scale), 60)
    edges = case.edges(nodes)
    firsts = []
    rows: list[Row] = []
    for turn in range(chosen.rounds):
        changes = Changes(chosen.data / case.session, edges.copy(), nodes, replaces=case.replaces)
        with contest(case.session, {"peer": case.session}, chosen.binary) as sides:
            firsts.append(sides.ask("run", changes.first(), 1))
            held = {"after the first": _held(sides, firsts[-1])}
            if turn + 1 < chosen.rounds:
                continue
            for size, epochs in zip(SIZES, case.epochs, strict=True):
                if size * 2 > edges.shape[1]:
                    continue
                found = [sides.ask("run", changes.next(size, epochs), 1)]
                ours, peer = lap(found, OURS), lap(found, "peer")
                assert ours is not None
                goal = times(peer, 3.0) if size >= 100 else None
                title = f"{_title(case, edges)}, {size:,} changed edge{'s' if size > 1 else ''}, p50"
                rows.append(row(title, "µs", ours, goal, peer=NAME, peer_value=peer))
                held["after all changes"] = _held(sides, found[-1])
            for when, of in held.items():
                title = f"{_title(case, edges)}, resident {when}"
                rows.append(row(title, "MB", of[OURS], peer=NAME, peer_value=of.get("peer")))
    ours, peer = lap(firsts, OURS), lap(firsts, "peer")
    assert ours is not None
    seconds = times(peer, 1e-6)
    title = f"{_title(case, edges)}, first"
    goal = times(seconds, case.first_factor)
    return [row(title, "s", ours * 1e-6, goal, peer=NAME, peer_value=seconds), *rows]


def _held(sides: Contest, told: Round) -> dict[str, float]:
    """Megabytes that each side holds beyond what its process began with."""
    return {side: (answer.bytes - sides.sides[side].base) / 1e6 for side, answer in told.items()}


def _title(case: Case, edges: Edges) -> str:
    return f"{case.name}, {edges.shape[1]:,} edges"


def main() -> None:
    """Run all of it."""
    chosen = options("recursion", __doc__, rounds=1)
    rows = [one for case in CASES for one in measured(chosen, case)]
    publish("recursion", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
