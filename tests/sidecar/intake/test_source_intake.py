"""Rows of bound transactions, table by table, epoch by epoch."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.connectors.changes import Decoded, Format, MessageBatch, TableChanges, Undecodable
from headrace.engine.batch.updates import DELETE, TRUNCATE, UPSERT
from headrace.sidecar.intake.source_intake import Intake, UndecodableError
from headrace.sidecar.intake.table_upserts import upserts
from headrace.sidecar.transactions.model import Transaction
from headrace.sidecar.transactions.partial import RowRange
from tests.sidecar.support.streams import SCHEMA, changes
from tests.sidecar.support.transactions import transaction_of


def whole(*parts: object) -> Transaction:
    return transaction_of("transaction", 1, 1, 1, tuple(RowRange(c, 0, len(c)) for c in parts))  # type: ignore[arg-type]


def test_rows_stand_by_epoch_then_by_order_in_the_transaction() -> None:
    one = changes("a", [(3, 30), (1, 10)], orders=[4, 2])
    two = changes("a", [(2, 20)], orders=[1], partition=1)
    found = upserts([(5, whole(one, two)), (6, whole(changes("a", [(9, 90)], orders=[1])))], {"a": SCHEMA})["a"]
    assert found.rows.column(0).to_pylist() == [2, 1, 3, 9]
    assert found.epochs.tolist() == [5, 5, 5, 6]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_any_slices_of_any_runs_give_what_sorting_row_by_row_gives(seed: int) -> None:
    """One run in order is passed on as it is, or in part; anything else is put in order: nobody can tell which."""
    draw = random.Random(seed)
    made, bound = 0, []
    naive: list[tuple[int, int, int]] = []
    sources = []
    for _ in range(draw.choice([1, 1, 2])):
        count = draw.randrange(1, 40)
        orders = [draw.choice([1, 2, 3, i]) if draw.random() < 0.2 else i for i in range(count)]
        sources.append((changes("a", [(made + i, i) for i in range(count)], orders=orders), orders, [0]))
        made += count
    for epoch in range(5, 5 + draw.randrange(1, 8)):
        slices = []
        for run, orders, at in draw.sample(sources, len(sources)):
            start = at[0] + (draw.random() < 0.1)
            stop = min(start + draw.randrange(0, 9), len(run))
            if start < stop:
                slices.append(RowRange(run, start, stop))
                keys = run.rows.column(0).to_pylist()
                naive += [(epoch, orders[i], keys[i]) for i in range(start, stop)]
                at[0] = stop
        bound.append((epoch, transaction_of("transaction", epoch, epoch, 1, tuple(slices))))
    found = upserts(bound, {"a": SCHEMA}).get("a")
    if found is None:
        assert not naive
        return
    rows = zip(found.epochs.tolist(), found.rows.column(0).to_pylist(), strict=True)
    assert list(rows) == [(epoch, key) for epoch, _, key in sorted(naive, key=lambda row: row[:2])]
    assert found.rows.schema.equals(SCHEMA.arrow)


def test_slices_of_one_run_go_to_their_own_epochs() -> None:
    run = changes("a", [(i, i) for i in range(6)], orders=[1, 2, 1, 2, 1, 2])
    bound = [(e, transaction_of("transaction", e, e, 1, (RowRange(run, a, a + 2),))) for e, a in ((1, 0), (2, 4))]
    found = upserts(bound, {"a": SCHEMA})["a"]
    assert found.rows.column(0).to_pylist() == [0, 1, 4, 5]
    assert found.epochs.tolist() == [1, 1, 2, 2]


def test_tables_that_no_view_reads_are_left_out() -> None:
    assert upserts([(1, whole(changes("b", [(1, 1)], orders=[1])))], {"a": SCHEMA}) == {}


def test_a_truncate_keeps_its_place() -> None:
    rows = changes("a", [(1, 1), (0, None), (2, 2)], orders=[1, 2, 3], kinds=[UPSERT, TRUNCATE, UPSERT])
    assert upserts([(1, whole(rows))], {"a": SCHEMA})["a"].kinds.tolist() == [UPSERT, TRUNCATE, UPSERT]


def test_a_moved_row_is_filled_from_the_delete_before_it() -> None:
    run = changes("a", [(1, None), (2, None), (3, 3)], orders=[1, 2, 3], kinds=[DELETE, UPSERT, UPSERT])
    moved = np.array([False, True, False])
    run = type(run)(**{**run.__dict__, "moved": moved, "unchanged": {1: moved}})
    found = upserts([(1, whole(run))], {"a": SCHEMA})["a"]
    assert found.fill_from is not None
    assert found.fill_from.tolist() == [-1, 0, -1]
    assert found.unchanged[1].tolist() == [False, True, False]


class Broken:
    """A format to which nothing is decodable."""

    def __init__(self, table: str | None) -> None:
        self.table = table

    def decode(self, messages: MessageBatch) -> Decoded:
        bad = Undecodable(
            self.table, messages.topic, messages.partition, int(messages.offsets[0]), "not JSON", "mend it"
        )
        return Decoded(undecodable=[bad])


class Reads:
    """A format that finds these changes."""

    def __init__(self, *found: TableChanges) -> None:
        self.found = found

    def decode(self, _: MessageBatch) -> Decoded:
        return Decoded([*self.found])


TABLES_AT = {"p.s.a": frozenset({"s.a"}), "p.s.b": frozenset({"s.b"}), "p.s_c": frozenset({"s.a", "s.b"})}


@pytest.mark.parametrize(
    ("topic", "table", "named"),
    [
        ("p.s.a", "s.a", "s.a"),
        ("p.s.a", None, "s.a"),
        ("p.s_c", None, "s.a, s.b"),
        ("p.transaction", None, None),
        ("p.s.b", None, ""),
        ("p.s.b", "s.b", ""),
    ],
)
def test_a_record_that_cannot_be_decoded_stops_only_where_a_view_needs_it(
    topic: str, table: str | None, named: str | None
) -> None:
    run = MessageBatch(topic, 3, np.array([42]), [None], [b"{"], np.array([0]))
    stopped: list[tuple[str, str]] = []
    for can in (True, False):
        methods = {
            "accept": lambda *_: None, "stop": lambda _, t, _bad, text, can=can: stopped.append((t, text)) or can,
        }  # fmt: skip
        nothing: Any = type("Nothing", (), methods)()
        intake = Intake("shop", "debezium", nothing, cast(Format, Broken(table)), nothing, frozenset({"s.a"}))
        intake.tables_at = TABLES_AT
        stopped.clear()
        if named == "":
            intake.take(run)
            assert stopped == []
            continue
        where = {"source": "shop", "topic": topic, "partition": 3, "offset": 42}
        if named is None or not can:
            with pytest.raises(UndecodableError, match="not JSON") as raised:
                intake.take(run)
            assert raised.value.where == ({"source": "shop", "table": named, **where} if named else where)
            assert raised.value.hint.startswith("mend it")
        else:
            intake.take(run)
            ((which, text),) = stopped
            assert which == "s.a"
            assert all(f"{k}={v}" in text for k, v in where.items())


def test_a_record_named_under_skip_is_passed_over() -> None:
    skipped: list[Undecodable] = []
    nothing: Any = type(
        "Nothing",
        (),
        {"accept": lambda *_: None, "skip": lambda _, bad, known: skipped.append(bad), "topic_ids": lambda _: {}},
    )()
    intake = Intake("shop", "debezium", nothing, cast(Format, Broken("s.a")), nothing, frozenset({"s.a"}))
    intake.over.skip = frozenset({("p.s.a", 3, 42)})
    intake.take(MessageBatch("p.s.a", 3, np.array([42]), [None], [b"{"], np.array([0])))
    assert [(bad.topic, bad.partition, bad.offset) for bad in skipped] == [("p.s.a", 3, 42)] == intake.over.skipped


@pytest.mark.parametrize("leaf", [True, False])
def test_a_record_named_under_skip_that_can_be_decoded_is_passed_over_only_if_it_is_a_leafs_truncate(
    leaf: bool,
) -> None:
    """A table's own TRUNCATE stands there since its topic was made anew. Found by the simulator (seed 552285)."""
    here, skipped = list[int](), list[int]()
    run = changes("s.a", [(1, 1), (0, None), (2, 2), (3, 3)], kinds=[UPSERT, TRUNCATE, UPSERT, UPSERT])
    run = replace(run, topic="p.s.a_1" if leaf else run.topic)
    methods = {
        "accept": lambda _, found: here.extend(found.changes[0].offsets.tolist()),
        "skip": lambda _, bad, known: skipped.append(bad.offset),
    }
    nothing: Any = type("Nothing", (), {**methods, "topic_ids": lambda _: {}})()
    intake = Intake("shop", "debezium", nothing, cast(Format, Reads(run)), nothing, frozenset({"s.a"}))
    first, truncate, mended, fourth = run.offsets.tolist()
    place = (run.topic, run.partition)
    intake.over.skip, intake.over.known = (
        frozenset({(*place, first), (*place, truncate)}),
        frozenset({(*place, mended)}),
    )
    intake.take(MessageBatch(*place, run.offsets, [None] * 4, [b"{}"] * 4, np.zeros(4, np.int64)))
    own = [] if leaf else [truncate]
    assert (here, skipped) == ([first, *own, fourth], [truncate, mended] if leaf else [mended])
    assert intake.over.skipped == [(*place, truncate)] * leaf
