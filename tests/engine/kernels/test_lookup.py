"""Lookups against a dictionary, over hashes spread in every way that an interpolation could miss."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.engine.kernels import entries as lies
from headrace.engine.kernels import lookup
from tests.reference.lanes import assert_canonical

_FOREVER = 2**63 - 1
_TOP = 2**64 - 1


def _spread(kind: str, size: int, random: np.random.Generator) -> list[int]:
    if kind == "even":
        return [int(x) for x in random.integers(0, _TOP, size, np.uint64, endpoint=True)]
    if kind == "front":
        return [int(x) for x in random.integers(0, 40, size)]
    if kind == "ends":
        return [int(x) if k % 2 else _TOP - int(x) for k, x in enumerate(random.integers(0, 9, size))]
    if kind == "powers":
        return [1 << int(x) for x in random.integers(0, 64, size)]
    return [5] * size


@pytest.mark.parametrize("kind", ["even", "front", "ends", "powers", "one"])
@pytest.mark.parametrize("size", [1, 40, 700])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("since", "until"), [(-_FOREVER, _FOREVER), (3, _FOREVER), (2, 4)])
@pytest.mark.parametrize("dense", [True, False])
def test_gather_finds_all_of_a_key_and_nothing_else(
    kind: str, size: int, count: int, since: int, until: int, dense: bool
) -> None:
    random = np.random.default_rng(size)
    pool = _spread(kind, size, random)
    kept, rows, table = [], [], []
    for b in range(count):
        chosen = {
            ((pool[k], int(random.integers(0, 2)), low // 2, 0, low), t): d
            for k, low, t, d in zip(
                random.integers(0, size, size).tolist(),
                random.integers(0, 6, size).tolist(),
                random.integers(0, 6, size).tolist(),
                random.choice([-1, 1], size).tolist(),
                strict=True,
            )
        }
        entries = sorted((row, t, d) for (row, t), d in chosen.items())
        ids = tuple(np.array([row[lane] for row, _, _ in entries], np.uint64) for lane in range(5))
        places = {row: k for k, (row, _, _) in enumerate(entries)}
        facts = (
            np.array([t for _, t, _ in entries]),
            np.array([d for _, _, d in entries]),
            np.array([places[row] for row, _, _ in entries]),
        )
        rows += [(row, t, d, (b, places[row])) for row, t, d in entries]
        address = np.empty(lies.COLUMNS, np.int64)
        lies.locate(ids, facts, 0, np.zeros((0, 4), np.int64), 0, address)
        kept.append((ids, facts))
        table.append(address)
    asked = [(h, c) for h in {*pool[:50], 0, 17, 2**63, _TOP} for c in (0, 1)] * 2
    random.shuffle(asked)
    if not dense:
        # So few that no batch of 700 is passed over as a whole.
        asked = asked[: 700 // lookup._DENSE]
    hashes = np.array([h for h, _ in asked], np.uint64)
    checks = np.array([c for _, c in asked], np.uint64)
    block, found, overflow = lookup.gather(np.array(table), hashes, checks, since, until, _FOREVER)
    assert not overflow
    probes, batches, positions, times, diffs = block[:5, :found].tolist()
    assert probes == sorted(probes)
    known = {(b, p): row for row, _, _, (b, p) in rows}
    for probe, (h, c) in enumerate(asked):
        mine = [k for k, p in enumerate(probes) if p == probe]
        entries = [(known[batches[k], positions[k]], times[k], diffs[k], k) for k in mine]
        assert all(row[:2] == (h, c) for row, *_ in entries)
        wanted = [(row, max(t, since), d, 0) for row, t, d, _ in rows if row[:2] == (h, c) and t < until]
        sums = [(row, t, d, 0) for row, t, d, _ in entries]
        assert_canonical(sums, wanted, len({row for row, *_ in sums}))


def test_a_sum_that_does_not_fit_is_told() -> None:
    row = tuple(np.array([1, 1], np.uint64) for _ in range(5))
    facts = (np.array([0, 1]), np.array([2**63 - 1, 1]), np.array([0, 0]))
    address = np.empty((1, lies.COLUMNS), np.int64)
    lies.locate(row, facts, 0, np.zeros((0, 4), np.int64), 0, address[0])
    key = np.array([1], np.uint64)
    assert lookup.gather(address, key, key, 0, _FOREVER, _FOREVER)[1:] == (2, False)
    assert lookup.gather(address, key, key, 1, _FOREVER, _FOREVER)[2]


def test_keys_with_more_updates_than_are_asked_for_are_not_read() -> None:
    row = tuple(np.array([1, 1, 2], np.uint64) for _ in range(5))
    facts = (np.array([0, 1, 0]), np.array([1, 1, 1]), np.array([0, 1, 2]))
    address = np.empty((1, lies.COLUMNS), np.int64)
    lies.locate(row, facts, 0, np.zeros((0, 4), np.int64), 0, address[0])
    one, both = np.array([1], np.uint64), np.array([1, 2], np.uint64)
    assert lookup.gather(address, both, both, 0, _FOREVER, 3)[1:] == (3, False)
    block, found, _ = lookup.gather(address, both, both, 0, _FOREVER, 2)
    assert (block.shape[1], found) == (0, -1)
    assert lookup.gather(address, one, one, 0, _FOREVER, 2)[1] == 2
    assert lookup.gather(address, one, one, 0, 1, 1)[1] == -1, "also where only some are at the times asked for"
