"""Interactive queries over a graph: look-up, one hop, two hops, paths of four edges, as arguments that come and go.

At each epoch, one a physical batch, some pairs of nodes come and those before them leave; in the second half 100 edges are
replaced by others between any two such epochs, whose own time does not count. Both sides read the
same columns, take turns, and every round's answers have one checksum. Figures are processor seconds of the epoch. Writes
build/bench/graph.json. Run it as `make bench-graph`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.bench.peers.columns import write
from tests.bench.peers.contest import OURS, contest, lap, rate
from tests.bench.peers.crate import NAME
from tests.bench.peers.options import Options, options
from tests.bench.report import Row, publish, row

QUERIES = (("look-up", "hop1", 1000.0), ("1-hop", "hop1", 1000.0), ("2-hop", "hop2", None), ("4-path", "path4", None))
"""(name, session, goal in µs of one query at a time); a look-up is a hop where each node has one row."""

AT_ONCE = ((1, 300), (10, 200), (100, 100))
"""(queries at a time, epochs a round)."""


CHANGES = 100
"""Edges that go, and as many that come, before each epoch of queries, where edges change."""


class Graph:
    """Rows (key, value) that are edges of random nodes, or one row a node; and the pairs that are asked for."""

    def __init__(self, path: Path, nodes: int, edges: int, *, single: bool) -> None:
        self._path = path
        self._random = np.random.default_rng(17)
        self._nodes = nodes
        self._single = single
        self._rows = np.stack([np.arange(nodes)] * 2) if single else self._random.integers(0, nodes, (2, edges))
        self._at = 0
        self.epoch = 1

    def base(self) -> Path:
        """The rows that stand first."""
        return write(self._path / "edges", key=self._rows[0], value=self._rows[1])

    def asked(self, name: str, many: int, epochs: int, *, every: int = 1, after: int = 0) -> Path:
        """Pairs that come at each of `epochs` epochs, one in `every` from `after` on, and leave at the next such one."""
        pairs = self._random.integers(0, self._nodes, (epochs, many, 2))
        come = self.epoch + after + every * np.repeat(np.arange(epochs), many)
        when = np.concatenate([come, come + every])
        order = np.argsort(when, kind="stable")
        both = np.concatenate([pairs.reshape(-1, 2)] * 2)[order]
        diffs = np.repeat([1, -1], len(come))[order]
        self.epoch = int(when[-1]) + 1
        return write(self._path / name, key=both[:, 0], value=both[:, 1], epoch=when[order], diff=diffs)

    def changing(self, many: int, epochs: int) -> Path:
        """Edges change at one epoch, pairs at the next."""
        when = self.epoch + 2 * np.repeat(np.arange(epochs + 1), CHANGES)
        at = (self._at + np.arange(len(when))) % self._rows.shape[1]
        self._at += len(when)
        old = self._rows[:, at]
        new = self._random.integers(0, self._nodes, old.shape)
        if self._single:
            new[0] = old[0]
        self._rows[:, at] = new
        keys, values = np.stack([old, new], 2).reshape(2, -1)
        diffs = np.tile(np.array([-1, 1]), len(when))
        write(self._path / "both-edges", key=keys, value=values, epoch=np.repeat(when, 2), diff=diffs)
        self.asked("both-asked", many, epochs, every=2, after=1)
        return self._path / "both"


def queries(chosen: Options, name: str, session: str, nodes: int, edges: int, most: float | None) -> list[Row]:
    """One class of queries over random edges."""
    graph = Graph(chosen.data, nodes, edges, single=name == "look-up")
    made: list[Row] = []
    with contest(session, {"peer": session}, chosen.binary) as sides:
        first = [sides.ask("run", graph.base(), 1)]
        size = next(iter(first[0].values())).rows
        load = rate(first, OURS, size)
        assert load is not None
        title = f"{name}, {size / 1e6:.3g}M {'nodes' if name == 'look-up' else 'edges'}"
        made.append(row(f"{title}, first", "rows/s", load, peer=NAME, peer_value=rate(first, "peer", size)))
        for changing, laps in ((False, slice(None)), (True, slice(1, None, 2))):
            for many, epochs in AT_ONCE:
                rounds = []
                for _ in range(chosen.rounds + 1):
                    if changing:
                        rounds.append(sides.ask("both", graph.changing(many, epochs), 1))
                    else:
                        rounds.append(sides.ask("query", graph.asked("asked", many, epochs), 1))
                del rounds[0]
                ours, peer = lap(rounds, OURS, every=laps), lap(rounds, "peer", every=laps)
                assert ours is not None
                goal = most if many == 1 else peer if many == 100 else None
                between = ", edges changing" if changing else ""
                made.append(
                    row(f"{title}, {many} at a time{between}, p50", "µs", ours, goal, peer=NAME, peer_value=peer)
                )
    return made


def main() -> None:
    """Run all of it."""
    chosen = options("graph", __doc__, rounds=3)
    nodes, edges = chosen.size(1_000_000), chosen.size(6_400_000)
    rows = [one for name, session, most in QUERIES for one in queries(chosen, name, session, nodes, edges, most)]
    publish("graph", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
