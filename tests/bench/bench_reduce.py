"""Counting and distinct rows over a standing collection: many epochs of one change, and one epoch of many.

A change is a delete and an insert, of a window that slides over random keys. Ours is one form; differential-dataflow's are
`reduce`, which keeps a trace of its output, and `_total`, which does not; dbsp has one, which keeps it, and each epoch is a
transaction there. All sides read the same columns, take turns, and every round's output has one checksum. Figures
are processor seconds. Writes build/bench/reduce.json. Run `make bench-reduce`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.bench.peers.columns import write
from tests.bench.peers.contest import OURS, Round, contest, rate
from tests.bench.peers.crate import DBSP, NAME
from tests.bench.peers.options import Options, options
from tests.bench.report import Row, publish, row

SINGLE = ((1000, 10), (10_000, 2))
"""(epochs a physical batch, batches a round), an epoch of one change."""

LARGE = ((100, 100), (1_000, 20), (10_000, 5), (100_000, 2))
"""(changes an epoch, epochs a round), one epoch a physical batch."""

TOTAL_FROM = 10_000
"""From so many changes a batch our rate is to reach that of the peer's `_total` form too."""


class Window:
    """A window of `size` records that slides over a stream of random keys; writes its changes."""

    def __init__(self, path: Path, size: int, keys: int) -> None:
        self._path = path
        self._size = size
        self._keys = keys
        self._at = 0
        self._random = np.random.default_rng(11)
        self._records = self._random.integers(0, keys, size)
        self.epoch = 1

    def base(self) -> Path:
        """The records that stand first."""
        return write(self._path.with_name("base"), key=self._records)

    def slide(self, changes: int, epochs: int) -> Path:
        """So many epochs of so many changes."""
        count = changes * epochs
        new = self._random.integers(0, self._keys, count)
        both = np.concatenate([self._records[self._at :], new])
        old, self._records, self._at = both[:count], both[count:], 0
        when = np.repeat(np.arange(self.epoch, self.epoch + epochs), changes)
        self.epoch += epochs
        return write(
            self._path, key=np.stack([old, new], 1).reshape(-1), epoch=np.repeat(when, 2),
            diff=np.tile(np.array([-1, 1]), count),
        )  # fmt: skip


def reduction(chosen: Options, session: str, size: int) -> list[Row]:
    """One operator against `size` records."""
    forms = {"reduce": session, "total": f"{session}_total"}
    window = Window(chosen.data / "window", size, size)
    rows: list[Row] = []
    with contest(session, forms, chosen.binary, chosen.second(session)) as sides:
        first = sides.ask("run", window.base(), 1)
        rows += _rows(f"{session}, first {size / 1e6:.3g}M rows", [first], size, 0)
        for flush, batches in SINGLE:
            rounds = [sides.ask("run", window.slide(1, flush * batches), flush) for _ in range(chosen.rounds + 1)]
            name = f"{session}, epochs of 1 change, {flush:,} epochs a batch"
            rows += _rows(name, rounds[1:], flush * batches, flush)
        for changes, epochs in LARGE:
            rounds = [sides.ask("run", window.slide(changes, epochs), 1) for _ in range(chosen.rounds + 1)]
            rows += _rows(f"{session}, epochs of {changes:,} changes", rounds[1:], changes * epochs, changes)
    return rows


def _rows(name: str, rounds: list[Round], count: int, batch: int) -> list[Row]:
    """Our rate beside both forms of the peer's, and dbsp's; `batch`: changes a physical batch, 0 for no goal."""
    ours = rate(rounds, OURS, count)
    assert ours is not None
    found = []
    for side, form, least in (("reduce", "`reduce` form", 1), ("total", "`_total` form", TOTAL_FROM)):
        peer = rate(rounds, side, count)
        goal = peer if batch >= least else None
        found.append(row(f"{name}: {form}", "changes/s", ours, goal, peer=NAME, peer_value=peer))
    if (second := rate(rounds, DBSP, count)) is not None:
        found.append(row(f"{name}: dbsp", "changes/s", ours, second, peer=DBSP, peer_value=second))
    return found


def main() -> None:
    """Run all of it."""
    chosen = options("reduce", __doc__, rounds=3, second=True)
    size = chosen.size(10_000_000)
    rows = [one for session in ("count", "distinct") for one in reduction(chosen, session, size)]
    publish("reduce", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
