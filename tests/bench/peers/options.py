"""What every bench against the peers is asked for: the scale of its data, the rounds; and the peers' programs, built."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.engine.kernels import warm
from tests.bench.peers import crate
from tests.bench.report import FOLDER


class Options(NamedTuple):
    """`scale`: of all sizes of standing data; `binary`: the peer, or None; `data`: where columns are written.

    `folder`: where the report goes, aside unless all was run at full size, so that documents show nothing less; `dbsp`: the
    second peer, or None.
    """

    scale: float
    rounds: int
    binary: Path | None
    data: Path
    folder: Path
    arguments: str
    dbsp: Path | None = None

    def second(self, session: str) -> Mapping[str, Sequence[str]]:
        """The second peer's side of a session and its command, where it was built."""
        return {} if self.dbsp is None else {crate.DBSP: [str(self.dbsp), session]}

    def size(self, full: int) -> int:
        """A size of standing data at this scale."""
        return max(int(full * self.scale), 1000)


def options(name: str, about: str | None, rounds: int = 5, *, second: bool = False) -> Options:
    """From the command line; builds the peer, and with `second` the second one; compiles our kernels."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--scale", type=float, default=1.0, help="of the standing data; 1 is the full size")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--without-peer", action="store_true", help="run our side alone")
    if second:
        parser.add_argument("--without-dbsp", action="store_true", help="leave the second peer out")
    chosen = parser.parse_args()
    warm()
    given = [] if chosen.scale == 1 else [f"--scale {chosen.scale:g}"]
    given += [] if chosen.rounds == rounds else [f"--rounds {chosen.rounds}"]
    given += ["--without-peer"] if chosen.without_peer else []
    alone = chosen.without_peer or not second or chosen.without_dbsp
    given += ["--without-dbsp"] if second and chosen.without_dbsp else []
    binary = None if chosen.without_peer else crate.build()
    dbsp = None if alone else crate.build("dbsp-peer")
    folder = FOLDER / "partial" if given else FOLDER
    return Options(chosen.scale, chosen.rounds, binary, FOLDER / "data" / name, folder, " ".join(given), dbsp)
