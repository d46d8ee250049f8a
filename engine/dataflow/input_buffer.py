"""Where a table's upserts wait for their step.

Always: they leave in the order in which they came, whole epochs at a time. Called by the dataflow's table nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.engine.batch.updates import Int64s, Upserts
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.delta import concat_rows


class Intake:
    """Upserts of one table, by order of arrival. Single writer: the table's node."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: list[Upserts] = []

    def push(self, upserts: Upserts, frontier: int) -> None:
        """Add upserts of epochs ≥ `frontier`, never earlier than those pushed before. Raises InvariantBroken."""
        if not len(upserts):
            return
        epochs = upserts.epochs
        last = int(self._waiting[-1].epochs[-1]) if self._waiting else frontier
        falls = len(epochs) > 1 and bool((epochs[1:] < epochs[:-1]).any())
        if falls or int(epochs[0]) < max(last, frontier):
            raise InvariantBroken(
                "upserts out of the order of epochs", table=self._name, epoch=int(epochs[0]), frontier=frontier
            )
        self._waiting.append(upserts)

    @property
    def waits(self) -> bool:
        """Whether anything does."""
        return bool(self._waiting)

    def take(self, upper: int) -> Upserts | None:
        """What came for the epochs before `upper`, as one, or None."""
        if not self._waiting or int(self._waiting[0].epochs[0]) >= upper:
            return None
        whole = _joined(self._waiting)
        if int(whole.epochs[-1]) < upper:
            self._waiting = []
            return whole
        cut = int(np.searchsorted(whole.epochs, upper))
        self._waiting = [_slice(whole, cut, len(whole))]
        return _slice(whole, 0, cut)


def _joined(parts: Sequence[Upserts]) -> Upserts:
    if len(parts) == 1:
        return parts[0]
    columns = sorted({c for part in parts for c in part.unchanged})
    none = {len(part): np.zeros(len(part), np.bool_) for part in parts}
    unchanged = {c: np.concatenate([part.unchanged.get(c, none[len(part)]) for part in parts]) for c in columns}
    fills: Int64s | None = None
    if any(part.fill_from is not None for part in parts):
        starts = np.cumsum([0, *(len(part) for part in parts)])
        fills = np.concatenate([_shifted(part, int(start)) for part, start in zip(parts, starts, strict=False)])
    return Upserts(
        concat_rows([part.rows for part in parts]),
        np.concatenate([part.epochs for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        unchanged,
        fills,
    )


def _shifted(part: Upserts, start: int) -> Int64s:
    if part.fill_from is None:
        return np.full(len(part), -1, np.int64)
    return np.where(part.fill_from >= 0, part.fill_from + start, -1)


def _slice(whole: Upserts, start: int, stop: int) -> Upserts:
    cut = slice(start, stop)
    fills = None
    if whole.fill_from is not None:
        # A delete and the upsert that it fills are of one transaction, and so of one epoch.
        fills = np.where(whole.fill_from[cut] >= start, whole.fill_from[cut] - start, -1)
    unchanged = {c: mask[cut] for c, mask in whole.unchanged.items()}
    return Upserts(whole.rows.slice(start, stop - start), whole.epochs[cut], whole.kinds[cut], unchanged, fills)
