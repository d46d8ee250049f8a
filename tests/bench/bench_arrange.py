"""Arranging: bulk loads and their memory, one update an epoch with many epochs a physical batch, and the tail of epochs.

Both sides read the same columns, take turns, and must hold the same rows at the end of each round. Figures are processor
seconds. Prints a table; writes build/bench/arrange.json. Run it as `make bench-arrange`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.bench.peers.columns import mixed, texts, write
from tests.bench.peers.contest import OURS, Round, contest, lap, rate, times
from tests.bench.peers.crate import NAME
from tests.bench.peers.options import Options, options
from tests.bench.report import Row, publish, row

PEER = {"peer": "pairs"}


def bulk(chosen: Options, session: str, size: int, most: float) -> list[Row]:
    """One epoch of `size` random rows into an empty arrangement, each round in new processes; `most` bytes a row."""
    keys = mixed(np.arange(size, dtype=np.uint64))
    columns = {"text": texts(size, 7)} if session == "texts" else {"value": np.arange(size, dtype=np.uint64)}
    path = write(chosen.data / session, key=keys, **columns)
    rounds: list[Round] = []
    held: dict[str, list[float]] = {}
    for _ in range(min(chosen.rounds, 3)):
        with contest(session, {"peer": session}, chosen.binary) as sides:
            rounds.append(sides.ask("run", path, 1))
            for side, told in rounds[-1].items():
                held.setdefault(side, []).append((told.bytes - sides.sides[side].base) / size)
            sides.ask("content")
    peer = rate(rounds, "peer", size)
    name = f"bulk arrange, {size / 1e6:.3g}M of (u64, {'32-byte string' if session == 'texts' else 'u64'})"
    bytes_of = {side: sorted(found)[len(found) // 2] for side, found in held.items()}
    return [
        row(name, "rows/s", ours(rate(rounds, OURS, size)), times(peer, 1.5), peer=NAME, peer_value=peer),
        row(f"{name}, resident", "B/row", bytes_of[OURS], most, peer=NAME, peer_value=bytes_of.get("peer")),
    ]


def stream(chosen: Options, size: int) -> list[Row]:
    """One update an epoch on random ones of `size` keys, against an arrangement that holds each of them once."""
    random = np.random.default_rng(size)
    rows: list[Row] = []
    with contest("keys", {"peer": "keys"}, chosen.binary) as sides:
        sides.ask("run", write(chosen.data / "base", key=np.arange(size)), 1)
        epoch = 1
        for flush, batches in ((1000, 200), (10_000, 40)):
            rounds: list[Round] = []
            for _ in range(chosen.rounds + 1):
                count = flush * batches
                epochs = np.arange(epoch, epoch + count)
                path = write(chosen.data / "stream", key=random.integers(0, size, count), epoch=epochs)
                rounds.append(sides.ask("run", path, flush))
                epoch += count
            del rounds[0]
            sides.ask("content")
            peer = rate(rounds, "peer", count)
            name = f"arrange, {size / 1e6:.3g}M keys, one update an epoch, {flush:,} epochs a batch"
            rows.append(row(name, "rows/s", ours(rate(rounds, OURS, count)), peer, peer=NAME, peer_value=peer))
    return rows


def tail(chosen: Options, size: int, changes: int = 10_000) -> list[Row]:
    """Epochs of so many changes (a delete and an insert each), one a batch, against `size` rows: p50 and p99."""
    random = np.random.default_rng(3)
    values = np.zeros(size, np.int64)
    with contest("pairs", PEER, chosen.binary) as sides:
        sides.ask("run", write(chosen.data / "base", key=np.arange(size), value=values), 1)
        rounds = []
        epoch = 1
        for _ in range(chosen.rounds + 1):
            path, epoch = _renewed(chosen.data / "renewed", random, values, changes, epoch, 60)
            rounds.append(sides.ask("run", path, 1))
        del rounds[0]
        sides.ask("content")
    name = f"epoch of {changes:,} changes, {size / 1e6:.3g}M rows arranged"
    p50, p99 = ours(lap(rounds, OURS)), ours(lap(rounds, OURS, 0.99))
    theirs, theirs99 = lap(rounds, "peer"), lap(rounds, "peer", 0.99)
    spread = None if theirs is None or theirs99 is None else theirs99 / theirs
    total = changes * 60
    return [
        row(f"{name}, p50", "µs", p50, peer=NAME, peer_value=theirs),
        row(f"{name}, p99", "µs", p99, peer=NAME, peer_value=theirs99),
        row(f"{name}, p99 : p50", "", p99 / p50, 4.0, peer=NAME, peer_value=spread),
        row(f"{name}, sustained", "changes/s", ours(rate(rounds, OURS, total)), peer=NAME,
            peer_value=rate(rounds, "peer", total)),
    ]  # fmt: skip


def _renewed(
    path: Path, random: np.random.Generator, values: np.ndarray, changes: int, epoch: int, epochs: int
) -> tuple[Path, int]:
    """Columns of `epochs` epochs of `changes` keys whose value goes up by one; and the epoch after them."""
    size = len(values)
    keys, news, olds = [], [], []
    for _ in range(epochs):
        some = np.unique(random.integers(0, size, changes))
        keys.append(some)
        olds.append(values[some].copy())
        values[some] += 1
        news.append(values[some].copy())
    when = np.repeat(np.arange(epoch, epoch + epochs), [len(k) for k in keys])
    key, old, new = np.concatenate(keys), np.concatenate(olds), np.concatenate(news)
    table = write(
        path, key=np.repeat(key, 2), value=np.stack([old, new], 1).reshape(-1), epoch=np.repeat(when, 2),
        diff=np.tile(np.array([-1, 1]), len(key)),
    )  # fmt: skip
    return table, epoch + epochs


def ours(value: float | None) -> float:
    """Our side always runs."""
    assert value is not None
    return value


def main() -> None:
    """Run all of it."""
    chosen = options("arrange", __doc__)
    rows = bulk(chosen, "pairs", chosen.size(10_000_000), 30.0)
    rows += bulk(chosen, "texts", chosen.size(2_000_000), 70.0)
    for size in (1_000_000, 10_000_000):
        rows += stream(chosen, chosen.size(size))
    rows += tail(chosen, chosen.size(10_000_000))
    publish("arrange", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
