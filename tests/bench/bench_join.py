"""Keys joined with a large arrangement: a dispatch of 1 to 100,000 keys against 10 million rows.

Beside differential-dataflow and dbsp. All sides read the same columns, take turns, and every round's output has one checksum.
Figures are processor seconds of a whole physical batch, of one epoch. Writes build/bench/join.json. Run it as `make bench-join`.
"""

from __future__ import annotations

import numpy as np

from tests.bench.peers.columns import mixed, write
from tests.bench.peers.contest import OURS, Round, contest, lap, rate, times
from tests.bench.peers.crate import DBSP, NAME
from tests.bench.peers.options import Options, options
from tests.bench.report import Row, publish, row

SIZES = (
    (1, 400, 300.0, None),
    (10, 400, 300.0, None),
    (100, 200, None, 1.5),
    (1_000, 50, None, 1.0),
    (10_000, 10, None, 1.0),
    (100_000, 3, None, 1.0),
)
"""(keys an epoch, epochs a round, goal in µs, goal as a multiple of the peer's)."""


def dispatches(chosen: Options, size: int) -> list[Row]:
    """Each size of dispatch, alternating, over `size` rows."""
    rows_of = mixed(np.arange(size, dtype=np.uint64))
    order = np.random.default_rng(5).permutation(size)
    rows: list[Row] = []
    epoch = 1
    at = 0
    with contest("join", {"peer": "join"}, chosen.binary, chosen.second("join")) as sides:
        base = write(chosen.data / "rows", key=rows_of, value=np.arange(size, dtype=np.uint64))
        first = [sides.ask("run", base, 1)]
        load = rate(first, OURS, size)
        assert load is not None
        name = f"rows arranged before joins, {size / 1e6:.3g}M"
        rows.append(row(name, "rows/s", load, peer=NAME, peer_value=rate(first, "peer", size)))
        if (second := rate(first, DBSP, size)) is not None:
            rows.append(row(f"{name}: dbsp", "rows/s", load, second, peer=DBSP, peer_value=second))
        for keys, epochs, most, multiple in SIZES:
            rounds = []
            if at + keys * epochs * (chosen.rounds + 1) > size:
                continue  # each key is asked for once at most, which a small scale cannot give
            for _ in range(chosen.rounds + 1):
                wanted = rows_of[order[at : at + keys * epochs]]
                at += keys * epochs
                when = np.repeat(np.arange(epoch, epoch + epochs), keys)
                epoch += epochs
                rounds.append(sides.ask("query", write(chosen.data / "asked", key=wanted, epoch=when), 1))
            del rounds[0]
            ours, peer = lap(rounds, OURS), lap(rounds, "peer")
            assert ours is not None
            goal = most if multiple is None else times(peer, multiple)
            name = f"join of {keys:,} key{'s' if keys > 1 else ''} with {size / 1e6:.3g}M rows"
            note = _walls(rounds, "peer")
            rows.append(row(f"{name}, p50", "µs", ours, goal, peer=NAME, peer_value=peer, note=note))
            if (second := lap(rounds, DBSP)) is not None:
                note = _walls(rounds, DBSP)
                rows.append(row(f"{name}, p50: dbsp", "µs", ours, second, peer=DBSP, peer_value=second, note=note))
    return rows


def _walls(rounds: list[Round], side: str) -> str:
    """What the same laps took by the clock."""
    ours, theirs = lap(rounds, OURS, 0.5, "wall"), lap(rounds, side, 0.5, "wall")
    return "" if ours is None or theirs is None else f"wall {ours:,.0f} against {theirs:,.0f}"


def main() -> None:
    """Run all of it."""
    chosen = options("join", __doc__, second=True)
    publish("join", dispatches(chosen, chosen.size(10_000_000)), folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
