"""Answers drawn from a tuple of batches: the updates of some keys, the content at an epoch.

Always: answers depend on the updates and not on how they lie in batches. Called by the spine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engine.batch.batch import Batch, DiffOverflow, Facts
from engine.batch.description import Description
from engine.batch.keys import Keys, UInt64s
from engine.batch.layout import Ids, Layout
from engine.batch.merger import merge_state, room
from engine.batch.payload import gather_rows
from engine.batch.updates import Int64s, Updates
from engine.kernels import live as ends
from engine.kernels import merge as merging
from engine.kernels import seek as kernels
from engine.lattice import MINIMUM, Frontier

EARLIEST = np.iinfo(np.int64).min
LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Matches:
    """Updates found for some keys, ordered by (probe, order lane, row fingerprint, time), consolidated within a probe.

    `probe`: position in the keys that were asked for; `times`, `diffs`: of each update; `high`, `low`: its row's
    fingerprint; `sources`, `positions`: where its row lies. `rows` fetches payload, only when asked.
    """

    probe: Int64s
    times: Int64s
    diffs: Int64s
    high: UInt64s
    low: UInt64s
    sources: Int64s
    positions: Int64s
    payloads: tuple[pa.RecordBatch, ...]

    def __len__(self) -> int:
        return len(self.probe)

    def rows(self, columns: Sequence[int] | None = None) -> pa.RecordBatch:
        """One row an update; `columns` (positions) leaves the others out."""
        payloads: Sequence[pa.RecordBatch] = self.payloads
        if columns is not None:
            payloads = [p.select(list(columns)) for p in payloads]
        return gather_rows(payloads, self.sources, self.positions)

    def take(self, chosen: Int64s) -> Matches:
        """The updates at the places `chosen`, in that order."""
        return Matches(
            self.probe[chosen],
            self.times[chosen],
            self.diffs[chosen],
            self.high[chosen],
            self.low[chosen],
            self.sources[chosen],
            self.positions[chosen],
            self.payloads,
        )

    def updates(self) -> Updates:
        """The updates with their rows."""
        return Updates(self.rows(), self.times, self.diffs)


def gather(
    table: Int64s, payloads: tuple[pa.RecordBatch, ...], keys: Keys, since: int = EARLIEST, until: int = LATEST
) -> Matches:
    """The updates of `keys` at epochs < `until`, with times advanced to `since`.

    `table`: int64[batches, 17] of their `addresses`, which the caller keeps alive; `payloads`: one a batch, or an empty
    one where there is no batch. Raises DiffOverflow.
    """
    block, size, overflow = kernels.gather(table, keys.hash, keys.check, since, until)
    if overflow:
        raise DiffOverflow
    probe, sources, positions, times, diffs, high, low = block[:, :size]
    return Matches(probe, times, diffs, high.view(np.uint64), low.view(np.uint64), sources, positions, payloads)


@dataclass(frozen=True)
class Ends:
    """Updates found from one end of some keys' order, as far as that was needed.

    `probe`, `times`, `diffs`, `sources`, `positions`: as of `Matches`, ordered by probe; rows of a probe as they were
    read, the updates of a row by time. `visited`: how many updates of the trace were read for it.
    """

    probe: Int64s
    times: Int64s
    diffs: Int64s
    sources: Int64s
    positions: Int64s
    payloads: tuple[pa.RecordBatch, ...]
    visited: int

    def __len__(self) -> int:
        return len(self.probe)

    def column(self, column: int) -> pa.Array:
        """One column of the rows, an entry an update."""
        payloads = [p.select([column]) for p in self.payloads]
        return gather_rows(payloads, self.sources, self.positions).column(0)


def first_live(
    table: Int64s, payloads: tuple[pa.RecordBatch, ...], keys: Keys, bounds: UInt64s, since: int, *, backward: bool
) -> Ends:
    """As `Spine.first_live`; `table` and `payloads` as for `gather`. Raises DiffOverflow."""
    block, size, visited, overflow = ends.first_live(table, keys.hash, keys.check, bounds, backward, since)
    if overflow:
        raise DiffOverflow
    probe, sources, positions, times, diffs = block[:, :size]
    return Ends(probe, times, diffs, sources, positions, payloads, visited)


def content(layout: Layout, batches: Sequence[Batch], as_of: int) -> Updates:
    """What the batches add up to at `as_of`: every row once with its multiplicity, all times `as_of`.

    Ordered by the layout. Raises DiffOverflow.
    """
    at = Frontier.at(as_of)
    parts: list[tuple[Ids, Facts]] = []
    shift = 0
    empty = Batch.empty(layout, _NOWHEN)
    for batch in batches:
        if len(batch):
            parts.append(_merged((empty.ids, empty.facts), (batch.ids, batch.facts), shift, at, as_of))
        shift += batch.payload.num_rows
    while len(parts) > 1:
        # The two smallest first: each update then takes part in a logarithmic number of merges.
        parts.sort(key=lambda p: len(p[1][0]), reverse=True)
        right = parts.pop()
        left = parts.pop()
        parts.append(_merged(left, right, 0, at, as_of))
    if not parts or len(parts[0][1][0]) == 0:
        none = np.empty(0, np.int64)
        return Updates(layout.schema.empty(), none, none)
    times, diffs, positions = parts[0][1]
    starts = np.cumsum([0, *(b.payload.num_rows for b in batches)])
    sources = np.searchsorted(starts, positions, side="right") - 1
    rows = gather_rows([b.payload for b in batches], sources, positions - starts[sources])
    return Updates(rows, times, diffs)


def _merged(
    left: tuple[Ids, Facts], right: tuple[Ids, Facts], shift: int, at: Frontier, as_of: int
) -> tuple[Ids, Facts]:
    size = len(left[1][0]) + len(right[1][0])
    ids, facts = room(left[0], right[0], size)
    state = merge_state(shift, at, as_of + 1)
    merging.merge(*left, *right, ids, facts, state, LATEST)
    if state[merging.OVERFLOW]:
        raise DiffOverflow
    size = int(state[merging.WRITTEN])
    a, b, c, d, e = ids
    return (a[:size], b[:size], c[:size], d[:size], e[:size]), (facts[0][:size], facts[1][:size], facts[2][:size])


_NOWHEN = Description(MINIMUM, MINIMUM)
