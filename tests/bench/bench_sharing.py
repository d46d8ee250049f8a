"""Sharing one arrangement: ten queries on one against ten with their own, and queries that come and go over a live one.

Both sides read the same columns, take turns, and send the same updates. Figures are processor seconds and resident bytes.
Writes build/bench/sharing.json. Run it as `make bench-sharing`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.bench.peers.columns import mixed, write
from tests.bench.peers.contest import OURS, Told, contest, lap
from tests.bench.peers.crate import NAME
from tests.bench.peers.options import Options, options
from tests.bench.report import Row, publish, row

QUERIES = 10
INSTALLS, DROPS = slice(0, None, 2), slice(1, None, 2)
"""Laps of an `install` alternate."""


def queries(chosen: Options, size: int, changes: int = 1000, epochs: int = 40) -> list[Row]:
    """Ten queries of a hundred keys over `size` rows which change, shared : private, in memory and in work."""
    random = np.random.default_rng(3)
    keys = mixed(np.arange(size, dtype=np.uint64))
    base = write(chosen.data / "rows", key=keys, value=np.zeros(size, np.int64))
    wanted = np.concatenate([random.choice(size, 100, replace=False) for _ in range(QUERIES)])
    asked = write(chosen.data / "asked", key=keys[wanted])
    some = np.concatenate([random.choice(size, changes, replace=False) for _ in range(epochs)])
    when = np.repeat(np.arange(1, epochs + 1), changes)
    renewed = _renewed(chosen.data / "renewed", keys, some, when)
    held: dict[tuple[str, str], int] = {}
    spent: dict[tuple[str, str, str], float] = {}
    for form in ("shared", "private"):
        with contest(form, {"peer": form}, chosen.binary) as sides:
            sides.ask("query", asked, 100)
            for what, path in (("load", base), ("change", renewed)):
                for side, told in sides.ask("run", path, 1).items():
                    held[side, form] = told.bytes - sides.sides[side].base
                    spent[side, form, what] = sum(told.cpu)
    both = [side for side in (OURS, "peer") if (side, "shared") in held]
    made: list[Row] = []

    def beside(name: str, unit: str, found: dict[str, float], goal: float | None = None) -> None:
        made.append(row(name, unit, found[OURS], goal, peer=NAME, peer_value=found.get("peer")))

    title = f"{QUERIES} queries on {size / 1e6:.3g}M rows"
    beside(f"{title}, memory, shared : private", "", {s: held[s, "shared"] / held[s, "private"] for s in both}, 1 / 8)
    for what in ("load", "change"):
        ratios = {s: spent[s, "shared", what] / spent[s, "private", what] for s in both}
        beside(f"{title}, work to {what}, shared : private", "", ratios, 1 / 8)
    beside(f"{title}, memory, shared", "MB", {s: held[s, "shared"] / 1e6 for s in both})
    beside(f"{title}, epoch of {changes:,} changes, shared", "µs",
           {s: spent[s, "shared", "change"] / epochs * 1e6 for s in both})  # fmt: skip
    return made


def _renewed(path: Path, keys: np.ndarray, some: np.ndarray, when: np.ndarray) -> Path:
    """Each time that a row is chosen its value goes up by one."""
    order = np.argsort(some, kind="stable")
    ordered = some[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    before = np.empty(len(some), np.int64)
    before[order] = np.arange(len(some)) - np.repeat(starts, np.diff([*starts, len(some)]))
    return write(
        path, key=np.repeat(keys[some], 2), value=np.stack([before, before + 1], 1).reshape(-1), epoch=np.repeat(when, 2),
        diff=np.tile(np.array([-1, 1]), len(some)),
    )  # fmt: skip


def installs(chosen: Options, size: int, count: int = 200) -> list[Row]:
    """Queries of 1 and of 100 keys brought in over a live arrangement of `size` rows, answered and dropped again."""
    random = np.random.default_rng(8)
    keys = mixed(np.arange(size, dtype=np.uint64))
    made: list[Row] = []
    live = write(chosen.data / "live", key=keys, value=np.arange(size, dtype=np.uint64))
    for wanted in (1, 100):
        with contest("install", {"peer": "install"}, chosen.binary) as sides:
            load = sides.ask("run", live, 1)
            rounds = []
            for _ in range(chosen.rounds + 1):
                some = np.concatenate([random.choice(size, wanted, replace=False) for _ in range(count)])
                rounds.append(sides.ask("install", write(chosen.data / "asked", key=keys[some]), wanted))
        first = rounds.pop(0)
        name = f"query of {wanted} key{'s' if wanted > 1 else ''} over live {size / 1e6:.3g}M rows"
        ours, peer = lap(rounds, OURS, every=INSTALLS), lap(rounds, "peer", every=INSTALLS)
        dropped = lap(rounds, OURS, every=DROPS)
        assert ours is not None
        assert dropped is not None
        growth = {s: (t.bytes - first[s].bytes) / (count * chosen.rounds) for s, t in rounds[-1].items()}
        part = None if peer is None else _part(peer, load["peer"])
        made += [
            row(f"{name}, install and answer, p50", "µs", ours, 1000.0, peer=NAME, peer_value=peer),
            row(f"{name}, drop, p50", "µs", dropped, 1000.0, peer=NAME, peer_value=lap(rounds, "peer", every=DROPS)),
            row(f"{name}, install : rebuild", "‰", _part(ours, load[OURS]), 0.5, peer=NAME, peer_value=part),
            row(f"{name}, memory kept an install", "B", growth[OURS], 0.0, peer=NAME, peer_value=growth.get("peer")),
        ]
    return made


def _part(install: float, load: Told) -> float:
    """Microseconds of an install as thousandths of loading the rows anew."""
    return install / (sum(load.cpu) * 1e3)


def main() -> None:
    """Run all of it."""
    chosen = options("sharing", __doc__)
    rows = queries(chosen, chosen.size(2_000_000))
    rows += installs(chosen, chosen.size(10_000_000))
    publish("sharing", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
