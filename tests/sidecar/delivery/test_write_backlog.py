"""What waits for a sink takes what it says, and is what was offered."""

from __future__ import annotations

import random
from collections import Counter

from headrace.connectors.commit_place import Lsn
from headrace.connectors.sink import EpochStamp, ViewChanges
from headrace.sidecar.delivery.write_backlog import ENTRY_BYTES, RUN, STAMP_BYTES, Backlog, size
from tests.contracts.sink import LINES, changes, frontier, whole

Read = list[tuple[tuple[object, ...], int, int]]


def read(found: ViewChanges) -> Read:
    rows = zip(*(c.to_pylist() for c in found.rows.columns), strict=True)
    return list(zip(rows, found.epochs.tolist(), found.diffs.tolist(), strict=True))


def held(backlog: Backlog) -> int:
    return sum(size(c) for parts in backlog.changes.values() for c in parts) + STAMP_BYTES * len(backlog.stamps)


def test_many_small_changes_take_little_more_than_their_rows() -> None:
    """Each has some kilobytes of its own objects: what was counted as 64 MiB could be gigabytes."""
    backlog, count = Backlog(), 40 * RUN
    for epoch in range(1, count + 1):
        stamps = {epoch: EpochStamp("shop", Lsn(epoch), 1)}
        backlog.add({LINES.name: changes(LINES, (("a", epoch), epoch, 1))}, frontier(epoch), stamps, {})
    assert len(backlog.changes[LINES.name]) == count // RUN
    assert backlog.bytes == held(backlog)
    rows = sum(c.rows.nbytes + c.epochs.nbytes + c.diffs.nbytes for c in backlog.changes[LINES.name])
    assert rows + STAMP_BYTES * count + ENTRY_BYTES * count // RUN == backlog.bytes
    assert read(backlog.merged()[LINES.name]) == [(("a", e), e, 1) for e in range(1, count + 1)]


def test_whatever_is_added_is_what_is_merged_and_counted() -> None:
    draw = random.Random(5)
    for _ in range(40):
        backlog, expected, is_whole = Backlog(), Read(), False
        for epoch in range(1, draw.randrange(2, 5 * RUN)):
            change = changes(LINES, (("a", epoch), epoch, draw.choice((1, -1))))
            if draw.random() < 0.01:
                change, expected, is_whole = whole(LINES, epoch, ("w", epoch), ("v", 1)), [], True
            expected += read(change)
            if draw.random() < 0.01:
                later = Backlog()
                later.add({LINES.name: change}, frontier(epoch), {epoch: EpochStamp("shop", Lsn(epoch), 1)}, {})
                backlog = backlog.before(later)
            else:
                backlog.add({LINES.name: change}, frontier(epoch), {epoch: EpochStamp("shop", Lsn(epoch), 1)}, {})
        merged = backlog.merged()[LINES.name]
        assert read(merged) == expected
        assert merged.whole == is_whole
        assert backlog.bytes == held(backlog)
        assert len(backlog.changes[LINES.name]) < 2 * RUN + 4
        assert backlog.frontier == frontier(epoch)


def test_what_waits_for_a_slow_sink_becomes_one_range() -> None:
    """A count that goes up by one with each epoch: only what it was and what it is are written."""
    backlog, count = Backlog({LINES.name: LINES.schema}), 20 * RUN
    for epoch in range(1, count + 1):
        change = changes(LINES, (("a", epoch - 1), epoch, -1), (("a", epoch), epoch, 1))
        backlog.add({LINES.name: change}, frontier(epoch), {epoch: EpochStamp("shop", Lsn(epoch), 1)}, {})
    assert backlog.bytes == held(backlog)
    assert len(backlog.changes[LINES.name]) == count // RUN
    assert sorted(read(backlog.merged()[LINES.name])) == [(("a", 0), count, -1), (("a", count), count, 1)]


def test_rows_that_came_and_went_leave_nothing() -> None:
    backlog = Backlog({LINES.name: LINES.schema})
    for epoch in range(1, RUN + 1):
        change = changes(LINES, (("a", 1), epoch, 1 if epoch % 2 else -1))
        backlog.add({LINES.name: change}, frontier(epoch), {}, {})
    assert read(backlog.merged()[LINES.name]) == []
    assert backlog.bytes == held(backlog)


def test_a_stamp_told_twice_is_counted_once() -> None:
    backlog = Backlog()
    for _ in range(2):
        backlog.add({}, frontier(3), {3: EpochStamp("shop", Lsn(3), 1)}, {})
    assert backlog.bytes == STAMP_BYTES
    assert Counter(backlog.merged()) == Counter()
