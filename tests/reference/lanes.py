"""What sealing, merging and looking up lanes must give, by dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

Entry = tuple[tuple[int, ...], int, int, int]
"""A row's identity, a time, a diff and a position."""


def entries_of(ids: Sequence[Any], facts: Sequence[Any]) -> list[Entry]:
    """Lanes as entries."""
    rows = zip(*(lane.tolist() for lane in ids), strict=True)
    return list(zip(rows, *(lane.tolist() for lane in facts), strict=True))


def assert_canonical(found: Sequence[Entry], given: Iterable[Entry], distinct: int) -> None:
    """`found` are the sums of `given`, sorted; a row's entries share one of its positions; its rows are `distinct`."""
    sums: Counter[tuple[tuple[int, ...], int]] = Counter()
    places: dict[tuple[int, ...], set[int]] = {}
    for row, time, diff, place in given:
        sums[row, time] += diff
        places.setdefault(row, set()).add(place)
    assert [entry[:3] for entry in found] == sorted((*at, diff) for at, diff in sums.items() if diff)
    chosen: dict[tuple[int, ...], int] = {}
    for row, _, _, place in found:
        assert place in places[row]
        assert chosen.setdefault(row, place) == place
    assert len(chosen) == distinct
