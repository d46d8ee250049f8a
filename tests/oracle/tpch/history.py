"""A history of TPC-H's tables: rows that come in random order in transactions, then the refresh functions' inserts and deletes.

Always: drawn from a seed; an epoch is a transaction, of a random size; each refresh inserts orders that were held back, with
their lines, and deletes as many others with theirs, a part in each of its transactions. Only the order of the rows is held: a
change is taken from its table when it is asked for. Called by `trial`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.batch.updates import DELETE, UPSERT, Int64s, Upserts
from tests.oracle.tpch.rows import Tables

REFRESHES = 2
SHARE = 1000
"""One order of so many is inserted by a refresh, and one deleted."""


@dataclass(frozen=True)
class Ordered:
    """A table's changes, by epoch: change i is of kind `kinds[i]`, of row `which[i]` of `rows`, at `epochs[i]`."""

    rows: pa.RecordBatch
    which: Int64s
    epochs: Int64s
    kinds: npt.NDArray[np.uint8]

    def between(self, first: int, last: int) -> Upserts:
        """The changes [first, last)."""
        rows = self.rows.take(pa.array(self.which[first:last]))
        return Upserts(rows, self.epochs[first:last], self.kinds[first:last])


@dataclass(frozen=True)
class History:
    """Each table's changes; `epochs`: how many there are, of which the first `loading` insert alone."""

    changes: dict[str, Ordered]
    loading: int
    epochs: int

    def within(self, table: str, lower: int, upper: int) -> Upserts | None:
        """The changes of a table at the epochs [lower, upper); None if there are none."""
        every = self.changes[table]
        first, last = np.searchsorted(every.epochs, (lower, upper)).tolist()
        return every.between(first, last) if first < last else None

    def count(self, lower: int, upper: int) -> int:
        """How many changes those epochs have."""
        return sum(int(np.subtract(*np.searchsorted(c.epochs, (upper, lower)))) for c in self.changes.values())


def history(tables: Tables, loading: int, seed: int, least: int = 20) -> History:
    """Loaded in `loading` transactions, then refreshed; a refresh inserts and deletes at least `least` orders."""
    random = np.random.default_rng(seed)
    orders = tables["orders"].num_rows
    size, of_one = max(orders // SHARE, least), max(loading // 10, 1)
    chosen = random.permutation(orders)[: 2 * REFRESHES * size].reshape(REFRESHES, 2, size)
    come = np.full(orders, -1)
    gone = np.full(orders, -1)
    epoch = loading
    for inserted, deleted in chosen:
        for rows, when in ((inserted, come), (deleted, gone)):
            when[rows] = epoch + random.integers(0, of_one, size)
            epoch += of_one
    keys = tables["orders"].column("o_orderkey").to_numpy()
    by_key = np.argsort(keys)
    parents = by_key[np.searchsorted(keys, tables["lineitem"].column("l_orderkey").to_numpy(), sorter=by_key)]
    whens = {"orders": (come, gone), "lineitem": (come[parents], gone[parents])}
    cuts = np.sort(random.random(loading - 1))
    changes = {}
    for table, rows in tables.items():
        never = np.full(rows.num_rows, -1)
        begun, ended = whens.get(table, (never, never))
        loaded = np.searchsorted(cuts, random.random(rows.num_rows))
        changes[table] = _ordered(rows, np.where(begun < 0, loaded, begun), ended)
    return History(changes, loading, epoch)


def _ordered(rows: pa.RecordBatch, begun: Int64s, ended: Int64s) -> Ordered:
    """The rows at the epochs at which they come, and again at those at which they go (-1: never)."""
    going = np.flatnonzero(ended >= 0)
    which = np.concatenate([np.arange(rows.num_rows), going])
    epochs = np.concatenate([begun, ended[going]])
    kinds = np.repeat(np.array([UPSERT, DELETE], np.uint8), [rows.num_rows, len(going)])
    order = np.argsort(epochs, kind="stable")
    return Ordered(rows, which[order], epochs[order], kinds[order])
