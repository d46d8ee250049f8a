"""Portions: a transaction of more rows than a step should take is bound as several epochs, one right after the other.

Always: what the portions hold, one after the other, is what the transaction holds, in its order; all but the last say that
more comes, and they are bound in one append, stepped one by one, and published at the last alone: what changed in a view has
that epoch. The same transaction gives as many portions whenever it is read again, unless a table stands still. The intake
cuts, the runtime steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from connectors.sink import ViewChanges
from engine.batch.layout import layout_of
from engine.batch.updates import Updates
from engine.dataflow.output import canonical
from engine.operators.delta import Delta
from engine.schema import Schema
from sidecar.pending import Slice
from sidecar.transactions import RESNAPSHOT, Transaction

ROWS = 1 << 19
"""Rows that one portion has at most, and one step of the engine where epochs are smaller: some 200 bytes each meanwhile."""

Pairs = Sequence[tuple[int, Transaction]]


def portions(transaction: Transaction, rows: int) -> list[Transaction]:
    """A transaction in portions of at most `rows` rows (those of one event stay together); one of another kind as it is.

    A snapshot is cut where its rows stand, a transaction by the order of its events.
    """
    if _size(transaction) <= rows:
        return [transaction]
    if transaction.kind in ("snapshot", RESNAPSHOT):
        cut = list(_in_turn(transaction.slices, rows))
    elif transaction.kind == "transaction" and all(_ascending(s) for s in transaction.slices):
        cut = list(_by_order(transaction.slices, rows))
    else:
        return [transaction]
    last = len(cut) - 1
    return [
        replace(transaction, slices=tuple(slices), more=at < last, errors={} if at < last else transaction.errors)
        for at, slices in enumerate(cut)
    ]


def _size(transaction: Transaction) -> int:
    return sum(s.stop - s.start for s in transaction.slices)


def _ascending(s: Slice) -> bool:
    orders = s.changes.orders[s.start : s.stop]
    return bool((orders[1:] >= orders[:-1]).all())


def _in_turn(slices: Iterable[Slice], rows: int) -> Iterator[list[Slice]]:
    here: list[Slice] = []
    room = rows
    for s in slices:
        start = s.start
        while start < s.stop:
            if not room:
                yield here
                here, room = [], rows
            stop = min(s.stop, start + room)
            here.append(Slice(s.changes, start, stop))
            room -= stop - start
            start = stop
    yield here


def _by_order(slices: Sequence[Slice], rows: int) -> Iterator[list[Slice]]:
    last = max(int(s.changes.orders[s.stop - 1]) for s in slices)
    for low in range(0, last + 1, rows):
        here = []
        for s in slices:
            orders = s.changes.orders[s.start : s.stop]
            start, stop = (s.start + int(n) for n in np.searchsorted(orders, (low, low + rows)))
            here += [Slice(s.changes, start, stop)] if start < stop else []
        if here:
            yield here


def in_steps(pairs: Pairs, rows: int) -> Iterator[Pairs]:
    """Runs of epochs of at most `rows` rows together, where one epoch has no more."""
    here: list[tuple[int, Transaction]] = []
    room = rows
    for pair in pairs:
        size = _size(pair[1])
        if here and size > room:
            yield here
            here, room = [], rows
        here.append(pair)
        room -= size
    if here:
        yield here


def as_published(changes: ViewChanges, schema: Schema, pairs: Pairs) -> ViewChanges | None:
    """A view's changes over these epochs, each as of its own or of its transaction's last portion; None where none is left."""
    if not any(transaction.more for _, transaction in pairs):
        return changes
    ends = np.array([epoch for epoch, transaction in pairs if not transaction.more], np.int64)
    updates = Updates(changes.rows, ends[np.searchsorted(ends, changes.epochs)], changes.diffs)
    rows, _ = canonical(Delta(updates, None), layout_of(schema, ()))
    return ViewChanges(rows.rows, rows.times, rows.diffs) if len(rows) else None
