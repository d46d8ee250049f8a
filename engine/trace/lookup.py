"""Answers drawn from a tuple of batches: the updates of some keys, the content at an epoch, what some epochs changed.

Always: answers depend on the updates and not on how they lie in batches. Called by the spine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import Batch, DiffOverflow
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.description import Description
from headrace.engine.batch.gather_rows import concat_rows, take_rows, taken
from headrace.engine.batch.keys import Keys, UInt64s
from headrace.engine.batch.merger import merged
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.kernels import entries, top_k
from headrace.engine.kernels import first_live as ends
from headrace.engine.kernels import lookup as kernels
from headrace.engine.kernels.key_prefilter import sift
from headrace.engine.lattice import Frontier

EARLIEST = np.iinfo(np.int64).min
LATEST = np.iinfo(np.int64).max

_ROOM = 8
"""So many batches more a view has room for."""

_MANY = 1024
_FEWER = 8
"""From so many keys on, and where a trace has so many times fewer updates, keys are sifted before they are looked for."""


@dataclass(frozen=True)
class Matches:
    """Updates found for some keys, ordered by (probe, order lane, row fingerprint, time), consolidated within a probe.

    `probe`: position in the keys that were asked for; `times`, `diffs`: of each update; `row`: its row's number, which
    the updates of a row share, one after the other; `places`: int64[2, updates], in which batch its row lies (a place in
    `structs`, the addresses of their payloads) and where in it. `rows` fetches payload, only when asked. `batches`: keeps
    the payloads alive.
    """

    probe: Int64s
    times: Int64s
    diffs: Int64s
    row: Int64s
    places: Int64s
    structs: Int64s
    batches: Sequence[Batch | Exported]
    layout: Layout

    def __len__(self) -> int:
        return len(self.probe)

    @classmethod
    def of_rows(cls, facts: tuple[Int64s, Int64s, Int64s, Int64s], rows: Exported, layout: Layout) -> Matches:
        """Updates whose rows were made for them, in their order; `facts`: probe, time, diff and row number of each."""
        size = len(facts[0])
        places = np.stack([np.zeros(size, np.int64), np.arange(size)])
        return cls(*facts, places, np.array([rows.address], np.int64), (rows,), layout)

    def rows(self, columns: Sequence[int] | None = None) -> pa.RecordBatch:
        """One row an update; `columns` (positions) leaves the others out."""
        return self.layout.assembly(columns).rows(self.structs, self.places[:1], self.places[1:])

    def take(self, chosen: Int64s) -> Matches:
        """The updates at the places `chosen`, in that order."""
        return Matches(
            self.probe[chosen],
            self.times[chosen],
            self.diffs[chosen],
            self.row[chosen],
            self.places.take(chosen, axis=1),
            self.structs,
            self.batches,
            self.layout,
        )

    def updates(self) -> Updates:
        """The updates with their rows."""
        return Updates(self.rows(), self.times, self.diffs)


class View:
    """The batches of a trace as lookups see them: `table` has a row of `addresses` a batch.

    Batches are only ever added, behind the others. Single writer: the spine.
    """

    __slots__ = ("_room", "batches", "layout", "table")

    def __init__(self, layout: Layout, batches: Sequence[Batch]) -> None:
        self.layout = layout
        self.batches: list[Batch] = []
        self._room = np.empty((len(batches) + _ROOM, entries.COLUMNS), np.int64)
        self.table: Int64s = self._room[:0]
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

    @property
    def structs(self) -> Int64s:
        """The addresses of the payloads."""
        found: Int64s = self.table[:, entries.STRUCT]
        return found


class TooMany(Exception):
    """The keys have more updates than were asked for: whoever asked asks for fewer keys at a time."""


def sifted(view: View, keys: Keys) -> Int64s | None:
    """The positions of the keys that may be there, ascending; None where to tell is no gain, as about as many are there."""
    if len(keys) < _MANY or int(view.table[:, entries.SIZE].sum()) * _FEWER > len(keys):
        return None
    # Most keys are not there, and a look at each costs more than a look at all that is.
    places, count = sift(view.table, keys.hash)
    kept: Int64s = places[:count].copy()
    return kept


def gather(view: View, keys: Keys, since: int = EARLIEST, until: int = LATEST, most: int = LATEST) -> Matches:
    """The updates of `keys` at epochs < `until`, with times advanced to `since`. Raises DiffOverflow.

    Raises TooMany, with nothing read, where the trace has more than `most` of these keys, at whatever times.
    """
    kept = sifted(view, keys)
    if kept is not None:
        keys = keys.take(kept)
    block, size, overflow = kernels.gather(view.table, keys.hash, keys.check, since, until, most)
    if size < 0:
        raise TooMany
    if overflow:
        raise DiffOverflow
    lanes = np.ascontiguousarray(block[:6, :size])
    probe = lanes[0] if kept is None else kept[lanes[0]]
    return Matches(probe, lanes[3], lanes[4], lanes[5], lanes[1:3], view.structs, view.batches, view.layout)


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
    block, size, visited, overflow = top_k.first_enough(
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
    left = [batch for batch in batches if len(batch) or batch is batches[-1]]
    if not left:
        none = np.empty(0, np.int64)
        return Updates(layout.schema.empty(), none, none)
    # From the latest on, which are the smallest, so that each update takes part in few merges.
    upper = left[-1].description.upper
    found = Batch.empty(layout, Description(upper, upper))
    while left:
        earlier = left.pop()
        found = merged(earlier, _met(earlier, found), at, until=as_of + 1, kept=0)
    return Updates(found.payload, found.times, found.diffs)


def content_in_pieces(view: View, as_of: int, size: int) -> Iterator[Updates]:
    """As `content`, about `size` updates of the trace at a time, all of a key together, in no order. Raises DiffOverflow."""
    batches = sorted(view.batches, key=len, reverse=True)
    if not batches:
        return
    step = max(size * len(batches[0]) // sum(map(len, batches)), 1)
    cuts = np.unique(batches[0].keys.hash[step::step])
    bounds = [[0, *np.searchsorted(batch.keys.hash, cuts).tolist(), len(batch)] for batch in batches]
    for k in range(len(cuts) + 1):
        largest, *others = [Part(batch, at[k], at[k + 1]) for batch, at in zip(batches, bounds, strict=True)]
        alone = largest.alone([part.hashes for part in others if part.begin < part.end])
        if alone.any():
            yield from largest.standing(alone, as_of)
        keys = _each_once([largest.keys.take(np.flatnonzero(~alone)), *(part.keys for part in others)])
        if len(keys):
            found = gather(view, keys, as_of, as_of + 1)
            if len(found):
                yield found.updates()


class Part(NamedTuple):
    """The entries from `begin` to `end` of a batch."""

    batch: Batch
    begin: int
    end: int

    @property
    def hashes(self) -> UInt64s:
        """Of their keys, ascending."""
        return self.batch.keys.hash[self.begin : self.end]

    @property
    def keys(self) -> Keys:
        """Their keys."""
        return Keys(self.hashes, self.batch.keys.check[self.begin : self.end])

    def alone(self, others: Sequence[UInt64s]) -> Bools:
        """The entries that share their hash with no other entry, nor with any of `others`."""
        mine = self.hashes
        new = np.ones(len(mine) + 1, np.bool_)
        new[1:-1] = mine[1:] != mine[:-1]
        found: Bools = new[1:] & new[:-1]
        for hashes in others if len(mine) else ():
            at = np.minimum(np.searchsorted(mine, hashes), len(mine) - 1)
            found[at[mine[at] == hashes]] = False
        return found

    def standing(self, chosen: Bools, as_of: int) -> Iterator[Updates]:
        """Those of `chosen` entries that are not after `as_of`, as they lie if that is all of them."""
        times, diffs, places = (lane[self.begin : self.end] for lane in self.batch.facts)
        chosen = chosen & (times <= as_of)
        left = np.flatnonzero(chosen)
        if not len(left):
            return
        at = np.full(len(left), as_of)
        if len(places):
            yield Updates(taken(self.batch.struct, places[left]), at, diffs[left])
        elif len(left) == len(chosen):
            yield Updates(self.batch.payload.slice(self.begin, len(left)), at, diffs)
        else:
            yield Updates(taken(self.batch.struct, left + self.begin), at, diffs[left])


def _each_once(some: Sequence[Keys]) -> Keys:
    """Each key of these once, in order."""
    hashes, checks = (np.concatenate([getattr(keys, lane) for keys in some]) for lane in ("hash", "check"))
    order = np.lexsort((checks, hashes))
    hashes, checks = hashes[order], checks[order]
    new = np.ones(len(hashes), np.bool_)
    new[1:] = (hashes[1:] != hashes[:-1]) | (checks[1:] != checks[:-1])
    return Keys(hashes[new], checks[new])


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


def _met(earlier: Batch, later: Batch) -> Batch:
    """`later`, described as beginning where `earlier` ends, since nothing happened between them."""
    return later.described(Description(earlier.description.upper, later.description.upper, later.description.since))
