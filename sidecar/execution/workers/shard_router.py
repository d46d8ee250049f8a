"""A table's changes routed to shards by their keys.

Invariant: a shard gets the changes of its keys in order, and every truncate. Where a key change moves a row to another shard,
the values that it keeps are put in first, so that no shard needs another's rows. The driver calls it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.batch.gather_rows import concat_rows, conformed, indices, take_rows
from headrace.engine.batch.partitioning import shard_positions
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import DELETE, TRUNCATE, Bools, Int64s, Updates, Upserts
from headrace.engine.schema import Schema

Identity = tuple[int, int]
"""Of a key: its hash and check."""


class Dealer:
    """One table's changes, for `count` shards."""

    def __init__(self, schema: Schema, count: int) -> None:
        self.schema = schema
        self._count = count
        self._layout = layout_of(schema, schema.key if schema.key else tuple(range(len(schema.columns))))

    def _parts(self, rows: pa.RecordBatch) -> Sequence[Int64s]:
        """By shard the positions of the rows with its keys, ascending."""
        return shard_positions(self._layout.keys(rows).hash, self._count)

    def _shards(self, rows: pa.RecordBatch) -> Int64s:
        """The shard of each row's key."""
        found = np.empty(rows.num_rows, np.int64)
        for shard, positions in enumerate(self._parts(rows)):
            found[positions] = shard
        return found

    def crossing(self, upserts: Upserts) -> Sequence[int]:
        """The epochs, ascending, in which a value is to be taken from another shard's row."""
        if upserts.fill_from is None or self._count == 1:
            return []
        at = np.flatnonzero(upserts.fill_from >= 0)
        shards = self._shards(upserts.rows)
        return np.unique(upserts.epochs[at[shards[at] != shards[upserts.fill_from[at]]]]).tolist()  # type: ignore[no-any-return]

    def dealt(self, upserts: Upserts) -> Sequence[Upserts | None]:
        """The changes of each shard, of epochs none of which is crossing; None for no change."""
        if self._count == 1:
            return [upserts]
        parts = self._parts(upserts.rows)
        everywhere = np.flatnonzero(upserts.kinds == TRUNCATE)
        if len(everywhere):
            parts = [np.union1d(part, everywhere) for part in parts]
        return [_taken(upserts, part) if len(part) else None for part in parts]

    def settled(self, upserts: Upserts, stored: pa.RecordBatch) -> Sequence[Upserts | None]:
        """As `dealt`, of one epoch that is crossing; `stored`: the rows under its keys before it."""
        filled, without = self._filled(upserts, stored)
        out = list(self.dealt(filled))
        shards = self._shards(upserts.rows)
        for shard in range(self._count):
            lost = [k for k in without if shards[k] == shard]
            if lost:
                out[shard] = self._with_ghosts(filled, shards, shard, lost, upserts)
        return out

    def _filled(self, upserts: Upserts, stored: pa.RecordBatch) -> tuple[Upserts, list[int]]:
        """The changes with all values that cross shards put in, and the positions of those for which there is no row."""
        assert upserts.fill_from is not None
        size = len(upserts)
        shards = self._shards(upserts.rows)
        keys = _identities(self._layout.keys(upserts.rows).hash, self._layout.keys(upserts.rows).check)
        held = {key: size + k for k, key in enumerate(self._stored(stored))}
        # Of each row, where the value of each column stands: in the changes, or behind them in what is stored.
        sources = np.tile(np.arange(size + stored.num_rows), (len(self.schema.columns), 1))
        unchanged = {c: mask.copy() for c, mask in upserts.unchanged.items()}
        before: list[int | None] = []
        fills = upserts.fill_from.copy()
        without: list[int] = []
        for k in range(size):
            before.append(held.get(keys[k]))
            if upserts.kinds[k] == TRUNCATE:
                held.clear()
            elif upserts.kinds[k] == DELETE:
                held.pop(keys[k], None)
            else:
                lacks = [c for c, mask in upserts.unchanged.items() if mask[k]]
                source = before[fills[k]] if fills[k] >= 0 else before[k]
                crosses = fills[k] >= 0 and shards[fills[k]] != shards[k]
                if crosses:
                    fills[k] = -1
                if lacks and source is None:
                    without += [k] if crosses else []
                    continue
                for c in lacks:
                    sources[c, k] = sources[c, source]
                    if crosses:
                        unchanged[c][k] = False
                held[keys[k]] = k
        both = concat_rows([upserts.rows, conformed(stored, upserts.rows.schema)])
        columns = [both.column(c).take(indices(sources[c, :size])) for c in range(both.num_columns)]
        rows = pa.RecordBatch.from_arrays(columns, schema=upserts.rows.schema)
        return Upserts(rows, upserts.epochs, upserts.kinds, unchanged, fills), without

    def _stored(self, stored: pa.RecordBatch) -> list[Identity]:
        keys = self._layout.keys(stored)
        return _identities(keys.hash, keys.check)

    def _with_ghosts(self, filled: Upserts, shards: Int64s, shard: int, lost: Sequence[int], whole: Upserts) -> Upserts:
        """A shard's changes with the deletes, of other shards' keys, after which nothing is there to be taken."""
        assert whole.fill_from is not None
        assert filled.fill_from is not None
        ghosts = sorted({int(whole.fill_from[k]) for k in lost})
        wanted = (filled.kinds == TRUNCATE) | (shards == shard)
        wanted[ghosts] = True
        fills = filled.fill_from.copy()
        for k in lost:
            fills[k] = whole.fill_from[k]
        return _taken(
            Upserts(filled.rows, filled.epochs, filled.kinds, filled.unchanged, fills), np.flatnonzero(wanted)
        )


def _identities(hashes: np.ndarray, checks: np.ndarray) -> list[Identity]:
    return list(zip(hashes.tolist(), checks.tolist(), strict=True))


def _taken(upserts: Upserts, positions: Int64s) -> Upserts:
    """The changes at these positions; one that was to be filled from a position not among them is filled from its own key."""
    fills: Int64s | None = None
    if upserts.fill_from is not None:
        to = np.full(len(upserts) + 1, -1, np.int64)
        to[positions] = np.arange(len(positions))
        fills = to[upserts.fill_from[positions]]
    unchanged: dict[int, Bools] = {c: mask[positions] for c, mask in upserts.unchanged.items()}
    rows = take_rows(upserts.rows, positions)
    return Upserts(rows, upserts.epochs[positions], upserts.kinds[positions], unchanged, fills)


def keys_only(upserts: Upserts) -> Updates:
    """The changes as rows to look up by their keys."""
    return Updates(upserts.rows, upserts.epochs, np.ones(len(upserts), np.int64))
