"""The contract of `headrace.connectors.sink.Sink`, run by every implementation through a `SinkHarness`.

A harness stands for what outlives a sink: the database or broker. It makes instances on it, reads what a reader would
see there as Postgres's text, and loses answers on demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Protocol

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors import copy_text
from headrace.connectors.commit_place import Lsn, Version
from headrace.connectors.sink import (
    EpochStamp,
    Fenced,
    Frontier,
    Sink,
    SinkError,
    SinkView,
    SourceFrontier,
    ViewChanges,
)
from headrace.engine.schema import Column, DataType, Schema

Texts = tuple[str | None, ...]


class SinkHarness(Protocol):
    def make(self) -> Sink:
        """A new instance on the same store, not yet open."""

    def content(self, view: SinkView) -> Counter[Texts]:
        """What a reader sees of a view now: each row's texts and how often it is there."""

    def together(self, views: Sequence[SinkView]) -> list[Counter[Texts]]:
        """The content of several views in one snapshot of a reader."""

    def marks(self) -> dict[str, tuple[str, int | None]]:
        """What a reader sees of the views in error: message, and the epoch of their rows."""

    def lose_answer(self, sink: Sink) -> AbstractContextManager[None]:
        """Inside, the next write of `sink` becomes durable and its answer is lost."""

    def lose_request(self, sink: Sink) -> AbstractContextManager[None]:
        """Inside, the next write of `sink` loses its session before anything is durable."""

    def lose_claim(self, sink: Sink, happens: bool) -> AbstractContextManager[None]:
        """Inside, `open` of `sink` takes its claim durably, or comes to nothing, and fails for want of an answer either way."""


def schema(key: Sequence[str] | None, **columns: str) -> Schema:
    made = []
    for name, spelled in columns.items():
        made.append(Column(name, DataType.parse(spelled.rstrip("!")), nullable=not spelled.endswith("!")))
    return Schema.of(made, key)


def view_of(name: str, key: Sequence[str] | None, fingerprint: str = "f1", **columns: str) -> SinkView:
    made = schema(key, **columns)
    return SinkView(name, made, made.key, fingerprint, description=f"the view {name}", columns={})


def changes(view: SinkView, *triples: tuple[tuple[object, ...], int, int], whole: bool = False) -> ViewChanges:
    """(row, epoch, diff) as ViewChanges."""
    columns = [pa.array([row[i] for row, _, _ in triples], c.type.arrow) for i, c in enumerate(view.schema.columns)]
    rows = pa.RecordBatch.from_arrays(columns, schema=view.schema.arrow)
    epochs = np.array([epoch for _, epoch, _ in triples], np.int64)
    return ViewChanges(rows, epochs, np.array([diff for _, _, diff in triples], np.int64), whole)


def whole(view: SinkView, epoch: int, *rows: tuple[object, ...]) -> ViewChanges:
    return changes(view, *[(row, epoch, 1) for row in rows], whole=True)


def frontier(epoch: int, lsn: int | None = None) -> Frontier:
    positions: Mapping[str, Mapping[int, int]] = {"shop.public.orders": {0: 10 * epoch, 1: 7}}
    return Frontier(
        epoch, {"shop": SourceFrontier(positions, Lsn(lsn if lsn is not None else epoch << 32 | 255), 10**15 + epoch)}
    )


def stamps(*epochs: int) -> dict[int, EpochStamp]:
    return {e: EpochStamp("shop", Lsn(e * 100), 10**15 + e) for e in epochs}


def texts(view: SinkView, *rows: tuple[object, ...]) -> Counter[Texts]:
    """Rows of Python values as a reader must see them."""
    made = changes(view, *[(row, 0, 1) for row in rows]).rows
    listed = [column.to_pylist() for column in copy_text.text_columns(view.schema, made)]
    return Counter(zip(*listed, strict=True))


ORDERS = view_of("orders_by_customer", ["customer"], customer="bigint!", total="numeric(12,2)", note="text")
LINES = view_of("lines", None, product="text", quantity="integer")
BY_REGION = view_of("by_region", ["region"], region="text", orders="bigint")
TOTALS = view_of("totals", [], orders="bigint", total="numeric")
D = Decimal


class SinkContract:
    """Subclasses provide the fixture `harness`."""

    def test_a_new_sink_stands_nowhere_and_misses_every_view(self, harness: SinkHarness) -> None:
        state = harness.make().open([ORDERS, LINES])
        assert state.frontier is None
        assert state.missing == {ORDERS.name, LINES.name}

    def test_write_then_reopen_finds_rows_and_frontier(self, harness: SinkHarness) -> None:
        sink = harness.make()
        first = sink.open([ORDERS])
        sink.write({ORDERS.name: whole(ORDERS, 3, (1, D("9.50"), "a"), (2, None, None))}, frontier(3), stamps(3))
        sink.close()
        sink.close()
        again = harness.make().open([ORDERS])
        assert again.frontier == frontier(3)
        assert again.missing == frozenset()
        assert again.generation > first.generation
        assert harness.content(ORDERS) == texts(ORDERS, (1, D("9.50"), "a"), (2, None, None))

    def test_a_dataset_is_found_at_its_version_beside_a_source_at_its_lsn(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS])
        lake = SourceFrontier({"lake.lake.prices": {0: 4}}, Version(17), 10**15)
        at = Frontier(3, {**frontier(3).sources, "lake": lake})
        of_lake = {3: EpochStamp("lake", Version(17), 10**15)}
        sink.write({ORDERS.name: whole(ORDERS, 3, (1, D("9.50"), "a"))}, at, of_lake)
        sink.close()
        assert harness.make().open([ORDERS]).frontier == at

    def test_updates_deletes_and_inserts_of_many_epochs_in_one_write(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS])
        sink.write({ORDERS.name: whole(ORDERS, 1, (1, D("1.00"), "a"), (2, D("2.00"), "b"))}, frontier(1), stamps(1))
        flow = changes(
            ORDERS,
            ((1, D("1.00"), "a"), 2, -1), ((1, D("1.50"), "a"), 2, 1),
            ((3, D("3.00"), "c"), 2, 1),
            ((1, D("1.50"), "a"), 3, -1), ((1, D("1.75"), "z"), 3, 1),
            ((2, D("2.00"), "b"), 3, -1),
            ((3, D("3.00"), "c"), 4, -1),
            ((4, D("4.00"), None), 4, 1),
        )  # fmt: skip
        sink.write({ORDERS.name: flow}, frontier(4), stamps(2, 3, 4))
        assert harness.content(ORDERS) == texts(ORDERS, (1, D("1.75"), "z"), (4, D("4.00"), None))

    def test_a_keyless_view_keeps_multiplicities(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([LINES])
        sink.write({LINES.name: changes(LINES, (("a", 1), 1, 3), (("b", None), 1, 1), whole=True)}, frontier(1))
        sink.write(
            {LINES.name: changes(LINES, (("a", 1), 2, -2), (("c\n\t\\", 2), 2, 2), (("b", None), 3, 1))}, frontier(3)
        )
        expected = texts(LINES, ("a", 1), ("b", None), ("b", None), ("c\n\t\\", 2), ("c\n\t\\", 2))
        assert harness.content(LINES) == expected
        sink.close()
        sink = harness.make()
        sink.open([LINES])
        sink.write({LINES.name: changes(LINES, (("a", 1), 4, 1), (("b", None), 4, -2))}, frontier(4))
        assert harness.content(LINES) == texts(LINES, ("a", 1), ("a", 1), ("c\n\t\\", 2), ("c\n\t\\", 2))

    def test_nulls_in_a_key_and_an_empty_key(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([BY_REGION, TOTALS])
        sink.write(
            {
                BY_REGION.name: whole(BY_REGION, 1, (None, 1), ("eu", 2)),
                TOTALS.name: whole(TOTALS, 1, (3, "1.50")),
            },
            frontier(1),
        )
        sink.write(
            {
                BY_REGION.name: changes(BY_REGION, ((None, 1), 2, -1), ((None, 5), 2, 1), (("eu", 2), 2, -1)),
                TOTALS.name: changes(TOTALS, ((3, "1.50"), 2, -1), ((7, "1.500"), 2, 1)),
            },
            frontier(2),
        )
        assert harness.content(BY_REGION) == texts(BY_REGION, (None, 5))
        assert harness.content(TOTALS) == texts(TOTALS, (7, "1.500"))
        sink.write({BY_REGION.name: changes(BY_REGION, ((None, 5), 3, -1))}, frontier(3))
        assert harness.content(BY_REGION) == Counter()

    def test_whole_replaces_what_was_there(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS, LINES])
        sink.write(
            {
                ORDERS.name: whole(ORDERS, 1, (1, D("1.00"), "a"), (2, D("2.00"), "b")),
                LINES.name: changes(LINES, (("a", 1), 1, 2), (("b", 1), 1, 1), whole=True),
            },
            frontier(1),
        )
        sink.write(
            {
                ORDERS.name: whole(ORDERS, 2, (2, D("2.50"), "b"), (3, None, None)),
                LINES.name: changes(LINES, (("a", 1), 2, 1), (("c", 9), 2, 2), whole=True),
            },
            frontier(2),
        )
        assert harness.content(ORDERS) == texts(ORDERS, (2, D("2.50"), "b"), (3, None, None))
        assert harness.content(LINES) == texts(LINES, ("a", 1), ("c", 9), ("c", 9))
        sink.write({ORDERS.name: changes(ORDERS, whole=True)}, frontier(3))
        assert harness.content(ORDERS) == Counter()

    def test_a_view_of_another_fingerprint_is_missing_until_given_whole(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS, LINES])
        sink.write({ORDERS.name: whole(ORDERS, 1, (1, D("1.00"), "a")), LINES.name: whole(LINES, 1)}, frontier(1))
        changed = view_of(ORDERS.name, ["customer", "note"], "f2", customer="bigint!", note="text!", count="integer")
        again = harness.make()
        assert again.open([changed, LINES]).missing == {ORDERS.name}
        again.write({changed.name: whole(changed, 1, (1, "x", 5))}, frontier(1))
        assert harness.content(changed) == texts(changed, (1, "x", 5))
        assert harness.make().open([changed, LINES]).missing == frozenset()

    def test_an_older_generation_is_fenced(self, harness: SinkHarness) -> None:
        old = harness.make()
        old.open([ORDERS])
        old.write({ORDERS.name: whole(ORDERS, 1, (1, None, None))}, frontier(1))
        new = harness.make()
        new.open([ORDERS])
        with pytest.raises(Fenced):
            old.write({ORDERS.name: changes(ORDERS, ((9, None, None), 2, 1))}, frontier(2))
        new.write({ORDERS.name: changes(ORDERS, ((2, None, None), 2, 1))}, frontier(2))
        with pytest.raises(Fenced):
            old.write({}, frontier(3))
        assert harness.content(ORDERS) == texts(ORDERS, (1, None, None), (2, None, None))
        assert harness.make().open([ORDERS]).frontier == frontier(2)

    def test_who_comes_back_gives_way_to_a_successor(self, harness: SinkHarness) -> None:
        old, new = harness.make(), harness.make()
        held = old.open([ORDERS, LINES]).generation
        old.write({ORDERS.name: whole(ORDERS, 1, (1, None, None)), LINES.name: whole(LINES, 1)}, frontier(1))
        back = old.open([ORDERS, LINES], held)
        assert (back.generation, back.frontier, back.missing) == (held + 1, frontier(1), frozenset())
        new.open([ORDERS, LINES])
        with pytest.raises(Fenced):
            old.open([ORDERS, LINES], back.generation)
        new.write({ORDERS.name: changes(ORDERS, ((2, None, None), 2, 1))}, frontier(2))
        with pytest.raises((Fenced, SinkError)):
            old.write({ORDERS.name: changes(ORDERS, ((3, None, None), 2, 1))}, frontier(2))
        assert harness.content(ORDERS) == texts(ORDERS, (1, None, None), (2, None, None))

    @pytest.mark.parametrize("happens", [[True], [False], [True, True], [True, False], [False, True]])
    def test_who_comes_back_knows_its_own_claims(self, harness: SinkHarness, happens: list[bool]) -> None:
        sink = harness.make()
        held = sink.open([ORDERS]).generation
        sink.write({ORDERS.name: whole(ORDERS, 1, (1, None, None))}, frontier(1))
        for each in happens:
            with harness.lose_claim(sink, each), pytest.raises(SinkError) as lost:
                sink.open([ORDERS, LINES], held)
            assert not isinstance(lost.value, Fenced)
        back = sink.open([ORDERS, LINES], held)
        assert (back.frontier, back.missing) == (frontier(1), {LINES.name})
        assert back.generation > held
        sink.write({ORDERS.name: changes(ORDERS, ((2, None, None), 2, 1)), LINES.name: whole(LINES, 2)}, frontier(2))
        assert harness.content(ORDERS) == texts(ORDERS, (1, None, None), (2, None, None))

    @pytest.mark.parametrize("happens", [True, False])
    def test_a_successor_of_a_lost_claim_is_none_of_its_own(self, harness: SinkHarness, happens: bool) -> None:
        old, new = harness.make(), harness.make()
        held = old.open([ORDERS]).generation
        old.write({ORDERS.name: whole(ORDERS, 1, (1, None, None))}, frontier(1))
        with harness.lose_claim(old, happens), pytest.raises(SinkError):
            old.open([ORDERS], held)
        new.open([ORDERS])
        for _ in range(2):
            with pytest.raises(Fenced):
                old.open([ORDERS], held)
        new.write({ORDERS.name: changes(ORDERS, ((2, None, None), 2, 1))}, frontier(2))
        with pytest.raises(SinkError):
            old.write({ORDERS.name: changes(ORDERS, ((3, None, None), 2, 1))}, frontier(2))
        assert harness.content(ORDERS) == texts(ORDERS, (1, None, None), (2, None, None))

    def test_a_lost_answer_is_settled_and_nothing_doubles(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([LINES])
        sink.write({LINES.name: whole(LINES, 1, ("a", 1))}, frontier(1))
        with harness.lose_answer(sink):
            sink.write({LINES.name: changes(LINES, (("a", 1), 2, 1))}, frontier(2))
        sink.write({LINES.name: changes(LINES, (("b", 1), 3, 1))}, frontier(3))
        assert harness.content(LINES) == texts(LINES, ("a", 1), ("a", 1), ("b", 1))

    def test_a_lost_request_is_repeated(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([LINES])
        sink.write({LINES.name: whole(LINES, 1, ("a", 1))}, frontier(1))
        with harness.lose_request(sink):
            sink.write({LINES.name: changes(LINES, (("a", 1), 2, 1))}, frontier(2))
        assert harness.content(LINES) == texts(LINES, ("a", 1), ("a", 1))
        assert harness.make().open([LINES]).frontier == frontier(2)

    def test_readers_see_all_views_of_a_write_or_none(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS, LINES])
        sink.write(
            {ORDERS.name: whole(ORDERS, 1, (1, D("0.00"), "1")), LINES.name: whole(LINES, 1, ("1", 1))}, frontier(1)
        )
        for epoch in range(2, 12):
            now, before = str(epoch), str(epoch - 1)
            sink.write(
                {
                    ORDERS.name: changes(ORDERS, ((1, D("0.00"), before), epoch, -1), ((1, D("0.00"), now), epoch, 1)),
                    LINES.name: changes(LINES, ((before, 1), epoch, -1), ((now, 1), epoch, 1)),
                },
                frontier(epoch),
            )
            orders, lines = harness.together([ORDERS, LINES])
            assert orders == texts(ORDERS, (1, D("0.00"), now))
            assert lines == texts(LINES, (now, 1))

    def test_a_frontier_moves_alone_and_never_back(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS])
        sink.write({ORDERS.name: whole(ORDERS, 5)}, frontier(5))
        sink.write({}, frontier(5, lsn=6 << 32))
        sink.write({}, frontier(6))
        with pytest.raises(SinkError, match="back"):
            sink.write({}, frontier(4))
        assert harness.make().open([ORDERS]).frontier == frontier(6)

    def test_two_rows_for_one_key_are_refused_and_nothing_is_written(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS, LINES])
        sink.write({ORDERS.name: whole(ORDERS, 1), LINES.name: whole(LINES, 1)}, frontier(1))
        bad = changes(ORDERS, ((1, None, "a"), 2, 1), ((1, None, "b"), 2, 1))
        with pytest.raises(SinkError, match="two rows for one key"):
            sink.write({LINES.name: changes(LINES, (("a", 1), 2, 1)), ORDERS.name: bad}, frontier(2))
        assert harness.content(LINES) == Counter()

    def test_many_rows_at_once(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS, LINES])
        sink.write({ORDERS.name: whole(ORDERS, 1), LINES.name: whole(LINES, 1)}, frontier(1))
        rows = [(i, D(i) / 4, f"n{i}") for i in range(2000)]
        lines = [(f"p{i % 700}", i % 3) for i in range(2100)]
        sink.write(
            {
                ORDERS.name: changes(ORDERS, *[(row, 2, 1) for row in rows]),
                LINES.name: changes(LINES, *[(row, 2, 1) for row in lines]),
            },
            frontier(2),
        )
        gone = [(row, 3, -1) for row in rows[:1500]]
        less = [(row, 3, -1) for row in lines[:1500]]
        sink.write({ORDERS.name: changes(ORDERS, *gone), LINES.name: changes(LINES, *less)}, frontier(3))
        assert harness.content(ORDERS) == texts(ORDERS, *rows[1500:])
        assert harness.content(LINES) == texts(LINES, *lines[1500:])

    def test_a_view_in_error_is_marked_until_mended_and_the_others_go_on(self, harness: SinkHarness) -> None:
        sink = harness.make()
        assert sink.open([ORDERS, LINES]).errors == {}
        sink.write({ORDERS.name: whole(ORDERS, 1, (1, None, "a")), LINES.name: whole(LINES, 1, ("a", 1))}, frontier(1))
        late = changes(ORDERS, ((2, None, None), 2, 1))
        sink.write({ORDERS.name: late}, frontier(3), stamps(2, 3), {ORDERS.name: "division by zero"})
        assert harness.marks() == {ORDERS.name: ("division by zero", 2)}, "the rows that came along are of epoch 2"
        sink.write({LINES.name: changes(LINES, (("b", 1), 4, 1))}, frontier(4), errors={LINES.name: ""})
        sink.write({}, frontier(5), errors={ORDERS.name: 'another: "x" % \\ \u00e9'})
        assert harness.marks() == {ORDERS.name: ('another: "x" % \\ \u00e9', 2)}, "a new message moves no rows"
        assert harness.content(ORDERS) == texts(ORDERS, (1, None, "a"), (2, None, None))
        assert harness.content(LINES) == texts(LINES, ("a", 1), ("b", 1))
        sink.close()
        sink = harness.make()
        state = sink.open([ORDERS, LINES])
        assert state.errors == {ORDERS.name: 'another: "x" % \\ \u00e9'}
        assert state.frontier == frontier(5)
        assert state.missing == frozenset()
        sink.write({ORDERS.name: whole(ORDERS, 6, (3, None, None))}, frontier(6), errors={ORDERS.name: ""})
        assert harness.marks() == {}
        assert harness.content(ORDERS) == texts(ORDERS, (3, None, None))
        sink.write({}, frontier(7), errors={LINES.name: "overflow"})
        assert harness.marks() == {LINES.name: ("overflow", 6)}
        assert harness.make().open([ORDERS]).errors == {}, "a view that is gone takes its mark along"

    def test_a_mark_is_of_the_write_or_nothing(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([LINES])
        sink.write({LINES.name: whole(LINES, 1, ("a", 1))}, frontier(1))
        with harness.lose_answer(sink):
            sink.write({}, frontier(2), errors={LINES.name: "overflow"})
        assert harness.marks() == {LINES.name: ("overflow", 1)}
        with pytest.raises(SinkError):
            sink.write({LINES.name: changes(LINES, (("b", 1), 3, -1))}, frontier(3), errors={LINES.name: ""})
        assert harness.marks() == {LINES.name: ("overflow", 1)}
        with pytest.raises(SinkError, match="not opened with this view"):
            sink.write({}, frontier(3), errors={ORDERS.name: "overflow"})

    def test_an_unknown_view_is_refused(self, harness: SinkHarness) -> None:
        sink = harness.make()
        sink.open([ORDERS])
        with pytest.raises(SinkError, match="not opened with this view"):
            sink.write({LINES.name: whole(LINES, 1)}, frontier(1))
