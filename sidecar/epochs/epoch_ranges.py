"""Epoch ranges: the epochs of a step that the engine takes in as one time, the last of them.

Invariant: ranges follow one another, and an epoch that somebody registered is the end of its range. A portion of a large
transaction, and what is no ordinary transaction (a snapshot, a repair, a resync, errors of a table), is a range of its own.
While somebody asks for each transaction, every epoch is a range. The runtime cuts; sinks and followers register.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import numpy as np

from headrace.engine.batch.updates import Int64s, Upserts
from headrace.sidecar.epochs.each_transaction import EachTransaction
from headrace.sidecar.transactions.model import (
    IncrementalRows,
    Marker,
    Microbatch,
    Repair,
    Resync,
    SnapshotTransaction,
    SourceTransaction,
    SparkVersion,
    Transaction,
    goes_on,
)

KEPT = 100_000
"""So many of the last ranges of several epochs are remembered."""


class EpochRanges:
    """Cuts bound epochs into ranges, and remembers them. `each`: who asks for each transaction by itself.

    The loop alone calls `cut`; any thread may call the other methods.
    """

    def __init__(self, each: EachTransaction | None = None) -> None:
        self.each = each or EachTransaction()
        self._lock = threading.Lock()
        self._registered: set[int] = set()
        self._firsts, self._lasts = array("q"), array("q")
        self.known_from = 0
        self._portion = False

    def register(self, epoch: int) -> range | None:
        """Have a range end at `epoch`; None if it does or will, else the range that it stands inside already."""
        with self._lock:
            found = bisect_left(self._lasts, epoch)
            if found < len(self._lasts) and self._firsts[found] <= epoch < self._lasts[found]:
                return range(self._firsts[found], self._lasts[found] + 1)
            self._registered.add(epoch)
            return None

    def coarse_after(self, epoch: int) -> range | None:
        """The last range of several epochs that ends after `epoch`; None where each epoch since is known by itself."""
        with self._lock:
            if self._lasts and self._lasts[-1] > epoch:
                return range(self._firsts[-1], self._lasts[-1] + 1)
            return None

    def firsts(self, low: int, high: int) -> dict[int, int]:
        """The first epoch of each range of several epochs that ends in `low` to `high`, by its last."""
        with self._lock:
            some = slice(bisect_left(self._lasts, low), bisect_right(self._lasts, high))
            return dict(zip(self._lasts[some], self._firsts[some], strict=True))

    def cut(self, pairs: Sequence[tuple[int, Transaction]]) -> Int64s:
        """The last epoch of each range of these (epoch, transaction) pairs, ascending."""
        with self._lock:
            each = bool(self.each.names())
            ends, needed = [], 0
            first, last = pairs[0][0], pairs[-1][0]
            for (epoch, transaction), after in zip(pairs, (*pairs[1:], None), strict=True):
                portion, self._portion = self._portion, goes_on(transaction)
                must = after is None or portion or epoch in self._registered
                must = must or _stands_alone(transaction) or (after is not None and _stands_alone(after[1]))
                needed += must
                if not (must or each):
                    continue
                ends.append(epoch)
                if epoch > first:
                    self._firsts.append(first)
                    self._lasts.append(epoch)
                first = epoch if after is None else after[0]
            self._registered = {epoch for epoch in self._registered if epoch > last}
            if len(self._lasts) > 2 * KEPT:
                self.known_from = self._lasts[KEPT - 1]
                del self._firsts[:KEPT], self._lasts[:KEPT]
        if each:
            self.each.cost.ranges += len(ends)
            self.each.cost.otherwise += needed
        return np.array(ends, np.int64)


def _stands_alone(transaction: Transaction) -> bool:
    """Whether a transaction is a range of its own. So is the last portion of one, which the portion before it tells."""
    match transaction:
        case SourceTransaction():
            return transaction.more or bool(transaction.errors)
        case Microbatch():
            return bool(transaction.errors)
        case SparkVersion():
            return False
        case SnapshotTransaction() | IncrementalRows() | Repair() | Resync() | Marker():
            return True
        case _:
            assert_never(transaction)


def at_range_ends(changes: Mapping[str, Upserts], ends: Int64s) -> dict[str, Upserts]:
    """Changes of tables, each at the end of its epoch's range, in their order.

    The engine's intake nets the changes of a key at one time in their order: the last one stands.
    """
    return {table: replace(u, epochs=ends[np.searchsorted(ends, u.epochs)]) for table, u in changes.items()}
