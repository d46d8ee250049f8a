"""Epoch ranges: where they end, who stands inside one, and that however they are cut, states are equal at their ends."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from headrace.engine.dataflow import Dataflow, Output
from headrace.engine.operators.expressions.core.ir import Aggregate
from headrace.engine.schema import BIGINT, INTEGER, TEXT, Column, Schema
from headrace.sidecar.epochs import epoch_ranges
from headrace.sidecar.epochs.each_transaction import EachTransaction
from headrace.sidecar.epochs.epoch_ranges import EpochRanges, at_range_ends
from headrace.sidecar.transactions.model import Transaction
from tests.engine.dataflow.pairs import cuts_of, keyed_ops, keyless_ops, upserts
from tests.seeds import seeds
from tests.sidecar.support.transactions import transaction_of

Pairs = list[tuple[int, Transaction]]
KEYED = Schema.of([Column("id", INTEGER), Column("group", INTEGER), Column("name", TEXT)], ["id"])
KEYLESS = Schema.of([Column("id", INTEGER), Column("name", TEXT)])
COUNTED = Schema.of([Column("group", INTEGER), Column("n", BIGINT)])


def pairs(first: int, count: int) -> Pairs:
    return [(e, transaction_of("transaction", e, 10 * e)) for e in range(first, first + count)]


def test_a_step_is_one_range_but_for_registered_epochs() -> None:
    ranges = EpochRanges()
    assert ranges.register(3) is None
    assert ranges.register(5) is None
    assert ranges.cut(pairs(1, 7)).tolist() == [3, 5, 7]
    assert ranges.cut(pairs(8, 3)).tolist() == [10]


def test_who_resumes_inside_a_range_is_told_its_ends() -> None:
    ranges = EpochRanges()
    ranges.register(3)
    ranges.cut(pairs(1, 7))
    ranges.cut(pairs(8, 1))
    assert [ranges.register(e) for e in (0, 3, 7, 8, 9)] == [None] * 5
    assert [ranges.register(e) for e in (1, 2, 4, 6)] == [range(1, 4), range(1, 4), range(4, 8), range(4, 8)]


def test_while_somebody_asks_for_each_transaction_every_epoch_is_a_range() -> None:
    asking = ["k"]
    ranges = EpochRanges(EachTransaction(lambda: asking))
    assert ranges.cut(pairs(1, 3)).tolist() == [1, 2, 3]
    asking.clear()
    assert ranges.cut(pairs(4, 3)).tolist() == [6]
    assert ranges.register(2) is None


@pytest.mark.parametrize("kind", ["snapshot", "resnapshot", "chunk", "mended", "resync", "adopted"])
def test_what_is_no_ordinary_transaction_is_a_range_of_its_own(kind: str) -> None:
    [one, two, _, *rest] = pairs(1, 5)
    assert EpochRanges().cut([one, two, (3, transaction_of(kind, -1, 30)), *rest]).tolist() == [2, 3, 5]


@pytest.mark.parametrize("kind", ["transaction", "cut"])
def test_so_is_one_with_errors_of_tables(kind: str) -> None:
    [one, two, _, *rest] = pairs(1, 5)
    odd = transaction_of(kind, 3, 30, errors={"t": {"bad": 1}})
    assert EpochRanges().cut([one, two, (3, odd), *rest]).tolist() == [2, 3, 5]


@pytest.mark.parametrize("steps", [[6], [3, 3], [1, 2, 3], [4, 2]])
def test_so_is_every_portion_of_a_large_transaction_in_however_many_steps(steps: list[int]) -> None:
    """One that were taken in with what is behind it would be published with it, and its other portions before it."""
    made = pairs(1, 6)
    for at in (1, 2):
        made[at] = (made[at][0], replace(made[at][1], more=True))
    ranges, ends = EpochRanges(), []
    for count in steps:
        ends += ranges.cut(made[:count]).tolist()
        del made[:count]
    assert {1, 2, 3, 4, 6} <= set(ends)
    assert 5 not in ends or len(steps) > 1


def test_ranges_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_ranges, "KEPT", 3)
    ranges = EpochRanges()
    for first in range(1, 21, 2):
        ranges.cut(pairs(first, 2))
    assert ranges.known_from >= 8
    assert ranges.register(19) == range(19, 21)


def built() -> tuple[Dataflow, list[Output]]:
    flow = Dataflow()
    keyed, keyless = flow.table("keyed", KEYED), flow.table("keyless", KEYLESS)
    counted = keyed.reduce([1], [Aggregate("count", None, BIGINT)], COUNTED)
    made = [keyed, keyless, counted, keyed.join(keyless, [0], [0]), counted.join(keyed, [0], [1])]
    return flow, [c.output(f"view{i}") for i, c in enumerate(made)]


def shown(output: Output, epoch: int) -> tuple[Counter[object], Counter[object]]:
    rows, errors = output.snapshot(epoch)
    found: Counter[object] = Counter()
    for row, diff in zip(rows.rows.to_pylist(), rows.diffs.tolist(), strict=True):
        found[tuple(row.values())] += diff
    return found, Counter(dict(zip(errors.rows.column(0).to_pylist(), errors.diffs.tolist(), strict=True)))


@pytest.mark.parametrize("seed", seeds(40))
def test_ranges_cut_at_random_end_in_equal_states(seed: int) -> None:
    """Upserts, deletes, truncates, key changes and unsent values in any order; what changed adds up to the same states."""
    rng, end = random.Random(seed), 24
    ops = {
        "keyed": (KEYED, keyed_ops(rng, lambda r: (r.randrange(5), r.randrange(3), r.choice("xyz")), KEYED, end, 4)),
        "keyless": (KEYLESS, keyless_ops(rng, lambda r: (r.randrange(5), r.choice("xy")), end, 4)),
    }
    one, ones = built()
    many, manys = built()
    sums: list[Counter[object]] = [Counter() for _ in manys]
    start = 0
    for stop in cuts_of(rng, end):
        ends = [e for e in range(start, stop - 1) if rng.random() < 0.2] + [stop - 1]
        for epoch in range(start, stop):
            for table, (schema, made) in ops.items():
                here = [i for i, op in enumerate(made) if op.epoch == epoch]
                if here:
                    one.push(table, upserts(schema, made, here))
            one.step(epoch + 1)
        changes = {
            table: upserts(schema, made, here)
            for table, (schema, made) in ops.items()
            if (here := [i for i, op in enumerate(made) if start <= op.epoch < stop])
        }
        for table, found in at_range_ends(changes, np.array(ends)).items():
            many.push(table, found)
        many.step(stop)
        for output, added in zip(manys, sums, strict=True):
            rows, _ = output.take()
            assert set(rows.times.tolist()) <= set(ends), "changes stand at ends of ranges alone"
            for row, diff in zip(rows.rows.to_pylist(), rows.diffs.tolist(), strict=True):
                added[tuple(row.values())] += diff
        for at in ends:
            for of_one, of_many in zip(ones, manys, strict=True):
                assert shown(of_one, at) == shown(of_many, at), f"at {at}, of {ends}"
        for of_many, added in zip(manys, sums, strict=True):
            assert shown(of_many, stop - 1)[0] == Counter({row: n for row, n in added.items() if n})
        start = stop
