"""Whole transactions in commit order, out of any interleaving."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.connectors.changes import Event, TableChanges, Undecodable
from headrace.engine.batch.updates import TRUNCATE
from headrace.sidecar.transactions.debezium import TransactionAssembler
from headrace.sidecar.transactions.model import ContinuityError, ReplayOrder, Transaction
from headrace.sidecar.transactions.spark import VersionAssembler
from headrace.sidecar.transactions.suspended_tables import SuspendedTable
from tests.sidecar.support.streams import changes, decoded, end, notified, version_end

TABLES = {"s.a": "s.a", "s.b": "s.b"}


def streaming() -> TransactionAssembler:
    assembler = TransactionAssembler(TABLES)
    assembler.accept(decoded(notified("skipped")))
    assert assembler.complete() == []
    return assembler


def ids(transactions: list[Transaction]) -> list[int]:
    return [t.id for t in transactions]


def rows(transaction: Transaction) -> list[tuple[str, int, int]]:
    out = []
    for s in transaction.slices:
        batch = s.changes.rows.slice(s.start, s.stop - s.start)
        keys = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        out += [(s.changes.table, k, v) for k, v in keys]
    return sorted(out)


def test_nothing_of_a_transaction_shows_before_its_last_event() -> None:
    a = streaming()
    a.accept(decoded(changes("s.a", [(1, 10)], txid=7, orders=[1], lsn=90), end(7, 100, {"s.a": 1, "s.b": 2})))
    a.accept(decoded(changes("s.b", [(1, 11)], txid=7, orders=[2], lsn=91)))
    assert a.complete() == []
    waiting = a.waiting()
    assert waiting is not None
    assert waiting.missing == {"s.b": 1}
    a.accept(decoded(changes("s.b", [(2, 12)], txid=7, orders=[3], lsn=92, offset=1)))
    (whole,) = a.complete()
    assert rows(whole) == [("s.a", 1, 10), ("s.b", 1, 11), ("s.b", 2, 12)]
    assert whole.place.order == 100
    assert a.waiting() is None


def test_commit_order_is_the_order_of_the_ends() -> None:
    a = streaming()
    a.accept(
        decoded(changes("s.a", [(1, 1)], txid=9, orders=[1], lsn=10), end(5, 50, {"s.a": 1}), end(9, 60, {"s.a": 1}))
    )
    assert a.complete() == []
    a.accept(decoded(changes("s.a", [(2, 2)], txid=5, orders=[1], lsn=20, offset=1)))
    assert ids(a.complete()) == [5, 9]


def test_counts_of_tables_not_subscribed_are_not_waited_for() -> None:
    a = streaming()
    a.accept(decoded(changes("s.a", [(1, 1)], txid=5, orders=[2], lsn=1), end(5, 9, {"s.a": 1, "s.other": 4})))
    assert ids(a.complete()) == [5]


def test_repetitions_change_nothing() -> None:
    a = streaming()
    event = changes("s.a", [(1, 1), (2, 2)], txid=5, orders=[1, 2], lsn=3)
    again = changes("s.a", [(1, 1), (2, 2)], txid=5, orders=[1, 2], lsn=3, offset=2)
    a.accept(decoded(event, again, end(5, 9, {"s.a": 3})))
    assert a.complete() == []
    a.accept(decoded(changes("s.a", [(3, 3)], txid=5, orders=[3], lsn=4, offset=4)))
    (whole,) = a.complete()
    assert rows(whole) == [("s.a", 1, 1), ("s.a", 2, 2), ("s.a", 3, 3)]
    a.accept(decoded(changes("s.a", [(1, 1)], txid=5, orders=[1], lsn=3, offset=5), end(5, 9, {"s.a": 3}, 1)))
    assert a.complete() == []
    assert a.pending_positions() == {}


def test_a_wrapped_transaction_id_is_a_new_transaction() -> None:
    a = streaming()
    a.accept(decoded(changes("s.a", [(1, 1)], txid=5, orders=[1], lsn=3), end(5, 9, {"s.a": 1})))
    assert ids(a.complete()) == [5]
    a.accept(decoded(changes("s.a", [(1, 2)], txid=5, orders=[1], lsn=30, offset=1), end(5, 39, {"s.a": 1}, 1)))
    assert ids(a.complete()) == [5]


def test_positions_hold_back_what_is_not_whole() -> None:
    a = streaming()
    a.accept(decoded(changes("s.a", [(1, 1)], txid=5, orders=[1], lsn=3, offset=7), end(5, 9, {"s.a": 2}, 4)))
    a.complete()
    assert a.pending_positions() == {("p.s.a", 0): 7, ("p.transaction", 0): 4}


def test_the_snapshot_is_one_epoch_and_waits_for_every_row() -> None:
    a = TransactionAssembler(TABLES)
    a.accept(decoded(changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True)))
    a.accept(
        decoded(notified("started"), notified("table", "s.a", 2), notified("table", "s.b", 0), notified("completed"))
    )
    a.accept(decoded(changes("s.a", [(9, 9)], txid=8, orders=[1], lsn=6, offset=2), end(8, 10, {"s.a": 1})))
    assert a.complete() == []
    a.accept(decoded(changes("s.a", [(2, 2)], txid=3, lsn=5, snapshot=True, offset=1)))
    snapshot, first = a.complete()
    assert (snapshot.kind, rows(snapshot)) == ("snapshot", [("s.a", 1, 1), ("s.a", 2, 2)])
    assert first.id == 8


@pytest.mark.parametrize("later", [0, 1], ids=["low", "high"])
def test_the_snapshot_of_a_partitioned_table_waits_for_the_rows_of_every_leaf(later: int) -> None:
    """Each leaf's scan is told by itself; the rows of the leaf told last let the snapshot be whole without the others."""
    a = TransactionAssembler({"s.a": "s.a", "s.low": "s.a", "s.high": "s.a"})
    scans = [notified("table", "s.a", 1, scanned="s.low"), notified("table", "s.a", 1, scanned="s.high")]
    a.accept(decoded(notified("started"), *scans, scans[1], notified("completed")))
    leaves = [replace(changes("s.a", [(k, k)], txid=3, lsn=5, snapshot=True), topic=f"p.s.{k}") for k in (1, 2)]
    a.accept(decoded(leaves[1 - later]))
    assert a.complete() == []
    waits = a.waiting()
    assert waits is not None
    assert waits.missing == {"s.a": 1}
    a.accept(decoded(leaves[later]))
    (snapshot,) = a.complete()
    assert rows(snapshot) == [("s.a", 1, 1), ("s.a", 2, 2)]


def test_a_snapshot_begun_again_counts_alone() -> None:
    a = TransactionAssembler(TABLES)
    a.accept(decoded(notified("started"), changes("s.a", [(1, 1), (2, 2)], txid=3, lsn=5, snapshot=True)))
    a.accept(
        decoded(notified("started"), notified("table", "s.a", 1), notified("table", "s.b", 0), notified("completed"))
    )
    a.accept(decoded(changes("s.a", [(1, 7)], txid=4, lsn=15, snapshot=True, offset=2)))
    (snapshot,) = a.complete()
    assert rows(snapshot) == [("s.a", 1, 7)]


@pytest.mark.parametrize("known", [[], [(1, 1)]])
def test_the_end_of_a_try_says_nothing_of_the_next_one(known: list[tuple[int, int]]) -> None:
    """Found by the simulator (seeds 1008, 1063): a connector killed once its marks were sent, and not all its rows, reads
    again; rows of that before its STARTED made up the first one's counts, and the snapshot was given without the rest."""
    a = streaming() if known else TransactionAssembler(TABLES)
    a.accept(decoded(notified("started", at=1), notified("table", "s.a", 1, at=3), notified("completed", at=4)))
    a.accept(decoded(changes("s.a", known, txid=3, lsn=5, snapshot=True, read=2)))
    a.accept(decoded(changes("s.a", [(1, 7)], txid=4, lsn=15, snapshot=True, offset=2, read=6)))
    assert a.complete() == []
    assert a.waiting() is not None
    a.accept(decoded(notified("started", at=5), notified("table", "s.a", 2, at=8), notified("completed", at=9)))
    assert a.complete() == []
    a.accept(decoded(changes("s.a", [(2, 8)], txid=4, lsn=15, snapshot=True, offset=3, read=7)))
    (snapshot,) = a.complete()
    read = replace(snapshot, slices=tuple(s for s in snapshot.slices if s.changes.kinds[s.start] != TRUNCATE))
    assert rows(read) == [("s.a", 1, 7), ("s.a", 2, 8)]
    assert (a.waiting(), a.pending_positions()) == (None, {})


def test_rows_of_an_earlier_try_are_not_what_the_last_marks_count() -> None:
    """Found by the simulator (seed 119 then): all marks were read before the second try's rows, and the rows of the first
    were as many."""
    a = TransactionAssembler(TABLES)
    a.accept(decoded(notified("started", at=1), notified("started", at=5), notified("table", "s.a", 1, at=8)))
    a.accept(decoded(notified("completed", at=9), changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True, read=2)))
    assert a.complete() == []
    a.accept(decoded(changes("s.a", [(1, 7)], txid=4, lsn=15, snapshot=True, offset=1, read=7)))
    (snapshot,) = a.complete()
    assert (snapshot.place.order, rows(snapshot)) == (15, [("s.a", 1, 7)])


def test_a_last_try_that_finds_its_tables_empty_is_empty() -> None:
    """Found by the simulator (seed 168 then): the rows of the first try were given in its place."""
    a = TransactionAssembler(TABLES)
    a.accept(decoded(notified("started", at=1), changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True, read=2)))
    a.accept(decoded(notified("started", at=5), notified("table", "s.a", 0, at=8), notified("completed", at=9)))
    a.accept(decoded(changes("s.a", [(2, 7)], txid=6, orders=[1], lsn=16, offset=3), end(6, 17, {"s.a": 1})))
    (first,) = a.complete()
    assert (first.id, rows(first)) == (6, [("s.a", 2, 7)])
    a.accept(decoded(changes("s.b", [(1, 1)], txid=3, lsn=35, snapshot=True, read=3)))
    assert a.complete() == []
    assert (a.waiting(), a.pending_positions()) == (None, {}), "a row of the first try that comes late is nothing"


def test_transactions_sent_before_a_snapshot_that_was_begun_again_are_in_it_already() -> None:
    """Found by the simulator (seed 7): they were applied once more, after it."""
    a = TransactionAssembler(TABLES)
    a.accept(decoded(notified("started"), changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True)))
    a.accept(decoded(changes("s.a", [(1, 2)], txid=6, orders=[1], lsn=9, offset=1), end(6, 10, {"s.a": 1})))
    a.accept(decoded(notified("started"), notified("table", "s.a", 1), notified("completed")))
    a.accept(decoded(changes("s.a", [(1, 7)], txid=8, lsn=15, snapshot=True, offset=2)))
    a.accept(decoded(changes("s.a", [(1, 9)], txid=9, orders=[1], lsn=19, offset=3), end(9, 20, {"s.a": 1}, 1)))
    snapshot, after = a.complete()
    assert rows(snapshot) == [("s.a", 1, 7)]
    assert (after.id, rows(after)) == (9, [("s.a", 1, 9)])
    assert a.pending_positions() == {}, "nothing of them is waited for"


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_transactions_sent_before_a_snapshot_that_found_no_row_are_in_it_already(again: bool, restart: bool) -> None:
    """Found by the simulator (seeds 3078, 3845): such a snapshot has no LSN; what the connector had sent before it was
    applied after it, or waited for where it was not sent whole."""
    a = streaming() if again else TransactionAssembler(TABLES)
    lost = changes("s.a", [(2, 3)], txid=7, orders=[1], lsn=11, offset=2), end(7, 13, {"s.a": 2}, 1, sent=4)
    if not again:
        a.accept(decoded(notified("started", at=1), changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True, read=2)))
    a.accept(decoded(notified("started", at=5)))
    a.accept(decoded(changes("s.a", [(1, 2)], txid=6, orders=[1], lsn=9, offset=1), end(6, 10, {"s.a": 1}, sent=3)))
    a.accept(decoded(*(notified("table", table, 0, at=8) for table in TABLES), notified("completed", at=9)))
    assert [t.kind for t in a.complete()] == ["resnapshot"] * again
    if restart:
        a = restarted(a)
    a.accept(decoded(*lost, changes("s.b", [(1, 1)], txid=3, lsn=35, snapshot=True, read=3)))
    assert a.complete() == []
    assert (a.waiting(), a.pending_positions()) == (None, {}), "nor for rows of a try before"
    a.accept(decoded(changes("s.a", [(1, 9)], txid=9, orders=[1], lsn=19, offset=3), end(9, 20, {"s.a": 1}, 2, sent=6)))
    (after,) = a.complete()
    assert (after.id, rows(after)) == (9, [("s.a", 1, 9)])


def restarted(a: TransactionAssembler) -> TransactionAssembler:
    """Another run, from a checkpoint of what this one has given, which reads the rest."""
    again = TransactionAssembler(TABLES)
    again.resume([(-1, 0)], remembered=json.loads(json.dumps(a.remembered())))
    return again


def test_events_that_a_snapshot_cut_off_are_not_waited_for_after_a_restart() -> None:
    """Those of a topic that is late: the checkpoint is before them."""
    a = streaming()
    a.accept(
        decoded(
            notified("started", at=16), *(notified("table", table, n, at=17) for table, n in (("s.a", 1), ("s.b", 0)))
        )
    )
    a.accept(decoded(notified("completed", at=18), changes("s.a", [(1, 7)], txid=20, lsn=30, snapshot=True, read=17)))
    assert [t.kind for t in a.complete()] == ["resnapshot"]
    a = restarted(a)
    for sent, held in ((15, {}), (19, {("p.s.a", 0): 19})):
        a.accept(decoded(changes("s.a", [(1, 0)], txid=sent, orders=[1], lsn=40 + sent, offset=sent, sent=sent)))
        assert a.complete() == []
        assert a.pending_positions() == held


@pytest.mark.parametrize("again", [False, True])
def test_a_transaction_that_a_snapshot_cut_off_is_not_waited_for(again: bool) -> None:
    """Found by the simulator (seeds 587, 943): its events held their positions back for good, and its END never came."""
    a = streaming() if again else TransactionAssembler(TABLES)

    def event(txid: int, sent: int, table: str = "s.a") -> TableChanges:
        return changes(table, [(txid, 0)], txid=txid, orders=[1], lsn=txid, offset=txid, sent=sent)

    def passed_over(txid: int, order: int, sent: int) -> None:
        a.skip(Undecodable("s.b", "p.s.b", 0, 90 + txid, "", event=Event(txid, order, txid, False), sent_ms=sent))

    a.accept(decoded(event(21, 14), event(22, 15), event(23, 14), event(23, 17, "s.b"), event(25, 17)))
    passed_over(22, 2, 15)
    passed_over(24, 1, 14)
    assert a.pending_positions() == {("p.s.a", 0): 21, ("p.s.b", 0): 23}
    a.accept(decoded(notified("started", at=16), notified("completed", at=18), end(26, 40, {"s.b": 1}, 7, sent=15)))
    a.accept(decoded(event(26, 15)))
    a.accept(decoded(*(notified("table", table, n, at=17) for table, n in (("s.a", 1), ("s.b", 0)))))
    a.accept(decoded(changes("s.a", [(1, 7)], txid=20, lsn=30, snapshot=True, read=17)))
    (snapshot,) = a.complete()
    assert snapshot.place.order == 30
    a.accept(decoded(event(27, 15), event(28, 19)))  # a topic that is late
    passed_over(29, 1, 15)
    held = {("p.s.a", 0): 23, ("p.s.b", 0): 23, ("p.transaction", 0): 7}
    assert a.pending_positions() == held, "what was sent since, or has its END, is waited for"
    a.accept(decoded(event(26, 15, "s.b"), end(23, 41, {"s.a": 1, "s.b": 1}, 8), end(25, 42, {"s.a": 1}, 9)))
    a.accept(decoded(end(28, 43, {"s.a": 1}, 10)))
    assert [t.id for t in a.complete()] == [26, 23, 25, 28]
    assert a.pending_positions() == {}


def test_a_second_snapshot_takes_the_place_of_its_tables() -> None:
    a = streaming()
    a.accept(decoded(changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True), notified("started")))
    assert a.complete() == []
    waiting = a.waiting()
    assert waiting is not None
    assert waiting.kind == "resnapshot"
    a.accept(decoded(notified("table", "s.a", 1), notified("table", "s.b", 0), notified("completed")))
    (again,) = a.complete()
    assert (again.kind, again.id, again.place.order) == ("resnapshot", -1, 5)
    kinds = [(s.changes.table, s.changes.kinds.tolist()) for s in again.slices]
    assert kinds == [("s.a", [TRUNCATE]), ("s.b", [TRUNCATE]), ("s.a", [0])]
    assert a.pending_positions() == {}


def test_a_later_snapshot_waits_for_what_the_log_has_though_no_checkpoint_does() -> None:
    """Found by the simulator (seed 1681): it was given before transactions whose events were still to come again."""
    a = TransactionAssembler(TABLES)
    a.follow(ReplayOrder(-1, exactly=False, through=10, snapshot=5))
    a.accept(decoded(notified("started", at=1), changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True, read=2)))
    a.accept(decoded(notified("table", "s.a", 1), notified("table", "s.b", 0), notified("completed", at=3)))
    a.accept(decoded(end(6, 10, {"s.a": 1})))
    assert [t.kind for t in a.complete()] == ["snapshot"]
    a.accept(
        decoded(notified("started", at=20), changes("s.a", [(1, 4)], txid=9, lsn=35, snapshot=True, offset=2, read=21))
    )
    a.accept(decoded(notified("table", "s.a", 1), notified("table", "s.b", 0), notified("completed", at=22)))
    assert a.complete() == []
    a.accept(decoded(changes("s.a", [(1, 2)], txid=6, orders=[1], lsn=9, offset=1)))
    assert [(t.kind, t.place.order) for t in a.complete()] == [("transaction", 10), ("resnapshot", 35)]


def test_a_snapshot_of_the_log_whose_place_an_empty_one_has_taken_is_refused_by_name() -> None:
    """Found by the simulator (seed 5381): nothing was given in its place, and the sinks kept its rows."""
    a = TransactionAssembler(TABLES)
    a.follow(ReplayOrder(-1, exactly=False, snapshot=5))
    a.accept(decoded(notified("started", at=1), changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True, read=2)))
    a.accept(decoded(notified("started", at=5), notified("table", "s.a", 0, at=8), notified("completed", at=9)))
    with pytest.raises(ContinuityError, match="begun again"):
        a.complete()


def test_a_row_of_a_later_snapshot_that_is_skipped_counts() -> None:
    """Found by reading: the snapshot was waited for without end."""
    a = streaming()
    a.skip(Undecodable("s.a", "p.s.a", 0, 9, "", event=Event(3, -1, 5, True)))
    a.accept(decoded(changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True, offset=10), notified("started")))
    a.accept(decoded(notified("table", "s.a", 2), notified("table", "s.b", 0), notified("completed")))
    assert [(t.kind, t.place.order) for t in a.complete()] == [("resnapshot", 5)]


def test_a_skipped_row_of_a_try_before_an_empty_one_is_nothing() -> None:
    a = TransactionAssembler(TABLES)
    a.accept(decoded(notified("started", at=1), notified("started", at=5)))
    a.accept(decoded(*(notified("table", table, 0, at=8) for table in TABLES), notified("completed", at=9)))
    assert a.complete() == []
    a.skip(Undecodable("s.a", "p.s.a", 0, 9, "", event=Event(3, -1, 5, True), sent_ms=2))
    assert (a.complete(), a.waiting()) == ([], None)


def test_a_second_snapshot_of_a_recording_is_refused_by_name() -> None:
    a = TransactionAssembler(TABLES, in_order=True)
    a.accept(decoded(end(1, 3, {})))
    assert len(a.complete()) == 1
    with pytest.raises(ContinuityError, match="second snapshot"):
        a.accept(decoded(changes("s.a", [(1, 1)], txid=3, lsn=5, snapshot=True)))


def test_without_metadata_a_poll_is_a_cut() -> None:
    a = streaming()
    loose = changes("s.a", [(1, 1), (2, 2)], txid=3)
    a.accept(decoded(loose))
    (cut,) = a.complete()
    assert (cut.kind, len(rows(cut))) == ("cut", 2)


def test_in_order_of_emission_a_run_of_one_id_is_a_transaction() -> None:
    a = TransactionAssembler(TABLES, in_order=True)
    a.accept(decoded(changes("s.a", [(1, 1)], txid=3, offset=0), changes("s.b", [(1, 2)], txid=3, offset=1)))
    a.accept(decoded(changes("s.a", [(2, 1)], txid=4, offset=2)))
    first = a.complete()
    assert ids(first) == [3]
    assert len(rows(first[0])) == 2
    a.finish()
    assert ids(a.complete()) == [4]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_any_interleaving_gives_the_same_transactions(seed: int) -> None:
    draw = random.Random(seed)
    streams: dict[str, list[object]] = {"s.a": [], "s.b": [], "tx": []}
    expected = []
    for k in range(6):
        counts = {"s.a": draw.randrange(0, 3), "s.b": draw.randrange(0, 3)}
        order, content = 0, []
        for table, n in counts.items():
            for i in range(n):
                order += 1
                row = (k * 10 + i, draw.randrange(99))
                offset = len(streams[table])
                streams[table].append(
                    changes(table, [row], txid=100 + k, orders=[order], lsn=k * 10 + order, offset=offset)
                )
                content.append((table, *row))
        streams["tx"].append(end(100 + k, k * 10 + 9, {t: n for t, n in counts.items() if n}, k))
        expected.append((100 + k, sorted(content)))
    a, given_ = streaming(), []
    while any(streams.values()):
        name = draw.choice([n for n, s in streams.items() if s])
        a.accept(decoded(streams[name].pop(0)))
        given_ += a.complete()
    assert [(t.id, rows(t)) for t in given_] == expected


LEAVES = {"s.p": "s.p", "s.p1": "s.p", "s.p2": "s.p", "s.a": "s.a"}


def truncate(leaf: str, order: int) -> TableChanges:
    run = changes("s.p", [(0, None)], txid=5, orders=[order], lsn=order, kinds=[TRUNCATE])
    return replace(run, topic=f"p.s.{leaf}")


@pytest.mark.parametrize("skipped", [False, True])
def test_a_table_of_which_one_leaf_was_truncated_stands_still_until_the_record_is_skipped(skipped: bool) -> None:
    a = TransactionAssembler(LEAVES)
    a.accept(decoded(notified("skipped"), truncate("p1", 1), end(5, 9, {"s.p": 1})))
    a.complete()
    [stop] = a.stops
    b = TransactionAssembler(LEAVES)
    b.resume([(-1, 0), (5, 9)], [SuspendedTable.parse(stop.json())])
    if skipped:
        b.skip(stop.record)
    else:
        b.accept(decoded(truncate("p1", 1)))
    b.stops[0].reached = True
    given_ = b.complete()
    assert [(t.kind, t.slices) for t in given_] == ([("mended", ())] if skipped else [])
    assert [s.text for s in b.stops] == ([] if skipped else [stop.text])


def test_a_truncate_of_one_leaf_stops_its_table_and_of_all_leaves_passes() -> None:
    for leaves, stops in ((("p1",), ["s.p"]), (("p1", "p2"), [])):
        a = TransactionAssembler(LEAVES)
        other = changes("s.a", [(1, 1)], txid=5, orders=[9], lsn=9)
        a.accept(decoded(notified("skipped"), *(truncate(leaf, i) for i, leaf in enumerate(leaves, 1)), other))
        a.accept(decoded(end(5, 9, {"s.p": len(leaves), "s.a": 1})))
        [given_] = a.complete()
        assert given_.id == 5
        assert [s.table for s in a.stops] == stops
        assert {s.changes.table for s in given_.slices} == {"s.a"} | ({"s.p"} - set(stops))
        assert all("was truncated" in text and "topic=p.s.p1" in text for t in given_.errors.values() for text in t)
        assert set(given_.errors) == set(stops)


def test_a_version_waits_for_every_partition_of_every_table() -> None:
    v = VersionAssembler({"s.a": (0,), "s.b": (0,)})
    tables = ("s.a", "s.b")
    v.accept(decoded(changes("s.a", [(1, 1)], txid=1, attempt=1), version_end("s.a", 1, 1, tables=tables)))
    assert v.complete() == []
    v.accept(decoded(version_end("s.b", 1, 0, tables=tables)))
    assert ids(v.complete()) == [1]


def test_a_version_waits_for_those_before_it_whose_topics_are_read_later() -> None:
    """It was passed over, silently, where its topic came after that of a later version of another table."""
    v = VersionAssembler({"s.a": (0,), "s.b": (0,)})
    v.accept(decoded(changes("s.a", [(1, 2)], txid=2, attempt=1), version_end("s.a", 2, 1, after={"s.b": 1, "s.c": 1})))
    assert v.complete() == []
    waiting = v.waiting()
    assert waiting is not None
    assert (waiting.name, dict(waiting.missing)) == ("version 2", {"s.b": 1})
    v.accept(decoded(changes("s.b", [(1, 1)], txid=1, attempt=1), version_end("s.b", 1, 1)))
    assert ids(v.complete()) == [1, 2]
    again = VersionAssembler({"s.a": (0,), "s.b": (0,)})
    again.resume([(1, 1)])
    again.accept(decoded(changes("s.a", [(1, 2)], txid=2, attempt=1), version_end("s.a", 2, 1, after={"s.b": 1})))
    assert ids(again.complete()) == [2]


def test_a_table_that_nobody_reads_holds_no_version_up_and_its_own_are_passed() -> None:
    v, both = VersionAssembler({"s.a": (0,)}), ("s.a", "s.b")
    v.accept(decoded(changes("s.b", [(1, 1)], txid=1, attempt=1), version_end("s.b", 1, 1)))
    v.accept(decoded(changes("s.b", [(1, 2)], txid=2, attempt=1), version_end("s.b", 2, 1, tables=both)))
    assert v.complete() == []
    v.accept(decoded(changes("s.a", [(1, 1)], txid=2, attempt=1), version_end("s.a", 2, 1, tables=both)))
    [given_] = v.complete()
    assert (given_.id, set(rows(given_))) == (2, {("s.a", 1, 1)})
    assert (v.published("s.b"), v.published("s.c"), v.pending_positions()) == (2, -1, {})


def test_a_filled_table_has_only_later_versions_also_after_a_restart() -> None:
    v, both = VersionAssembler({"s.a": (0,), "s.b": (0,)}), ("s.a", "s.b")
    v.filled("s.b", 3)
    v.accept(decoded(changes("s.b", [(1, 1)], txid=1, attempt=1), version_end("s.b", 1, 1)))
    v.accept(
        decoded(changes("s.a", [(1, 2)], txid=2, attempt=1), version_end("s.a", 2, 1, tables=both, after={"s.b": 1}))
    )
    v.accept(decoded(changes("s.b", [(1, 2)], txid=2, attempt=1, offset=9), version_end("s.b", 2, 1, tables=both)))
    [given_] = v.complete()
    assert (given_.id, set(rows(given_))) == (2, {("s.a", 1, 2)}), "of what the files have nothing comes again"
    again = VersionAssembler({"s.a": (0,), "s.b": (0,)})
    again.resume([(2, 2)], remembered=v.remembered())
    again.accept(decoded(changes("s.b", [(1, 3)], txid=3, attempt=1), version_end("s.b", 3, 1)))
    assert again.complete() == []
    again.accept(decoded(changes("s.b", [(1, 4)], txid=4, attempt=1), version_end("s.b", 4, 1)))
    assert [set(rows(t)) for t in again.complete()] == [{("s.b", 1, 4)}]
    assert again.remembered() == {"version": 4}


def test_repeated_tasks_and_failed_attempts_change_nothing() -> None:
    v = VersionAssembler({"s.a": (0,)})
    v.accept(decoded(changes("s.a", [(1, 1)], txid=1, attempt=1)))
    v.accept(
        decoded(changes("s.a", [(1, 5), (1, 5)], txid=1, attempt=2, offset=1), version_end("s.a", 1, 2, attempt=2))
    )
    assert v.complete() == []
    v.accept(decoded(changes("s.a", [(2, 6)], txid=1, attempt=2, offset=3)))
    (whole,) = v.complete()
    assert set(rows(whole)) == {("s.a", 1, 5), ("s.a", 2, 6)}
    assert v.pending_positions() == {}
