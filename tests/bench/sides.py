"""All who take part in a benchmark of a recursive program, each in a process of its own, and the lines of its table.

Always: a peer that cannot be built is left out, and stderr says which and why; nothing of a line depends on who else takes
part but the better of two. Called by bench_recursion and bench_datalog.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.engine.kernels import warm
from tests.bench.peers import crate
from tests.bench.peers.contest import OURS, Contest, Round, own
from tests.bench.report import FOLDER, Row, row

DIFFERENTIAL, FLOWLOG, ASCENT, DATAFROG = crate.NAME, crate.NAMES["flowlog"], "ascent 0.8.1", "datafrog 2.0.1"
BATCH = (ASCENT, DATAFROG)
PEERS = (DIFFERENTIAL, FLOWLOG, ASCENT, DATAFROG)
PACKAGES = ("peer", "flowlog", "batch")


class Chosen(NamedTuple):
    """How a bench is run. `scale`: of the issue's sizes; `programs`: of the peers, those that were built, by package."""

    scale: float
    only: str
    programs: Mapping[str, Path]
    data: Path
    folder: Path
    arguments: str

    def size(self, full: int, least: int = 64) -> int:
        """A size at this scale."""
        return max(int(full * self.scale), least)

    def wants(self, part: str) -> bool:
        """Whether a part of the bench is run."""
        return not self.only or self.only in part


def chosen_of(name: str, about: str | None, scale: float) -> Chosen:
    """From the command line; builds the peers, compiles our kernels. `scale`: unless another is asked for."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--scale", type=float, default=scale, help=f"of the sizes; {scale:g} unless given, 1 is full size"
    )
    parser.add_argument("--only", default="", help="the parts whose name holds this")
    parser.add_argument("--without-peers", action="store_true", help="run our side alone")
    asked = parser.parse_args()
    warm()
    given = [] if asked.scale == scale else [f"--scale {asked.scale:g}"]
    given += [f"--only {asked.only}"] if asked.only else []
    given += ["--without-peers"] if asked.without_peers else []
    built = {} if asked.without_peers else {package: crate.build(package) for package in PACKAGES}
    programs = {package: path for package, path in built.items() if path is not None}
    folder = FOLDER / "partial" if given else FOLDER
    return Chosen(asked.scale, asked.only, programs, FOLDER / "data" / name, folder, " ".join(given))


def commands(chosen: Chosen, session: str, peers: Iterable[str] = PEERS, ours: str = "") -> dict[str, list[str]]:
    """Side → command, of ours and of those peers that were built. `ours`: our session where it has another name."""
    found = {OURS: own(ours or session)}
    for peer in peers:
        package = {DIFFERENTIAL: "peer", FLOWLOG: "flowlog"}.get(peer, "batch")
        if package in chosen.programs:
            library = [peer.partition(" ")[0]] if package == "batch" else []
            found[peer] = [str(chosen.programs[package]), *library, session]
    return found


def better(values: Mapping[str, float | None], names: Iterable[str] = BATCH) -> tuple[str, float] | None:
    """The peer with the least figure of some, and the figure."""
    some = [(value, name) for name in names if (value := values.get(name)) is not None]
    return (min(some)[1], min(some)[0]) if some else None


def beside(
    title: str, unit: str, values: Mapping[str, float | None], goals: Mapping[str, float], *, limit: float | None = None
) -> list[Row]:
    """A line for each peer that was measured. `goals`: peer → ours may be so many times its figure; under "batch" the better of
    the batch libraries. `limit`: a goal that no peer says.
    """
    ours = values[OURS]
    assert ours is not None
    rows = [] if limit is None else [row(title, unit, ours, limit)]
    for peer in (DIFFERENTIAL, FLOWLOG):
        if (value := values.get(peer)) is not None:
            goal = value * goals[peer] if peer in goals else None
            rows.append(row(f"{title}: {peer.partition(' ')[0]}", unit, ours, goal, peer=peer, peer_value=value))
    if (found := better(values)) is not None:
        name, value = found
        goal = value * goals["batch"] if "batch" in goals else None
        rows.append(row(f"{title}: the better batch library", unit, ours, goal, peer=name, peer_value=value))
    return rows or [row(title, unit, ours)]


def held(sides: Contest, told: Round) -> dict[str, float]:
    """Bytes that each side holds beyond what its process began with."""
    return {side: float(answer.bytes - sides.sides[side].base) for side, answer in told.items()}


def seconds(told: Sequence[Round] | Round, side: str) -> float:
    """Processor seconds of all laps of a side."""
    rounds = [told] if isinstance(told, Mapping) else told
    return sum(sum(r[side].cpu) for r in rounds)
