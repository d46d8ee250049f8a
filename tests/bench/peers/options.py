"""What every bench against the peer is asked for: the scale of its data, the rounds; and the peer's program, built."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from headrace.engine.kernels import warm
from tests.bench.peers import crate
from tests.bench.report import FOLDER


class Options(NamedTuple):
    """`scale`: of all sizes of standing data; `binary`: the peer, or None; `data`: where columns are written.

    `folder`: where the report goes, aside unless all was run at full size, so that documents show nothing less.
    """

    scale: float
    rounds: int
    binary: Path | None
    data: Path
    folder: Path
    arguments: str

    def size(self, full: int) -> int:
        """A size of standing data at this scale."""
        return max(int(full * self.scale), 1000)


def options(name: str, about: str | None, rounds: int = 5) -> Options:
    """From the command line; builds the peer, compiles our kernels."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--scale", type=float, default=1.0, help="of the standing data; 1 is the full size")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--without-peer", action="store_true", help="run our side alone")
    chosen = parser.parse_args()
    warm()
    given = [] if chosen.scale == 1 else [f"--scale {chosen.scale:g}"]
    given += [] if chosen.rounds == rounds else [f"--rounds {chosen.rounds}"]
    given += ["--without-peer"] if chosen.without_peer else []
    binary = None if chosen.without_peer else crate.build()
    folder = FOLDER / "partial" if given else FOLDER
    return Options(chosen.scale, chosen.rounds, binary, FOLDER / "data" / name, folder, " ".join(given))
