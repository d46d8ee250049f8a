"""Answers drawn from a tuple of batches: the updates of some keys, the content at an epoch, what some epochs changed.

Always: answers depend on the updates and not on how they lie in batches. Called by the spine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engine.batch.batch import Batch, DiffOverflow, Facts
from engine.batch.consolidation import consolidate
from engine.batch.description import Description
from engine.batch.keys import Keys, UInt64s
from engine.batch.layout import Ids, Layout
from engine.batch.merger import merge_state, room
from engine.batch.payload import concat_rows, take_rows
from engine.batch.updates import Int64s, Updates
from engine.kernels import live as ends
from engine.kernels import merge as merging
from engine.kernels import seek as kernels
from engine.kernels import top
from engine.lattice import MINIMUM, Frontier

EARLIEST = np.iinfo(np.int64).min
LATEST = np.iinfo(np.int64).max

_ROOM = 8
"""So many batches more a view has room for."""


@dataclass(frozen=True)
class Matches:
    """Updates found for some keys, ordered by (probe, order lane, row fingerprint, time), consolidated within a probe.

    `probe`: position in the keys that were asked for; `times`, `diffs`: of each update; `high`, `low`: its row's
    fingerprint; `places`: int64[2, updates], in which batch its row lies (a place in `structs`, the addresses of their
    payloads) and where in it. `rows` fetches payload, only when asked.
    """

    probe: Int64s
    times: Int64s
    diffs: Int64s
    high: UInt64s
    low: UInt64s
    places: Int64s
    structs: Int64s
    batches: Sequence[Batch]
    layout: Layout

    def __len__(self) -> int:
        return len(self.probe)

    def rows(self, columns: Sequence[int] | None = None) -> pa.RecordBatch:
        """One row an update; `columns` (positions) leaves the others out."""
        return self.layout.assembly(columns).rows(self.structs, self.places[:1], self.places[1:])

    def take(self, chosen: Int64s) -> Matches:
        """The updates at the places `chosen`, in that order."""
        return Matches(
            self.probe[chosen],
            self.times[chosen],
            self.diffs[chosen],
            self.high[chosen],
            self.low[chosen],
            self.places.take(chosen, axis=1),
            self.structs,
            self.batches,
            self.layout,
        )

    def updates(self) -> Updates:
        """The updates with their rows."""
        return Updates(self.rows(), self.times, self.diffs)


class View:
    """The batches of a trace as lookups see them: `table` has a row of `addresses` a batch, `structs` their payloads'.

    Batches are only ever added, behind the others. Single writer: the spine.
    """

    __slots__ = ("_room", "batches", "layout", "structs", "table")

    def __init__(self, layout: Layout, batches: Sequence[Batch]) -> None:
        self.layout = layout
        self.batches: list[Batch] = []
        self._room = np.empty((len(batches) + _ROOM, kernels.COLUMNS), np.int64)
        self.table: Int64s = self._room[:0]
        self.structs: Int64s = self.table[:, kernels.STRUCT]
        for batch in batches:
            self.append(batch)

    def append(self, batch: Batch) -> None:
        """One batch more."""
        count = len(self.batches) + 1
        if count > len(self._room):
            self._room = np.concatenate([self._room, np.empty_like(self._room)])
        self._room[count - 1] = batch.addresses
        self.batches.append(batch)
        self.table = self._room[:count]
        self.structs = self.table[:, kernels.STRUCT]


def gather(view: View, keys: Keys, since: int = EARLIEST, until: int = LATEST) -> Matches:
    """The updates of `keys` at epochs < `until`, with times advanced to `since`. Raises DiffOverflow."""
    block, size, overflow = kernels.gather(view.table, keys.hash, keys.check, since, until)
    if overflow:
        raise DiffOverflow
    lanes = np.ascontiguousarray(block[:, :size])
    halves = lanes.view(np.uint64)
    return Matches(
        lanes[0], lanes[3], lanes[4], halves[5], halves[6], lanes[1:3], view.structs, view.batches, view.layout
    )


@dataclass(frozen=True)
class Ends:
    """Updates found from one end of some keys' order, as far as that was needed.

    `probe`, `times`, `diffs`, `places`: as of `Matches`, ordered by probe; rows of a probe as they were read, the updates
    of a row by time. `visited`: how many updates of the trace were read for it.
    """

    probe: Int64s
    times: Int64s
    diffs: Int64s
    places: Int64s
    view: View
    visited: int

    def __len__(self) -> int:
        return len(self.probe)

    def column(self, column: int) -> pa.Array:
        """One column of the rows, an entry an update."""
        return self.rows([column]).column(0)

    def rows(self, columns: Sequence[int] | None = None) -> pa.RecordBatch:
        """One row an update; `columns` (positions) leaves the others out."""
        assembly = self.view.layout.assembly(columns)
        return assembly.rows(self.view.structs, self.places[:1], self.places[1:])


def first_live(view: View, keys: Keys, bounds: UInt64s, since: int, *, backward: bool) -> Ends:
    """As `Spine.first_live`. Raises DiffOverflow."""
    block, size, visited, overflow = ends.first_live(view.table, keys.hash, keys.check, bounds, backward, since)
    if overflow:
        raise DiffOverflow
    lanes = np.ascontiguousarray(block[:, :size])
    return Ends(lanes[0], lanes[3], lanes[4], lanes[1:3], view, visited)


def first_enough(
    view: View, keys: Keys, needs: Int64s, since: int, *, backward: bool, exact: bool
) -> tuple[Ends, Int64s]:
    """As `Spine.first_enough`. Raises DiffOverflow."""
    lacking = needs.copy()
    block, size, visited, overflow = top.first_enough(
        view.table, keys.hash, keys.check, lacking, backward, exact, since
    )
    if overflow:
        raise DiffOverflow
    lanes = np.ascontiguousarray(block[:, :size])
    return Ends(lanes[0], lanes[3], lanes[4], lanes[1:3], view, visited), lacking


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
    structs = np.array([b.struct.address for b in batches])
    rows = layout.assembly().rows(structs, sources[None], (positions - starts[sources])[None])
    return Updates(rows, times, diffs)


def window(layout: Layout, batches: Sequence[Batch], lower: int, upper: int) -> Updates:
    """The updates at epochs [lower, upper), consolidated, by epoch. Raises DiffOverflow."""
    parts: list[pa.RecordBatch] = [layout.schema.empty()]
    times, diffs = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for batch in batches:
        until = batch.description.upper
        if not len(batch) or batch.description.lower.epoch >= upper or (not until.closed and until.epoch <= lower):
            continue
        chosen = np.flatnonzero((batch.times >= lower) & (batch.times < upper))
        parts.append(take_rows(batch.payload, batch.positions[chosen]))
        times.append(batch.times[chosen])
        diffs.append(batch.diffs[chosen])
    found = Updates(concat_rows(parts), np.concatenate(times), np.concatenate(diffs))
    return consolidate(found, layout.image_plan)


def _merged(
    left: tuple[Ids, Facts], right: tuple[Ids, Facts], shift: int, at: Frontier, as_of: int
) -> tuple[Ids, Facts]:
    size = len(left[1][0]) + len(right[1][0])
    ids, facts = room(left[0], right[0], size)
    state = merge_state(shift, at, as_of + 1, kept=0)
    merging.merge(*left, *right, ids, facts, state, LATEST)
    if state[merging.OVERFLOW]:
        raise DiffOverflow
    size = int(state[merging.WRITTEN])
    a, b, c, d, e = ids
    return (a[:size], b[:size], c[:size], d[:size], e[:size]), (facts[0][:size], facts[1][:size], facts[2][:size])


_NOWHEN = Description(MINIMUM, MINIMUM)
