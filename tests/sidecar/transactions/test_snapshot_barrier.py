"""An END that is read before the notification of a snapshot that was sent before it waits for that; a close one for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.connectors.changes import TransactionMark
from headrace.sidecar.transactions.snapshot_barrier import LULL_MS, SnapshotBarrier
from tests.sidecar.support.little import CUSTOMERS, KEYS, ORDERS, PREFIX, Little, answers

NOTIFIED = f"{PREFIX}.notifications"


@pytest.mark.parametrize("again", [False, True])
def test_a_transaction_after_a_later_snapshot_waits_for_its_notification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """The connector's slot was lost, while nobody read or while we did, and what is read of it first is an END that came after
    the snapshot: given then, it would say of the tables what was not so, and the snapshot would not be later."""
    with Little(tmp_path, monkeypatch).begun({CUSTOMERS: [(1, 1)], ORDERS: [(1, 1)]}) as shop:
        shop.transact()
        shop.show_all()
        shop.turn(2)
        before = shop.running.runtime.epoch
        if again:
            shop.end(drained=True)
        shop.lsn, shop.clock = shop.lsn + 100, 5000
        shop.state = {t: Counter() for t in KEYS}
        shop.snapshot({CUSTOMERS: [(2, 2), (3, 3)], ORDERS: [(1, 1)]})
        shop.transact()
        shop.log.hold(NOTIFIED)  # it is there, and comes later
        rows = {topic: len(queue) for topic, queue in shop.queues.items() if topic.startswith(f"{PREFIX}.public")}
        for topic in (NOTIFIED, f"{PREFIX}.transaction"):
            shop.show(topic, len(shop.queues[topic]))
        if again:
            shop.start()
        shop.turn(3)
        found = shop.running.runtime.waiting()
        assert found is not None
        assert str(found[1]) == "notifications"
        assert shop.running.runtime.epoch == before
        shop.log.release(NOTIFIED)
        shop.turn(2)
        for topic, count in rows.items():
            shop.show(topic, count)
        shop.turn(2)
        for view, wanted in answers(shop.state).items():
            assert shop.rows(view) == wanted, view
        assert shop.running.runtime.waiting() is None


class Looks:
    """Notifications that were read up to their end or, `behind`, not; `made`: how often that was looked for."""

    def __init__(self) -> None:
        self.behind, self.made = True, 0
        self.barrier = SnapshotBarrier(self._look)

    def _look(self) -> Callable[[], bool]:
        self.made += 1
        return lambda: not self.behind

    def met(self, *marks: TransactionMark) -> list[bool]:
        """Whether each must wait, once all were met."""
        for mark in marks:
            self.barrier.met(mark)
        self.barrier.advance()
        return [self.barrier.holds(mark) for mark in marks]


def end(offset: int, sent_ms: int) -> TransactionMark:
    return TransactionMark("END", offset, offset, {}, 0, "t", 0, offset, sent_ms)


def test_the_first_mark_and_those_behind_it_wait_for_one_look() -> None:
    looks = Looks()
    assert looks.met(end(5, 1000), end(6, 1001)) == [True, True]
    assert looks.met(end(7, 1002)) == [True]
    looks.behind = False
    looks.barrier.advance()
    assert [looks.barrier.holds(end(o, 0)) for o in (5, 6, 7)] == [False] * 3
    assert looks.made == 1


def test_marks_that_follow_one_another_closely_look_at_nothing() -> None:
    looks = Looks()
    looks.behind = False
    looks.met(end(0, 0))
    looks.behind = True
    assert not any(looks.met(*(end(i, i * (LULL_MS - 1)) for i in range(1, 100))))
    assert looks.made == 1


@pytest.mark.parametrize("sent_ms", [1000 + LULL_MS, 999, -1])
def test_a_mark_behind_a_lull_waits_and_none_before_it(sent_ms: int) -> None:
    """Also where the clock went back, or is not known: no time between the two can be told."""
    looks = Looks()
    looks.behind = False
    looks.met(end(0, 1000))
    looks.behind = True
    assert looks.met(end(1, 1000), end(2, sent_ms)) == [False, True]


def test_what_was_met_after_a_look_began_is_looked_for_again() -> None:
    looks = Looks()
    looks.met(end(0, 0))
    looks.met(end(1, 1), end(2, LULL_MS + 2))
    looks.behind = False
    looks.barrier.advance()
    assert looks.made == 2
    assert not looks.barrier
