"""Six queries of TPC-H built by hand, on the engine's face and on the peer's: one row an epoch, 10,000 rows a batch.

Tables begin empty and their rows come in one random order (nations and regions first); each query is fed what it reads.
Order and limit are left to who reads the view. Both sides read the same columns, take turns, and every round's output has
one checksum. Figures are rows a processor second. Writes build/bench/tpch.json. Run it as `make bench-tpch`.
"""

from __future__ import annotations

from tests.bench.peers.contest import OURS, Round, contest, rate, times
from tests.bench.peers.crate import NAME
from tests.bench.peers.options import Options, options
from tests.bench.peers.tpch import LOOSE
from tests.bench.report import Row, publish, row
from tests.bench.tpch import READS, tables, write

EPOCHS = 10_000
"""Of a physical batch, and as many rows."""

SCALES = (0.1, 1.0)

LEAST = 0.2
"""Of the peer's rate."""


LOOSELY = 1.0
"""Below this scale queries are also run over rows that no table keeps, as the peer's inputs keep none."""


def queries(chosen: Options, scale: float, rounds: int) -> list[Row]:
    """Each query at one scale, every round in new processes."""
    made = tables(scale * chosen.scale)
    rows: list[Row] = []
    for query in READS:
        folder = chosen.data / query
        count = write(folder, made, query)
        forms = {query: ""} | ({LOOSE.format(query): ", no tables kept"} if scale < LOOSELY else {})
        for session, words in forms.items():
            found: list[Round] = []
            for _ in range(rounds):
                with contest(session, {"peer": query}, chosen.binary) as sides:
                    found.append(sides.ask("run", folder, EPOCHS))
            ours, peer = rate(found, OURS, count), rate(found, "peer", count)
            assert ours is not None
            name = f"TPC-H {query.upper()}, SF {scale * chosen.scale:g}{words}"
            rows.append(row(name, "rows/s", ours, times(peer, LEAST), peer=NAME, peer_value=peer))
    return rows


def main() -> None:
    """Run all of it."""
    chosen = options("tpch", __doc__, rounds=3)
    rows = [one for scale in SCALES for one in queries(chosen, scale, chosen.rounds if scale < 1 else 1)]
    publish("tpch", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
