"""Interactive queries over a graph: look-up, one hop, two hops, paths of four edges, as arguments that come and go.

At each epoch, one a physical batch, some pairs of nodes come and those of the epoch before leave. Both sides read the
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


def asked(path: Path, random: np.random.Generator, nodes: int, many: int, epochs: int, epoch: int) -> Path:
    """Pairs that come at each of `epochs` epochs from `epoch` on, and leave at the next one."""
    pairs = random.integers(0, nodes, (epochs, many, 2))
    come = np.repeat(np.arange(epoch, epoch + epochs), many)
    when = np.concatenate([come, come + 1])
    order = np.argsort(when, kind="stable")
    both = np.concatenate([pairs.reshape(-1, 2)] * 2)[order]
    diffs = np.repeat([1, -1], len(come))[order]
    return write(path, key=both[:, 0], value=both[:, 1], epoch=when[order], diff=diffs)


def queries(chosen: Options, name: str, session: str, nodes: int, edges: int, most: float | None) -> list[Row]:
    """One class of queries over random edges."""
    random = np.random.default_rng(17)
    if name == "look-up":
        base = write(chosen.data / "nodes", key=np.arange(nodes), value=np.arange(nodes))
    else:
        ends = random.integers(0, nodes, (2, edges))
        base = write(chosen.data / "edges", key=ends[0], value=ends[1])
    made: list[Row] = []
    with contest(session, {"peer": session}, chosen.binary) as sides:
        first = [sides.ask("run", base, 1)]
        size = next(iter(first[0].values())).rows
        load = rate(first, OURS, size)
        assert load is not None
        title = f"{name}, {size / 1e6:.3g}M {'nodes' if name == 'look-up' else 'edges'}"
        made.append(row(f"{title}, first", "rows/s", load, peer=NAME, peer_value=rate(first, "peer", size)))
        epoch = 1
        for many, epochs in AT_ONCE:
            rounds = []
            for _ in range(chosen.rounds + 1):
                rounds.append(sides.ask("query", asked(chosen.data / "asked", random, nodes, many, epochs, epoch), 1))
                epoch += epochs + 1
            del rounds[0]
            ours, peer = lap(rounds, OURS), lap(rounds, "peer")
            assert ours is not None
            goal = most if many == 1 else peer if many == 100 else None
            made.append(row(f"{title}, {many} at a time, p50", "µs", ours, goal, peer=NAME, peer_value=peer))
    return made


def main() -> None:
    """Run all of it."""
    chosen = options("graph", __doc__, rounds=3)
    nodes, edges = chosen.size(1_000_000), chosen.size(6_400_000)
    rows = [one for name, session, most in QUERIES for one in queries(chosen, name, session, nodes, edges, most)]
    publish("graph", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
