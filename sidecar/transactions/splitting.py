"""Splitting: binds a transaction of very many rows as several epochs, one right after the other.

Invariant: the parts together hold the transaction's rows in their order, and all but the last say that more comes. They are
bound in one append, stepped one by one, and published at the last one alone. Read again, the transaction gives as many parts,
unless a table is suspended. The intake splits, the runtime steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import assert_never

import numpy as np

from headrace.engine.batch.updates import Int64s
from headrace.sidecar.transactions.model import (
    Divisible,
    IncrementalRows,
    Marker,
    Microbatch,
    Repair,
    Resync,
    SnapshotTransaction,
    SourceTransaction,
    SparkVersion,
    Transaction,
)
from headrace.sidecar.transactions.partial import RowRange

ROWS = 1 << 19
"""Rows that one portion has at most, and one step of the engine where epochs are smaller: some 200 bytes each meanwhile."""

Pairs = Sequence[tuple[int, Transaction]]


def portions(transaction: Transaction, rows: int) -> list[Transaction]:
    """A transaction in portions of at most `rows` rows (those of one event stay together); one of another kind as it is.

    A snapshot is cut by the places of its rows, a transaction by the order of its events.
    """
    if _size(transaction) <= rows:
        return [transaction]
    match transaction:
        case SnapshotTransaction():
            return _divided(transaction, list(_in_turn(transaction.slices, rows)))
        case SourceTransaction() if all(_ascending(s) for s in transaction.slices):
            return _divided(transaction, list(_by_order(transaction.slices, rows)))
        case SourceTransaction() | SparkVersion() | Microbatch() | IncrementalRows() | Repair() | Resync() | Marker():
            return [transaction]
        case _:
            assert_never(transaction)


def _divided(transaction: Divisible, cut: Sequence[Sequence[RowRange]]) -> list[Transaction]:
    last = len(cut) - 1
    return [
        replace(transaction, slices=tuple(slices), more=at < last, errors={} if at < last else transaction.errors)
        for at, slices in enumerate(cut)
    ]


def _size(transaction: Transaction) -> int:
    return sum(s.stop - s.start for s in transaction.slices)


def _ascending(s: RowRange) -> bool:
    orders = s.changes.orders[s.start : s.stop]
    return bool((orders[1:] >= orders[:-1]).all())


def _in_turn(slices: Iterable[RowRange], rows: int) -> Iterator[list[RowRange]]:
    here: list[RowRange] = []
    room = rows
    for s in slices:
        start = s.start
        while start < s.stop:
            if not room:
                yield here
                here, room = [], rows
            stop = min(s.stop, start + room)
            here.append(RowRange(s.changes, start, stop))
            room -= stop - start
            start = stop
    yield here


def _by_order(slices: Sequence[RowRange], rows: int) -> Iterator[list[RowRange]]:
    last = max(int(s.changes.orders[s.stop - 1]) for s in slices)
    for low in range(0, last + 1, rows):
        here = []
        for s in slices:
            orders = s.changes.orders[s.start : s.stop]
            start, stop = (s.start + int(n) for n in np.searchsorted(orders, (low, low + rows)))
            here += [RowRange(s.changes, start, stop)] if start < stop else []
        if here:
            yield here


def in_steps(pairs: Pairs, rows: int) -> Iterator[Pairs]:
    """Runs of epochs of at most `rows` rows together, where one epoch has no more. Resyncs, whose rows no worker has decoded,
    are in runs of their own."""
    here: list[tuple[int, Transaction]] = []
    room = rows
    for pair in pairs:
        size = _size(pair[1])
        if here and (size > room or isinstance(pair[1], Resync) != isinstance(here[-1][1], Resync)):
            yield here
            here, room = [], rows
        here.append(pair)
        room -= size
    if here:
        yield here


def first_portions(more: Set[int]) -> dict[int, int]:
    """For each transaction in portions, the epoch of its last portion → that of its first. `more`: the epochs of all portions
    but the last.

    >>> first_portions({4, 5, 9})
    {6: 4, 10: 9}
    """
    firsts: dict[int, int] = {}
    for epoch in sorted(more):
        firsts[epoch + 1] = firsts.pop(epoch, epoch)
    return firsts


def ends_of(pairs: Pairs, more: Set[int]) -> Int64s:
    """The epochs at which transactions end. `more`: the epochs of portions that are not the last."""
    return np.array([epoch for epoch, _ in pairs if epoch not in more], np.int64)
