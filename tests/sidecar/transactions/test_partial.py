"""Repetitions are taken out of a transaction alike by arrays and one by one, and without an object for each event."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest

from headrace.sidecar.transactions.debezium import TransactionAssembler
from headrace.sidecar.transactions.partial import (
    PartialTransaction,
    RowRange,
    Unfinished,
    first_copies,
    first_places,
    oldest,
)
from tests.seeds import seeds
from tests.sidecar.support.streams import changes, decoded, end, notified

TABLE = "s.t"


def places(slices: list[RowRange]) -> list[tuple[int, int, int]]:
    return [
        (s.changes.partition, int(s.changes.offsets[i]), int(s.changes.orders[i]))
        for s in slices
        for i in range(s.start, s.stop)
    ]


@pytest.mark.parametrize("seed", seeds(60))
def test_whatever_is_repeated_the_first_copy_of_each_event_stays(seed: int) -> None:
    """Two rows of one record (a keyless update) have one order and one offset; a replay has other offsets."""
    draw = random.Random(seed)
    partitions, most = draw.choice([1, 1, 3]), draw.choice([1, 5, 40])
    slices, at = [], dict.fromkeys(range(partitions), 0)
    for _ in range(draw.randrange(1, 7)):
        partition, orders, offsets = draw.randrange(partitions), [], []
        for _ in range(draw.randrange(1, 9)):
            order, twice = draw.randrange(most), draw.random() < 0.2
            orders += [order] * (1 + twice)
            offsets += [at[partition]] * (1 + twice)
            at[partition] += draw.choice([1, 1, 2])
        if draw.random() < 0.3:
            orders.sort()
        made = changes(TABLE, [(1, 1)] * len(orders), txid=7, orders=orders, partition=partition)
        made.offsets[:] = offsets
        start = draw.randrange(len(orders))
        slices.append(RowRange(made, start, draw.randrange(start + 1, len(orders) + 1)))
    assert places(first_copies(slices, None)) == places(first_copies(slices, {}))


def test_a_large_transaction_takes_no_object_an_event() -> None:
    count, run = 100_000, 5_000
    pending = PartialTransaction()
    for first in range(1, count, run):
        made = changes(TABLE, [(1, 1)] * run, txid=7, orders=range(first, first + run), offset=first)
        pending.slices.setdefault(TABLE, []).append(RowRange(made, 0, run))
    tracemalloc.start()
    try:
        whole = pending.whole()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(s.stop - s.start for s in whole) == count
    assert peak < 64 * count, "a dictionary of them has 150 bytes for each"
    assert np.concatenate([s.changes.orders[s.start : s.stop] for s in whole]).tolist() == list(range(1, count + 1))


def test_the_events_of_a_transaction_that_comes_bit_by_bit_are_compared_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its END is there first: the transaction topic has little to read."""
    compared = []
    distinct = PartialTransaction.distinct
    monkeypatch.setattr(
        PartialTransaction, "distinct", lambda self, table: compared.append(table) or distinct(self, table)
    )
    assembler = TransactionAssembler({TABLE: TABLE})
    assembler.accept(decoded(notified("skipped"), end(7, 900, {TABLE: 100})))
    for first in range(1, 101, 2):
        assert assembler.complete() == []
        part = changes(TABLE, [(1, 1)] * 2, txid=7, orders=[first, first + 1], lsn=800, offset=first)
        assembler.accept(decoded(part))
    [given] = assembler.complete()
    assert sum(s.stop - s.start for s in given.slices) == 100
    assert len(compared) <= 2


@pytest.mark.parametrize("seed", seeds(30))
def test_where_the_rest_begins_is_known_whatever_is_given_or_withdrawn(seed: int) -> None:
    draw = random.Random(seed)
    held, offset, last = Unfinished([]), 0, 0
    for _ in range(300):
        act = draw.random()
        if act < 0.6:
            last += draw.random() < 0.3
            txid, table = draw.choice([*held, last]), draw.choice(["s.a", "s.b"])
            offset += draw.randrange(1, 4)
            run = changes(table, [(1, 1)], txid=txid, offset=offset, partition=draw.randrange(2))
            pending = held.of(txid, 0)
            assert pending is not None
            pending.add(table, RowRange(run, 0, 1), 0, clean=True)
            held.began(txid, first_places([RowRange(run, 0, 1)]))
        elif act < 0.95:
            held.pop(draw.choice([*held, 0]), None)
            last += 1
        else:
            before = oldest(p for pending in held.values() for p in first_places(pending.slices.get("s.a", ())))
            assert oldest(held.withdraw("s.a")) == before
        assert oldest(held.places()) == oldest(place for pending in held.values() for place in pending.places())
