"""Rows of incremental snapshots stand where they were read: every state is right, in whatever order the topics come and
whatever is killed.

The twin holds what the source holds after each commit, also of rows that no event has told of: these may be missing in a
view, but never as they were at another commit.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.changes import TableChanges, lanes
from headrace.engine.batch.updates import TRUNCATE
from headrace.sidecar.epochs.reclock import Reclock, ReclockLog
from headrace.sidecar.transactions.debezium import TransactionAssembler
from headrace.sidecar.transactions.model import EpochKind, Transaction
from tests.sidecar.support.batches import source_batch
from tests.sidecar.support.little import CUSTOMERS, ORDERS, PREFIX, VISITS, Little, State, answers, plays
from tests.sidecar.support.streams import SCHEMA, changes, decoded, end, notified
from tests.sidecar.support.transactions import transaction_of

TABLE = "s.a"
KEYED = (CUSTOMERS, ORDERS)


def read(rows: list[tuple[int, int]], after: int, at: int, *, offset: int, partition: int = 0) -> TableChanges:
    """Rows of an incremental snapshot, sent after the END at `after` at a change at `at`."""
    return changes(TABLE, rows, txid=after, lsn=at, offset=offset, partition=partition, incremental=True)


def sent(rows: TableChanges, at: int) -> TableChanges:
    """As of then in Kafka."""
    return replace(rows, sent_ms=lanes(len(rows), at))


def event(v: int, txid: int, lsn: int, *, offset: int, partition: int = 0, kind: int = 0) -> TableChanges:
    """The only event of a transaction, of the row with key 1."""
    return changes(
        TABLE,
        [(1, v)],
        txid=txid,
        orders=[1],
        lsn=lsn,
        offset=offset,
        partition=partition,
        kinds=[kind] if kind else None,
    )


def streaming() -> TransactionAssembler:
    assembler = TransactionAssembler({TABLE: TABLE}, schemas={TABLE: SCHEMA})
    assembler.accept(decoded(notified("skipped")))
    assert assembler.complete() == []
    return assembler


def told(transactions: list[Transaction]) -> list[tuple[str, list[int]]]:
    """Kinds and values."""
    return [
        (t.kind, [v for s in t.slices for v in s.changes.rows.column(1).to_pylist()[s.start : s.stop]])
        for t in transactions
    ]


WATERMARK = {"s.signal": 1}


def test_a_row_waits_for_what_it_shows_and_goes_before_what_comes_after_it() -> None:
    a = streaming()
    a.accept(decoded(event(5, 7, 90, offset=0), read([(2, 6)], 100, 101, offset=1), event(8, 9, 120, offset=2)))
    assert a.complete() == []
    assert a.pending_positions() == {(f"p.{TABLE}", 0): 0}
    a.accept(decoded(end(7, 100, {TABLE: 1})))
    assert told(a.complete()) == [("transaction", [5])]
    waiting = a.waiting()
    assert waiting is not None
    assert waiting.name == "incremental snapshot"
    a.accept(decoded(end(8, 105, WATERMARK, 1), end(9, 130, {TABLE: 1}, 2)))
    assert told(a.complete()) == [("transaction", []), (EpochKind.INCREMENTAL, [6]), ("transaction", [8])]
    assert (a.waiting(), a.pending_positions()) == (None, {})


def test_a_row_that_comes_late_is_given_at_once() -> None:
    a = streaming()
    a.accept(decoded(end(8, 105, WATERMARK), event(8, 9, 120, offset=0, partition=1), end(9, 130, {TABLE: 1}, 1)))
    assert told(a.complete()) == [("transaction", []), ("transaction", [8])]
    a.accept(decoded(read([(2, 6)], 100, 101, offset=0)))
    [given] = a.complete()
    assert (told([given]), given.place.order) == ([(EpochKind.INCREMENTAL, [6])], 130)


def test_a_row_that_is_here_goes_before_a_change_in_another_partition() -> None:
    """The topic was given partitions between the two, and its keys go elsewhere since."""
    a = streaming()
    row, change = read([(1, 6)], 100, 101, offset=0), event(8, 9, 120, offset=0, partition=1)
    a.accept(decoded(row, change, end(7, 100, WATERMARK), end(8, 105, WATERMARK, 1), end(9, 130, {TABLE: 1}, 2)))
    assert told(a.complete()) == [
        ("transaction", []),
        ("transaction", []),
        (EpochKind.INCREMENTAL, [6]),
        ("transaction", [8]),
    ]


def restarted(a: TransactionAssembler) -> TransactionAssembler:
    """Another run, from a checkpoint of what this one has given."""
    again = TransactionAssembler({TABLE: TABLE}, schemas={TABLE: SCHEMA})
    again.resume([(-1, 0)], remembered=json.loads(json.dumps(a.remembered())))
    return again


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("at", "stands"), [(107, False), (115, False), (102, True)])
def test_a_truncate_takes_away_what_was_read_before_it(at: int, stands: bool, restart: bool) -> None:
    """Debezium sends rows that a TRUNCATE in their window took away; it may come before them in another partition."""
    a = streaming()
    opened, closed = end(20, 105, WATERMARK, 1), end(21, 110, WATERMARK, 3)
    truncate = event(0, 30, at - 1, offset=0, partition=1, kind=TRUNCATE), end(30, at, {TABLE: 1}, 2)
    marks = sorted((opened, closed, truncate[1]), key=lambda mark: mark.lsn)
    a.accept(decoded(end(19, 101, WATERMARK), truncate[0], *marks))
    a.complete()
    if restart:
        a = restarted(a)
        a.accept(decoded(end(40, 150, {"s.other": 3}, 4)))
        a.complete()
    a.accept(decoded(read([(2, 6)], max(m.lsn for m in marks if m.lsn < 110), 109, offset=0)))
    assert told(a.complete()) == ([(EpochKind.INCREMENTAL, [6])] if stands else [])
    assert a.waiting() is None


@pytest.mark.parametrize("with_more", [False, True])
@pytest.mark.parametrize("before", ["the TRUNCATE", "the second watermark", "the rows"])
def test_it_is_remembered_in_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, with_more: bool
) -> None:
    """A sidecar that starts again between a watermark, a TRUNCATE and the rows that it took away does not give these."""
    begun = {CUSTOMERS: [(1, 1)], ORDERS: [(1, 1), (2, 1)], VISITS: []}
    with Little(tmp_path, monkeypatch).begun(begun) as shop:

        def go_on(here: str) -> None:
            shop.turn(2)
            if before == here:
                shop.end(drained=True)
                shop.start()
                shop.turn(2)

        shop.watermark()
        rows = shop.present(ORDERS, [1, 2])
        shop.show_all()
        go_on("the TRUNCATE")
        shop.truncate(ORDERS, *([(VISITS, "c", (7, 7))] if with_more else []))
        shop.show_all()
        go_on("the second watermark")
        shop.incremental(ORDERS, [], rows)
        shop.show(f"{PREFIX}.transaction")
        go_on("the rows")
        shop.show_all()
        shop.transact((CUSTOMERS, "u", (1, 3)))
        shop.show_all()
        shop.turn(3)
        assert {view: shop.rows(view) for view in answers(shop.state)} == answers(shop.state)


@pytest.mark.parametrize("late", [False, True])
def test_rows_older_than_a_snapshot_are_in_it(late: bool) -> None:
    a = TransactionAssembler({TABLE: TABLE})
    old, snapshot = read([(2, 6)], 40, 41, offset=0), changes(TABLE, [(2, 7)], txid=1, lsn=50, offset=1, snapshot=True)
    a.accept(decoded(*([] if late else [old]), snapshot, notified("started"), notified("table", TABLE, 1, 1)))
    a.accept(decoded(notified("completed", offset=2)))
    assert told(a.complete()) == [("snapshot", [7])]
    a.accept(decoded(*([old] if late else []), end(9, 60, WATERMARK)))
    assert told(a.complete()) == [("transaction", [])]


@pytest.mark.parametrize("restart", [False, True])
def test_rows_sent_before_a_snapshot_that_found_none_are_older(restart: bool) -> None:
    """It has no LSN; Kafka's clock tells."""
    a = TransactionAssembler({TABLE: TABLE})
    a.accept(
        decoded(notified("started", at=10), notified("table", TABLE, 0, 1, 11), notified("completed", offset=2, at=12))
    )
    assert a.complete() == []
    if restart:
        a = restarted(a)
    older, newer = sent(read([(2, 6)], 40, 41, offset=0), 9), sent(read([(2, 7)], 50, 51, offset=1), 13)
    a.accept(decoded(end(9, 60, WATERMARK, sent=15), older, newer))
    assert told(a.complete()) == [("transaction", []), (EpochKind.INCREMENTAL, [7])]


def test_where_no_transaction_is_told_rows_are_taken_in_as_they_come() -> None:
    a = streaming()
    a.accept(decoded(read([(2, 6)], 40, 41, offset=0)))
    assert a.complete() == []
    a.accept(decoded(changes(TABLE, [(2, 7)], offset=1)))
    assert told(a.complete()) == [("cut", [6, 7])]
    a.accept(decoded(read([(2, 8)], 50, 51, offset=2)))
    assert told(a.complete()) == [("cut", [8])]


def bound(log: Path, stages: Sequence[Iterable[Any]]) -> list[tuple[int, str, int, list[int]]]:
    """What a run that has no checkpoint binds, of what it reads in stages: epoch, kind, LSN, values."""
    reclock = Reclock(ReclockLog(log))
    a = TransactionAssembler({TABLE: TABLE}, schemas={TABLE: SCHEMA})
    a.follow(reclock.ahead("a"))
    reclock.drop_stale_by("a", a.standing)
    a.accept(decoded(notified("skipped")))
    out = []
    for n, read_now in enumerate(stages, 1):
        a.accept(decoded(*read_now))
        given = a.complete()
        unread = [(c.partition, int(c.offsets[0])) for later in stages[n:] for c in decoded(*later).changes]
        here = {f"p.{TABLE}": {p: min([100, *(o for q, o in unread if q == p)]) for p in (0, 1)}}
        for (topic, partition), offset in a.pending_positions().items():
            here.setdefault(topic, {})[partition] = offset
        for binding, run in reclock.bind(source_batch("a", given, here)):
            values = [v for _, v in told(run)]
            out += [
                (binding.first + i, s.kind, s.place.order, v)
                for i, (s, v) in enumerate(zip(binding.stamps, values, strict=True))
            ]
    reclock.settle()
    assert reclock.replaying is None
    return out


CLOSED = [end(5, 101, WATERMARK), end(6, 105, WATERMARK, 1)]
ROWS = read([(2, 6)], 101, 103, offset=0)
TRUNCATED = [event(0, 7, 110, offset=0, partition=1, kind=TRUNCATE), end(7, 115, {TABLE: 1}, 2)]


def test_what_the_log_has_is_given_again_where_it_is_gone_since(tmp_path: Path) -> None:
    """The run before had given it before the TRUNCATE, and a sink has it: it must be there to be taken away."""
    once = bound(tmp_path / "log", [[*CLOSED, ROWS], TRUNCATED])
    assert [(kind, v) for _, kind, _, v in once] == [
        ("transaction", []),
        ("transaction", []),
        (EpochKind.INCREMENTAL, [6]),
        ("transaction", [0]),
    ]
    assert bound(tmp_path / "log", [[*CLOSED, ROWS, *TRUNCATED]]) == once


def test_what_came_too_late_is_not_taken_for_what_the_log_has_behind_it(tmp_path: Path) -> None:
    """The run before had left it out, as it came after the TRUNCATE; this one reads it before."""
    more = [end(8, 121, WATERMARK, 3), end(9, 125, WATERMARK, 4), read([(3, 8)], 121, 123, offset=1)]
    once = bound(tmp_path / "log", [[*CLOSED, *TRUNCATED], [ROWS], more])
    assert [v for _, kind, _, v in once if kind == EpochKind.INCREMENTAL] == [[8]]
    assert bound(tmp_path / "log", [[*CLOSED, ROWS], [*TRUNCATED, *more]]) == once
    assert bound(tmp_path / "log", [[*CLOSED, ROWS], TRUNCATED, more]) == once


def test_what_the_log_passed_while_its_table_stood_still_goes_before_what_comes_behind_it(tmp_path: Path) -> None:
    """The log has the transactions without the table's rows; an old row is not given after a newer one of its key."""
    ends = [transaction_of("transaction", n, lsn, 1, ()) for n, lsn in [(5, 101), (6, 105), (7, 115)]]
    Reclock(ReclockLog(tmp_path / "log")).bind(source_batch("a", ends, {}))
    behind = [event(9, 7, 110, offset=1), end(7, 115, {TABLE: 1}, 2)]
    found = bound(tmp_path / "log", [[*CLOSED, read([(1, 6)], 101, 103, offset=0), *behind]])
    assert [(kind, v) for _, kind, _, v in found] == [("transaction", []), ("transaction", []), ("transaction", [6, 9])]


def test_what_comes_after_all_that_the_log_has_is_as_late_as_that(tmp_path: Path) -> None:
    bound(tmp_path / "log", [[*CLOSED, end(7, 115, {}, 2)]])
    [*_, last] = bound(tmp_path / "log", [[*CLOSED, ROWS], [end(7, 115, {}, 2)]])
    assert last == (4, EpochKind.INCREMENTAL, 115, [6])


def published(shop: Little) -> State:
    """The tables as the sink has them."""
    return {CUSTOMERS: shop.rows("customers"), ORDERS: shop.rows("orders"), VISITS: shop.rows("visits")}


@plays(24)
def test_whenever_they_come_and_whatever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, intake: str
) -> None:
    draw = random.Random(seed)
    shop = Little(tmp_path, monkeypatch, every_turn=draw.random() < 0.3, intake=intake)
    shop.batch = draw.choice([1, 3, 1 << 16])
    shop.snapshot({t: [(i, draw.randrange(1, 6)) for i in range(1, 4)] for t in (*KEYED, VISITS)})
    for table in KEYED:
        shop.state[table].update({(i, draw.randrange(1, 6)): 1 for i in range(4, 10)})
    shop.states = {lsn: {t: +c for t, c in shop.state.items()} for lsn in shop.states}
    touched: dict[tuple[str, int], int] = {}

    def check(*, all_there: bool = False) -> None:
        frontier = shop.store.frontier
        if frontier is None or shop.running is None or shop.running.runtime.hold:
            return
        at, here = frontier.sources["shop"].place.order, published(shop)
        for table in KEYED:
            missing = shop.states[at][table] - here[table]
            assert here[table] - shop.states[at][table] == Counter(), (table, "no such rows at", at)
            unseen = [row for row in missing if row[0] >= 4 and touched.get((table, row[0]), at + 1) > at]
            assert sorted(missing) == sorted(unseen), (table, "not there at", at)
            assert not (all_there and missing)
        assert shop.rows("by_city") == answers(here)["by_city"]

    for _ in range(draw.randrange(1, 4)):
        for _ in range(draw.randrange(2, 8)):
            if draw.random() < 0.5:
                shop.incremental(draw.choice(KEYED), draw.sample(range(1, 12), 6))
                continue
            before = {t: +c for t, c in shop.state.items()}
            shop.random(draw)
            for table in KEYED:
                for id_, _ in (before[table] - shop.state[table]) + (shop.state[table] - before[table]):
                    touched.setdefault((table, id_), shop.lsn)
        if shop.running is None:
            shop.start()
        for _ in range(draw.randrange(2, 10)):
            for topic in list(shop.queues):
                shop.show(topic, min(len(shop.queues[topic]), draw.randrange(0, 6)))
            shop.turn()
            check()
        if draw.random() < 0.6:
            shop.end(drained=draw.random() < 0.4)
    for table in KEYED:
        shop.incremental(table, range(1, 12))
    if shop.running is None:
        shop.start()
    shop.show_all()
    for _ in range(60):
        shop.turn()
        check()
    check(all_there=True)
    assert shop.running is not None
    assert shop.running.runtime.waiting() is None
    assert shop.in_error() == set()
    shop.end()


@pytest.mark.parametrize("last", [False, True])
def test_a_table_that_stood_still_takes_them_in_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """They came while it stood, before the last change of their row or behind it, and once it goes on they stand there."""
    with Little(tmp_path, monkeypatch).begun(
        {CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1), (2, 2)], VISITS: []}
    ) as shop:
        shop.places.update(shop.transact((ORDERS, "u", (1, 3))))
        shop.transact((ORDERS, "u", (2, 4)), (CUSTOMERS, "u", (1, 5)))
        if last:
            shop.transact((ORDERS, "u", (1, 5)))
        shop.incremental(ORDERS, [1, 2])
        if not last:
            shop.transact((ORDERS, "u", (1, 5)))
        shop.show_all()
        shop.turn(3)
        assert shop.stopped() == [ORDERS]
        assert shop.rows("customers") == shop.state[CUSTOMERS]
        shop.end(drained=True)
        shop.places.clear()
        shop.start()
        shop.turn(4)
        assert shop.stopped() == []
        assert {view: shop.rows(view) for view in answers(shop.state)} == answers(shop.state)


def test_what_the_log_passed_is_not_read_again_from_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has its transactions with positions that were held back, as the table stood still then."""
    with Little(tmp_path, monkeypatch, every_turn=False).begun({CUSTOMERS: [(1, 1), (3, 3)]}) as shop:
        shop.end(drained=True)
        shop.start()
        bad = shop.transact((CUSTOMERS, "u", (1, 9)))
        shop.places |= set(bad)
        shop.watermark()
        shop.incremental(CUSTOMERS, [3])
        shop.transact((CUSTOMERS, "u", (3, 7)))
        shop.show_all()
        shop.turn(3)
        assert shop.stopped() == [CUSTOMERS]
        shop.end()
        shop.skip = bad
        for drained in (True, False):
            shop.start()
            shop.turn(3)
            assert shop.stopped() == []
            assert shop.rows("customers") == {(1, 1): 1, (3, 7): 1}
            shop.end(drained=drained)
