"""An assembler whose reclock log is ahead of what it reads: what the log has comes again in other company, or never."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.transactions.debezium import TransactionAssembler
from headrace.sidecar.transactions.model import ContinuityError, ReplayOrder
from headrace.sidecar.transactions.snapshot_barrier import SnapshotBarrier
from tests.sidecar.support.streams import changes, decoded, end, notified

TABLES = {"s.a": "s.a"}


def snapshot(at: int, lsn: int, *rows: tuple[int, int], offset: int = 0) -> list[Any]:
    """One that began at `at`, from STARTED to its end."""
    read = [changes("s.a", rows, txid=lsn, lsn=lsn, snapshot=True, offset=offset, read=at + 1)] if rows else []
    return [notified("started", at=at), *read, notified("table", "s.a", len(rows)), notified("completed", at=at + 2)]


def test_a_later_snapshot_of_the_log_that_is_the_first_now_holds_nothing_up() -> None:
    """Simulator, seed 408353: the one before it had no row, which the log tells nobody; both were read at once again."""
    a = TransactionAssembler(TABLES)
    a.follow(ReplayOrder(-1, exactly=False, before_snapshot=-1, later=32, through=36))
    a.accept(decoded(*snapshot(10, 5), *snapshot(30, 32, (1, 1)), end(9, 34, {}), end(10, 36, {})))
    assert [(t.kind, t.place.order) for t in a.complete()] == [
        ("snapshot", 32),
        ("transaction", 34),
        ("transaction", 36),
    ]


def followed(*, lacks: bool, barrier: SnapshotBarrier | None = None) -> TransactionAssembler:
    """The log has a transaction before a later snapshot, which is here."""
    a = TransactionAssembler(TABLES, barrier=barrier)
    a.follow(ReplayOrder(-1, exactly=False, before_snapshot=10, later=35, through=10, snapshot=5))
    a.accept(decoded(*snapshot(1, 5, (1, 1)), end(6, 10, {"s.a": 1})))
    assert [t.kind for t in a.complete()] == ["snapshot"]
    if not lacks:
        a.accept(decoded(changes("s.a", [(1, 2)], txid=6, orders=[1], lsn=9, offset=1)))
    a.accept(decoded(*snapshot(20, 35, (1, 4), offset=2)))
    return a


@pytest.mark.parametrize(("lacks", "at_end"), [(True, True), (True, False), (False, True)])
def test_what_the_log_has_and_nobody_sends_any_more_is_an_error(lacks: bool, at_end: bool) -> None:
    """Simulator, seed 405244: it was bound while its table stood still, and the connector lost its slot before it had sent the
    rest; the snapshot that came then was waited with for ever."""
    source = SimpleNamespace(at_end=lambda: at_end)
    intake = Intake("a", "debezium", cast(Any, source), cast(Any, None), followed(lacks=lacks), frozenset(TABLES))
    if lacks and at_end:
        with pytest.raises(ContinuityError, match="lacks events, and a later snapshot has come") as error:
            intake.complete()
        assert error.value.where == {"source": "a", "upto": 10}
    else:
        assert [t.kind for t in intake.complete()] == ["transaction", "resnapshot"] * (not lacks)


def test_what_waits_for_an_answer_about_notifications_lacks_nothing() -> None:
    """`make test` met it on a busy machine: all was read before the broker had said how far the notifications go."""
    answered: list[bool] = []
    barrier = SnapshotBarrier(lambda: lambda: bool(answered))
    source = SimpleNamespace(at_end=lambda: True)
    assembler = followed(lacks=False, barrier=barrier)
    intake = Intake("a", "debezium", cast(Any, source), cast(Any, None), assembler, frozenset(TABLES), barrier=barrier)
    assert intake.complete() == []
    answered.append(True)
    assert [t.kind for t in intake.complete()] == ["transaction", "resnapshot"]


@pytest.mark.parametrize("by", ["END", "event", "copy"])
def test_a_repetition_that_the_log_has_forgotten_is_known_after_a_restart(by: str) -> None:
    """Simulator, seed 402297: its END was passed over, and then read no more; an event of it that came later waited for it for
    ever, and what was asked with it, as letters are that are replayed. Seed 540099: a copy of an event was passed over, before or
    behind its END, and read again, as what was before it in its partition was held."""
    a = TransactionAssembler(TABLES)
    a.resume([(5, 5), (6, 10), (7, 20)][: 1 if by == "copy" else None])
    event = changes("s.a", [(1, 2)], txid=6, orders=[1], lsn=9, offset=3)
    last = end(6, 10, {"s.a": 1}, offset=4)
    first = changes("s.a", [(1, 2)], txid=6, orders=[1], lsn=9, offset=1)
    a.accept(decoded(*{"END": [last], "event": [event], "copy": [first, event, last]}[by]))
    assert [t.id for t in a.complete()] == [6] * (by == "copy")
    again = TransactionAssembler(TABLES)
    again.resume([(7, 20)], remembered=json.loads(json.dumps(a.remembered())))
    again.accept(decoded(event))
    assert again.complete() == []
    assert again.pending_positions() == {}
