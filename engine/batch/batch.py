"""Batch: updates at rest.

Always: immutable; sorted by (hash, check, order, fingerprint, time), no two entries alike in all of these, no diff
zero; every position is one of the payload's rows, equal rows share one, and at most half of the payload is unused. The
payload of a large batch of narrow rows, and of every batch that a merger made, has each row once, in the batch's order.
Lanes that can be told without are left out: positions where entry k has row k, fingerprints where few rows share key and
order (they are made anew of the rows that do).
Made by `seal`, by mergers and by the codec; read by spines and operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from engine.batch.description import Description
from engine.batch.exported import Exported
from engine.batch.keys import Keys, UInt64s, hash_rows
from engine.batch.layout import Ids, Lane, Layout, constant_lane, shortened, stretched
from engine.batch.payload import conformed, take_rows, unpinned
from engine.batch.updates import Int64s, Updates
from engine.errors import HeadraceError, InvariantBroken
from engine.kernels import consolidate as kernels
from engine.kernels import entries
from engine.kernels.hashing import ROW_IMAGE
from engine.kernels.reduce import all_within
from engine.kernels.times import EPOCHS

Facts = tuple[Int64s, Int64s, Int64s]
"""What happened to a row: time, diff, position in the payload."""

_LARGE = 1024
"""From so many entries on, lanes that can be left out are, and the payload is put in order."""

_FEW_TIES = 8
"""Fingerprints are kept if more than one of so many entries has a row whose key and order the row before has."""

_FOREVER = np.iinfo(np.int64).max


class DiffOverflow(HeadraceError):
    """A multiplicity that does not fit 64 bits."""

    code = "overflow"

    def __init__(self) -> None:
        super().__init__("a row's multiplicity does not fit 64 bits", hint="a source repeats one row without end")


@dataclass(frozen=True, eq=False)
class Batch:
    """`ids`: five uint64 lanes, `facts`: three int64 lanes, all of one length or left out; `payload`: the rows by position.

    `distinct`: how many different rows are in use. A lane of one value may have stride 0; one left out has no entries.
    """

    layout: Layout
    description: Description
    ids: Ids
    facts: Facts
    payload: pa.RecordBatch
    distinct: int

    def __len__(self) -> int:
        return len(self.facts[0])

    @property
    def times(self) -> Int64s:
        """The epoch of each update."""
        return self.facts[0]

    @property
    def diffs(self) -> Int64s:
        """The diff of each update."""
        return self.facts[1]

    @property
    def positions(self) -> Int64s:
        """The payload row of each update."""
        kept = self.facts[2]
        return kept if len(kept) == len(self) else np.arange(len(self))

    @property
    def fingerprints(self) -> tuple[UInt64s, UInt64s]:
        """The halves of the fingerprint of each update's row."""
        high, low = self.ids[3:]
        if len(high) != len(self):
            high, low, _ = hash_rows(self.struct, self.payload.num_rows, self.layout.image_plan)
            if len(self.facts[2]) == len(self):
                high, low = high[self.positions], low[self.positions]
        return high, low

    @property
    def keys(self) -> Keys:
        """The key identity of each update, ascending."""
        return Keys(self.ids[0], self.ids[1])

    @classmethod
    def seal(cls, layout: Layout, updates: Updates, description: Description) -> Batch:
        """Sort and consolidate `updates`, whose times are those of `description`.

        Raises DiffOverflow, and InvariantBroken for rows of another layout or times outside of the description.
        """
        times = updates.times
        size = len(times)
        if size and not _within(times, description):
            raise InvariantBroken("updates outside of their batch", description=description)
        ids = layout.ids(updates)
        facts = (times, updates.diffs, np.arange(size))
        if size >= _LARGE:
            facts = (elided(times), elided(updates.diffs), facts[2])
        sealed_ids, sealed, distinct = seal_lanes(ids, facts)
        rows = conformed(updates.rows, layout.arrow)
        made = cls.of(layout, description, sealed_ids, sealed, unpinned(rows), distinct)
        if made.payload is rows:
            made.__dict__["struct"] = updates.struct  # the same buffers, exported already to be hashed
        return made

    @classmethod
    def empty(cls, layout: Layout, description: Description) -> Batch:
        """A batch that says that nothing happened."""
        none = constant_lane(0, 0)
        nothing = none.view(np.int64)
        payload = layout.schema.empty()
        return cls(layout, description, (none,) * 5, (nothing,) * 3, payload, 0)

    @classmethod
    def of(
        cls, layout: Layout, description: Description, ids: Ids, facts: Facts, payload: pa.RecordBatch, distinct: int
    ) -> Batch:
        """A batch of lanes already sorted and consolidated, which it takes: drops unused payload and lanes."""
        size = len(facts[0])
        if size == 0:
            return cls.empty(layout, description)
        if size < _LARGE and (distinct * 2 > payload.num_rows or payload.num_rows == 1):
            return cls(layout, description, ids, facts, payload, distinct)
        keep = np.empty(distinct, np.int64)
        ranks = facts[2].copy()
        used, ties = kernels.rank_rows(ids, ranks, keep)
        if used != distinct:
            raise InvariantBroken("distinct does not count the rows in use", distinct=distinct, used=used)
        in_order = layout.narrow or distinct * 2 <= payload.num_rows
        if in_order:
            payload = take_rows(payload, keep)
            facts = (facts[0], facts[1], ranks)
        if size >= _LARGE:
            facts = (elided(facts[0]), elided(facts[1]), left_out(facts[2], in_order and distinct == size))
            plain = few_ties(ties, size)
            ids = (ids[0], elided(ids[1]), elided(ids[2]), left_out(ids[3], plain), left_out(ids[4], plain))
        return cls(layout, description, ids, facts, payload, distinct)

    def updates(self) -> Updates:
        """The updates, in the batch's order; the payload is copied."""
        return Updates(take_rows(self.payload, self.positions), self.times, self.diffs)

    def described(self, description: Description) -> Batch:
        """The same updates under another description."""
        made = Batch(self.layout, description, self.ids, self.facts, self.payload, self.distinct)
        made.__dict__.update({k: v for k, v in self.__dict__.items() if k in ("addresses", "nbytes", "struct")})
        return made

    @cached_property
    def nbytes(self) -> int:
        """Memory of lanes and payload, in bytes."""
        lanes = sum(lane.nbytes if lane.strides[0] else 8 for lane in (*self.ids, *self.facts))
        return int(lanes) + int(self.payload.get_total_buffer_size())

    @cached_property
    def addresses(self) -> Int64s:
        """Where lanes and payload lie, for kernels that see many batches: a row of the table that `entries` describes."""
        found = np.empty(entries.COLUMNS, np.int64)
        steps = self.layout.image_plan.steps
        entries.locate(self.ids, self.facts, self.struct.address, steps, ROW_IMAGE, found)
        return found

    @cached_property
    def struct(self) -> Exported:
        """The payload as kernels see it."""
        return Exported(self.payload)

    def check_order(self) -> None:
        """Raises InvariantBroken unless the entries are sorted and consolidated, and their positions in the payload."""
        h, c, o, _, _ = self.ids
        at = kernels.first_unsorted((h, c, o, *self.fingerprints), self.times)
        if at >= 0 or not np.all(self.diffs):
            raise InvariantBroken("a batch is not sorted and consolidated", entry=at)
        if len(self) and (self.positions.min() < 0 or self.positions.max() >= self.payload.num_rows):
            raise InvariantBroken("a batch points outside of its payload", rows=self.payload.num_rows)


def _within(times: Int64s, description: Description) -> bool:
    # Times may have been advanced to since, which may lie beyond the upper frontier.
    upper = description.upper
    until = _FOREVER if upper.closed else max(upper.epoch, description.since.epoch + 1)
    if description.lower == upper:
        # A batch of no width: later rounds of the epochs that the batch before it ends.
        return bool(all_within(times & EPOCHS, 0, until))
    return bool(all_within(times, description.lower.epoch, until))


def seal_lanes(ids: Ids, facts: Facts) -> tuple[Ids, Facts, int]:
    """Sorted and consolidated lanes, and how many distinct rows they have. Raises DiffOverflow."""
    count = len(facts[0])
    if count < kernels.FEW:
        return blocked(*kernels.seal_few(ids, facts))
    # Room is numpy's: it asks the system for huge pages, which makes touching fresh memory ten times cheaper.
    room = tuple(np.empty(1 if lane.strides[0] == 0 else count, np.uint64) for lane in ids)
    times, diffs, places = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    size, distinct, overflow = kernels.seal(ids, facts, room, (times, diffs, places))
    if overflow:
        raise DiffOverflow
    h, c, o, high, low = (
        stretched(out, size) if lane.strides[0] == 0 else shortened(out, size)
        for lane, out in zip(ids, room, strict=True)
    )
    facts = shortened(times, size), shortened(diffs, size), shortened(places, size)
    return (h, c, o, high, low), facts, int(distinct)


def blocked(block: Int64s, size: int, distinct: int, overflow: int) -> tuple[Ids, Facts, int]:
    """What `seal_lanes` gives, from the block that a kernel returned."""
    if overflow:
        raise DiffOverflow
    h, c, o, high, low, _, _, _ = block.view(np.uint64)[:, :size]
    _, _, _, _, _, times, diffs, places = block[:, :size]
    # a kernel run as plain Python counts in numpy's integers, which no file's header takes
    return (h, c, o, high, low), (times, diffs, places), int(distinct)


def elided(lane: Lane) -> Lane:
    """`lane`, or one of stride 0 if all its entries are equal."""
    if lane.strides[0] == 0 or lane[0] != lane[-1] or not kernels.is_constant(lane.view(np.int64)):
        return lane
    return stretched(lane[:1].copy(), len(lane))


def few_ties(ties: int, size: int) -> bool:
    """True if fingerprints need not be kept: so few rows of `size` entries share key and order with the row before."""
    return ties * _FEW_TIES <= size


def left_out(lane: Lane, really: bool) -> Lane:
    """`lane`, or one of no entries."""
    return lane[:0].copy() if really else lane
