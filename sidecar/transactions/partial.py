"""A transaction that is not whole yet: slices of decoded runs, without repetitions.

Invariant: an event is known by its order in its transaction, and belongs to the offset at which it was first seen. The
assemblers call it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from headrace.connectors.changes import LATER, TableChanges, TransactionMark, Undecodable

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


FEW = 50
"""So many events are compared one by one: an array's fixed cost is more."""


class RowRange(NamedTuple):
    """Rows start … stop of one decoded run."""

    changes: TableChanges
    start: int
    stop: int


def runs(lane: np.ndarray) -> Iterable[tuple[int, int]]:
    """The (start, stop) of each run of equal values."""
    if len(lane) == 0:
        return []
    cuts = np.flatnonzero(lane[1:] != lane[:-1]) + 1
    edges = [0, *cuts.tolist(), len(lane)]
    return itertools.pairwise(edges)


def by_transaction(changes: TableChanges) -> Iterable[tuple[int, int, int, RowRange, bool]]:
    """Of each transaction's run of these: txId, LSN, time in Kafka, events, and whether none of them stands twice in it."""
    ids, orders = changes.transactions, changes.orders
    other = ids[1:] != ids[:-1]
    first = np.concatenate([[0], np.flatnonzero(other) + 1])
    clean = np.ones(len(first), np.bool_)
    twice = np.flatnonzero(~((orders[1:] > orders[:-1]) | other)) + 1
    clean[np.searchsorted(first, twice, "right") - 1] = False
    starts = first.tolist()
    sent = itertools.repeat(LATER) if changes.sent_ms is None else changes.sent_ms[first].tolist()
    slices = map(RowRange, itertools.repeat(changes), starts, [*starts[1:], len(ids)])
    return zip(ids[first].tolist(), changes.lsns[first].tolist(), sent, slices, clean.tolist(), strict=False)


@dataclass
class PartialTransaction:
    """What of one transaction is here, by table. `clean`: within each slice no event stands twice.

    `gaps`: events that are passed over, which count as here: order → (topic, partition, offset), by table; `without`: those that
    are left out, whatever copies of them are here. `sent_ms`: when the last of it that is here was sent, as Kafka has it; LATER
    where that is not known of all.
    """

    slices: dict[str, list[RowRange]] = field(default_factory=dict)
    clean: bool = True
    gaps: dict[str, dict[int, Place]] = field(default_factory=dict)
    without: dict[str, set[int]] = field(default_factory=dict)
    sent_ms: int = -1

    def add(self, table: str, events: RowRange, sent_ms: int, *, clean: bool) -> None:
        """Events of a table."""
        self.slices.setdefault(table, []).append(events)
        self.clean &= clean
        self.sent_ms = max(self.sent_ms, sent_ms)

    def gap(self, table: str, order: int, record: Undecodable, *, known: bool = False) -> None:
        """An event that is passed over; `known`: as the log has it, and no copy of it counts."""
        if known:
            self.without.setdefault(table, set()).add(order)
        self.gaps.setdefault(table, {}).setdefault(order, (record.topic, record.partition, record.offset))
        self.sent_ms = max(self.sent_ms, record.sent_ms)

    def places(self) -> Iterator[Place]:
        """Where it begins in each partition, and perhaps where it goes on."""
        for slices in self.slices.values():
            yield from first_places(slices)
        for gaps in self.gaps.values():
            yield from gaps.values()

    def withdraw(self, table: str) -> Iterable[Place]:
        """Let go of a table; where what was here of it begins, and perhaps where it goes on."""
        return (*first_places(self.slices.pop(table, ())), *self.gaps.pop(table, {}).values())

    def distinct(self, table: str) -> int:
        """Distinct events of a table: one order may stand for two rows (keyless updates) or for a repetition."""
        slices, gaps = self.slices.get(table), self.gaps.get(table)
        if not slices:
            return len(gaps or ())
        if len(slices) == 1 and self.clean and not gaps:
            return slices[0].stop - slices[0].start
        if not gaps and (few := _orders_of_few(slices)) is not None:
            return len(set(few))
        orders = np.unique(np.concatenate([s.changes.orders[s.start : s.stop] for s in slices]))
        return len(orders) if not gaps else len(gaps.keys() | set(orders.tolist()))

    def is_surely_whole(self, counts: Mapping[str, int], tables: Mapping[str, str], leaves: bool) -> bool:
        """Whether each table's one slice says at once that nothing of these counts is missing, as it mostly does."""
        if not self.clean or leaves:
            return False
        for name, count in counts.items():
            found = self.slices.get(name, ()) if name in tables else None
            if found is not None and (len(found) != 1 or found[0].stop - found[0].start != count):
                return False
        return True

    def is_surely_short(self, counts: Mapping[str, int], tables: Mapping[str, str]) -> bool:
        """Whether fewer rows than these counts are here: the events of a large transaction are not compared at each poll."""
        expected = by_table(counts, tables).items()
        return any(
            sum(s.stop - s.start for s in self.slices.get(t, ())) + len(self.gaps.get(t, ())) < n for t, n in expected
        )

    def missing(self, counts: Mapping[str, int], tables: Mapping[str, str]) -> dict[str, int]:
        """Table → events that are not here of these counts by name."""
        expected = by_table(counts, tables)
        return {t: n - here for t, n in expected.items() if (here := self.distinct(t)) < n}

    def whole(self) -> tuple[RowRange, ...]:
        """All slices, repetitions taken out, and what is left out."""
        if self.without:
            return tuple(s for table in self.slices for s in self._left(table))
        if not self.clean:
            return tuple(s for slices in self.slices.values() for s in first_copies(slices, None))
        out: list[RowRange] = []
        for slices in self.slices.values():
            # the events of a clean slice are distinct: so are those of several whose orders are
            if len(slices) == 1 or ((few := _orders_of_few(slices)) is not None and len(set(few)) == len(few)):
                out += slices
            else:
                out += first_copies(slices, None)
        return tuple(out)

    def repeats(self, whole: Iterable[RowRange]) -> bool:
        """Whether rows are here that `whole` is without."""
        here = sum(s.stop - s.start for slices in self.slices.values() for s in slices)
        return here != sum(s.stop - s.start for s in whole)

    def _left(self, table: str) -> Iterator[RowRange]:
        for s in first_copies(self.slices[table], None):
            stays = ~np.isin(s.changes.orders[s.start : s.stop], list(self.without.get(table, ())))
            yield from (RowRange(s.changes, s.start + a, s.start + b) for a, b in runs(stays) if stays[a])

    def supplied(self) -> Iterator[Place]:
        """Where records were passed over of which copies are here that count."""
        for table, gaps in self.gaps.items():
            here = {int(o) for s in self.slices.get(table, ()) for o in s.changes.orders[s.start : s.stop]}
            yield from (gaps[order] for order in gaps.keys() & (here - self.without.get(table, set())))


class Unfinished(dict[int, PartialTransaction]):
    """What is here of each transaction that was not given yet. `ends`: the ENDs that are here; `since_ms`: when the last snapshot
    began, as Kafka has it.

    A transaction that was sent before the last snapshot began, and without its END, is finished by nobody: the connector
    that sent it lost its slot. What it did is in that snapshot, and nothing of it is held.
    """

    def __init__(self, ends: Collection[TransactionMark]) -> None:
        super().__init__()
        self._ends, self.since_ms = ends, -1
        self._begins: dict[tuple[str, int], list[tuple[int, int]]] = {}
        """Of each partition a heap of (offset, transaction): where what is here begins, and what was here before."""

    def of(self, txid: int, sent_ms: int) -> PartialTransaction | None:
        """What is here of a transaction, to be added to what was sent then; None for one that was cut off."""
        found = self.get(txid)
        if found is None and not self._is_cut_off(txid, sent_ms):
            found = self[txid] = PartialTransaction()
        return found

    def began(self, txid: int, places: Iterable[Place]) -> None:
        """Something of a transaction that is here begins at these places."""
        for topic, partition, offset in places:
            heapq.heappush(self._begins.setdefault((topic, partition), []), (offset, txid))

    def places(self) -> Iterator[Place]:
        """Where what is here begins in each partition."""
        for (topic, partition), begins in self._begins.items():
            while begins and begins[0][1] not in self:
                heapq.heappop(begins)
            if begins:
                yield topic, partition, begins[0][0]

    def withdraw(self, table: str) -> list[Place]:
        """Let go of a table; where what was here of it begins, and perhaps where it goes on."""
        gone = [place for pending in self.values() for place in pending.withdraw(table)]
        self._begins = {}
        for txid, pending in self.items():
            self.began(txid, pending.places())
        return gone

    def let_go(self, since_ms: int) -> None:
        """The last snapshot began then."""
        self.since_ms = since_ms
        for txid in [t for t, pending in self.items() if self._is_cut_off(t, pending.sent_ms)]:
            del self[txid]

    def _is_cut_off(self, txid: int, sent_ms: int) -> bool:
        return sent_ms < self.since_ms and all(end.transaction != txid for end in self._ends)


def _orders_of_few(slices: Sequence[RowRange]) -> list[int] | None:
    """The orders of all events of slices; None where there are so many that arrays are faster."""
    if sum(stop - start for _, start, stop in slices) > FEW:
        return None
    return [order for changes, start, stop in slices for order in changes.orders[start:stop].tolist()]


def by_table(counts: Mapping[str, int], tables: Mapping[str, str]) -> dict[str, int]:
    """Counts by name, of the names that belong to a table, added up by table."""
    out: dict[str, int] = {}
    for name, count in counts.items():
        table = tables.get(name)
        if table is not None:
            out[table] = out.get(table, 0) + count
    return out


def first_places(slices: Iterable[RowRange]) -> Iterator[Place]:
    """The first record of each."""
    return ((s.changes.topic, s.changes.partition, int(s.changes.offsets[s.start])) for s in slices)


def oldest(places: Iterable[Place]) -> dict[tuple[str, int], int]:
    """(topic, partition) → its first place."""
    out: dict[tuple[str, int], int] = {}
    for topic, partition, offset in places:
        out[topic, partition] = min(out.get((topic, partition), offset), offset)
    return out


def first_copies(slices: Sequence[RowRange], seen: dict[int, tuple[int, int]] | None) -> list[RowRange]:
    """The slices without later copies of an event: an order belongs to the offset at which it was first seen.

    `seen`: order → (partition, offset) of the events before these, to which these are added; None where there are no others.
    """
    if seen is None:
        if sum(stop - start for _, start, stop in slices) > FEW:
            return _first_copies(slices)
        seen = {}
    out: list[RowRange] = []
    for s in slices:
        offsets = s.changes.offsets[s.start : s.stop].tolist()
        orders = s.changes.orders[s.start : s.stop].tolist()
        for i, (offset, order) in enumerate(zip(offsets, orders, strict=True), s.start):
            if seen.setdefault(order, (s.changes.partition, offset)) == (s.changes.partition, offset):
                if out and out[-1].changes is s.changes and out[-1].stop == i:
                    out[-1] = RowRange(s.changes, out[-1].start, i + 1)
                else:
                    out.append(RowRange(s.changes, i, i + 1))
    return out


def _first_copies(slices: Sequence[RowRange]) -> list[RowRange]:
    """As above for slices that are all there is, without a loop over their events."""
    orders = np.concatenate([s.changes.orders[s.start : s.stop] for s in slices])
    offsets = np.concatenate([s.changes.offsets[s.start : s.stop] for s in slices])
    partitions = np.repeat([s.changes.partition for s in slices], [s.stop - s.start for s in slices])
    one, two = slice(None, -1), slice(1, None)
    same = (offsets[one] == offsets[two]) & (partitions[one] == partitions[two])
    if ((orders[two] > orders[one]) | ((orders[two] == orders[one]) & same)).all():
        return list(slices)
    _, first, which = np.unique(orders, return_index=True, return_inverse=True)
    owner = first[which]
    stays = (offsets == offsets[owner]) & (partitions == partitions[owner])
    if stays.all():
        return list(slices)
    out, at = [], 0
    for s in slices:
        here = stays[at : at + s.stop - s.start]
        out += [RowRange(s.changes, s.start + start, s.start + stop) for start, stop in runs(here) if here[start]]
        at += len(here)
    return out
