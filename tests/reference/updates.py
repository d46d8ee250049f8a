"""Updates in a dictionary: the twin of consolidate, batches and the spine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from headrace.engine.batch import Updates
from tests.reference.values import row_image

Counts = dict[tuple[Hashable, int], int]


def counted(entries: Iterable[tuple[Hashable, int, int]]) -> Counts:
    """(row, time) → sum of diffs, without zeros."""
    total: Counts = {}
    for row, time, diff in entries:
        total[row, time] = total.get((row, time), 0) + diff
    return {k: v for k, v in total.items() if v}


def entries(updates: Updates) -> list[tuple[Hashable, int, int]]:
    """(row image, time, diff) of each update."""
    images = [row_image(row) for row in updates.rows.to_pylist()] if updates.rows.num_columns else [()] * len(updates)
    return list(zip(images, updates.times.tolist(), updates.diffs.tolist(), strict=True))


def total(updates: Updates) -> Counts:
    return counted(entries(updates))


class NaiveTrace:
    """Every update ever inserted, uncompacted."""

    def __init__(self) -> None:
        self.entries: list[tuple[Hashable, int, int]] = []

    def insert(self, updates: Updates) -> None:
        self.entries += entries(updates)

    def at(self, as_of: int) -> Counts:
        """The content at `as_of`, all times `as_of`."""
        return counted((row, as_of, diff) for row, time, diff in self.entries if time <= as_of)

    def where(self, chosen: Callable[[Any], bool], since: int, until: int) -> Counts:
        """The updates of the rows chosen at times < `until`, advanced to `since`."""
        return counted(
            (row, max(time, since), diff) for row, time, diff in self.entries if time < until and chosen(row)
        )
