"""Batch: updates at rest.

Always: immutable; sorted by (hash, check, order, fingerprint, time), no two entries alike in all of these, no diff zero; every
position is one of the payload's rows, equal rows share one, and at most half of the payload is unused. The payload of a large
batch of narrow rows, and of each that a merger made, has each row once, in the batch's order. Lanes that can be told without are
left out: positions where entry k has row k, fingerprints where few rows share key and order. Made by `seal`, mergers, the codec.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.description import Description
from headrace.engine.batch.gather_rows import Loose, conformed, take_rows, taken, unpinned
from headrace.engine.batch.keys import Keys, UInt64s, hash_rows, order_lane
from headrace.engine.batch.lanes import elided, few_ties, given_back, left_out, reordered, room_for
from headrace.engine.batch.sort_layout import Ids, Layout, constant_lane, shortened, stretched
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.errors import HeadraceError, InvariantBroken
from headrace.engine.kernels import consolidate as kernels
from headrace.engine.kernels import entries, large_batch, small_batch
from headrace.engine.kernels.hashing import ROW_IMAGE
from headrace.engine.kernels.reduce import all_within
from headrace.engine.kernels.times import EPOCHS

Facts = tuple[Int64s, Int64s, Int64s]
"""What happened to a row: time, diff, position in the payload."""

Window = tuple[int, int, int]
"""Epochs are ≥ the first and < the second, those of later rounds ≥ the third."""

_LARGE = 1024
"""From so many entries on, lanes that can be left out are, and the payload is put in order."""

_FEW = 256
"""Below so many updates one call that does all costs less than sharing what readers of one delta have in common."""
_FOREVER = np.iinfo(np.int64).max


class DiffOverflow(HeadraceError):
    """A multiplicity that does not fit 64 bits, or, of a row of a recursion, 32."""

    code = "overflow"

    def __init__(self, *, recursion: bool = False) -> None:
        if recursion:
            super().__init__("a row of a recursion has more than 2,147,483,646 derivations or copies",
                             hint="UNION in the place of UNION ALL counts each row once")  # fmt: skip
        else:
            super().__init__("a row's multiplicity does not fit 64 bits", hint="a source repeats one row without end")


class Batch:
    """`ids`: five uint64 lanes, `facts`: three int64 lanes, all of one length or left out; `payload`: the rows by position.

    `distinct`: how many different rows are in use; `struct`: the payload in both of its forms. A lane of one value may
    have stride 0; one left out has no entries. Never written after it is made.
    """

    __slots__ = (
        "_addresses",
        "_block",
        "_facts",
        "_ids",
        "_nbytes",
        "_size",
        "description",
        "distinct",
        "layout",
        "struct",
    )

    def __init__(
        self,
        layout: Layout,
        description: Description,
        ids: Ids | None,
        facts: Facts | None,
        payload: pa.RecordBatch | Exported,
        distinct: int,
    ) -> None:
        self.layout = layout
        self.description = description
        self.struct: Exported = payload if isinstance(payload, Exported) else Exported(payload)
        # a kernel run as plain Python counts in numpy's integers, which no file's header takes
        self.distinct = int(distinct)
        self._ids = ids
        self._facts = facts
        self._size = 0 if facts is None else len(facts[0])
        self._block: Int64s | None = None
        self._addresses: Int64s | None = None
        self._nbytes = 0

    def __len__(self) -> int:
        return self._size

    @property
    def ids(self) -> Ids:
        """What identifies the row of each update: hash, check, order, high and low half of its fingerprint."""
        if self._ids is None:
            self._unblock()
        return self._ids  # type: ignore[return-value]

    @property
    def facts(self) -> Facts:
        """Of each update its time, its diff and its position in the payload."""
        if self._facts is None:
            self._unblock()
        return self._facts  # type: ignore[return-value]

    def _unblock(self) -> None:
        assert self._block is not None
        self._ids, self._facts, _ = blocked(self._block, self._size, self.distinct, 0)

    @property
    def payload(self) -> pa.RecordBatch:
        """The rows, as Arrow has them."""
        return self.struct.rows

    def under(self, layout: Layout) -> Batch:
        """The same updates, nothing of them copied, where columns have other names. Raises InvariantBroken for another layout."""
        if layout is self.layout or layout == self.layout:
            return self
        if layout.fingerprint != self.layout.fingerprint:
            raise InvariantBroken("a batch of another layout", batch=self.layout.key, wanted=layout.key)
        payload = conformed(self.payload, layout.arrow)
        return Batch(layout, self.description, self.ids, self.facts, payload, self.distinct)

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
        if self._ids is None and self._block is not None:
            words = self._block.view(np.uint64)
            return Keys(words[0, : self._size], words[1, : self._size])
        return Keys(self.ids[0], self.ids[1])

    @classmethod
    def seal(cls, layout: Layout, updates: Updates, description: Description) -> Batch:
        """Sort and consolidate `updates`, whose times are those of `description`.

        Raises DiffOverflow, and InvariantBroken for rows of another layout or times outside of the description.
        """
        size = len(updates)
        window = _window(description)
        if 0 < size < _FEW:
            return cls._of_few(layout, updates, description, window)
        if size and not _within(updates.times, window):
            raise _outside(description)
        times, diffs = updates.times, updates.diffs
        if size >= _LARGE:
            times, diffs = elided(times), elided(diffs)
            made = cls._by_keys(layout, updates, (times, diffs), description)
            if made is not None:
                return made
        ids, facts = layout.ids(updates), (times, diffs, np.arange(size))
        sealed_ids, sealed, distinct = seal_lanes(ids, facts)
        return cls.of(layout, description, sealed_ids, sealed, _payload(layout, updates), distinct)

    @classmethod
    def _of_few(cls, layout: Layout, updates: Updates, description: Description, window: Window) -> Batch:
        """`seal` in one call of a kernel."""
        layout.check_rows(updates.struct)
        payload = _payload(layout, updates)
        located = np.empty(entries.COLUMNS, np.int64)
        located[entries.IMAGE] = ROW_IMAGE
        block, distinct, went = small_batch.seal_rows(
            payload.address, layout.sealing, updates.times, updates.diffs, window, located
        )
        if went == small_batch.OUTSIDE:
            raise _outside(description)
        if went == small_batch.OVERFLOW:
            raise DiffOverflow
        size = int(located[entries.SIZE])
        if not size or _is_wasteful(distinct, payload):
            return cls.of(layout, description, *blocked(block, size, distinct, 0)[:2], payload, distinct)
        return cls.of_block(layout, description, block, located, payload, distinct)

    @classmethod
    def of_block(
        cls, layout: Layout, of: Description, block: Int64s, located: Int64s, payload: Exported, distinct: int
    ) -> Batch:
        """A batch of what a kernel sealed: its lanes as one block, and its row in the table that `entries` describes."""
        made = cls(layout, of, None, None, payload, distinct)
        made._block, made._addresses, made._size = block, located, int(located[entries.SIZE])
        return made

    @classmethod
    def _by_keys(
        cls, layout: Layout, updates: Updates, facts: tuple[Int64s, Int64s], description: Description
    ) -> Batch | None:
        """`seal` with fingerprints made only of rows that share key and order; None where these are not few."""
        payload = _payload(layout, updates)
        told = layout.told_order(updates)
        if told is not None:
            return cls._in_order(layout, (payload, *facts), *told, description)
        keys = layout.sorting(updates)
        rows, steps = np.zeros(entries.COLUMNS, np.int64), layout.image_plan.steps
        rows[entries.STRUCT], rows[entries.PLAN] = payload.address, steps.ctypes.data
        rows[entries.STEPS], rows[entries.IMAGE] = len(steps), ROW_IMAGE
        room, out = room_for(keys, len(updates)), tuple(np.empty(len(updates), np.int64) for _ in range(3))
        size, distinct, ties, flat, lost = large_batch.seal_keys(keys, facts, rows, room, out)
        if lost:
            raise DiffOverflow
        if size < 0 or not few_ties(ties, size):
            return None
        h, c, o = given_back(keys, room, size)
        times, diffs = (stretched(lane[:1].copy(), size) if flat else shortened(lane, size) for lane in out[:2])
        places, none = shortened(out[2], size), h[:0].copy()
        if size != distinct or not size:
            return cls.of(layout, description, (h, c, o, none, none), (times, diffs, places), payload, distinct)
        if layout.narrow or _is_wasteful(distinct, payload):
            payload, places = taken(payload, places), places[:0].copy()
        facts_of = elided(times), elided(diffs), places
        return cls(layout, description, (h, elided(c), elided(o), none, none), facts_of, payload, distinct)

    @classmethod
    def _in_order(
        cls,
        layout: Layout,
        updates: tuple[Exported, Int64s, Int64s],
        order: Int64s | None,
        keys: Keys,
        description: Description,
    ) -> Batch:
        """`seal` of rows, times and diffs whose order is known, no two rows of one key."""
        payload, times, diffs = updates
        size = len(keys)
        rows = order_lane(payload.rows, layout.order, layout.order_types) if layout.order else constant_lane(0, size)
        none = keys.hash[:0].copy()
        places = none.view(np.int64)
        if order is not None:
            times, diffs, rows = reordered(times, order), reordered(diffs, order), reordered(rows, order)
            payload, places = (taken(payload, order), places) if layout.narrow else (payload, order)
        ids = keys.hash, elided(keys.check), elided(rows), none, none
        return cls(layout, description, ids, (times, diffs, places), payload, size)

    @classmethod
    def empty(cls, layout: Layout, description: Description) -> Batch:
        """A batch that says that nothing happened."""
        none = constant_lane(0, 0)
        nothing = none.view(np.int64)
        payload = layout.schema.empty()
        return cls(layout, description, (none,) * 5, (nothing,) * 3, payload, 0)

    @classmethod
    def of(
        cls,
        layout: Layout,
        description: Description,
        ids: Ids,
        facts: Facts,
        payload: pa.RecordBatch | Exported,
        distinct: int,
    ) -> Batch:
        """A batch of lanes already sorted and consolidated, which it takes: drops unused payload and lanes."""
        size = len(facts[0])
        if size == 0:
            return cls.empty(layout, description)
        if size < _LARGE and not _is_wasteful(distinct, payload):
            return cls(layout, description, ids, facts, payload, distinct)
        keep = np.empty(distinct, np.int64)
        ranks = facts[2].copy()
        used, ties = kernels.rank_rows(ids, ranks, keep)
        if used != distinct:
            raise InvariantBroken("distinct does not count the rows in use", distinct=distinct, used=used)
        in_order = layout.narrow or distinct * 2 <= payload.num_rows
        if in_order:
            payload = taken(payload if isinstance(payload, Exported) else Exported(payload), keep)
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
        made = Batch(self.layout, description, self._ids, self._facts, self.struct, self.distinct)
        made._size, made._block, made._addresses, made._nbytes = self._size, self._block, self._addresses, self._nbytes
        return made

    @property
    def nbytes(self) -> int:
        """Memory of lanes and payload, in bytes."""
        if not self._nbytes:
            lanes = (*self.ids, *self.facts) if self._block is None else (self._block,)
            self._nbytes = sum(lane.nbytes if lane.strides[0] else 8 for lane in lanes) + self.struct.nbytes
        return self._nbytes

    @property
    def addresses(self) -> Int64s:
        """Where lanes and payload lie, for kernels that see many batches: a row of the table that `entries` describes."""
        found = self._addresses
        if found is None:
            found = np.empty(entries.COLUMNS, np.int64)
            steps = self.layout.image_plan.steps
            entries.locate(self.ids, self.facts, self.struct.address, steps, ROW_IMAGE, found)
            self._addresses = found  # other threads read the batch, and kernels run beside: they never see half of it
        return found

    def check_order(self) -> None:
        """Raises InvariantBroken unless the entries are sorted and consolidated, and their positions in the payload."""
        h, c, o, _, _ = self.ids
        at = kernels.first_unsorted((h, c, o, *self.fingerprints), self.times)
        if at >= 0 or not np.all(self.diffs):
            raise InvariantBroken("a batch is not sorted and consolidated", entry=at)
        if len(self) and (self.positions.min() < 0 or self.positions.max() >= self.payload.num_rows):
            raise InvariantBroken("a batch points outside of its payload", rows=self.payload.num_rows)


def _window(description: Description) -> Window:
    upper, begin = description.upper, description.lower.epoch
    if upper.closed:
        return begin, _FOREVER, begin
    end = upper.epoch
    # Times may have been advanced to since, which may lie beyond the upper frontier. A scope's later rounds may lie in a
    # batch of no width, behind that of the epochs themselves.
    return begin, max(end, description.since.epoch + 1), 0 if begin == end else begin


def _within(times: Int64s, window: Window) -> bool:
    lower, until, later = window
    if all_within(times, lower, until):
        return True
    return bool(times.max() > EPOCHS and all_within(times & EPOCHS, later, until))


def _outside(description: Description) -> InvariantBroken:
    return InvariantBroken("updates outside of their batch", description=description)


def _payload(layout: Layout, updates: Updates) -> Exported:
    """The updates' rows under the layout's names, keeping nothing large in memory of which they are a small part."""
    struct = updates.struct
    if isinstance(struct, Loose):
        return struct.under(layout.arrow)
    rows = struct.rows
    fit = unpinned(conformed(rows, layout.arrow))
    return struct if fit is rows else Exported(fit)


def _is_wasteful(distinct: int, payload: pa.RecordBatch | Exported) -> bool:
    return distinct * 2 <= payload.num_rows and payload.num_rows > 1


def seal_lanes(ids: Ids, facts: Facts) -> tuple[Ids, Facts, int]:
    """Sorted and consolidated lanes, and how many distinct rows they have. Raises DiffOverflow."""
    count = len(facts[0])
    if count < kernels.FEW:
        return blocked(*kernels.seal_few(ids, facts))
    room = room_for(ids, count)
    times, diffs, places = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    size, distinct, overflow = kernels.seal(ids, facts, room, (times, diffs, places))
    if overflow:
        raise DiffOverflow
    h, c, o, high, low = given_back(ids, room, size)
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
