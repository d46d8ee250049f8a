"""Six queries of TPC-H built by hand, on the engine's face and on the peers': 10,000 rows a batch, at one epoch or an epoch each.

Tables begin empty and their rows come in one random order (nations and regions first); each query is fed what it reads.
Order and limit are left to who reads the view. Beside differential-dataflow, and with one epoch a batch beside dbsp, where
an epoch is a transaction. All sides read the same columns, take turns, and every round's output has one checksum. Figures are
rows a processor second. Writes build/bench/tpch.json. Run it as `make bench-tpch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from tests.bench.peers.contest import OURS, Round, contest, rate, times
from tests.bench.peers.crate import DBSP, NAME
from tests.bench.peers.options import Options, options
from tests.bench.peers.tpch import LOOSE
from tests.bench.report import Row, publish, row
from tests.bench.tpch import READS, Table, tables, write

ROWS = 10_000
"""Of a physical batch."""

SCALES = (0.1, 1.0)

LEAST = 0.2
"""Of the peer's rate, a query, an epoch a row."""

MEAN = 0.5
"""Of the peer's rate, the mean of all queries over tables that are kept, one epoch a batch."""

FULL = {"q1": 2_000_000.0, "q6": 2_000_000.0}
"""Query → rows a second at scale 1, one epoch a batch."""

LOOSELY = 1.0
"""Below this scale queries are also run over rows that no table keeps, as the peer's inputs keep none."""

LARGE = ", epochs of 10,000 rows"

Rates = Mapping[str, float]


def queries(chosen: Options, scale: float, rounds: int) -> list[Row]:
    """Each query at one scale, every round in new processes."""
    made = tables(scale * chosen.scale)
    forms = {"{}": ""} | ({LOOSE: ", no tables kept"} if scale < LOOSELY else {})
    rows: list[Row] = []
    for form, words in forms.items():
        title = f"SF {scale * chosen.scale:g}{words}"
        large: list[Rates] = []
        for query in READS:
            name = f"TPC-H {query.upper()}, {title}"
            found = _measured(chosen, made, query, form.format(query), 1, rounds)
            rows += _rows(name, found, times(found.get(NAME), LEAST))
            large.append(_measured(chosen, made, query, form.format(query), ROWS, rounds))
            rows += _rows(f"{name}{LARGE}", large[-1], FULL.get(query) if scale * chosen.scale == 1 else None)
        means = {side: geometric_mean([one[side] for one in large]) for side in large[0]}
        goal = None if words else times(means.get(NAME), MEAN)
        rows += _rows(f"TPC-H, geometric mean of six, {title}{LARGE}", means, goal)
    return rows


def _measured(
    chosen: Options, made: Mapping[str, Table], query: str, session: str, together: int, rounds: int
) -> Rates:
    """Rows a processor second of each side, with so many rows at one epoch."""
    folder = chosen.data / f"{query}-{together}"
    count = write(folder, made, query, together)
    found: list[Round] = []
    for _ in range(rounds):
        # An epoch is a transaction of dbsp: an epoch a row would be a transaction a row, on its side alone.
        second = chosen.second(session) if together > 1 else {}
        with contest(session, {NAME: query}, chosen.binary, second) as sides:
            found.append(sides.ask("run", folder, ROWS // together))
    return {side: value for side in found[0] if (value := rate(found, side, count)) is not None}


def _rows(title: str, rates: Rates, goal: float | None) -> Sequence[Row]:
    """Ours beside each peer. `goal`: in the line of differential-dataflow; ahead of dbsp is the goal in each of its lines."""
    found = [row(title, "rows/s", rates[OURS], goal, peer=NAME, peer_value=rates.get(NAME))]
    if (second := rates.get(DBSP)) is not None:
        found.append(row(f"{title}: dbsp", "rows/s", rates[OURS], second, peer=DBSP, peer_value=second))
    return found


def main() -> None:
    """Run all of it."""
    chosen = options("tpch", __doc__, rounds=3, second=True)
    rows: list[Row] = []
    try:
        for scale in SCALES:
            rows += queries(chosen, scale, chosen.rounds if scale < 1 else 1)
    finally:
        publish("tpch", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
