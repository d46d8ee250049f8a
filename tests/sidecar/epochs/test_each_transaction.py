"""Who asks for each transaction: told by name, released, ended by name where intake or reader stay behind for too long."""

from __future__ import annotations

import pytest

from headrace.sidecar.epochs.each_transaction import INTAKE, READER, EachEnded, EachTransaction
from headrace.sidecar.epochs.epoch_ranges import EpochRanges
from tests.sidecar.epochs.test_epoch_ranges import pairs


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_who_asks_makes_every_epoch_a_range_until_released_and_the_cost_is_counted() -> None:
    each = EachTransaction()
    ranges = EpochRanges(each)
    asker = each.ask("tail of view orders", 5.0)
    ranges.register(3)
    assert ranges.cut(pairs(1, 4)).tolist() == [1, 2, 3, 4]
    assert (each.cost.ranges, each.cost.otherwise) == (4, 2)
    each.release(asker)
    each.release(asker)
    assert ranges.cut(pairs(5, 3)).tolist() == [7]
    assert (each.cost.ranges, each.cost.otherwise) == (4, 2)
    assert ranges.coarse_after(4) == range(5, 8)
    assert ranges.coarse_after(7) is None
    assert ranges.firsts(1, 9) == {7: 5}


def test_sinks_are_named_first_and_never_ended() -> None:
    clock = Clock()
    each = EachTransaction(lambda: ["bus"], clock)
    audit = each.ask("audit", None)
    audit.at = 0
    for _ in range(3):
        each.look(9, lambda: False)
        clock.now += 1000
    assert each.names() == ["sink bus", "audit"]
    assert each.take_ended() == []
    assert [a["who"] for a in each.status()["asked_by"]] == ["sink bus", "audit"]


def test_a_follower_is_ended_once_the_intake_was_behind_for_its_lag_without_a_break() -> None:
    clock = Clock()
    each = EachTransaction(clock=clock)
    patient, hasty = each.ask("patient", 10.0), each.ask("hasty", 2.0)
    for _ in range(5):  # it comes to the end of its topics now and then
        each.look(1, lambda: False)
        clock.now += 1.5
        each.look(1, lambda: True)
    assert each.take_ended() == []
    each.look(1, lambda: False)
    clock.now += 2.5
    each.look(1, lambda: False)
    assert each.take_ended() == [hasty]
    assert each.names() == ["patient"]
    patient.check()
    with pytest.raises(EachEnded, match="hasty") as ended:
        hasty.check()
    assert INTAKE in str(ended.value)


def test_what_was_behind_before_it_came_counts_from_when_it_asked() -> None:
    clock = Clock()
    each = EachTransaction(clock=clock)
    each.ask("first", 100.0)
    each.look(1, lambda: False)
    clock.now += 50
    later = each.ask("later", 2.0)
    each.look(1, lambda: False)
    assert later.ended == ""
    clock.now += 3
    each.look(1, lambda: False)
    assert later.ended == INTAKE


def test_a_follower_is_ended_once_its_reader_is_behind_for_its_lag() -> None:
    clock = Clock()
    each = EachTransaction(clock=clock)
    asker = each.ask("tail", 2.0)
    for epoch in range(1, 6):  # its view is still being given whole
        each.look(epoch, lambda: True)
        clock.now += 2
    for epoch in range(6, 12):  # it is always a little behind
        asker.at = epoch - 1
        each.look(epoch, lambda: True)
        clock.now += 1.9
    assert each.take_ended() == []
    each.look(12, lambda: True)
    clock.now += 2.1
    each.look(13, lambda: True)
    assert each.take_ended() == [asker]
    assert asker.ended == READER
